//! The inputs that layers of small Gemma 4 models have beside the hidden states: a row a token and layer, and a projection
//! of the embedding.

use mlx_rs::Array;

use super::super::Load;
use super::shape::{PerLayer, Shape};
use crate::error::Result;
use crate::mlx::{self, scalar};
use crate::nn::{Activation, Linear, RmsNorm, Table};
use crate::weights::{Weights, int};

/// Makes the inputs of all layers.
pub(super) struct Inputs {
    table: Table,
    projection: Linear,
    norm: RmsNorm,
    layers: i32,
    width: i32,
    /// What rows, projections and their sum are multiplied with, in the compute type.
    scales: Scales,
}

struct Scales {
    rows: Array,
    projection: Array,
    sum: Array,
}

impl Inputs {
    pub(super) fn load(weights: &Weights<'_>, shape: &Shape, per_layer: PerLayer, body: &str) -> Load<Self> {
        let PerLayer { width, vocabulary } = per_layer;
        let layers = shape.layers.len();
        let all = layers.saturating_mul(width);
        let number = |value: f64| scalar(value, weights.dtype);
        Ok(Self {
            table: weights.table(&format!("{body}.embed_tokens_per_layer"), vocabulary, all)?,
            projection: weights.linear(&format!("{body}.per_layer_model_projection"), all, shape.width, false)?,
            norm: weights.rms_norm(&format!("{body}.per_layer_projection_norm"), width, shape.eps)?,
            layers: int(layers),
            width: int(width),
            scales: Scales {
                rows: number((width as f64).sqrt()),
                projection: number((shape.width as f64).powf(-0.5)),
                sum: number(0.5f64.sqrt()),
            },
        })
    }

    /// The inputs of every layer, `[B, L, layers, width]`, from tokens, `[B, L]`, and their embeddings as the first layer
    /// gets them.
    pub(super) fn forward(&self, tokens: &Array, embeddings: &Array) -> Result<Array> {
        let split = |x: Array| x.reshape(&[x.dim(0), x.dim(1), self.layers, self.width]);
        let rows = split(self.table.rows(tokens)?.multiply(&self.scales.rows)?)?;
        let projected = split(self.projection.forward(embeddings)?.multiply(&self.scales.projection)?)?;
        Ok(self.norm.forward(&projected)?.add(rows)?.multiply(&self.scales.sum)?)
    }
}

/// The input of one layer, `[B, L, width]`.
pub(super) fn of_layer(inputs: &Array, layer: usize) -> Result<Array> {
    let layer = int(layer);
    Ok(mlx::slice(inputs, 2, layer, layer + 1)?.squeeze_axes(&[2])?)
}

/// Lets a layer's input into its hidden states.
pub(super) struct Gate {
    gate: Linear,
    projection: Linear,
    norm: RmsNorm,
}

impl Gate {
    pub(super) fn load(weights: &Weights<'_>, shape: &Shape, per_layer: PerLayer, path: &str) -> Load<Self> {
        Ok(Self {
            gate: weights.linear(&format!("{path}.per_layer_input_gate"), per_layer.width, shape.width, false)?,
            projection: weights.linear(&format!("{path}.per_layer_projection"), shape.width, per_layer.width, false)?,
            norm: weights.rms_norm(&format!("{path}.post_per_layer_input_norm"), shape.width, shape.eps)?,
        })
    }

    /// `[B, L, width]` and the layer's input to the sum that goes on.
    pub(super) fn forward(&self, x: &Array, input: &Array) -> Result<Array> {
        let gated = Activation::GeluTanh.gate(&self.gate.forward(x)?, input)?;
        let projected = self.projection.forward(&gated)?;
        Ok(x.add(self.norm.forward(&projected)?)?)
    }
}
