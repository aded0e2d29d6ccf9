//! Decoders of Llama's shape: pre-normalised blocks of grouped-query attention and a gated unit.

use annulus_plan::Kind;
use mlx_rs::Array;

use super::output::Output;
use super::{CacheLayer, Facts, Load, Model};
use crate::cache::Pass;
use crate::error::Result;
use crate::mlx::rounded;
use crate::nn::{Activation, Gated, Linear, Matrix, RmsNorm};
use crate::rope::Rope;
use crate::weights::{Weights, int};

/// What a config says of a decoder's shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Of hidden states.
    pub(super) width: usize,
    /// Of the gated units.
    pub(super) inner: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    /// Divides `heads`.
    pub(super) kv_heads: usize,
    /// Even.
    pub(super) head_dim: usize,
    pub(super) vocabulary: usize,
    pub(super) context: usize,
    pub(super) eps: f32,
    pub(super) attention_bias: bool,
    pub(super) mlp_bias: bool,
    /// Whether queries and keys are normalised head by head.
    pub(super) head_norms: bool,
    /// Whether the embedding serves as output projection.
    pub(super) tied: bool,
}

struct Decoder {
    embedding: Matrix,
    layers: Vec<Block>,
    norm: RmsNorm,
    output: Output,
    rope: Rope,
    facts: Facts,
}

struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: Gated,
}

struct Attention {
    queries: Linear,
    keys: Linear,
    values: Linear,
    output: Linear,
    /// Of queries and of keys.
    norms: Option<[RmsNorm; 2]>,
    heads: i32,
    kv_heads: i32,
    scale: f32,
}

/// Loads the weights of a decoder.
pub(super) fn load(weights: &Weights<'_>, shape: Shape, rope: Rope) -> Load<Box<dyn Model>> {
    let Shape { width, vocabulary, .. } = shape;
    Ok(Box::new(Decoder {
        embedding: weights.matrix("model.embed_tokens", vocabulary, width)?,
        layers: (0..shape.layers).map(|layer| Block::load(weights, shape, layer)).collect::<Load<_>>()?,
        norm: weights.rms_norm("model.norm", width, shape.eps)?,
        output: Output::load(weights, "lm_head", [vocabulary, width], shape.tied)?,
        rope,
        facts: Facts {
            cache: vec![CacheLayer::new(Kind::Full, shape.kv_heads, shape.head_dim); shape.layers],
            context: shape.context,
            vocabulary,
        },
    }))
}

impl Block {
    fn load(weights: &Weights<'_>, shape: Shape, layer: usize) -> Load<Self> {
        let path = format!("model.layers.{layer}");
        let Shape { width, inner, eps, mlp_bias, .. } = shape;
        Ok(Self {
            attention_norm: weights.rms_norm(&format!("{path}.input_layernorm"), width, eps)?,
            attention: Attention::load(weights, shape, &format!("{path}.self_attn"))?,
            mlp_norm: weights.rms_norm(&format!("{path}.post_attention_layernorm"), width, eps)?,
            mlp: weights.gated(&format!("{path}.mlp"), inner, width, mlp_bias, Activation::Silu)?,
        })
    }

    /// `[B, L, width]` to the same.
    fn forward(&self, layer: usize, x: &Array, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let attended = self.attention.attend(layer, x, &self.attention_norm, rope, pass)?;
        Ok(self.mlp.add_after(x, &self.attention.output, &attended, &self.mlp_norm)?)
    }
}

impl Attention {
    fn load(weights: &Weights<'_>, shape: Shape, path: &str) -> Load<Self> {
        let Shape { width, heads, kv_heads, head_dim, attention_bias, eps, .. } = shape;
        let project = |name: &str, heads: usize| {
            weights.linear(&format!("{path}.{name}"), heads.saturating_mul(head_dim), width, attention_bias)
        };
        let norm = |name: &str| weights.rms_norm(&format!("{path}.{name}"), head_dim, eps);
        let norms = if shape.head_norms { Some([norm("q_norm")?, norm("k_norm")?]) } else { None };
        Ok(Self {
            queries: project("q_proj", heads)?,
            keys: project("k_proj", kv_heads)?,
            values: project("v_proj", kv_heads)?,
            output: weights.linear(&format!("{path}.o_proj"), width, heads.saturating_mul(head_dim), attention_bias)?,
            norms,
            heads: int(heads),
            kv_heads: int(kv_heads),
            scale: rounded((head_dim as f64).powf(-0.5)),
        })
    }

    /// What attention over `x` normalised, `[B, L, width]`, yields before its output projection: `[B, L, heads * head_dim]`.
    fn attend(&self, layer: usize, x: &Array, norm: &RmsNorm, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let layers = [(&self.queries, self.heads), (&self.keys, self.kv_heads), (&self.values, self.kv_heads)];
        let [queries, keys, values] = Linear::project(x, Some(norm), layers)?;
        let (queries, keys) = match &self.norms {
            Some([of_queries, of_keys]) => (of_queries.forward(&queries)?, of_keys.forward(&keys)?),
            None => (queries, keys),
        };
        pass.attend(layer, &queries, &keys, values, rope, self.scale)
    }
}

impl Model for Decoder {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn forward(&self, tokens: &Array, pass: &mut Pass<'_>) -> Result<Array> {
        let mut h = self.embedding.rows(tokens)?;
        for (layer, block) in self.layers.iter().enumerate() {
            h = block.forward(layer, &h, &self.rope, pass)?;
        }
        Ok(self.norm.forward(&h)?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        self.output.logits(hidden, &self.embedding)
    }
}
