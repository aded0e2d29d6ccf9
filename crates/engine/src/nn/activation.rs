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

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the formulas in float64.
    #[test]
    fn activations_are_their_formulas() {
        let inputs: Vec<f32> = (-40..=40).map(|i| i as f32 / 8.0).collect();
        let x = Array::from_slice(&inputs, &[81]);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let gelu =
            |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
        for (activation, formula) in [(Activation::Silu, &silu as &dyn Fn(f64) -> f64), (Activation::GeluTanh, &gelu)] {
            let found = activation.forward(&x).unwrap();
            for (x, found) in inputs.iter().zip(found.as_slice::<f32>()) {
                let expected = formula(f64::from(*x));
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{activation:?} {x}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_softcap_bends_without_turning_over() {
        let x = Array::from_slice(&[-1e4f32, -3.0, 0.0, 1e-3, 3.0, 1e4], &[6]);
        let capped = softcap(&x, 30.0).unwrap();
        for (x, found) in x.as_slice::<f32>().iter().zip(capped.as_slice::<f32>()) {
            let expected = 30.0 * (f64::from(*x) / 30.0).tanh();
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{x}: {found} {expected}");
        }
    }
}
