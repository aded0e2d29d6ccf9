//! The feed-forward layer of today's models.

use mlx_rs::Array;

use super::{Activation, Linear, RmsNorm};
use crate::mlx::Result;
use crate::ops;

/// A gated linear unit (Shazeer, 2020): `down(activation(gate(x)) * up(x))`.
#[derive(Debug)]
pub struct Gated {
    /// `[inner, width]`.
    pub gate: Linear,
    /// `[inner, width]`.
    pub up: Linear,
    /// `[width, inner]`.
    pub down: Linear,
    /// What the gate is bent with.
    pub activation: Activation,
}

impl Gated {
    /// Applies the unit.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        self.down.forward(&self.inner(x)?)
    }

    /// `h` plus what the unit makes of `h` normalised, where `h` is `x` plus what `output` makes of `attended`: what follows
    /// attention in a layer.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn add_after(&self, x: &Array, output: &Linear, attended: &Array, norm: &RmsNorm) -> Result<Array> {
        if let Some(sum) = ops::feed_forward(x, output, attended, norm, self) {
            return sum;
        }
        let h = output.add_to(x, attended)?;
        self.down.add_to(&h, &self.inner(&norm.forward(&h)?)?)
    }

    /// `activation(gate(x)) * up(x)`.
    fn inner(&self, x: &Array) -> Result<Array> {
        if let Some(inner) = ops::gate(x, self) {
            return inner;
        }
        let (gate, up) = (self.gate.forward(x)?, self.up.forward(x)?);
        self.activation.gate(&gate, &up)
    }
}
