//! GGUF files of the Llama architecture, read as the Hugging Face layout: names, order of rows, and config.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{GgufFile, GgufTensor};
use crate::checkpoint::{Config, LoadError};

/// Where a tensor of the Hugging Face layout comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its name in the file.
    pub(crate) name: String,
    /// The order of its rows.
    pub(crate) rows: Rows,
}

/// The order of a tensor's rows in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// As in the Hugging Face layout.
    InOrder,
    /// Within each head of `dim` rows, rows `i` and `dim / 2 + i` have come to lie side by side.
    ///
    /// llama.cpp rotates neighbouring elements of a head where Hugging Face rotates those half a head apart, and its
    /// converter moves the rows of q and k accordingly. Rows move whole, whatever their encoding.
    Interleaved {
        /// Rows of a head.
        dim: usize,
    },
}

impl Rows {
    /// The row of the file that is row `row` of the Hugging Face layout.
    pub(crate) fn source(self, row: usize) -> usize {
        match self {
            Self::InOrder => row,
            Self::Interleaved { dim } => {
                let (head, within) = (row / dim, row % dim);
                let (half, pair) = (within / (dim / 2), within % (dim / 2));
                head * dim + 2 * pair + half
            }
        }
    }
}

/// See [`GgufFile::interpret`].
pub(super) fn interpret(file: &GgufFile) -> Result<(Config, BTreeMap<String, Source>), LoadError> {
    let config = config(file)?;
    let heads = config.count("num_attention_heads")?;
    let kv_heads = config.count("num_key_value_heads")?;
    let mut sources = BTreeMap::new();
    for (name, tensor) in &file.tensors {
        let path = file.file.path();
        let target = hugging_face_name(name).ok_or_else(|| {
            LoadError::tensor(path, name, "is none that a Llama model has, so the file would be misread")
        })?;
        let rows = match name.split('.').nth(2) {
            Some("attn_q") => interleaved(tensor, heads),
            Some("attn_k") => interleaved(tensor, kv_heads),
            _ => Ok(Rows::InOrder),
        };
        let source =
            Source { name: name.clone(), rows: rows.map_err(|problem| LoadError::tensor(path, name, problem))? };
        sources.insert(target, source);
    }
    Ok((config, sources))
}

fn interleaved(tensor: &GgufTensor, heads: usize) -> Result<Rows, String> {
    let rows = tensor.shape.first().copied().unwrap_or(0);
    if rows == 0 || !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
        return Err(format!("has {rows} rows, which are not {heads} heads of an even number of rows"));
    }
    Ok(Rows::Interleaved { dim: rows / heads })
}

/// The name in the Hugging Face layout; `None` for one that no Llama model has.
///
/// `rope_freqs.weight` has no counterpart there and keeps its name.
fn hugging_face_name(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some("model.embed_tokens.weight".to_owned()),
        "output_norm.weight" => return Some("model.norm.weight".to_owned()),
        "output.weight" => return Some("lm_head.weight".to_owned()),
        ROPE_FACTORS => return Some(ROPE_FACTORS.to_owned()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let (part, kind) = rest.split_once('.')?;
    // Layers are numbered in one way only, so that no two names lead to the same tensor.
    let layer: usize = layer.parse().ok().filter(|number: &usize| number.to_string() == layer)?;
    let (part, may_have_bias) = match part {
        "attn_norm" => ("input_layernorm", false),
        "ffn_norm" => ("post_attention_layernorm", false),
        "attn_q" => ("self_attn.q_proj", true),
        "attn_k" => ("self_attn.k_proj", true),
        "attn_v" => ("self_attn.v_proj", true),
        "attn_output" => ("self_attn.o_proj", true),
        "ffn_gate" => ("mlp.gate_proj", true),
        "ffn_up" => ("mlp.up_proj", true),
        "ffn_down" => ("mlp.down_proj", true),
        _ => return None,
    };
    (kind == "weight" || (kind == "bias" && may_have_bias)).then(|| format!("model.layers.{layer}.{part}.{kind}"))
}

/// Holds, for each pair of dimensions, what its rotation frequency is divided by.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The metadata as a `config.json` of the Hugging Face layout would say it.
fn config(file: &GgufFile) -> Result<Config, LoadError> {
    let fields = file.fields();
    let count = |key: &str| match fields.unsigned(key)? {
        Some(value) => Ok(value),
        None => Err(LoadError::field(fields.file, key, "is missing; it must be a whole number")),
    };
    let heads = count("llama.attention.head_count")?;
    let hidden = count("llama.embedding_length")?;
    let vocabulary = match file.tensors.get("token_embd.weight") {
        Some(tensor) => tensor.shape.first().copied().unwrap_or(0),
        None => {
            return Err(LoadError::MissingTensor {
                file: fields.file.to_owned(),
                tensor: "token_embd.weight".to_owned(),
                hint: "; every model has one, so the file is incomplete or holds something else".to_owned(),
            });
        }
    };
    if heads == 0 {
        let problem = "must be at least 1, found 0";
        return Err(LoadError::field(fields.file, "llama.attention.head_count", problem));
    }
    let head_dim = match fields.unsigned("llama.attention.key_length")? {
        Some(value) => value,
        None => fields.unsigned("llama.rope.dimension_count")?.unwrap_or(hidden / heads),
    };
    let has = |name: &str| file.tensors.contains_key(name);
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": count("llama.feed_forward_length")?,
        "num_hidden_layers": count("llama.block_count")?,
        "num_attention_heads": heads,
        "num_key_value_heads": fields.unsigned("llama.attention.head_count_kv")?.unwrap_or(heads),
        "head_dim": head_dim,
        "max_position_embeddings": count("llama.context_length")?,
        "rms_norm_eps": fields.number("llama.attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
        "rope_theta": fields.number("llama.rope.freq_base")?.unwrap_or(10000.0),
        "rope_scaling": rope_scaling(file)?,
        "tie_word_embeddings": !has("output.weight"),
        "attention_bias": has("blk.0.attn_q.bias"),
        "mlp_bias": has("blk.0.ffn_up.bias"),
        "bos_token_id": fields.unsigned("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": fields.unsigned("tokenizer.ggml.eos_token_id")?,
    });
    let config = match config {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    Ok(Config::new(fields.file, config))
}

/// How positions are stretched.
///
/// llama.cpp's converter writes Llama 3's rule as the factors that follow from it, and drops its parameters. They are
/// handed on as `{"rope_type": "factors", "tensor": "rope_freqs.weight"}`, a type that Hugging Face does not have: the
/// frequency of pair `i` is divided by element `i` of that tensor.
fn rope_scaling(file: &GgufFile) -> Result<Value, LoadError> {
    let fields = file.fields();
    if file.tensors.contains_key(ROPE_FACTORS) {
        return Ok(json!({"rope_type": "factors", "tensor": ROPE_FACTORS}));
    }
    let factor = match fields.number("llama.rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // The key that files used before there were types.
        None => fields.number("llama.rope.scale_linear")?,
    };
    let default = if factor.is_some() { "linear" } else { "none" };
    match fields.string("llama.rope.scaling.type")?.unwrap_or(default) {
        "none" => Ok(Value::Null),
        kind => Ok(json!({
            "rope_type": kind,
            "factor": factor,
            "original_max_position_embeddings":
                fields.unsigned("llama.rope.scaling.original_context_length")?,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_head_are_put_half_a_head_apart() {
        let rows = Rows::Interleaved { dim: 6 };
        let order: Vec<usize> = (0..12).map(|row| rows.source(row)).collect();
        assert_eq!(order, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }

    #[test]
    fn names_are_translated() {
        let name = |name| hugging_face_name(name);
        let expect = |target: &str| Some(target.to_owned());
        assert_eq!(name("blk.12.attn_q.weight"), expect("model.layers.12.self_attn.q_proj.weight"));
        assert_eq!(name("blk.0.ffn_down.bias"), expect("model.layers.0.mlp.down_proj.bias"));
        assert_eq!(name("token_embd.weight"), expect("model.embed_tokens.weight"));
        assert_eq!(name("output.weight"), expect("lm_head.weight"));
        for wrong in
            ["blk.01.attn_q.weight", "blk.+1.attn_q.weight", "blk.0.ffn_gate_exps.weight", "blk.0.attn_norm.bias", "x"]
        {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
