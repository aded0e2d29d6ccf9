//! Llama and models of its shape: pre-normalised blocks of grouped-query attention and a gated unit.

use annulus_plan::{Heads, Kind};
use mlx_rs::Array;

use super::{CacheLayer, Model};
use crate::cache::Pass;
use crate::checkpoint::{Config, LoadError};
use crate::error::Result;
use crate::nn::{Linear, Matrix, RmsNorm, SwiGlu, join_heads, split_heads};
use crate::rope::{Rope, Scaling};
use crate::weights::Weights;

/// What the config says of a model's shape.
struct Shape {
    width: usize,
    inner: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocabulary: usize,
    context: usize,
    eps: f32,
    attention_bias: bool,
    mlp_bias: bool,
    tied: bool,
}

struct Llama {
    embedding: Matrix,
    layers: Vec<Block>,
    norm: RmsNorm,
    /// Absent when the embedding serves.
    head: Option<Linear>,
    rope: Rope,
    cache: Vec<CacheLayer>,
    context: usize,
    vocabulary: usize,
}

struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: SwiGlu,
}

struct Attention {
    queries: Linear,
    keys: Linear,
    values: Linear,
    output: Linear,
    heads: i32,
    kv_heads: i32,
    scale: f32,
}

pub(super) fn load(weights: &Weights<'_>) -> std::result::Result<Box<dyn Model>, LoadError> {
    let shape = Shape::read(weights)?;
    let Shape { width, vocabulary, .. } = shape;
    let layers =
        (0..shape.layers).map(|layer| Block::load(weights, &shape, layer)).collect::<std::result::Result<_, _>>()?;
    let head = if shape.tied { None } else { Some(weights.linear("lm_head", vocabulary, width, false)?) };
    Ok(Box::new(Llama {
        embedding: weights.matrix("model.embed_tokens", vocabulary, width)?,
        layers,
        norm: weights.rms_norm("model.norm", width, shape.eps)?,
        head,
        rope: rope(weights, &shape)?,
        cache: vec![shape.cache_layer(); shape.layers],
        context: shape.context,
        vocabulary,
    }))
}

impl Shape {
    fn read(weights: &Weights<'_>) -> std::result::Result<Self, LoadError> {
        let config = weights.config();
        let width = config.count("hidden_size")?;
        let heads = config.count("num_attention_heads")?;
        let kv_heads = config.count_or("num_key_value_heads", heads)?;
        if heads % kv_heads != 0 {
            let problem = format!("is {kv_heads}, which does not divide the {heads} of num_attention_heads");
            return Err(config.error("num_key_value_heads", problem));
        }
        let head_dim = config.count_or("head_dim", width / heads)?;
        if head_dim % 2 != 0 {
            return Err(config.error("head_dim", format!("is {head_dim}, but RoPE turns pairs: it must be even")));
        }
        let activation = config.optional_or("hidden_act", "silu".to_owned())?;
        if activation != "silu" {
            return Err(config.unsupported(&format!("hidden_act {activation:?}"), "silu"));
        }
        if let Some(kinds) = config.optional::<Vec<String>>("layer_types")?
            && kinds.iter().any(|kind| kind != "full_attention")
        {
            return Err(config.unsupported("a Llama with layer_types other than full_attention", "full_attention"));
        }
        Ok(Self {
            width,
            inner: config.count("intermediate_size")?,
            layers: config.count("num_hidden_layers")?,
            heads,
            kv_heads,
            head_dim,
            vocabulary: config.count("vocab_size")?,
            context: config.count_or("max_position_embeddings", 2048)?,
            eps: config.required("rms_norm_eps")?,
            attention_bias: config.optional_or("attention_bias", false)?,
            mlp_bias: config.optional_or("mlp_bias", false)?,
            // Libraries differ in what an absent field means, the weights do not.
            tied: config.optional("tie_word_embeddings")?.unwrap_or(!weights.checkpoint.has("lm_head.weight")),
        })
    }

    fn cache_layer(&self) -> CacheLayer {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let heads = Heads { kv_heads: count(self.kv_heads), head_dim: count(self.head_dim) };
        CacheLayer { kind: Kind::Full, heads }
    }
}

/// The rotation, with the scaling that the config names.
fn rope(weights: &Weights<'_>, shape: &Shape) -> std::result::Result<Rope, LoadError> {
    let config = weights.config();
    // Newer configs gather everything about RoPE in one object.
    let parameters = config.section("rope_parameters")?;
    let theta = match parameters.as_ref().map(|parameters| parameters.optional("rope_theta")).transpose()?.flatten() {
        Some(theta) => theta,
        None => config.optional_or("rope_theta", 10_000.0)?,
    };
    let traditional = config.optional_or("rope_traditional", false)?;
    let scaling = parameters.or(config.section("rope_scaling")?);
    let dims = i32::try_from(shape.head_dim).unwrap_or(i32::MAX);
    let rope = match scaling {
        // GGUF files hold the outcome of a scaling in place of its parameters.
        Some(scaling) if scaling.optional::<String>("rope_type")?.as_deref() == Some("factors") => {
            let factors = weights.vector(&scaling.required::<String>("tensor")?, shape.head_dim / 2)?;
            Rope::with_factors(dims, theta, traditional, &factors)
        }
        Some(scaling) => Rope::new(dims, theta, traditional, read_scaling(&scaling)?),
        None => Rope::new(dims, theta, traditional, Scaling::None),
    };
    rope.map_err(|error| config.error("rope_scaling", format!("was refused by MLX: {error}")))
}

fn read_scaling(scaling: &Config) -> std::result::Result<Scaling, LoadError> {
    let named = scaling.optional::<String>("rope_type")?.or(scaling.optional("type")?);
    match named.as_deref() {
        None | Some("default") => Ok(Scaling::None),
        Some("linear") => Ok(Scaling::Linear { factor: scaling.above_zero("factor")? }),
        Some("llama3") => {
            let (low, high) =
                (scaling.optional_or("low_freq_factor", 1.0)?, scaling.optional_or("high_freq_factor", 4.0)?);
            if high <= low {
                return Err(scaling.error("high_freq_factor", format!("is {high}, not above low_freq_factor {low}")));
            }
            Ok(Scaling::Llama3 {
                factor: scaling.above_zero("factor")?,
                low,
                high,
                original: scaling.optional_or("original_max_position_embeddings", 8192.0)?,
            })
        }
        Some(other) => Err(scaling.unsupported(&format!("rope_type {other:?}"), "default, linear, llama3")),
    }
}

impl Block {
    fn load(weights: &Weights<'_>, shape: &Shape, layer: usize) -> std::result::Result<Self, LoadError> {
        let path = format!("model.layers.{layer}");
        let Shape { width, inner, eps, mlp_bias, .. } = *shape;
        Ok(Self {
            attention_norm: weights.rms_norm(&format!("{path}.input_layernorm"), width, eps)?,
            attention: Attention::load(weights, shape, &format!("{path}.self_attn"))?,
            mlp_norm: weights.rms_norm(&format!("{path}.post_attention_layernorm"), width, eps)?,
            mlp: SwiGlu {
                gate: weights.linear(&format!("{path}.mlp.gate_proj"), inner, width, mlp_bias)?,
                up: weights.linear(&format!("{path}.mlp.up_proj"), inner, width, mlp_bias)?,
                down: weights.linear(&format!("{path}.mlp.down_proj"), width, inner, mlp_bias)?,
            },
        })
    }

    /// `[B, L, width]` to the same.
    fn forward(&self, layer: usize, x: &Array, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let h = x.add(self.attention.forward(layer, &self.attention_norm.forward(x)?, rope, pass)?)?;
        Ok(h.add(self.mlp.forward(&self.mlp_norm.forward(&h)?)?)?)
    }
}

impl Attention {
    fn load(weights: &Weights<'_>, shape: &Shape, path: &str) -> std::result::Result<Self, LoadError> {
        let Shape { width, heads, kv_heads, head_dim, attention_bias, .. } = *shape;
        let project = |name: &str, heads: usize| {
            weights.linear(&format!("{path}.{name}"), heads * head_dim, width, attention_bias)
        };
        Ok(Self {
            queries: project("q_proj", heads)?,
            keys: project("k_proj", kv_heads)?,
            values: project("v_proj", kv_heads)?,
            output: weights.linear(&format!("{path}.o_proj"), width, heads * head_dim, attention_bias)?,
            heads: i32::try_from(heads).unwrap_or(i32::MAX),
            kv_heads: i32::try_from(kv_heads).unwrap_or(i32::MAX),
            scale: (head_dim as f32).powf(-0.5),
        })
    }

    fn forward(&self, layer: usize, x: &Array, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let queries = split_heads(&self.queries.forward(x)?, self.heads)?;
        let keys = split_heads(&self.keys.forward(x)?, self.kv_heads)?;
        let values = split_heads(&self.values.forward(x)?, self.kv_heads)?;
        let attended = pass.attend(layer, &queries, &keys, values, rope, self.scale)?;
        Ok(self.output.forward(&join_heads(&attended)?)?)
    }
}

impl Model for Llama {
    fn cache_layers(&self) -> &[CacheLayer] {
        &self.cache
    }

    fn context_length(&self) -> usize {
        self.context
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn forward(&self, tokens: &Array, pass: &mut Pass<'_>) -> Result<Array> {
        let mut h = self.embedding.rows(tokens)?;
        for (layer, block) in self.layers.iter().enumerate() {
            h = block.forward(layer, &h, &self.rope, pass)?;
        }
        Ok(self.norm.forward(&h)?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        Ok(match &self.head {
            Some(head) => head.forward(hidden)?,
            None => self.embedding.apply(hidden)?,
        })
    }
}
