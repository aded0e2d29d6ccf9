//! The feed-forward layer of today's models.

use mlx_rs::Array;

use super::{Activation, Linear};
use crate::mlx::Result;

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
        let gate = self.activation.forward(&self.gate.forward(x)?)?;
        self.down.forward(&gate.multiply(self.up.forward(x)?)?)
    }
}
