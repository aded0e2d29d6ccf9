//! Gemma 3, the text model: sandwiched norms, normalised heads, and sliding windows between layers of full attention.

use mlx_rs::ops::clip;
use mlx_rs::{Array, Dtype};

use super::fields::{self, Reach, Ropes};
use super::output::Output;
use super::part::TextPart;
use super::{CacheLayer, Facts, Load, Model};
use crate::cache::Pass;
use crate::checkpoint::Config;
use crate::error::Result;
use crate::mlx::{rounded, scalar};
use crate::nn::{Activation, Gated, Linear, Matrix, RmsNorm};
use crate::rope::{self, Rope, Scaling};
use crate::weights::{Weights, int};

/// What the config says of a model's shape.
struct Shape {
    width: usize,
    inner: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocabulary: usize,
    context: usize,
    eps: f32,
    scale: f32,
    reaches: Vec<Reach>,
}

struct Gemma3 {
    embedding: Matrix,
    /// What embeddings are multiplied with, in the compute type.
    embedding_scale: Array,
    layers: Vec<Block>,
    norm: RmsNorm,
    output: Output,
    ropes: Ropes,
    facts: Facts,
}

struct Block {
    reach: Reach,
    attention: Attention,
    mlp: Gated,
    norms: Norms,
}

/// Norms on both sides of attention and of the gated unit.
struct Norms {
    before_attention: RmsNorm,
    after_attention: RmsNorm,
    before_mlp: RmsNorm,
    after_mlp: RmsNorm,
}

struct Attention {
    queries: Linear,
    keys: Linear,
    values: Linear,
    output: Linear,
    query_norm: RmsNorm,
    key_norm: RmsNorm,
    heads: i32,
    kv_heads: i32,
    scale: f32,
}

pub(super) fn load(weights: &Weights<'_>) -> Load<Box<dyn Model>> {
    let part = TextPart::find(weights)?;
    let shape = Shape::read(weights, &part)?;
    let Shape { width, vocabulary, .. } = shape;
    let layers = (0..shape.reaches.len())
        .map(|layer| Block::load(weights, &shape, layer, &format!("{}.layers.{layer}", part.body)))
        .collect::<Load<_>>()?;
    let kinds = fields::kinds(&part.config, &shape.reaches)?;
    Ok(Box::new(Gemma3 {
        embedding: weights.matrix(&format!("{}.embed_tokens", part.body), vocabulary, width)?,
        embedding_scale: embedding_scale(width, weights.dtype),
        layers,
        norm: weights.rms_norm_less_one(&format!("{}.norm", part.body), width, shape.eps)?,
        output: Output::load(weights, part.head, [vocabulary, width], part.tied(weights)?)?,
        ropes: ropes(&part.config, shape.head_dim)?,
        facts: Facts {
            cache: kinds.into_iter().map(|kind| CacheLayer::new(kind, shape.kv_heads, shape.head_dim)).collect(),
            context: shape.context,
            vocabulary,
        },
    }))
}

/// The square root of the width, rounded to bfloat16 as it was in training, whatever the compute type.
fn embedding_scale(width: usize, dtype: Dtype) -> Array {
    let trained = half::bf16::from_f32(rounded((width as f64).sqrt()));
    scalar(trained.to_f64(), dtype)
}

impl Shape {
    fn read(weights: &Weights<'_>, part: &TextPart) -> Load<Self> {
        let config = &part.config;
        let layers = fields::layers(weights, config)?;
        let heads = config.count_or("num_attention_heads", 8)?;
        let kv_heads = config.count_or("num_key_value_heads", 4)?;
        fields::check_groups(config, "num_key_value_heads", heads, kv_heads)?;
        let head_dim = config.count_or("head_dim", 256)?;
        fields::check_pairs(config, "head_dim", head_dim)?;
        fields::check_activation(config, &["hidden_activation", "hidden_act"], "gelu_pytorch_tanh")?;
        fields::check_off(config, "attention_bias")?;
        fields::check_off(config, "use_bidirectional_attention")?;
        for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if let Some(cap) = config.optional::<f64>(field)? {
                return Err(config.unsupported(&format!("{field} {cap} in a Gemma 3"), "null"));
            }
        }
        let pattern = config.count_or("sliding_window_pattern", config.count_or("_sliding_window_pattern", 6)?)?;
        let scalar: f64 = config.optional_or("query_pre_attn_scalar", 256.0)?;
        if scalar <= 0.0 {
            return Err(config.error("query_pre_attn_scalar", format!("must be above 0, found {scalar}")));
        }
        Ok(Self {
            width: config.count("hidden_size")?,
            inner: config.count("intermediate_size")?,
            heads,
            kv_heads,
            head_dim,
            vocabulary: part.vocabulary(weights)?,
            context: config.count_or("max_position_embeddings", 131_072)?,
            eps: config.optional_or("rms_norm_eps", 1e-6)?,
            scale: rounded(scalar.powf(-0.5)),
            reaches: fields::reaches(config, layers, pattern)?,
        })
    }
}

/// The rotations. Newer configs have an object for each kind of layer, older ones a field for each number.
fn ropes(config: &Config, dims: usize) -> Load<Ropes> {
    let parameters = config.section("rope_parameters")?;
    let section = |name| match &parameters {
        Some(parameters) => parameters.section(name),
        None => Ok(None),
    };
    let read = |section: Option<Config>, field: &str, default: f32, older: Option<Config>| {
        let stated = section.as_ref().map_or(Ok(None), |section| section.optional("rope_theta"))?;
        let theta = stated.or(config.optional(field)?).unwrap_or(default);
        let scaling = match section.or(older) {
            Some(scaling) => rope::read_scaling(&scaling, dims)?,
            None => Scaling::None,
        };
        rope::build(config, dims, theta, false, scaling)
    };
    let older = config.section("rope_scaling")?;
    Ok(Ropes {
        full: read(section("full_attention")?, "rope_theta", 1_000_000.0, older)?,
        sliding: read(section("sliding_attention")?, "rope_local_base_freq", 10_000.0, None)?,
    })
}

impl Block {
    fn load(weights: &Weights<'_>, shape: &Shape, layer: usize, path: &str) -> Load<Self> {
        let norm = |name: &str| weights.rms_norm_less_one(&format!("{path}.{name}"), shape.width, shape.eps);
        Ok(Self {
            reach: shape.reaches[layer],
            attention: Attention::load(weights, shape, &format!("{path}.self_attn"))?,
            mlp: weights.gated(&format!("{path}.mlp"), shape.inner, shape.width, false, Activation::GeluTanh)?,
            norms: Norms {
                before_attention: norm("input_layernorm")?,
                after_attention: norm("post_attention_layernorm")?,
                before_mlp: norm("pre_feedforward_layernorm")?,
                after_mlp: norm("post_feedforward_layernorm")?,
            },
        })
    }

    /// `[B, L, width]` to the same.
    fn forward(&self, layer: usize, x: &Array, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let norms = &self.norms;
        let attended = self.attention.forward(layer, &norms.before_attention.forward(x)?, rope, pass)?;
        let h = add(x, &norms.after_attention.forward(&attended)?)?;
        let mlp = self.mlp.forward(&norms.before_mlp.forward(&h)?)?;
        add(&h, &norms.after_mlp.forward(&mlp)?)
    }
}

/// The residual sum. The model was trained in bfloat16, which reaches further than float16: there the sum is cut off.
fn add(x: &Array, y: &Array) -> Result<Array> {
    if x.dtype() != Dtype::Float16 {
        return Ok(x.add(y)?);
    }
    let largest = half::f16::MAX.to_f32();
    let sum = x.as_dtype(Dtype::Float32)?.add(y.as_dtype(Dtype::Float32)?)?;
    Ok(clip(sum, (-largest, largest))?.as_dtype(Dtype::Float16)?)
}

impl Attention {
    fn load(weights: &Weights<'_>, shape: &Shape, path: &str) -> Load<Self> {
        let Shape { width, heads, kv_heads, head_dim, eps, .. } = *shape;
        let project = |name: &str, heads: usize| {
            weights.linear(&format!("{path}.{name}"), heads.saturating_mul(head_dim), width, false)
        };
        let norm = |name: &str| weights.rms_norm_less_one(&format!("{path}.{name}"), head_dim, eps);
        Ok(Self {
            queries: project("q_proj", heads)?,
            keys: project("k_proj", kv_heads)?,
            values: project("v_proj", kv_heads)?,
            output: weights.linear(&format!("{path}.o_proj"), width, heads.saturating_mul(head_dim), false)?,
            query_norm: norm("q_norm")?,
            key_norm: norm("k_norm")?,
            heads: int(heads),
            kv_heads: int(kv_heads),
            scale: shape.scale,
        })
    }

    fn forward(&self, layer: usize, x: &Array, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let layers = [(&self.queries, self.heads), (&self.keys, self.kv_heads), (&self.values, self.kv_heads)];
        let [queries, keys, values] = Linear::project(x, None, layers)?;
        let (queries, keys) = (self.query_norm.forward(&queries)?, self.key_norm.forward(&keys)?);
        let attended = pass.attend(layer, &queries, &keys, values, rope, self.scale)?;
        Ok(self.output.forward(&attended)?)
    }
}

impl Model for Gemma3 {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn forward(&self, tokens: &Array, pass: &mut Pass<'_>) -> Result<Array> {
        let mut h = self.embedding.rows(tokens)?.multiply(&self.embedding_scale)?;
        for (layer, block) in self.layers.iter().enumerate() {
            h = block.forward(layer, &h, self.ropes.of(block.reach), pass)?;
        }
        Ok(self.norm.forward(&h)?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        self.output.logits(hidden, &self.embedding)
    }
}
