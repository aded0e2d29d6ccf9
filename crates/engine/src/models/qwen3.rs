//! Qwen3, the dense models: Llama's shape, with queries and keys normalised head by head.

use super::dense::{self, Shape};
use super::{Load, Model, fields};
use crate::rope;
use crate::weights::Weights;

pub(super) fn load(weights: &Weights<'_>) -> Load<Box<dyn Model>> {
    let config = weights.config();
    let layers = fields::layers(weights, config)?;
    let heads = config.count("num_attention_heads")?;
    let kv_heads = config.count("num_key_value_heads")?;
    fields::check_groups(config, "num_key_value_heads", heads, kv_heads)?;
    let head_dim = config.count_or("head_dim", 128)?;
    fields::check_pairs(config, "head_dim", head_dim)?;
    fields::check_activation(config, &["hidden_act"], "silu")?;
    fields::check_off(config, "use_sliding_window")?;
    fields::check_all_full(config, layers)?;
    let shape = Shape {
        width: config.count("hidden_size")?,
        inner: config.count("intermediate_size")?,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocabulary: config.count("vocab_size")?,
        context: config.count_or("max_position_embeddings", 32_768)?,
        eps: config.required("rms_norm_eps")?,
        attention_bias: config.optional_or("attention_bias", false)?,
        mlp_bias: false,
        head_norms: true,
        tied: fields::tied(weights, config, "lm_head")?,
    };
    dense::load(weights, shape, rope::read(weights, config, head_dim, None)?)
}
