//! Gemma 4, the text model: dense, with inputs for each layer and shared keys and values (E2B, E4B), or with experts
//! (26B-A4B).

mod attention;
mod block;
mod mixture;
mod per_layer;
mod shape;

use mlx_rs::Array;

use self::block::Block;
use self::per_layer::Inputs;
use self::shape::Shape;
use super::fields::{Reach, Ropes};
use super::output::Output;
use super::part::TextPart;
use super::{Facts, Load, Model};
use crate::cache::Pass;
use crate::checkpoint::Config;
use crate::error::Result;
use crate::mlx::scalar;
use crate::nn::{Matrix, RmsNorm};
use crate::rope::{self, Scaling};
use crate::weights::{Weights, int};

struct Gemma4 {
    embedding: Matrix,
    /// What embeddings are multiplied with, in the compute type.
    embedding_scale: Array,
    per_layer: Option<Inputs>,
    layers: Vec<Block>,
    norm: RmsNorm,
    output: Output,
    ropes: Ropes,
    facts: Facts,
}

pub(super) fn load(weights: &Weights<'_>) -> Load<Box<dyn Model>> {
    let part = TextPart::find(weights)?;
    let TextPart { body, head, .. } = part;
    let shape = Shape::read(weights, &part)?;
    let Shape { width, vocabulary, eps, .. } = shape;
    let layers = (0..shape.layers.len())
        .map(|layer| Block::load(weights, &shape, layer, &format!("{body}.layers.{layer}")))
        .collect::<Load<_>>()?;
    let mut output = Output::load(weights, head, [vocabulary, width], part.tied(weights)?)?;
    output.cap = shape.cap;
    Ok(Box::new(Gemma4 {
        embedding: weights.matrix(&format!("{body}.embed_tokens"), vocabulary, width)?,
        embedding_scale: scalar((width as f64).sqrt(), weights.dtype),
        per_layer: shape.per_layer.map(|inputs| Inputs::load(weights, &shape, inputs, body)).transpose()?,
        layers,
        norm: weights.rms_norm(&format!("{body}.norm"), width, eps)?,
        output,
        ropes: ropes(&part.config, &shape)?,
        facts: Facts { cache: shape.cache, context: shape.context, vocabulary },
    }))
}

/// The rotations, one a kind of layer; a config that says nothing means those that the models were published with.
fn ropes(config: &Config, shape: &Shape) -> Load<Ropes> {
    let parameters = config.section("rope_parameters")?;
    let quarter = Scaling::Proportional { rotated: int(shape.head_dim(Reach::Full) / 8 * 2), factor: 1.0 };
    let read = |reach, name: &str, theta: f32, published: Scaling| {
        let dims = shape.head_dim(reach);
        let (theta, scaling) = match &parameters {
            Some(parameters) => match parameters.section(name)? {
                Some(section) => (section.optional_or("rope_theta", 10_000.0)?, rope::read_scaling(&section, dims)?),
                None => return Err(parameters.error(name, "is missing; it must be an object with rope_theta")),
            },
            None => (theta, published),
        };
        rope::build(config, dims, theta, config.optional_or("rope_traditional", false)?, scaling)
    };
    Ok(Ropes {
        full: read(Reach::Full, "full_attention", 1_000_000.0, quarter)?,
        sliding: read(Reach::Sliding, "sliding_attention", 10_000.0, Scaling::None)?,
    })
}

impl Model for Gemma4 {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn forward(&self, tokens: &Array, pass: &mut Pass<'_>) -> Result<Array> {
        let mut h = self.embedding.rows(tokens)?.multiply(&self.embedding_scale)?;
        let inputs = self.per_layer.as_ref().map(|inputs| inputs.forward(tokens, &h)).transpose()?;
        for (layer, block) in self.layers.iter().enumerate() {
            let input = inputs.as_ref().map(|inputs| per_layer::of_layer(inputs, layer)).transpose()?;
            h = block.forward(&h, input.as_ref(), self.ropes.of(block.reach), pass)?;
        }
        Ok(self.norm.forward(&h)?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        self.output.logits(hidden, &self.embedding)
    }
}
