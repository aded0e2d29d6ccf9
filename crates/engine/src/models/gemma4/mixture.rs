//! The mixture of experts that large Gemma 4 models have beside the gated unit of a layer.

use mlx_rs::Array;
use mlx_rs::ops::{argpartition_axis, expand_dims_axes, softmax_axis};

use super::super::Load;
use super::shape::{self, Shape};
use crate::error::Result;
use crate::mlx::{self, scalar};
use crate::nn::{Activation, Experts, Linear, RmsNorm};
use crate::weights::{Weights, int};

pub(super) struct Mixture {
    router: Router,
    experts: Experts,
}

/// Chooses experts for each token, and says how much each counts.
struct Router {
    norm: RmsNorm,
    scores: Linear,
    /// `[experts]`, multiplied with how much an expert counts.
    scales: Array,
    count: i32,
    chosen: i32,
}

impl Mixture {
    /// Loads the router and the experts of a layer.
    pub(super) fn load(weights: &Weights<'_>, shape: &Shape, experts: shape::Experts, path: &str) -> Load<Self> {
        Ok(Self {
            router: Router::load(weights, shape, experts, &format!("{path}.router"))?,
            experts: load_experts(weights, shape.width, experts, &format!("{path}.experts"))?,
        })
    }

    /// `[B, L, width]` to the same. Experts are chosen by `x`, and see it as `input`, which is `x` with a norm of their own.
    pub(super) fn forward(&self, x: &Array, input: &Array) -> Result<Array> {
        let (chosen, weights) = self.router.forward(x)?;
        let outputs = self.experts.forward(input, &chosen)?;
        Ok(expand_dims_axes(&weights, &[-1])?.multiply(outputs)?.sum_axis(-2, false)?)
    }
}

impl Router {
    fn load(weights: &Weights<'_>, shape: &Shape, experts: shape::Experts, path: &str) -> Load<Self> {
        let Shape { width, eps, .. } = *shape;
        let name = format!("{path}.scale");
        let scale = scalar((width as f64).powf(-0.5), weights.dtype);
        let factor = weights.computed(&name, weights.vector(&name, width)?.multiply(scale))?;
        Ok(Self {
            norm: RmsNorm { weight: Some(factor), eps },
            scores: weights.linear(&format!("{path}.proj"), experts.count, width, false)?,
            scales: weights.vector(&format!("{path}.per_expert_scale"), experts.count)?,
            count: int(experts.count),
            chosen: int(experts.chosen),
        })
    }

    /// The experts of each token and their weights, `[B, L, chosen]` each: the softmax over the chosen ones' scores.
    fn forward(&self, x: &Array) -> Result<(Array, Array)> {
        let scores = self.scores.forward(&self.norm.forward(x)?)?;
        let order = argpartition_axis(&scores, -self.chosen, -1)?;
        let last = order.ndim().saturating_sub(1);
        let chosen = mlx::slice(&order, last, self.count - self.chosen, self.count)?;
        let weights = softmax_axis(scores.take_along_axis(&chosen, -1)?, -1, false)?;
        let weights = weights.multiply(self.scales.take_axis(&chosen, 0)?)?;
        Ok((chosen, weights))
    }
}

/// The experts, as mlx-lm keeps them, or as transformers does: gate and up in one tensor.
fn load_experts(weights: &Weights<'_>, width: usize, experts: shape::Experts, path: &str) -> Load<Experts> {
    let shape::Experts { count, inner, .. } = experts;
    let activation = Activation::GeluTanh;
    let fused = format!("{path}.gate_up_proj");
    if weights.checkpoint.has(&fused) {
        return Ok(Experts {
            gate: weights.fused_stack(&fused, [0, 2], [count, inner, width])?,
            up: weights.fused_stack(&fused, [1, 2], [count, inner, width])?,
            down: weights.fused_stack(&format!("{path}.down_proj"), [0, 1], [count, width, inner])?,
            activation,
        });
    }
    let path = format!("{path}.switch_glu");
    Ok(Experts {
        gate: weights.stack(&format!("{path}.gate_proj"), count, inner, width)?,
        up: weights.stack(&format!("{path}.up_proj"), count, inner, width)?,
        down: weights.stack(&format!("{path}.down_proj"), count, width, inner)?,
        activation,
    })
}
