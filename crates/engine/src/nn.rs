//! The layers that models are made of.

use mlx_rs::ops::{addmm, dequantize, multiply, quantized_matmul, sigmoid};
use mlx_rs::{Array, fast};

use crate::mlx::Result;

/// A matrix of weights, one row an output.
#[derive(Debug)]
pub enum Matrix {
    /// `[outputs, inputs]`, kept transposed, so that no step has to.
    Dense {
        /// `[inputs, outputs]`, a view of the rows as they are stored.
        transposed: Array,
    },
    /// MLX's affine groups.
    Affine {
        /// `[outputs, inputs * bits / 32]`, unsigned 32-bit words.
        packed: Array,
        /// `[outputs, inputs / group_size]`.
        scales: Array,
        /// Like `scales`.
        biases: Array,
        /// Neighbouring inputs that share a scale.
        group_size: i32,
        /// Bits of an element.
        bits: i32,
    },
}

impl Matrix {
    /// `x * transpose(weights)`: `[.., inputs]` becomes `[.., outputs]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn apply(&self, x: &Array) -> Result<Array> {
        match self {
            Self::Dense { transposed } => x.matmul(transposed),
            Self::Affine { packed, scales, biases, group_size, bits } => {
                quantized_matmul(x, packed, scales, biases, true, *group_size, *bits)
            }
        }
    }

    /// The rows with these indices: `[..]` becomes `[.., inputs]`.
    ///
    /// # Errors
    /// When an index has no row.
    pub fn rows(&self, indices: &Array) -> Result<Array> {
        match self {
            Self::Dense { transposed } => transposed.t().take_axis(indices, 0),
            Self::Affine { packed, scales, biases, group_size, bits } => dequantize(
                packed.take_axis(indices, 0)?,
                scales.take_axis(indices, 0)?,
                &biases.take_axis(indices, 0)?,
                *group_size,
                *bits,
            ),
        }
    }
}

/// A linear layer.
#[derive(Debug)]
pub struct Linear {
    /// The weights.
    pub weights: Matrix,
    /// `[outputs]`, where the layer has one.
    pub bias: Option<Array>,
}

impl Linear {
    /// `x * transpose(weights) + bias`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        match (&self.weights, &self.bias) {
            (Matrix::Dense { transposed }, Some(bias)) => addmm(bias, x, transposed, None, None),
            (weights, Some(bias)) => weights.apply(x)?.add(bias),
            (weights, None) => weights.apply(x),
        }
    }
}

/// Root-mean-square normalisation over the last axis, with a learned factor.
#[derive(Debug)]
pub struct RmsNorm {
    /// `[width]`.
    pub weight: Array,
    /// Added to the mean of the squares.
    pub eps: f32,
}

impl RmsNorm {
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    ///
    /// # Errors
    /// When the widths differ.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        fast::rms_norm(x, Some(&self.weight), self.eps)
    }
}

/// The gated unit of Llama and its kin: `down(silu(gate(x)) * up(x))`, with `silu(x) = x * sigmoid(x)`.
#[derive(Debug)]
pub struct SwiGlu {
    /// `[inner, width]`.
    pub gate: Linear,
    /// `[inner, width]`.
    pub up: Linear,
    /// `[width, inner]`.
    pub down: Linear,
}

impl SwiGlu {
    /// Applies the unit.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let gate = self.gate.forward(x)?;
        let silu = multiply(&gate, sigmoid(&gate)?)?;
        self.down.forward(&multiply(silu, self.up.forward(x)?)?)
    }
}

/// `[B, L, heads * dim]` to `[B, heads, L, dim]`.
///
/// # Errors
/// When the last axis is no multiple of `heads`.
pub fn split_heads(x: &Array, heads: i32) -> Result<Array> {
    let (b, l) = (x.dim(0), x.dim(1));
    x.reshape(&[b, l, heads, -1])?.transpose_axes(&[0, 2, 1, 3])
}

/// `[B, heads, L, dim]` to `[B, L, heads * dim]`.
///
/// # Errors
/// When the array has not four axes.
pub fn join_heads(x: &Array) -> Result<Array> {
    let (b, l) = (x.dim(0), x.dim(2));
    x.transpose_axes(&[0, 2, 1, 3])?.reshape(&[b, l, -1])
}
