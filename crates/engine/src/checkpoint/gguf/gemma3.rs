//! GGUF files of the Gemma 3 architecture, the text model.

use serde_json::{Value, json};

use super::architecture::{Architecture, Metadata, Values};
use crate::checkpoint::LoadError;

pub(super) const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    norms: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ],
    interleaved: false,
    norm_values: Values::OneMore,
    config,
};

/// Layers from one that sees everything to the next, in every Gemma 3; files say it only when they differ.
const PATTERN: u64 = 6;

/// The base of the rotation in layers with a window, likewise.
const LOCAL_BASE: f64 = 10000.0;

/// Layers of the 27B model, the only one whose attention is not scaled by the width of a head; files do not say so.
const LAYERS_OF_27B: u64 = 62;

fn config(metadata: &Metadata<'_>) -> Result<Value, LoadError> {
    let window = metadata.unsigned("attention.sliding_window")?.filter(|window| *window > 0);
    let pattern = match window {
        Some(_) => metadata.unsigned("attention.sliding_window_pattern")?.unwrap_or(PATTERN),
        // Every layer sees everything.
        None => 1,
    };
    let scalar = match metadata.count("block_count")? {
        LAYERS_OF_27B => metadata.count("embedding_length")? / metadata.heads()?,
        _ => metadata.head_dim()?,
    };
    Ok(json!({
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": window,
        "sliding_window_pattern": pattern,
        "rope_local_base_freq": metadata.number("rope.freq_base_swa")?.unwrap_or(LOCAL_BASE),
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": metadata.number("attn_logit_softcapping")?,
        "final_logit_softcapping": metadata.number("final_logit_softcapping")?,
    }))
}
