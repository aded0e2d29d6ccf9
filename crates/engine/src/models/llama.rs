//! Llama and models of its shape.

use super::dense::{self, Shape};
use super::{Load, Model, fields};
use crate::rope;
use crate::weights::Weights;

pub(super) fn load(weights: &Weights<'_>) -> Load<Box<dyn Model>> {
    let config = weights.config();
    let width = config.count("hidden_size")?;
    let layers = fields::layers(weights, config)?;
    let heads = config.count("num_attention_heads")?;
    let kv_heads = config.count_or("num_key_value_heads", heads)?;
    fields::check_groups(config, "num_key_value_heads", heads, kv_heads)?;
    let head_dim = config.count_or("head_dim", width / heads)?;
    fields::check_pairs(config, "head_dim", head_dim)?;
    fields::check_activation(config, &["hidden_act"], "silu")?;
    fields::check_all_full(config, layers)?;
    let shape = Shape {
        width,
        inner: config.count("intermediate_size")?,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocabulary: config.count("vocab_size")?,
        context: config.count_or("max_position_embeddings", 2048)?,
        eps: config.required("rms_norm_eps")?,
        attention_bias: config.optional_or("attention_bias", false)?,
        mlp_bias: config.optional_or("mlp_bias", false)?,
        head_norms: false,
        tied: fields::tied(weights, config, "lm_head")?,
    };
    dense::load(weights, shape, rope::read(weights, config, head_dim, Some(10_000.0))?)
}
