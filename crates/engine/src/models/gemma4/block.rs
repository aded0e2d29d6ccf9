//! One layer of Gemma 4.

use mlx_rs::Array;

use super::super::Load;
use super::super::fields::Reach;
use super::attention::Attention;
use super::mixture::Mixture;
use super::per_layer::Gate;
use super::shape::Shape;
use crate::cache::Pass;
use crate::error::Result;
use crate::nn::{Activation, Gated, RmsNorm};
use crate::rope::Rope;
use crate::weights::Weights;

pub(super) struct Block {
    pub(super) reach: Reach,
    attention: Attention,
    attention_norms: Around,
    mlp: Gated,
    mlp_norms: Around,
    mixture: Option<MixtureBeside>,
    per_layer: Option<Gate>,
    /// `[1]`, multiplied with what leaves the layer.
    scale: Array,
}

/// Norms on both sides.
struct Around {
    before: RmsNorm,
    after: RmsNorm,
}

/// The experts beside the gated unit. Each of the two has norms around it; their sum goes through the layer's last norm.
struct MixtureBeside {
    mixture: Mixture,
    norms: Around,
    after_mlp: RmsNorm,
}

impl Block {
    pub(super) fn load(weights: &Weights<'_>, shape: &Shape, layer: usize, path: &str) -> Load<Self> {
        let own = shape.layers[layer];
        let norm = |name: &str| weights.rms_norm(&format!("{path}.{name}"), shape.width, shape.eps);
        let around = |before: &str, after: &str| Load::Ok(Around { before: norm(before)?, after: norm(after)? });
        let mixture = match shape.experts {
            Some(experts) => Some(MixtureBeside {
                mixture: Mixture::load(weights, shape, experts, path)?,
                norms: around("pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")?,
                after_mlp: norm("post_feedforward_layernorm_1")?,
            }),
            None => None,
        };
        Ok(Self {
            reach: own.reach,
            attention: Attention::load(weights, shape, own, &format!("{path}.self_attn"))?,
            attention_norms: around("input_layernorm", "post_attention_layernorm")?,
            mlp: weights.gated(&format!("{path}.mlp"), own.inner, shape.width, false, Activation::GeluTanh)?,
            mlp_norms: around("pre_feedforward_layernorm", "post_feedforward_layernorm")?,
            mixture,
            per_layer: shape.per_layer.map(|inputs| Gate::load(weights, shape, inputs, path)).transpose()?,
            scale: weights.vector(&format!("{path}.layer_scalar"), 1)?,
        })
    }

    /// `[B, L, width]` to the same; `input` is the layer's own, where layers have one.
    pub(super) fn forward(&self, x: &Array, input: Option<&Array>, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let attended = self.attention.forward(&self.attention_norms.before.forward(x)?, rope, pass)?;
        let h = x.add(self.attention_norms.after.forward(&attended)?)?;
        let h = h.add(self.mlp_norms.after.forward(&self.feed_forward(&h)?)?)?;
        let h = match (&self.per_layer, input) {
            (Some(gate), Some(input)) => gate.forward(&h, input)?,
            _ => h,
        };
        Ok(h.multiply(&self.scale)?)
    }

    /// The gated unit, and the experts where the layer has them.
    fn feed_forward(&self, x: &Array) -> Result<Array> {
        let mlp = self.mlp.forward(&self.mlp_norms.before.forward(x)?)?;
        let Some(MixtureBeside { mixture, norms, after_mlp }) = &self.mixture else {
            return Ok(mlp);
        };
        let experts = mixture.forward(x, &norms.before.forward(x)?)?;
        Ok(after_mlp.forward(&mlp)?.add(norms.after.forward(&experts)?)?)
    }
}
