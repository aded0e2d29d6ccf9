//! What names and metadata of a file mean: the Hugging Face layout of its architecture.
//!
//! Names of tensors and of metadata keys are those of llama.cpp, as the `gguf` package lists them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::reader::Fields;
use super::{GgufFile, GgufTensor, Target, gemma3, llama, qwen3};
use crate::checkpoint::{Config, LoadError};

/// Where a tensor of the Hugging Face layout comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its name in the file.
    pub(crate) name: String,
    /// The order of its rows.
    pub(crate) rows: Rows,
    /// What its numbers stand for.
    pub(crate) values: Values,
}

/// The order of a tensor's rows in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// As in the Hugging Face layout.
    InOrder,
    /// Within each head of `dim` rows, rows `i` and `dim / 2 + i` have come to lie side by side.
    ///
    /// For Llama, llama.cpp rotates neighbouring elements of a head where Hugging Face rotates those half a head apart, and
    /// its converter moves the rows of q and k accordingly. Rows move whole, whatever their encoding.
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

/// What a tensor's numbers stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Themselves.
    AsStored,
    /// Themselves less one: llama.cpp's converter adds the one that Gemma's norms add to their weights.
    OneMore,
}

/// What tells the files of one architecture from those of another.
pub(super) struct Architecture {
    /// The value of `general.architecture`, with which the keys of its metadata begin.
    pub(super) name: &'static str,
    /// The norms of a layer, in the file and in the Hugging Face layout.
    pub(super) norms: &'static [(&'static str, &'static str)],
    /// Whether the rows of q and k are interleaved.
    pub(super) interleaved: bool,
    /// What the weights of norms stand for.
    pub(super) norm_values: Values,
    /// The fields of `config.json` beside those that all architectures have; `None` for one that holds `null`.
    pub(super) config: fn(&Metadata<'_>) -> Result<Value, LoadError>,
}

const ARCHITECTURES: [&Architecture; 3] = [&llama::LLAMA, &qwen3::QWEN3, &gemma3::GEMMA3];

/// Holds, for each pair of dimensions, what its rotation frequency is divided by.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The config that a file's metadata amounts to, and where each tensor of the Hugging Face layout comes from.
pub(super) fn interpret(file: &GgufFile) -> Result<(Config, BTreeMap<String, Source>), LoadError> {
    let key = "general.architecture";
    let path = file.file().path();
    let Some(name) = file.fields().string(key)? else {
        return Err(LoadError::field(path, key, "is missing; this file holds no language model"));
    };
    let Some(architecture) = ARCHITECTURES.iter().find(|architecture| architecture.name == name) else {
        return Err(LoadError::Unsupported {
            file: path.to_owned(),
            what: format!("architecture {name:?}"),
            possible: ARCHITECTURES.map(|known| format!("{:?}", known.name)).join(", "),
        });
    };
    let config = config(&Metadata { file, fields: file.fields(), architecture })?;
    let heads = config.count("num_attention_heads")?;
    let kv_heads = config.count("num_key_value_heads")?;
    let mut sources = BTreeMap::new();
    for (name, tensor) in &file.tensors {
        let wrong = |problem: String| LoadError::tensor(file.shard(tensor).path(), name, problem);
        let (target, is_norm) = architecture.hugging_face_name(name).ok_or_else(|| {
            wrong(format!(
                "is none that a model of architecture {:?} has, so the file would be misread",
                architecture.name
            ))
        })?;
        let rows = match name.split('.').nth(2).filter(|_| architecture.interleaved) {
            Some("attn_q") => interleaved(tensor, heads),
            Some("attn_k") => interleaved(tensor, kv_heads),
            _ => Ok(Rows::InOrder),
        };
        let values = if is_norm { architecture.norm_values } else { Values::AsStored };
        sources.insert(target, Source { name: name.clone(), rows: rows.map_err(wrong)?, values });
    }
    Ok((config, sources))
}

fn interleaved(tensor: &GgufTensor, heads: usize) -> Result<Rows, String> {
    let rows = tensor.shape.first().copied().unwrap_or(0);
    if rows == 0 || !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
        return Err(format!("has {rows} rows, which are not {heads} heads of an even number of rows"));
    }
    if tensor.shape.len() == 1 && !matches!(tensor.encoding.layout().target, Target::Plain(_)) {
        return Err(format!(
            "is a vector in {:?}, whose numbers cannot be put in order; F32 was expected",
            tensor.encoding
        ));
    }
    Ok(Rows::Interleaved { dim: rows / heads })
}

impl Architecture {
    /// The name in the Hugging Face layout, and whether it is a norm's weight; `None` for one that no such model has.
    ///
    /// `rope_freqs.weight` has no counterpart there and keeps its name.
    fn hugging_face_name(&self, name: &str) -> Option<(String, bool)> {
        match name {
            "token_embd.weight" => return Some(("model.embed_tokens.weight".to_owned(), false)),
            "output_norm.weight" => return Some(("model.norm.weight".to_owned(), true)),
            "output.weight" => return Some(("lm_head.weight".to_owned(), false)),
            ROPE_FACTORS => return Some((ROPE_FACTORS.to_owned(), false)),
            _ => {}
        }
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (part, kind) = rest.split_once('.')?;
        // Layers are numbered in one way only, so that no two names lead to the same tensor.
        let layer: usize = layer.parse().ok().filter(|number: &usize| number.to_string() == layer)?;
        let target = |part: &str| format!("model.layers.{layer}.{part}.{kind}");
        if let Some((_, norm)) = self.norms.iter().find(|(known, _)| *known == part) {
            return (kind == "weight").then(|| (target(norm), true));
        }
        let part = match part {
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_output" => "self_attn.o_proj",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" => "mlp.up_proj",
            "ffn_down" => "mlp.down_proj",
            _ => return None,
        };
        matches!(kind, "weight" | "bias").then(|| (target(part), false))
    }
}

/// The metadata of a file whose architecture is known.
pub(super) struct Metadata<'a> {
    file: &'a GgufFile,
    fields: Fields<'a>,
    architecture: &'static Architecture,
}

impl Metadata<'_> {
    /// A key of this architecture: `block_count` is `llama.block_count`.
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.name)
    }

    /// A whole number that may be absent.
    pub(super) fn unsigned(&self, key: &str) -> Result<Option<u64>, LoadError> {
        self.fields.unsigned(&self.key(key))
    }

    /// A whole number that must be there.
    pub(super) fn count(&self, key: &str) -> Result<u64, LoadError> {
        self.unsigned(key)?.ok_or_else(|| self.error(key, "is missing; it must be a whole number"))
    }

    /// A number that may be absent.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, LoadError> {
        self.fields.number(&self.key(key))
    }

    /// Whether the file holds this tensor.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.file.tensors.contains_key(tensor)
    }

    /// Query heads: at least 1.
    pub(super) fn heads(&self) -> Result<u64, LoadError> {
        let key = "attention.head_count";
        match self.count(key)? {
            0 => Err(self.error(key, "must be at least 1, found 0")),
            heads => Ok(heads),
        }
    }

    /// Elements of a head, for keys and values alike.
    pub(super) fn head_dim(&self) -> Result<u64, LoadError> {
        let head_dim = match self.unsigned("attention.key_length")? {
            Some(value) => value,
            None => match self.unsigned("rope.dimension_count")? {
                Some(value) => value,
                None => self.count("embedding_length")? / self.heads()?,
            },
        };
        let key = "attention.value_length";
        match self.unsigned(key)? {
            Some(values) if values != head_dim => {
                Err(self.error(key, format!("must be {head_dim}, the length of the keys; found {values}")))
            }
            _ => Ok(head_dim),
        }
    }

    /// Tokens: the rows of the embedding.
    fn vocabulary(&self) -> Result<usize, LoadError> {
        let name = "token_embd.weight";
        let tensor = self.file.tensors.get(name).ok_or_else(|| LoadError::MissingTensor {
            file: self.fields.file.to_owned(),
            tensor: name.to_owned(),
            hint: "; every model has one, so the file is incomplete or holds something else".to_owned(),
        })?;
        Ok(tensor.shape.first().copied().unwrap_or(0))
    }

    /// How positions are stretched.
    ///
    /// llama.cpp's converter writes Llama 3's rule as the factors that follow from it, and drops its parameters. They are
    /// handed on as `{"rope_type": "factors", "tensor": "rope_freqs.weight"}`, a type that Hugging Face does not have: the
    /// frequency of pair `i` is divided by element `i` of that tensor.
    fn rope_scaling(&self) -> Result<Value, LoadError> {
        if self.has(ROPE_FACTORS) {
            return Ok(json!({"rope_type": "factors", "tensor": ROPE_FACTORS}));
        }
        let factor = match self.number("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            // The key that files used before there were types.
            None => self.number("rope.scale_linear")?,
        };
        let default = if factor.is_some() { "linear" } else { "none" };
        match self.fields.string(&self.key("rope.scaling.type"))?.unwrap_or(default) {
            "none" => Ok(Value::Null),
            kind => Ok(json!({
                "rope_type": kind,
                "factor": factor,
                "original_max_position_embeddings": self.unsigned("rope.scaling.original_context_length")?,
            })),
        }
    }

    fn error(&self, key: &str, problem: impl Into<String>) -> LoadError {
        LoadError::field(self.fields.file, self.key(key), problem)
    }
}

/// The metadata as a `config.json` of the Hugging Face layout would say it.
fn config(metadata: &Metadata<'_>) -> Result<Config, LoadError> {
    let heads = metadata.heads()?;
    let common = json!({
        "vocab_size": metadata.vocabulary()?,
        "hidden_size": metadata.count("embedding_length")?,
        "intermediate_size": metadata.count("feed_forward_length")?,
        "num_hidden_layers": metadata.count("block_count")?,
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.unsigned("attention.head_count_kv")?.unwrap_or(heads),
        "head_dim": metadata.head_dim()?,
        "max_position_embeddings": metadata.count("context_length")?,
        "rms_norm_eps": metadata.number("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
        "rope_theta": metadata.number("rope.freq_base")?.unwrap_or(10000.0),
        "rope_scaling": metadata.rope_scaling()?,
        "tie_word_embeddings": !metadata.has("output.weight"),
        "attention_bias": metadata.has("blk.0.attn_q.bias"),
        "bos_token_id": metadata.fields.unsigned("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": metadata.fields.unsigned("tokenizer.ggml.eos_token_id")?,
    });
    let own = (metadata.architecture.config)(metadata)?;
    let mut fields = Map::new();
    for part in [own, common] {
        if let Value::Object(part) = part {
            fields.extend(part);
        }
    }
    Ok(Config::new(metadata.fields.file, fields))
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
        let expect = |architecture: &Architecture, name: &str, target: &str, is_norm: bool| {
            assert_eq!(architecture.hugging_face_name(name), Some((target.to_owned(), is_norm)), "{name}");
        };
        for architecture in ARCHITECTURES {
            expect(architecture, "blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight", false);
            expect(architecture, "blk.0.ffn_down.bias", "model.layers.0.mlp.down_proj.bias", false);
            expect(architecture, "token_embd.weight", "model.embed_tokens.weight", false);
            expect(architecture, "output.weight", "lm_head.weight", false);
            expect(architecture, "output_norm.weight", "model.norm.weight", true);
            expect(architecture, "blk.3.attn_norm.weight", "model.layers.3.input_layernorm.weight", true);
            for wrong in [
                "blk.01.attn_q.weight",
                "blk.+1.attn_q.weight",
                "blk.0.ffn_gate_exps.weight",
                "blk.0.attn_norm.bias",
                "blk.0.attn_q.scale",
                "x",
            ] {
                assert_eq!(architecture.hugging_face_name(wrong), None, "{wrong}");
            }
        }
        assert_eq!(llama::LLAMA.hugging_face_name("blk.0.attn_q_norm.weight"), None);
        assert_eq!(qwen3::QWEN3.hugging_face_name("blk.0.post_ffw_norm.weight"), None);
    }
}
