//! GGUF files of the Qwen3 architecture, the dense models.

use serde_json::json;

use super::architecture::{Architecture, Values};

pub(super) const QWEN3: Architecture = Architecture {
    name: "qwen3",
    norms: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("ffn_norm", "post_attention_layernorm"),
    ],
    interleaved: false,
    norm_values: Values::AsStored,
    config: |_| {
        Ok(json!({
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "use_sliding_window": false,
        }))
    },
};
