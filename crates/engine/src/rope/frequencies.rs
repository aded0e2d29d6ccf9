//! Frequencies of pairs, computed on the device in float32. The order of operations is that of mlx-lm, whose logits ours are
//! compared with to the bit.

use mlx_rs::ops::{arange, clip, concatenate, gt, logical_and, lt, select};
use mlx_rs::{Array, Dtype};

use super::Yarn;
use crate::mlx::Result;

/// `theta^(2 i / dims)` for the pairs of the first `rotated` of `dims` numbers: `[rotated / 2]`.
fn first(rotated: i32, dims: i32, theta: f32) -> Result<Array> {
    let exponents = arange::<_, f32>(0, rotated, 2)?.divide(Array::from_f32(dims as f32))?;
    Array::from_f32(theta).power(exponents)?.as_dtype(Dtype::Float32)
}

/// `theta^(2 i / dims)`: `[dims / 2]`.
pub(super) fn plain(dims: i32, theta: f32) -> Result<Array> {
    first(dims, dims, theta)
}

/// Those of Llama 3: `[dims / 2]`.
pub(super) fn llama3(dims: i32, theta: f32, factor: f32, low: f32, high: f32, original: f32) -> Result<Array> {
    let plain = plain(dims, theta)?;
    let waves = Array::from_f32(2.0 * std::f32::consts::PI).multiply(&plain)?;
    let (longest, shortest) = (Array::from_f32(original / low), Array::from_f32(original / high));
    let stretched = select(gt(&waves, &longest)?, plain.multiply(Array::from_f32(factor))?, &plain)?;
    let between = logical_and(gt(&waves, &shortest)?, lt(&waves, &longest)?)?;
    let blend = Array::from_f32(original)
        .divide(&waves)?
        .subtract(Array::from_f32(low))?
        .divide(Array::from_f32(high - low))?;
    let divisor = Array::from_f32(1.0).subtract(&blend)?.divide(Array::from_f32(factor))?.add(&blend)?;
    let blended = stretched.divide(divisor)?;
    evaluated(select(between, blended, &stretched)?)
}

/// Those of YaRN: `[dims / 2]`. Pairs below the first bound keep their frequency, those above the second are stretched by
/// the factor, those between are blended harmonically.
pub(super) fn yarn(dims: i32, theta: f32, yarn: &Yarn) -> Result<Array> {
    let (from, to) = blended_pairs(f64::from(dims), f64::from(theta), yarn);
    let one = Array::from_f32(1.0);
    let kept = plain(dims, theta)?;
    let stretched = Array::from_f32(yarn.factor).multiply(&kept)?;
    let ramp = arange::<_, f32>(0, dims / 2, 1)?
        .subtract(Array::from_f32(from as f32))?
        .divide(Array::from_f32((to - from) as f32))?;
    let keep = one.subtract(clip(ramp, (0.0f32, 1.0f32))?)?;
    let divisor = stretched.multiply(&keep)?.add(kept.multiply(one.subtract(&keep)?)?)?;
    evaluated(stretched.multiply(&kept)?.divide(divisor)?)
}

/// Between which pairs YaRN blends: those that turn `fast` and `slow` times in the original context.
fn blended_pairs(dims: f64, theta: f64, yarn: &Yarn) -> (f64, f64) {
    let pair = |turns: f64| dims * (yarn.original / (turns * 2.0 * std::f64::consts::PI)).ln() / (2.0 * theta.ln());
    let (from, to) = match (pair(yarn.fast), pair(yarn.slow)) {
        (from, to) if yarn.truncate => (from.floor(), to.ceil()),
        bounds => bounds,
    };
    let (from, to) = (from.max(0.0), to.min(dims - 1.0));
    // A ramp needs a length.
    if from == to { (from, to + 0.001) } else { (from, to) }
}

/// Those of which only the first turn: `[dims / 2]`. An infinite frequency is a pair that stands still.
pub(super) fn proportional(dims: i32, theta: f32, rotated: i32, factor: f32) -> Result<Array> {
    let turning = Array::from_f32(factor).multiply(first(rotated, dims, theta)?)?;
    let still = Array::full::<f32>(&[(dims - rotated) / 2], Array::from_f32(f32::INFINITY))?;
    evaluated(concatenate(&[&turning, &still], 0)?)
}

fn evaluated(frequencies: Array) -> Result<Array> {
    frequencies.eval()?;
    Ok(frequencies)
}
