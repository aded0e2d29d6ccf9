//! Attention over fetched columns: the one place where queries meet keys.

use std::cell::OnceCell;

use annulus_plan::Columns;
use mlx_rs::fast::{ScaledDotProductAttentionMask as FusedMask, scaled_dot_product_attention};
use mlx_rs::ops::{dequantize, expand_dims, quantized_matmul, select, softmax_axis};
use mlx_rs::{Array, Dtype};

use super::execute::view;
use super::planes::{Affine, Format, Planes};
use super::visible::{Device, for_grouped_heads, lowest};
use crate::error::{Error, Result};
use crate::ops;

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
    /// Keys and values as MLX's attention takes them. Layers that share the columns share these.
    taken: OnceCell<[Vec<Array>; 2]>,
}

impl Fetched {
    pub(super) fn new(planes: &Planes, range: Columns) -> Self {
        let (keys, values) = (planes.keys().to_vec(), planes.values().to_vec());
        Self { keys, values, range, taken: OnceCell::new() }
    }

    /// The columns that are read, as arrays of their own, each in its format or spelled out.
    fn taken(&self, format: Format, dtype: Dtype) -> Result<&[Vec<Array>; 2]> {
        if let Some(taken) = self.taken.get() {
            return Ok(taken);
        }
        let of = |planes: &[Array]| -> Result<Vec<Array>> {
            let slices = planes.iter().map(|plane| view(plane, self.range)).collect::<Result<Vec<_>>>()?;
            match format {
                Format::Affine(affine) if !ops::chosen().multiplies_quantized_columns() => {
                    Ok(vec![spelled_out(&slices, affine, dtype)?])
                }
                Format::Affine(_) | Format::Plain => Ok(slices),
            }
        };
        let taken = [of(&self.keys)?, of(&self.values)?];
        Ok(self.taken.get_or_init(|| taken))
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
    match (format, columns.taken(format, queries.dtype())?) {
        (_, [keys, values]) if let ([keys], [values]) = (keys.as_slice(), values.as_slice()) => {
            fused(queries, keys, values, scale, visible)
        }
        (Format::Affine(affine), [keys, values]) => quantized(queries, [keys, values], affine, scale, visible),
        (Format::Plain, _) => Err(Error::Unsupported("planes that do not fit their format".to_owned())),
    }
}

/// Attention in one operation, where MLX has that for the shapes.
fn fused(queries: &Array, keys: &Array, values: &Array, scale: f32, visible: &Device) -> Result<Array> {
    let mask = match visible {
        Device::All => None,
        Device::Causal => Some(FusedMask::Causal),
        Device::Dense(mask) => Some(FusedMask::Array(mask)),
    };
    Ok(scaled_dot_product_attention(queries, keys, values, scale, mask, None)?)
}

/// The numbers that an affine plane stands for.
fn spelled_out(planes: &[Array], affine: Affine, dtype: Dtype) -> Result<Array> {
    let [packed, scales, biases] = planes else { return Err(three_arrays()) };
    Ok(dequantize(packed, scales, biases, affine.group(), affine.bits())?.as_dtype(dtype)?)
}

fn three_arrays() -> Error {
    Error::Unsupported("an affine plane has three arrays".to_owned())
}

/// The same over affine-quantized columns, which are multiplied as they are stored.
///
/// Query heads that share a key head get an axis of their own, so that keys and values need no repetition.
fn quantized(queries: &Array, columns: [&[Array]; 2], affine: Affine, scale: f32, visible: &Device) -> Result<Array> {
    let [[keys, key_scales, key_biases], [values, value_scales, value_biases]] = columns else {
        return Err(three_arrays());
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

#[cfg(test)]
mod tests {
    use mlx_rs::random::normal;

    use super::*;

    /// Both ways to read quantized columns, on whichever device; CUDA takes one, all others the other.
    #[test]
    fn spelled_out_columns_give_what_packed_ones_give() {
        let affine = Affine::new(8, 32).unwrap();
        let format = Format::Affine(affine);
        let random = |shape: &[i32]| normal::<f32>(shape, None, None, None).unwrap();
        for (heads, length, visible) in [(4, 1, Device::All), (4, 3, Device::Causal), (2, 5, Device::Causal)] {
            let queries = random(&[2, heads, length, 32]);
            let [keys, values] = [(); 2].map(|()| format.encode(&random(&[2, 2, 7, 32])).unwrap());
            let [k, v] = [&keys, &values].map(|planes| spelled_out(planes, affine, Dtype::Float32).unwrap());
            let one = fused(&queries, &k, &v, 0.2, &visible).unwrap();
            let other = quantized(&queries, [&keys, &values], affine, 0.2, &visible).unwrap();
            let apart = one.subtract(&other).unwrap().abs().unwrap().max(None).unwrap();
            let apart = apart.try_as_slice::<f32>().unwrap()[0];
            assert!(apart < 1e-5, "{apart}");
        }
    }
}
