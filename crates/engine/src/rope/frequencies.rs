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

#[cfg(test)]
mod tests {
    use super::*;

    const YARN: Yarn = Yarn { factor: 4.0, original: 64.0, fast: 32.0, slow: 1.0, truncate: true, gain: 1.0 };

    fn numbers(array: &Array) -> Vec<f64> {
        array.as_slice::<f32>().iter().map(|value| f64::from(*value)).collect()
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
    }

    /// The rule of the paper, pair by pair in float64: the inverse frequency is a mean of the plain and the stretched one,
    /// weighted by where the pair lies between those that turn `slow` and `fast` times in the original context.
    #[test]
    fn yarn_is_the_papers_rule() {
        for (dims, theta, yarn) in [
            (64, 1e6f32, YARN),
            (64, 1e6, Yarn { truncate: false, ..YARN }),
            (128, 1e4, Yarn { original: 32_768.0, factor: 2.5, ..YARN }),
            (8, 1e4, Yarn { original: 4096.0, fast: 3.0, slow: 3.0, ..YARN }),
        ] {
            let found = numbers(&super::yarn(dims, theta, &yarn).unwrap());
            let (dims, theta) = (f64::from(dims), f64::from(theta));
            let pair =
                |turns: f64| dims / (2.0 * theta.ln()) * (yarn.original / (2.0 * std::f64::consts::PI * turns)).ln();
            let (mut from, mut to) = (pair(yarn.fast), pair(yarn.slow));
            if yarn.truncate {
                (from, to) = (from.floor(), to.ceil());
            }
            let (from, to) = (from.max(0.0), to.min(dims - 1.0));
            for (i, found) in found.iter().enumerate() {
                let i = i as f64;
                let plain = theta.powf(-2.0 * i / dims);
                let stretch = ((i - from) / (to - from).max(0.001)).clamp(0.0, 1.0);
                let expected = plain * (1.0 - stretch) + plain / f64::from(yarn.factor) * stretch;
                assert_near(1.0 / found, expected);
            }
        }
    }

    #[test]
    fn proportional_turns_the_first_pairs_only() {
        for (rotated, turning) in [(16, 8), (64, 32), (0, 0)] {
            let found = numbers(&proportional(64, 1e6, rotated, 2.0).unwrap());
            assert_eq!(found.len(), 32);
            for (i, found) in found.iter().enumerate() {
                if i < turning {
                    assert_near(*found, 2.0 * 1e6f64.powf(2.0 * i as f64 / 64.0));
                } else {
                    assert_eq!(*found, f64::INFINITY);
                }
            }
        }
    }
}
