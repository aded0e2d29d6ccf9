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

    /// `x` plus what the unit makes of `x` normalised.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn add_normalised(&self, x: &Array, norm: &RmsNorm) -> Result<Array> {
        match ops::feed_forward(x, norm, self) {
            Some(sum) => sum,
            None => self.down.add_to(x, &self.inner(&norm.forward(x)?)?),
        }
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
