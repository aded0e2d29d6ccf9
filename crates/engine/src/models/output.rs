//! From hidden states to logits.

use mlx_rs::Array;

use super::Load;
use crate::error::Result;
use crate::nn::{Linear, Matrix, softcap};
use crate::weights::Weights;

/// The last step of a model: the embedding, transposed, or a projection of its own.
#[derive(Debug)]
pub(super) struct Output {
    /// Absent when the embedding serves.
    pub(super) head: Option<Linear>,
    /// Logits are bent into the range from minus this to this.
    pub(super) cap: Option<f64>,
}

impl Output {
    /// The projection `path`, `[vocabulary, width]`, unless the embedding is `tied` to it.
    pub(super) fn load(weights: &Weights<'_>, path: &str, shape: [usize; 2], tied: bool) -> Load<Self> {
        let [vocabulary, width] = shape;
        let head = if tied { None } else { Some(weights.linear(path, vocabulary, width, false)?) };
        Ok(Self { head, cap: None })
    }

    /// `[.., width]` to `[.., vocabulary]`.
    pub(super) fn logits(&self, hidden: &Array, embedding: &Matrix) -> Result<Array> {
        let logits = match &self.head {
            Some(head) => head.forward(hidden)?,
            None => embedding.apply(hidden)?,
        };
        Ok(match self.cap {
            Some(cap) => softcap(&logits, cap)?,
            None => logits,
        })
    }
}
