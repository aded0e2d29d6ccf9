//! Matrices of weights, in whatever form they are kept, and what multiplies with them.

use mlx_rs::ops::{addmm, dequantize, quantized_matmul};
use mlx_rs::{Array, Dtype};

use super::{RmsNorm, split_heads};
use crate::mlx::Result;
use crate::ops::{self, Panels};

/// A matrix of weights, one row an output.
#[derive(Debug)]
pub enum Matrix {
    /// `[outputs, inputs]`, kept transposed, so that no step has to.
    Dense {
        /// `[inputs, outputs]`, a view of the rows as they are stored.
        transposed: Array,
    },
    /// MLX's affine groups.
    Affine(Affine),
    /// Affine groups in the layout of this project's kernels.
    Panels(Panels),
}

/// Weights in MLX's affine groups; the leading axes are those of the matrix, or of the stack of matrices.
#[derive(Debug)]
pub struct Affine {
    /// `[.., outputs, inputs * bits / 32]`, unsigned 32-bit words.
    pub packed: Array,
    /// `[.., outputs, inputs / group_size]`.
    pub scales: Array,
    /// Like `scales`.
    pub biases: Array,
    /// Neighbouring inputs that share a scale.
    pub group_size: i32,
    /// Bits of an element.
    pub bits: i32,
}

impl Matrix {
    /// `x * transpose(weights)`: `[.., inputs]` becomes `[.., outputs]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn apply(&self, x: &Array) -> Result<Array> {
        match self {
            Self::Dense { transposed } => x.matmul(transposed),
            Self::Affine(Affine { packed, scales, biases, group_size, bits }) => {
                quantized_matmul(x, packed, scales, biases, true, *group_size, *bits)
            }
            Self::Panels(panels) => panels.apply(x, None, None),
        }
    }

    /// The rows with these indices: `[..]` becomes `[.., inputs]`.
    ///
    /// # Errors
    /// When an index has no row.
    pub fn rows(&self, indices: &Array) -> Result<Array> {
        match self {
            Self::Dense { transposed } => transposed.t().take_axis(indices, 0),
            Self::Affine(Affine { packed, scales, biases, group_size, bits }) => dequantize(
                packed.take_axis(indices, 0)?,
                scales.take_axis(indices, 0)?,
                &biases.take_axis(indices, 0)?,
                *group_size,
                *bits,
            ),
            Self::Panels(panels) => panels.rows(indices),
        }
    }
}

/// Rows that are looked up and never multiplied with. They stay as the checkpoint stores them: such a table may be larger
/// than the rest of its model, and a step reads a few rows of it.
#[derive(Debug)]
pub struct Table {
    /// The rows.
    pub rows: Matrix,
    /// The type that rows are handed out in.
    pub dtype: Dtype,
}

impl Table {
    /// The rows with these indices: `[..]` becomes `[.., inputs]`.
    ///
    /// # Errors
    /// When an index has no row.
    pub fn rows(&self, indices: &Array) -> Result<Array> {
        self.rows.rows(indices)?.as_dtype(self.dtype)
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
            (Matrix::Panels(panels), bias) => panels.apply(x, bias.as_ref(), None),
            (weights, Some(bias)) => weights.apply(x)?.add(bias),
            (weights, None) => weights.apply(x),
        }
    }

    /// `residual + (x * transpose(weights) + bias)`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn add_to(&self, residual: &Array, x: &Array) -> Result<Array> {
        match &self.weights {
            Matrix::Panels(panels) => panels.apply(x, self.bias.as_ref(), Some(residual)),
            Matrix::Dense { .. } | Matrix::Affine(_) => residual.add(self.forward(x)?),
        }
    }

    /// Several layers over the same `x`, `[B, L, inputs]`, which `norm` normalises before where there is one. Each is split into as
    /// many heads as stand beside it: `[B, heads, L, dim]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn project<const N: usize>(x: &Array, norm: Option<&RmsNorm>, layers: [(&Self, i32); N]) -> Result<[Array; N]> {
        let projected = match ops::project(x, norm, &layers) {
            Some(projected) => projected?,
            None => {
                let normalised = norm.map(|norm| norm.forward(x)).transpose()?;
                let x = normalised.as_ref().unwrap_or(x);
                layers.iter().map(|(layer, heads)| split_heads(&layer.forward(x)?, *heads)).collect::<Result<_>>()?
            }
        };
        projected.try_into().map_err(|_| mlx_rs::error::Exception::custom("a projection is missing"))
    }
}
