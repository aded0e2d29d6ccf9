//! Root-mean-square normalisation.

use crate::pool::{self, Parts};
use crate::simd::{self, Kernel, LANES, Path, Simd};

/// Numbers below which waking other threads costs more than it saves.
const PIECE: usize = 1 << 14;

/// Each row of `x`, as wide as `weight`, divided by the root of its mean square and multiplied with `weight`:
/// `x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich, 2019).
///
/// # Panics
/// When `out` is not as long as `x`, or that is no whole number of rows.
pub fn rms_norm(path: Path, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    assert_eq!(x.len(), out.len(), "a norm's result has its input's shape");
    assert!(width > 0 && x.len().is_multiple_of(width), "{} numbers in rows of {width}", x.len());
    let rows = x.len() / width;
    let step = (PIECE / width).max(1);
    let out = Parts::new(out);
    pool::for_each(rows.div_ceil(step), |piece| {
        let (from, to) = (piece * step * width, rows.min((piece + 1) * step) * width);
        // SAFETY: pieces do not overlap.
        let out = unsafe { out.part(from, to - from) };
        simd::run(path, Norm { x: &x[from..to], weight, eps, out });
    });
}

struct Norm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.weight.len();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let factor = 1.0 / (squares(s, x) / width as f32 + self.eps).sqrt();
            let lanes = s.splat(factor);
            let (x_lanes, x_rest) = x.as_chunks::<LANES>();
            let (w_lanes, w_rest) = self.weight.as_chunks::<LANES>();
            let (out_lanes, out_rest) = out.as_chunks_mut::<LANES>();
            for ((x, w), out) in x_lanes.iter().zip(w_lanes).zip(out_lanes) {
                s.store(s.mul(s.mul(s.load(x), lanes), s.load(w)), out);
            }
            for ((x, w), out) in x_rest.iter().zip(w_rest).zip(out_rest) {
                *out = x * factor * w;
            }
        }
    }
}

/// The sum of squares.
#[inline(always)]
fn squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (pairs, rest) = x.as_chunks::<{ 2 * LANES }>();
    let mut sums = [s.splat(0.0); 2];
    for pair in pairs {
        let (pair, _) = pair.as_chunks::<LANES>();
        let (a, b) = (s.load(&pair[0]), s.load(&pair[1]));
        sums = [s.mul_add(a, a, sums[0]), s.mul_add(b, b, sums[1])];
    }
    let mut sum = s.sum(s.add(sums[0], sums[1]));
    for x in rest {
        sum += x * x;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_path_agrees_with_float64(rows in 0usize..40, width in 1usize..200, size in -10i32..10, salt in any::<u32>()) {
            let x: Vec<f32> = (0..rows * width)
                .map(|i| ((i as u32).wrapping_mul(2_654_435_761) ^ salt) as i32 as f32 * 2f32.powi(size - 31))
                .collect();
            let weight: Vec<f32> = (0..width).map(|i| 1.0 - i as f32 / 77.0).collect();
            for path in Path::available() {
                let mut out = vec![f32::NAN; x.len()];
                rms_norm(path, &x, &weight, 1e-5, &mut out);
                for (row, out) in x.chunks(width).zip(out.chunks(width)) {
                    let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
                    for ((x, w), found) in row.iter().zip(&weight).zip(out) {
                        let want = f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(*w);
                        prop_assert!((f64::from(*found) - want).abs() <= want.abs() * 1e-6 + 1e-30, "{path}: {found} {want}");
                    }
                }
            }
        }
    }
}
