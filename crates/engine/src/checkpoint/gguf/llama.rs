//! GGUF files of the Llama architecture, and of models of its shape that are written as such.

use serde_json::json;

use super::architecture::{Architecture, Values};

pub(super) const LLAMA: Architecture = Architecture {
    name: "llama",
    norms: &[("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")],
    interleaved: true,
    norm_values: Values::AsStored,
    config: |metadata| {
        Ok(json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "mlp_bias": metadata.has("blk.0.ffn_up.bias"),
        }))
    },
};
