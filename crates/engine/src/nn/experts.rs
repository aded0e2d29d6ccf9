//! Mixtures of experts: many gated units, of which each token runs through a few.

use mlx_rs::Array;
use mlx_rs::ops::{argsort, expand_dims_axes, flatten, gather_mm, gather_qmm, unflatten};

use super::{Activation, Affine};
use crate::mlx::Result;

/// From this many pairs of token and expert on, they are sorted by expert, so that an expert's weights are read once.
const SORTED_FROM: usize = 64;

/// One matrix an expert, all of one shape.
#[derive(Debug)]
pub enum Stack {
    /// `[experts, outputs, inputs]`, kept transposed.
    Dense {
        /// `[experts, inputs, outputs]`, a view of the rows as they are stored.
        transposed: Array,
    },
    /// MLX's affine groups, with `experts` as first axis.
    Affine(Affine),
}

impl Stack {
    /// `x * transpose(weights of the expert)`: `[.., 1, inputs]` and experts `[..]` become `[.., 1, outputs]`, where the
    /// leading axes broadcast.
    fn apply(&self, x: &Array, experts: &Array, sorted: bool) -> Result<Array> {
        match self {
            Self::Dense { transposed } => gather_mm(x, transposed, None, experts, sorted),
            Self::Affine(Affine { packed, scales, biases, group_size, bits }) => {
                gather_qmm(x, packed, scales, biases, None, experts, true, *group_size, *bits, sorted)
            }
        }
    }
}

/// As many gated units as there are experts: `down(activation(gate(x)) * up(x))` each.
#[derive(Debug)]
pub struct Experts {
    /// `[experts, inner, width]`.
    pub gate: Stack,
    /// `[experts, inner, width]`.
    pub up: Stack,
    /// `[experts, width, inner]`.
    pub down: Stack,
    /// What gates are bent with.
    pub activation: Activation,
}

impl Experts {
    /// Runs each token through the experts chosen for it: `[B, L, width]` and `[B, L, K]` become `[B, L, K, width]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn forward(&self, x: &Array, chosen: &Array) -> Result<Array> {
        let x = expand_dims_axes(x, &[-2, -3])?;
        let outputs =
            if chosen.size() >= SORTED_FROM { self.sorted(&x, chosen)? } else { self.units(&x, chosen, false)? };
        outputs.squeeze_axes(&[-2])
    }

    fn units(&self, x: &Array, experts: &Array, sorted: bool) -> Result<Array> {
        let up = self.up.apply(x, experts, sorted)?;
        let gate = self.activation.forward(&self.gate.apply(x, experts, sorted)?)?;
        self.down.apply(&gate.multiply(up)?, experts, sorted)
    }

    /// The same in the order of experts: `x` is `[B, L, 1, 1, width]`.
    fn sorted(&self, x: &Array, chosen: &Array) -> Result<Array> {
        let each = chosen.dim(-1);
        let experts = flatten(chosen, None, None)?;
        let order = argsort(&experts)?;
        let back = argsort(&order)?;
        let token = order.floor_divide(Array::from_slice(&[u32::try_from(each).unwrap_or(1)], &[]))?;
        let x = flatten(x, 0, -3)?.take_axis(token, 0)?;
        let outputs = self.units(&x, &experts.take_axis(&order, 0)?, true)?;
        unflatten(outputs.take_axis(back, 0)?, 0, chosen.shape())
    }
}
