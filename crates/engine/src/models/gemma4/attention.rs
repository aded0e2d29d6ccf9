//! The attention of a Gemma 4 layer: normalised queries, keys and values, and columns that later layers may share.

use mlx_rs::Array;

use super::super::Load;
use super::shape::{Columns, Layer, Shape};
use crate::cache::Pass;
use crate::error::Result;
use crate::nn::{Linear, RmsNorm, heads_first, to_heads};
use crate::rope::Rope;
use crate::weights::{Weights, int};

/// Queries are normalised and so are keys, so scores are not scaled again.
const SCALE: f32 = 1.0;

pub(super) struct Attention {
    queries: Linear,
    query_norm: RmsNorm,
    columns: Source,
    output: Linear,
    heads: i32,
}

/// Where keys and values come from.
enum Source {
    /// This layer makes them, and its cache keeps them.
    Own { cache: usize, projections: Projections },
    /// An earlier layer made them.
    Shared { cache: usize },
}

struct Projections {
    keys: Linear,
    key_norm: RmsNorm,
    /// Absent when the projected keys serve as values too.
    values: Option<Linear>,
    /// Without a learned factor.
    value_norm: RmsNorm,
    kv_heads: i32,
}

impl Attention {
    pub(super) fn load(weights: &Weights<'_>, shape: &Shape, layer: Layer, path: &str) -> Load<Self> {
        let inner = shape.heads.saturating_mul(layer.head_dim);
        let columns = match layer.columns {
            Columns::Own(cache) => Source::Own { cache, projections: Projections::load(weights, shape, layer, path)? },
            Columns::Shared(cache) => Source::Shared { cache },
        };
        Ok(Self {
            queries: weights.linear(&format!("{path}.q_proj"), inner, shape.width, false)?,
            query_norm: weights.rms_norm(&format!("{path}.q_norm"), layer.head_dim, shape.eps)?,
            columns,
            output: weights.linear(&format!("{path}.o_proj"), shape.width, inner, false)?,
            heads: int(shape.heads),
        })
    }

    /// `[B, L, width]` to the same.
    pub(super) fn forward(&self, x: &Array, rope: &Rope, pass: &mut Pass<'_>) -> Result<Array> {
        let queries = self.query_norm.forward(&to_heads(&self.queries.forward(x)?, self.heads)?)?;
        let queries = heads_first(&queries)?;
        let attended = match &self.columns {
            Source::Own { cache, projections } => {
                let (keys, values) = projections.forward(x)?;
                pass.attend(*cache, &queries, &keys, values, rope, SCALE)?
            }
            Source::Shared { cache } => pass.share(*cache, &queries, rope, SCALE)?,
        };
        Ok(self.output.forward(&attended)?)
    }
}

impl Projections {
    fn load(weights: &Weights<'_>, shape: &Shape, layer: Layer, path: &str) -> Load<Self> {
        let Layer { head_dim, kv_heads, keys_serve_as_values, .. } = layer;
        let project = |name: &str| {
            weights.linear(&format!("{path}.{name}"), kv_heads.saturating_mul(head_dim), shape.width, false)
        };
        Ok(Self {
            keys: project("k_proj")?,
            key_norm: weights.rms_norm(&format!("{path}.k_norm"), head_dim, shape.eps)?,
            values: if keys_serve_as_values { None } else { Some(project("v_proj")?) },
            value_norm: RmsNorm { weight: None, eps: shape.eps },
            kv_heads: int(kv_heads),
        })
    }

    /// Keys before RoPE, and values: `[B, kv_heads, L, head_dim]` each.
    fn forward(&self, x: &Array) -> Result<(Array, Array)> {
        let keys = to_heads(&self.keys.forward(x)?, self.kv_heads)?;
        let values = match &self.values {
            Some(values) => &to_heads(&values.forward(x)?, self.kv_heads)?,
            None => &keys,
        };
        let values = self.value_norm.forward(values)?;
        Ok((heads_first(&self.key_norm.forward(&keys)?)?, heads_first(&values)?))
    }
}
