//! What llama.cpp's converter makes of a folder in the Hugging Face layout.
//!
//! Names of tensors come from the gguf package (`fixtures/names`); what else the converter does is stated here.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::gguf::{Gguf, Value};
use crate::tiny::{self, Tensor};

const NAMES: &str = include_str!("../fixtures/names/names.json");
/// The layer of the names.
const LAYER: &str = ".3.";

/// Fields of `config.json` with the keys that they become.
const KEYS: [(&str, &str); 13] = [
    ("num_hidden_layers", "block_count"),
    ("max_position_embeddings", "context_length"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("head_dim", "attention.value_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("rope_theta", "rope.freq_base"),
    ("sliding_window", "attention.sliding_window"),
    ("sliding_window_pattern", "attention.sliding_window_pattern"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
];

/// The tensors of an architecture in the Hugging Face layout, with their names in a GGUF file; those of a layer for layer 3.
///
/// # Panics
/// When the architecture is not in the fixture.
#[must_use]
pub fn names(architecture: &str) -> BTreeMap<String, String> {
    let names: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(NAMES).unwrap_or_else(|error| panic!("names.json: {error}"));
    names[architecture].clone()
}

/// The GGUF file of a model with the tokenizer of [`tiny`], in float32.
///
/// # Panics
/// When the model is of an architecture or has a tensor that the converter does not know.
#[must_use]
pub fn convert(config: &Json, tensors: &[Tensor]) -> Gguf {
    let architecture = config["model_type"].as_str().unwrap_or_default().trim_end_matches("_text");
    let mut file = Gguf::default();
    file.set("general.architecture", architecture.into());
    for (field, key) in KEYS {
        match &config[field] {
            Json::Null => {}
            number => _ = file.set(&format!("{architecture}.{key}"), metadata(number)),
        }
    }
    if let Some(scaling) = config["rope_scaling"].as_object() {
        let kind = scaling["rope_type"].as_str().unwrap_or_default();
        file.set(&format!("{architecture}.rope.scaling.type"), kind.into())
            .set(&format!("{architecture}.rope.scaling.factor"), metadata(&scaling["factor"]));
    }
    file.set("tokenizer.ggml.model", "gpt2".into())
        .set("tokenizer.ggml.tokens", Value::Strings(tiny::tokens()))
        .set("tokenizer.ggml.token_type", Value::I32s([1; 256].into_iter().chain([3; 3]).collect()))
        .set("tokenizer.ggml.merges", Value::Strings(vec![]))
        .set("tokenizer.ggml.eos_token_id", Value::U32(tiny::IM_END));
    let names = names(architecture);
    let heads = |field: &str| config[field].as_u64().and_then(|heads| usize::try_from(heads).ok()).unwrap_or(1);
    for (name, shape, values) in tensors {
        let values = match (architecture, name) {
            ("llama", name) if name.contains("q_proj") => interleaved(values, heads("num_attention_heads"), shape[1]),
            ("llama", name) if name.contains("k_proj") => interleaved(values, heads("num_key_value_heads"), shape[1]),
            ("gemma3", name) if name.ends_with("norm.weight") => values.iter().map(|value| value + 1.0).collect(),
            _ => values.clone(),
        };
        let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        file.tensor(&translated(&names, name), &dims, 0, data);
    }
    file
}

/// A number as the converter writes it.
#[allow(clippy::cast_possible_truncation, reason = "float32 is what the format has")]
fn metadata(number: &Json) -> Value {
    match number.as_u64().and_then(|number| u32::try_from(number).ok()) {
        Some(whole) => Value::U32(whole),
        None => Value::F32(number.as_f64().unwrap_or(f64::NAN) as f32),
    }
}

/// The two halves of each head's rows, row by row beside each other.
fn interleaved(values: &[f32], heads: usize, columns: usize) -> Vec<f32> {
    let heads = values.chunks_exact(values.len() / heads);
    let halves = heads.map(|head| head.split_at(head.len() / 2));
    let pairs = halves.flat_map(|(low, high)| low.chunks(columns).zip(high.chunks(columns)));
    pairs.flat_map(|(low, high)| [low, high].concat()).collect()
}

/// The name of a tensor of any layer in a GGUF file.
fn translated(names: &BTreeMap<String, String>, name: &str) -> String {
    if let Some(translated) = names.get(name) {
        return translated.clone();
    }
    let layer = name.split('.').nth(2).unwrap_or_default();
    let known = name.replacen(&format!(".{layer}."), LAYER, 1);
    names[&known].replacen(LAYER, &format!(".{layer}."), 1)
}
