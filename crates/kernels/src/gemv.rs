//! One row times a matrix, at the speed at which memory gives the matrix: what decoding a single sequence is made of.
//!
//! The matrix is a weight as models store it, one output a row, so an output is the dot product of two contiguous runs.
//! Sums are kept in 32 lanes and folded pairwise, which is both vectorisable and more exact than one running sum.

use rayon::prelude::*;

const LANES: usize = 32;

/// Outputs that one task computes, and below which a product runs on the calling thread.
const ROWS_PER_TASK: usize = 64;

/// Multiply-adds below which waking other threads costs more than it saves.
const PARALLEL_FROM: usize = 1 << 16;

/// `y[j] = alpha * dot(x, w[j * stride ..][.. x.len()]) + beta * y[j]` for every `j`; with `beta` 0, `y` is not read.
///
/// # Panics
/// When `w` ends before the last row does.
pub fn gemv(alpha: f32, x: &[f32], w: &[f32], stride: usize, beta: f32, y: &mut [f32]) {
    let Some(last) = y.len().checked_sub(1) else { return };
    assert!(w.len() >= last * stride + x.len(), "{} outputs need more than {} weights", y.len(), w.len());
    let rows = |first: usize, y: &mut [f32]| {
        for (j, y) in y.iter_mut().enumerate() {
            let row = &w[(first + j) * stride..][..x.len()];
            let old = if beta == 0.0 { 0.0 } else { beta * *y };
            *y = alpha * dot(x, row) + old;
        }
    };
    if y.len() * x.len() < PARALLEL_FROM {
        rows(0, y);
    } else {
        y.par_chunks_mut(ROWS_PER_TASK).enumerate().for_each(|(task, y)| rows(task * ROWS_PER_TASK, y));
    }
}

/// The dot product of two runs of the same length, by the best path that this CPU has.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just found.
            return unsafe { dot_avx512(a, b) };
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: the features were just found.
            return unsafe { dot_avx2(a, b) };
        }
    }
    dot_portable(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn dot_avx512(a: &[f32], b: &[f32]) -> f32 {
    dot_lanes(a, b, f32::mul_add)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
    dot_lanes(a, b, f32::mul_add)
}

fn dot_portable(a: &[f32], b: &[f32]) -> f32 {
    // Without a fused instruction `mul_add` would be a library call.
    dot_lanes(a, b, |x, y, sum| if cfg!(target_arch = "aarch64") { x.mul_add(y, sum) } else { x * y + sum })
}

/// Inlined into each of the functions above, so that it is compiled for their features.
#[inline(always)]
fn dot_lanes(a: &[f32], b: &[f32], multiply_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] = multiply_add(x[lane], y[lane], sums[lane]);
        }
    }
    for (sum, (x, y)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum = multiply_add(*x, *y, *sum);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same in float64, and the sum of magnitudes that bounds the error.
    fn reference(a: &[f32], b: &[f32]) -> (f64, f64) {
        a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()))
    }

    proptest! {
        #[test]
        fn every_path_agrees_with_float64(pairs in prop::collection::vec((-1e3f32..1e3, -1e3f32..1e3), 0..300)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let (exact, magnitude) = reference(&a, &b);
            for found in [dot(&a, &b), dot_portable(&a, &b)] {
                prop_assert!((f64::from(found) - exact).abs() <= magnitude * 2e-6 + 1e-30);
            }
        }

        #[test]
        fn rows_with_a_stride(
            rows in 0usize..200, columns in 0usize..70, gap in 0usize..5, alpha in -2f32..2.0, beta in -2f32..2.0,
        ) {
            let stride = columns + gap;
            let w: Vec<f32> = (0..rows * stride).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
            let x: Vec<f32> = (0..columns).map(|i| ((i * 53 % 89) as f32 - 44.0) / 5.0).collect();
            let old: Vec<f32> = (0..rows).map(|i| i as f32).collect();
            let mut y = old.clone();
            gemv(alpha, &x, &w, stride, beta, &mut y);
            for (j, y) in y.iter().enumerate() {
                let (exact, magnitude) = reference(&x, &w[j * stride..][..columns]);
                let want = f64::from(alpha) * exact + f64::from(beta) * f64::from(old[j]);
                prop_assert!((f64::from(*y) - want).abs() <= magnitude * 1e-5 + want.abs() * 1e-5 + 1e-6);
            }
        }
    }

    #[test]
    fn an_output_that_is_not_a_number_is_overwritten_when_beta_is_zero() {
        let mut y = [f32::NAN; 3];
        gemv(1.0, &[2.0], &[1.0, 2.0, 3.0], 1, 0.0, &mut y);
        assert_eq!(y, [2.0, 4.0, 6.0]);
    }
}
