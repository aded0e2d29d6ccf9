//! Attention over fetched columns: the one place where queries meet keys.

use annulus_plan::Columns;
use mlx_rs::Array;
use mlx_rs::fast::{ScaledDotProductAttentionMask as FusedMask, scaled_dot_product_attention};
use mlx_rs::ops::{expand_dims, quantized_matmul, select, softmax_axis};

use super::execute::view;
use super::planes::{Affine, Format};
use super::visible::{Device, for_grouped_heads, lowest};
use crate::error::{Error, Result};

/// The columns that a step hands to attention: the stored arrays of keys and of values. Their planes come whole: a kernel
/// that takes a range of columns needs no slices.
#[derive(Debug)]
pub struct Fetched {
    /// Whole planes of keys.
    pub(crate) keys: Vec<Array>,
    /// Whole planes of values.
    pub(crate) values: Vec<Array>,
    /// Which of their columns are read.
    pub(crate) range: Columns,
}

impl Fetched {
    /// The columns that are read, as arrays of their own.
    fn slices(&self) -> Result<[Vec<Array>; 2]> {
        let of = |planes: &[Array]| planes.iter().map(|plane| view(plane, self.range)).collect::<Result<_>>();
        Ok([of(&self.keys)?, of(&self.values)?])
    }
}

/// `softmax(queries keys^T scale) values` over what each query may see, with MLX's own operations.
///
/// `queries` is `[B, heads, N, dim]`, the columns are `[B, kv_heads, S, ..]`; the result is like `queries`.
///
/// # Errors
/// When the shapes do not fit.
pub(crate) fn attend_with_mlx(
    queries: &Array,
    columns: &Fetched,
    format: Format,
    scale: f32,
    visible: &Device,
) -> Result<Array> {
    let [keys, values] = columns.slices()?;
    match (format, keys.as_slice(), values.as_slice()) {
        (Format::Plain, [keys], [values]) => {
            let mask = match visible {
                Device::All => None,
                Device::Causal => Some(FusedMask::Causal),
                Device::Dense(mask) => Some(FusedMask::Array(mask)),
            };
            Ok(scaled_dot_product_attention(queries, keys, values, scale, mask, None)?)
        }
        (Format::Affine(affine), [..], [..]) => quantized(queries, [&keys, &values], affine, scale, visible),
        _ => Err(Error::Unsupported("planes that do not fit their format".to_owned())),
    }
}

/// The same over affine-quantized columns, which are multiplied as they are stored.
///
/// Query heads that share a key head get an axis of their own, so that keys and values need no repetition.
fn quantized(queries: &Array, columns: [&[Array]; 2], affine: Affine, scale: f32, visible: &Device) -> Result<Array> {
    let [[keys, key_scales, key_biases], [values, value_scales, value_biases]] = columns else {
        return Err(Error::Unsupported("an affine plane has three arrays".to_owned()));
    };
    let (group, bits) = (affine.group(), affine.bits());
    let [batch, heads, length, dim] = *queries.shape() else {
        return Err(Error::Unsupported(format!("queries of shape {:?}: four axes are needed", queries.shape())));
    };
    let (kv_heads, width) = (keys.dim(1), keys.dim(2));
    let repeats = heads / kv_heads.max(1);
    let scaled = queries.multiply(Array::from_f32(scale).as_dtype(queries.dtype())?)?;
    let grouped = |array: &Array| if repeats > 1 { expand_dims(array, 2) } else { Ok(array.clone()) };
    let scaled = if repeats > 1 { scaled.reshape(&[batch, kv_heads, repeats, length, dim])? } else { scaled };
    let [keys, key_scales, key_biases] = [grouped(keys)?, grouped(key_scales)?, grouped(key_biases)?];
    let [values, value_scales, value_biases] = [grouped(values)?, grouped(value_scales)?, grouped(value_biases)?];
    let mut scores = quantized_matmul(&scaled, &keys, &key_scales, &key_biases, true, group, bits)?;
    if let Some(mask) = visible.booleans(length, width)? {
        let mask = if repeats > 1 { for_grouped_heads(&mask)? } else { mask };
        scores = select(&mask, &scores, lowest(scores.dtype())?)?;
    }
    let weights = softmax_axis(&scores, -1, true)?;
    let out = quantized_matmul(&weights, &values, &value_scales, &value_biases, false, group, bits)?;
    Ok(out.reshape(&[batch, heads, length, out.dim(-1)])?)
}
