//! Functions of single numbers.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use mlx_rs::ops::{multiply, sigmoid, tanh};
use mlx_rs::transforms::compile::compile;
use mlx_rs::{Array, Device, DeviceType};

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

impl Activation {
    /// `activation(gate) * x`, number by number.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn gate(self, gate: &Array, x: &Array) -> Result<Array> {
        let plain = move |(gate, x): (&Array, &Array)| self.forward(gate)?.multiply(x);
        match self {
            Self::Silu => fused(&SILU, plain, gate, x),
            Self::GeluTanh => fused(&GELU_TANH, plain, gate, x),
        }
    }
}

type Chain = Box<dyn for<'a> FnMut((&'a Array, &'a Array)) -> Result<Array>>;

/// A chain of operations that MLX has compiled. Threads that end leave it to the process: MLX's own tables may be gone
/// before it.
type Slot = RefCell<Option<ManuallyDrop<Chain>>>;

type Key = std::thread::LocalKey<Slot>;

thread_local! {
    static SILU: Slot = const { RefCell::new(None) };
    static GELU_TANH: Slot = const { RefCell::new(None) };
    static SOFTCAP: Slot = const { RefCell::new(None) };
}

/// Runs a chain of element-wise operations: as one kernel on a GPU, where launches cost more than arithmetic (in Gemma 4 they
/// are a third of a decode step); one by one on a CPU, where compiling costs seconds and gains nothing.
fn fused(
    slot: &'static Key,
    chain: impl FnMut((&Array, &Array)) -> Result<Array> + 'static,
    a: &Array,
    b: &Array,
) -> Result<Array> {
    let mut chain = chain;
    if !matches!(Device::default().get_type()?, DeviceType::Gpu) {
        return chain((a, b));
    }
    slot.with_borrow_mut(|slot| {
        let chain = slot.get_or_insert_with(|| ManuallyDrop::new(Box::new(compile(chain, true))));
        chain((a, b))
    })
}

/// Bends logits into `(-cap, cap)`: `tanh(x / cap) * cap`.
///
/// # Errors
/// When MLX refuses.
pub fn softcap(x: &Array, cap: f64) -> Result<Array> {
    let plain = |(x, cap): (&Array, &Array)| tanh(x.divide(cap)?)?.multiply(cap);
    fused(&SOFTCAP, plain, x, &scalar(cap, x.dtype()))
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
