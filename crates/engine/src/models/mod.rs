//! The architectures, one file each.

mod llama;

use annulus_plan::{Heads, Kind};
use mlx_rs::Array;

use crate::cache::Pass;
use crate::checkpoint::LoadError;
use crate::error::Result;
use crate::weights::Weights;

/// What a layer keeps of each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLayer {
    /// How its columns lie.
    pub kind: Kind,
    /// The shape of a key, which is that of a value.
    pub heads: Heads,
}

/// A model whose weights are loaded.
pub trait Model {
    /// The layers that have a cache of their own, in order. [`Pass`] counts layers by this list.
    fn cache_layers(&self) -> &[CacheLayer];

    /// Positions that the model was made for.
    fn context_length(&self) -> usize;

    /// The number of logits.
    fn vocabulary(&self) -> usize;

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

type Loader = fn(&Weights<'_>) -> std::result::Result<Box<dyn Model>, LoadError>;

/// The architectures by the `model_type` of their configs.
const ARCHITECTURES: &[(&str, Loader)] = &[("llama", llama::load)];

/// Loads whichever architecture the config names.
///
/// # Errors
/// When it is not known, or its config or a tensor is not as it must be.
pub fn load(weights: &Weights<'_>) -> std::result::Result<Box<dyn Model>, LoadError> {
    let name: String = weights.config().required("model_type")?;
    match ARCHITECTURES.iter().find(|(known, _)| *known == name) {
        Some((_, loader)) => loader(weights),
        None => {
            let known: Vec<_> = ARCHITECTURES.iter().map(|(known, _)| *known).collect();
            Err(weights.config().unsupported(&format!("model_type {name:?}"), &known.join(", ")))
        }
    }
}
