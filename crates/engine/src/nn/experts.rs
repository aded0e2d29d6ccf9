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
        let gate = self.gate.apply(x, experts, sorted)?;
        self.down.apply(&self.activation.gate(&gate, &up)?, experts, sorted)
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

#[cfg(test)]
mod tests {
    use mlx_rs::ops::{dequantize, quantize};

    use super::*;
    use crate::nn::{Gated, Linear, Matrix};

    const EXPERTS: i32 = 5;
    const WIDTH: i32 = 64;
    const INNER: i32 = 32;

    /// Numbers that differ, between -0.5 and 0.5.
    fn numbers(shape: &[i32], seed: u32) -> Array {
        let count = shape.iter().product::<i32>().unsigned_abs();
        let number = |i: u32| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5;
        Array::from_slice(&(0..count).map(number).collect::<Vec<_>>(), shape)
    }

    fn dense(weights: &Array) -> Stack {
        Stack::Dense { transposed: weights.swap_axes(-1, -2).unwrap() }
    }

    /// One expert of the stacks, as a gated unit by itself.
    fn unit(stacks: &[Array; 3], expert: i32) -> Gated {
        let linear = |weights: &Array| {
            let own = weights.take_axis(Array::from_int(expert), 0).unwrap();
            Linear { weights: Matrix::Dense { transposed: own.t() }, bias: None }
        };
        let [gate, up, down] = stacks;
        Gated { gate: linear(gate), up: linear(up), down: linear(down), activation: Activation::GeluTanh }
    }

    fn assert_near(found: &Array, expected: &Array) {
        assert_eq!(found.shape(), expected.shape());
        let difference = found.subtract(expected).unwrap().abs().unwrap().max(None).unwrap().item_exact::<f32>();
        assert!(difference < 1e-4, "{difference}");
    }

    /// Few pairs of token and expert take the plain way, many the sorted one; each is what the expert alone makes of it.
    fn check(experts: &Experts, stacks: &[Array; 3], tokens: i32) {
        let x = numbers(&[1, tokens, WIDTH], 9);
        let chosen: Vec<u32> =
            (0..2 * tokens.unsigned_abs()).map(|i| (i * i + 3 * i) % EXPERTS.unsigned_abs()).collect();
        let found = experts.forward(&x, &Array::from_slice(&chosen, &[1, tokens, 2])).unwrap();
        let found = found.reshape(&[2 * tokens, WIDTH]).unwrap();
        let x = x.reshape(&[tokens, WIDTH]).unwrap();
        for (pair, expert) in (0..).zip(chosen) {
            let row = |array: &Array, index: i32| array.take_axis(Array::from_slice(&[index], &[1]), 0).unwrap();
            let expected = unit(stacks, expert.cast_signed()).forward(&row(&x, pair / 2)).unwrap();
            assert_near(&row(&found, pair), &expected);
        }
    }

    #[test]
    fn each_token_runs_through_the_experts_chosen_for_it() {
        let stacks = [
            numbers(&[EXPERTS, INNER, WIDTH], 1),
            numbers(&[EXPERTS, INNER, WIDTH], 2),
            numbers(&[EXPERTS, WIDTH, INNER], 3),
        ];
        let [gate, up, down] = stacks.each_ref().map(dense);
        let experts = Experts { gate, up, down, activation: Activation::GeluTanh };
        for tokens in [1, 31, 32, 50] {
            check(&experts, &stacks, tokens);
        }
    }

    #[test]
    fn quantized_experts_are_those_that_their_groups_stand_for() {
        let shapes = [[EXPERTS, INNER, WIDTH], [EXPERTS, INNER, WIDTH], [EXPERTS, WIDTH, INNER]];
        let quantized = [1, 2, 3].map(|seed| {
            let shape = &shapes[seed as usize - 1];
            let (packed, scales, biases) = quantize(numbers(shape, seed), 32, 4).unwrap();
            let spelled = dequantize(&packed, &scales, &biases, 32, 4).unwrap();
            (Stack::Affine(Affine { packed, scales, biases, group_size: 32, bits: 4 }), spelled)
        });
        let [(gate, a), (up, b), (down, c)] = quantized;
        let experts = Experts { gate, up, down, activation: Activation::GeluTanh };
        for tokens in [1, 40] {
            check(&experts, &[a.clone(), b.clone(), c.clone()], tokens);
        }
    }
}
