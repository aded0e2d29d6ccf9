//! What a config says of a Gemma 4's shape, layer by layer.

use super::super::fields::{self, Reach};
use super::super::part::TextPart;
use super::super::{CacheLayer, Load};
use crate::checkpoint::Config;
use crate::weights::Weights;

/// The shape of a model.
#[derive(Debug)]
pub(super) struct Shape {
    /// Of hidden states.
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) vocabulary: usize,
    pub(super) context: usize,
    pub(super) eps: f32,
    pub(super) layers: Vec<Layer>,
    /// One a layer that has a cache of its own.
    pub(super) cache: Vec<CacheLayer>,
    pub(super) per_layer: Option<PerLayer>,
    pub(super) experts: Option<Experts>,
    /// Bounds the logits.
    pub(super) cap: Option<f64>,
}

/// The shape of one layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer {
    pub(super) reach: Reach,
    pub(super) head_dim: usize,
    pub(super) kv_heads: usize,
    /// Whether values are made of the projected keys, so that they have no projection of their own.
    pub(super) keys_serve_as_values: bool,
    pub(super) columns: Columns,
    /// Of the gated unit.
    pub(super) inner: usize,
}

/// Whose columns a layer attends to; caches are numbered by the layers that have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Columns {
    /// Those of its own cache.
    Own(usize),
    /// Those that an earlier layer wrote to this cache.
    Shared(usize),
}

/// The inputs that each layer has beside the hidden states.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerLayer {
    pub(super) width: usize,
    pub(super) vocabulary: usize,
}

/// The mixture of experts beside each gated unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Experts {
    pub(super) count: usize,
    /// How many of them a token runs through.
    pub(super) chosen: usize,
    pub(super) inner: usize,
}

impl Shape {
    pub(super) fn read(weights: &Weights<'_>, part: &TextPart) -> Load<Self> {
        let config = &part.config;
        check_supported(config)?;
        let heads = config.count("num_attention_heads")?;
        let layers = layers(weights, config, heads)?;
        let reaches: Vec<Reach> = layers.iter().map(|layer| layer.reach).collect();
        let owners = fields::kinds(config, &reaches)?.into_iter().zip(&layers);
        let owners = owners.filter(|(_, layer)| matches!(layer.columns, Columns::Own(_)));
        let cache = owners.map(|(kind, layer)| CacheLayer::new(kind, layer.kv_heads, layer.head_dim)).collect();
        let vocabulary = part.vocabulary(weights)?;
        Ok(Self {
            width: config.count("hidden_size")?,
            heads,
            vocabulary,
            context: config.count_or("max_position_embeddings", 131_072)?,
            eps: config.optional_or("rms_norm_eps", 1e-6)?,
            cache,
            layers,
            per_layer: PerLayer::read(weights, part, vocabulary)?,
            experts: Experts::read(config)?,
            cap: match config.optional::<f64>("final_logit_softcapping")? {
                Some(cap) if cap <= 0.0 => {
                    return Err(config.error("final_logit_softcapping", format!("must be above 0, found {cap}")));
                }
                cap => cap,
            },
        })
    }

    /// The head width of the layers of one reach, which [`layers`] has found to be the same; one pair when there are none.
    pub(super) fn head_dim(&self, reach: Reach) -> usize {
        self.layers.iter().find(|layer| layer.reach == reach).map_or(2, |layer| layer.head_dim)
    }
}

fn check_supported(config: &Config) -> Load<()> {
    fields::check_activation(config, &["hidden_activation", "hidden_act"], "gelu_pytorch_tanh")?;
    fields::check_off(config, "attention_bias")?;
    match config.optional::<String>("use_bidirectional_attention")?.as_deref() {
        // Of images only, and there are none.
        None | Some("vision") => Ok(()),
        Some(other) => Err(config.unsupported(&format!("use_bidirectional_attention {other:?}"), "null, \"vision\"")),
    }
}

fn layers(weights: &Weights<'_>, config: &Config, heads: usize) -> Load<Vec<Layer>> {
    let count = fields::layers(weights, config)?;
    let reaches = fields::reaches(config, count, 6)?;
    let columns = columns(config, &reaches)?;
    let inner = config.count("intermediate_size")?;
    let widened = if config.optional_or("use_double_wide_mlp", false)? { 2 } else { 1 };
    let layers: Vec<Layer> = (0..count)
        .map(|layer| {
            let reach = reaches[layer];
            let HeadShape { dim, kv, keys_serve_as_values } = HeadShape::read(config, layer, reach, heads)?;
            let factor = if matches!(columns[layer], Columns::Shared(_)) { widened } else { 1 };
            let inner = inner.saturating_mul(factor);
            Ok(Layer { reach, head_dim: dim, kv_heads: kv, keys_serve_as_values, columns: columns[layer], inner })
        })
        .collect::<Load<_>>()?;
    let first = |reach| layers.iter().find(|layer| layer.reach == reach);
    match layers.iter().find(|layer| first(layer.reach).is_some_and(|first| first.head_dim != layer.head_dim)) {
        Some(_) => Err(config.unsupported("a head_dim that differs among layers of one type", "one a layer type")),
        None => Ok(layers),
    }
}

/// Whose columns each layer attends to: the last `num_kv_shared_layers` use those of the last layer before them that is of
/// their type.
fn columns(config: &Config, reaches: &[Reach]) -> Load<Vec<Columns>> {
    let field = "num_kv_shared_layers";
    let shared: usize = config.optional_or(field, 0)?;
    let Some(owners) = reaches.len().checked_sub(shared).filter(|owners| *owners > 0) else {
        let problem = format!("is {shared}, but of {} layers at least one must have a cache", reaches.len());
        return Err(config.error(field, problem));
    };
    let donor = |layer: usize| {
        let donor = (0..owners).rev().find(|owner| reaches[*owner] == reaches[layer]);
        donor.map(Columns::Shared).ok_or_else(|| {
            let problem = format!(
                "is {shared}, so layer {layer} shares another layer's keys and values, but none of the first {owners} is \
                 of its type"
            );
            config.error(field, problem)
        })
    };
    (0..reaches.len()).map(|layer| if layer < owners { Ok(Columns::Own(layer)) } else { donor(layer) }).collect()
}

/// The heads of one layer.
struct HeadShape {
    dim: usize,
    kv: usize,
    keys_serve_as_values: bool,
}

impl HeadShape {
    /// Full layers have heads of their own width and, where keys serve as values, number. Newer configs say so layer by
    /// layer.
    fn read(config: &Config, layer: usize, reach: Reach, heads: usize) -> Load<Self> {
        let full = reach == Reach::Full;
        let keys_serve_as_values = full && config.optional_or("attention_k_eq_v", false)?;
        let own = match config.section("per_layer_config")? {
            Some(layers) => layers.section(&layer.to_string())?,
            None => None,
        };
        let stated = |field| match &own {
            Some(own) => own.optional::<usize>(field),
            None => Ok(None),
        };
        let (field, default) = if full { ("global_head_dim", 512) } else { ("head_dim", 256) };
        let dim = match stated("head_dim")? {
            Some(dim) => dim,
            None => config.count_or(field, default)?,
        };
        if dim == 0 {
            return Err(config.error("per_layer_config", format!("gives layer {layer} a head_dim of 0")));
        }
        fields::check_pairs(config, field, dim)?;
        let common = config.count_or("num_key_value_heads", 4)?;
        let field = if keys_serve_as_values { "num_global_key_value_heads" } else { "num_key_value_heads" };
        let kv = match stated("num_key_value_heads")? {
            Some(kv) => kv.max(1),
            None => config.count_or(field, common)?,
        };
        fields::check_groups(config, field, heads, kv)?;
        Ok(Self { dim, kv, keys_serve_as_values })
    }
}

impl PerLayer {
    /// Whether there are such inputs is what the weights tell: configs of models without them say 0, null or nothing.
    fn read(weights: &Weights<'_>, part: &TextPart, vocabulary: usize) -> Load<Option<Self>> {
        let config = &part.config;
        let there = weights.checkpoint.has(&format!("{}.embed_tokens_per_layer.weight", part.body));
        let width = config.optional_or("hidden_size_per_layer_input", if there { 256 } else { 0 })?;
        if width == 0 {
            return Ok(None);
        }
        let field = "vocab_size_per_layer_input";
        let rows = config.count_or(field, vocabulary)?;
        if rows < vocabulary {
            let problem = format!("is {rows}, below the {vocabulary} of vocab_size: each token needs a row");
            return Err(config.error(field, problem));
        }
        Ok(Some(Self { width, vocabulary: rows }))
    }
}

impl Experts {
    fn read(config: &Config) -> Load<Option<Self>> {
        if !config.optional_or("enable_moe_block", false)? {
            return Ok(None);
        }
        let (count, chosen) = (config.count("num_experts")?, config.count("top_k_experts")?);
        if chosen > count {
            let problem = format!("is {chosen}, but there are only the {count} of num_experts");
            return Err(config.error("top_k_experts", problem));
        }
        Ok(Some(Self { count, chosen, inner: config.count("moe_intermediate_size")? }))
    }
}
