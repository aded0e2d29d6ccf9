//! The same random model in two layouts: a folder as Hugging Face has it, and a GGUF file as llama.cpp's converter writes it.
//!
//! Names come from the gguf package (`fixtures/names`); what else the converter does to tensors is stated here.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde_json::{Value as Json, json};

use crate::gguf::{Gguf, Value};
use crate::tiny::{self, Random, Tensor};

const NAMES: &str = include_str!("../fixtures/names/names.json");
/// The layer of the names.
const LAYER: &str = ".3.";

/// A family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama.
    Llama,
    /// Qwen3, with an output projection of its own.
    Qwen3,
    /// Gemma 3: 7 layers, of which the sixth sees everything and the others 8 positions.
    Gemma3,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Llama, Self::Qwen3, Self::Gemma3];

    /// Its name in GGUF files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
        }
    }

    fn layers(self) -> usize {
        if self == Self::Gemma3 { 7 } else { 2 }
    }

    /// Tensors of the Hugging Face layout with their names in a GGUF file; those of a layer for layer 3.
    ///
    /// # Panics
    /// When the fixture is damaged.
    #[must_use]
    pub fn names(self) -> BTreeMap<String, String> {
        let mut names: BTreeMap<String, BTreeMap<String, String>> =
            serde_json::from_str(NAMES).unwrap_or_else(|error| panic!("names.json: {error}"));
        names.remove(self.name()).unwrap_or_default()
    }
}

const WIDTH: usize = 48;
const INNER: usize = 80;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const VOCABULARY: usize = 270;
const CONTEXT: usize = 128;
const EPS: f32 = 1e-6;
const THETA: f32 = 100_000.0;
const WINDOW: usize = 8;

/// A random model.
#[derive(Debug)]
pub struct Pair {
    family: Family,
    tensors: Vec<Tensor>,
}

impl Pair {
    /// A model of this family.
    #[must_use]
    pub fn new(family: Family) -> Self {
        let mut random = Random::new(3);
        let mut tensors = Vec::new();
        for name in family.names().keys() {
            // Gemma's embedding serves as output projection.
            if name == "lm_head.weight" && family != Family::Qwen3 {
                continue;
            }
            let layers = if name.contains(LAYER) { family.layers() } else { 1 };
            for layer in 0..layers {
                let name = name.replace(LAYER, &format!(".{layer}."));
                tensors.push(tensor(family, name, &mut random));
            }
        }
        Self { family, tensors }
    }

    /// Writes the folder.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_folder(&self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join("config.json"), self.config().to_string())?;
        fs::write(folder.join("tokenizer.json"), tiny::tokenizer().to_string())?;
        fs::write(folder.join("model.safetensors"), tiny::safetensors(&self.tensors))
    }

    /// `config.json`.
    #[must_use]
    pub fn config(&self) -> Json {
        let mut config = json!({
            "hidden_size": WIDTH,
            "intermediate_size": INNER,
            "num_hidden_layers": self.family.layers(),
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "eos_token_id": tiny::IM_END,
        });
        let own = match self.family {
            Family::Llama => json!({"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": true}),
            Family::Qwen3 => json!({"model_type": "qwen3", "hidden_act": "silu", "tie_word_embeddings": false}),
            Family::Gemma3 => json!({
                "model_type": "gemma3_text",
                "hidden_activation": "gelu_pytorch_tanh",
                "query_pre_attn_scalar": HEAD_DIM,
                "sliding_window": WINDOW,
                "sliding_window_pattern": 6,
                "rope_local_base_freq": 10000,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
                "tie_word_embeddings": true,
            }),
        };
        if let (Json::Object(config), Json::Object(own)) = (&mut config, own) {
            config.extend(own);
        }
        config
    }

    /// The GGUF file.
    #[must_use]
    pub fn to_gguf(&self) -> Gguf {
        let mut file = Gguf::default();
        let family = self.family.name();
        let count = |value: usize| Value::U32(u32::try_from(value).unwrap_or(u32::MAX));
        file.set("general.architecture", family.into());
        for (key, value) in [
            ("block_count", count(self.family.layers())),
            ("context_length", count(CONTEXT)),
            ("embedding_length", count(WIDTH)),
            ("feed_forward_length", count(INNER)),
            ("attention.head_count", count(HEADS)),
            ("attention.head_count_kv", count(KV_HEADS)),
            ("attention.key_length", count(HEAD_DIM)),
            ("attention.value_length", count(HEAD_DIM)),
            ("attention.layer_norm_rms_epsilon", Value::F32(EPS)),
            ("rope.freq_base", Value::F32(THETA)),
        ] {
            file.set(&format!("{family}.{key}"), value);
        }
        if self.family == Family::Gemma3 {
            file.set("gemma3.attention.sliding_window", count(WINDOW))
                .set("gemma3.rope.scaling.type", "linear".into())
                .set("gemma3.rope.scaling.factor", Value::F32(8.0));
        }
        file.set("tokenizer.ggml.model", "gpt2".into())
            .set("tokenizer.ggml.tokens", Value::Strings(tiny::tokens()))
            .set("tokenizer.ggml.token_type", Value::I32s([1; 256].into_iter().chain([3; 3]).collect()))
            .set("tokenizer.ggml.merges", Value::Strings(vec![]))
            .set("tokenizer.ggml.eos_token_id", Value::U32(tiny::IM_END));
        let names = self.family.names();
        for (name, shape, values) in &self.tensors {
            let values = self.converted(name, values);
            let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
            let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            file.tensor(&translated(&names, name), &dims, 0, data);
        }
        file
    }

    /// What the converter makes of a tensor's numbers.
    fn converted(&self, name: &str, values: &[f32]) -> Vec<f32> {
        match self.family {
            Family::Llama if name.contains("q_proj") || name.contains("k_proj") => {
                // A head's two halves come to lie row by row beside each other.
                let heads = values.chunks_exact(HEAD_DIM * WIDTH);
                let halves = heads.map(|head| head.split_at(HEAD_DIM / 2 * WIDTH));
                let pairs = halves.flat_map(|(low, high)| low.chunks(WIDTH).zip(high.chunks(WIDTH)));
                pairs.flat_map(|(low, high)| [low, high].concat()).collect()
            }
            Family::Gemma3 if name.ends_with("norm.weight") => values.iter().map(|value| value + 1.0).collect(),
            _ => values.to_vec(),
        }
    }
}

/// A random tensor of the shape that its name asks for.
fn tensor(family: Family, name: String, random: &mut Random) -> Tensor {
    let shape = match name.rsplit('.').nth(1).unwrap_or_default() {
        "embed_tokens" | "lm_head" => vec![VOCABULARY, WIDTH],
        "q_proj" => vec![HEADS * HEAD_DIM, WIDTH],
        "k_proj" | "v_proj" => vec![KV_HEADS * HEAD_DIM, WIDTH],
        "o_proj" => vec![WIDTH, HEADS * HEAD_DIM],
        "gate_proj" | "up_proj" => vec![INNER, WIDTH],
        "down_proj" => vec![WIDTH, INNER],
        "q_norm" | "k_norm" => vec![HEAD_DIM],
        _ => vec![WIDTH],
    };
    let middle = if shape.len() == 1 && family != Family::Gemma3 { 1.0 } else { 0.0 };
    let values = (0..shape.iter().product()).map(|_| middle + random.uniform() * 0.5).collect();
    (name, shape, values)
}

/// The name of a tensor of any layer in a GGUF file.
fn translated(names: &BTreeMap<String, String>, name: &str) -> String {
    if let Some(translated) = names.get(name) {
        return translated.clone();
    }
    let parts: Vec<&str> = name.split('.').collect();
    let layer = parts.get(2).copied().unwrap_or_default();
    let known = name.replacen(&format!(".{layer}."), LAYER, 1);
    names[&known].replacen(LAYER, &format!(".{layer}."), 1)
}
