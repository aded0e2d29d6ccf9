//! Normalisation.

use mlx_rs::Array;

use crate::mlx::Result;
use crate::ops;

/// Root-mean-square normalisation over the last axis.
#[derive(Debug)]
pub struct RmsNorm {
    /// `[width]`, the learned factor; a norm without one only normalises.
    pub weight: Option<Array>,
    /// Added to the mean of the squares.
    pub eps: f32,
}

impl RmsNorm {
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    ///
    /// # Errors
    /// When the widths differ.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        ops::chosen().rms_norm(x, self.weight.as_ref(), self.eps)
    }
}
