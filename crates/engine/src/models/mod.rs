//! The architectures, one file each.

mod dense;
mod fields;
mod gemma3;
mod gemma4;
mod llama;
mod output;
mod part;
mod qwen3;

use annulus_plan::{Heads, Kind};
use mlx_rs::Array;

use crate::cache::Pass;
use crate::checkpoint::LoadError;
use crate::error::Result;
use crate::weights::Weights;

pub(crate) use part::{embedding_name, multiplied};

/// What a layer keeps of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLayer {
    /// How its columns lie.
    pub kind: Kind,
    /// The shape of a key, which is that of a value.
    pub heads: Heads,
}

impl CacheLayer {
    /// A layer with so many heads of keys and values, of this width each.
    fn new(kind: Kind, kv_heads: usize, head_dim: usize) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { kind, heads: Heads { kv_heads: count(kv_heads), head_dim: count(head_dim) } }
    }
}

/// What others must know of a model.
#[derive(Debug)]
pub struct Facts {
    /// The layers that have a cache of their own, in order. [`Pass`] counts layers by this list.
    pub cache: Vec<CacheLayer>,
    /// Positions that the model was made for.
    pub context: usize,
    /// The number of logits.
    pub vocabulary: usize,
}

/// A model whose weights are loaded.
pub trait Model {
    /// What others must know of it.
    fn facts(&self) -> &Facts;

    /// Runs `tokens`, `[B, L]` of any integer type, through all layers: the last hidden states, `[B, L, width]`.
    ///
    /// # Errors
    /// When MLX or the plan refuses the step. The cache is as it was until the pass is adopted.
    fn forward(&self, tokens: &Array, pass: &mut Pass<'_>) -> Result<Array>;

    /// The logits of hidden states: `[.., width]` to `[.., vocabulary]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    fn logits(&self, hidden: &Array) -> Result<Array>;
}

/// The result of loading.
type Load<T> = std::result::Result<T, LoadError>;

type Loader = fn(&Weights<'_>) -> Load<Box<dyn Model>>;

/// The architectures by the `model_type` of their configs.
const ARCHITECTURES: &[(&str, Loader)] = &[
    ("gemma3", gemma3::load),
    ("gemma3_text", gemma3::load),
    ("gemma4", gemma4::load),
    ("gemma4_text", gemma4::load),
    ("gemma4_unified", gemma4::load),
    ("gemma4_unified_text", gemma4::load),
    ("llama", llama::load),
    ("qwen3", qwen3::load),
];

/// Loads whichever architecture the config names.
///
/// # Errors
/// When it is not known, or its config or a tensor is not as it must be.
pub fn load(weights: &Weights<'_>) -> Load<Box<dyn Model>> {
    let name: String = weights.config().required("model_type")?;
    // A scheme of another library is better named than its tensors missed.
    weights.config().quantization_section()?;
    match ARCHITECTURES.iter().find(|(known, _)| *known == name) {
        Some((_, loader)) => loader(weights),
        None => {
            let known: Vec<_> = ARCHITECTURES.iter().map(|(known, _)| *known).collect();
            Err(weights.config().unsupported(&format!("model_type {name:?}"), &known.join(", ")))
        }
    }
}
