//! Functions of single numbers.

use mlx_rs::Array;
use mlx_rs::ops::{multiply, sigmoid, tanh};

use crate::mlx::{Result, scalar};

/// What a gated unit bends its gate with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)` (Elfwing et al., 2017).
    Silu,
    /// The approximation of `x * Phi(x)` by `tanh` (Hendrycks and Gimpel, 2016).
    GeluTanh,
}

impl Activation {
    /// Applies the function to each number. The order of operations is that of MLX's own layers: in half types every
    /// operation rounds.
    ///
    /// # Errors
    /// When MLX refuses.
    pub fn forward(self, x: &Array) -> Result<Array> {
        match self {
            Self::Silu => multiply(x, sigmoid(x)?),
            Self::GeluTanh => {
                let number = |value| scalar(value, x.dtype());
                let cube = number(0.044715).multiply(x.power(number(3.0))?)?;
                let inner = number((2.0 / std::f64::consts::PI).sqrt()).multiply(x.add(cube)?)?;
                number(0.5).multiply(x)?.multiply(number(1.0).add(tanh(inner)?)?)
            }
        }
    }
}

/// Bends logits into `(-cap, cap)`: `tanh(x / cap) * cap`.
///
/// # Errors
/// When MLX refuses.
pub fn softcap(x: &Array, cap: f64) -> Result<Array> {
    let cap = scalar(cap, x.dtype());
    tanh(x.divide(&cap)?)?.multiply(&cap)
}
