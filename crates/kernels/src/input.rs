//! Activations in the order in which products read them.
//!
//! Rows are taken in blocks of eight (the rest in four, two and one): a block holds, for each input in turn, the numbers
//! of all its rows, so that a product walks it from front to back. What a row yields does not depend on its block.
//!
//! With [`Activations::Int16`] every 32 neighbours of a row become integers with a scale, `x = scale * q` with `q` from
//! -32,639 to 32,639: half a step is 0.002 percent of the largest of the 32. An integer is kept as two signed bytes,
//! `q = 256 * upper + lower`, for instructions that multiply bytes: the products are then sums of integers. One byte alone
//! would be faster still and is too coarse: over a small model's thirty layers the error of 0.4 percent a number changes
//! the first choice of one token in thirty.

use crate::pool::{self, Parts};
use crate::simd::{self, Kernel, LANES, Path, Simd};

/// Rows of a full block.
pub(crate) const BLOCK: usize = 8;

/// Neighbours that share a scale, and whose sum is kept.
pub(crate) const GROUP: usize = 32;

/// In which form activations enter a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// As they are.
    F32,
    /// Integers of two signed bytes, with a scale for every 32 neighbours.
    Int16,
}

/// Activations, ready for any number of products.
#[derive(Debug)]
pub struct Input {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) numbers: Numbers,
    /// For each group of each block, the sums of its rows (over the rounded numbers, where they are rounded).
    pub(crate) sums: Vec<f32>,
}

#[derive(Debug)]
pub(crate) enum Numbers {
    F32(Vec<f32>),
    Int16 {
        /// For each group of each block, the upper bytes of its rows, then their lower ones.
        bytes: Vec<Eight>,
        /// As `sums`.
        scales: Vec<f32>,
    },
}

/// The bytes of a group, four neighbours in a word.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Eight(pub(crate) [i32; 8]);

/// The first row of each block and its number of rows.
pub(crate) fn blocks(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = rows - first;
        let taken = if left >= BLOCK { BLOCK } else { 1 << left.checked_ilog2()? };
        first += taken;
        Some((first - taken, taken))
    })
}

impl Input {
    /// Takes rows of `width` numbers each; `None` when the width is no multiple of 32 or does not divide the numbers.
    #[must_use]
    pub fn new(path: Path, x: &[f32], width: usize, activations: Activations) -> Option<Self> {
        if width == 0 || !width.is_multiple_of(GROUP) || !x.len().is_multiple_of(width) {
            return None;
        }
        let rows = x.len() / width;
        let mut sums = vec![0.0; x.len() / GROUP];
        let numbers = match activations {
            Activations::F32 => {
                let mut numbers = vec![0.0; x.len()];
                each_block(x, width, &mut numbers, &mut sums, GROUP, |x, first, count, numbers, sums| {
                    simd::run(path, Interleave { x, width, first, count, numbers, sums });
                });
                Numbers::F32(numbers)
            }
            Activations::Int16 => {
                let mut bytes = vec![Eight([0; 8]); 2 * sums.len()];
                // Scales and sums of a block lie together until all are there.
                let mut both = vec![[0.0; 2]; sums.len()];
                each_block(x, width, &mut bytes, &mut both, 2, |x, first, count, bytes, both| {
                    simd::run(path, Quantize { x, width, first, count, bytes, both });
                });
                sums.iter_mut().zip(&both).for_each(|(sum, both)| *sum = both[1]);
                Numbers::Int16 { bytes, scales: both.iter().map(|both| both[0]).collect() }
            }
        };
        Some(Self { rows, width, numbers, sums })
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Calls `f` with each block and its part of two outputs, one with `per_group` entries a group and one with a single one.
fn each_block<A: Send, B: Send>(
    x: &[f32],
    width: usize,
    a: &mut [A],
    b: &mut [B],
    per_group: usize,
    f: impl Fn(&[f32], usize, usize, &mut [A], &mut [B]) + Sync,
) {
    let groups = width / GROUP;
    let blocks: Vec<_> = blocks(x.len() / width).collect();
    let (a, b) = (Parts::new(a), Parts::new(b));
    pool::for_each(blocks.len(), |index| {
        let (first, count) = blocks[index];
        let (from, length) = (first * groups, count * groups);
        // SAFETY: blocks do not overlap, and each is one piece.
        let (a, b) = unsafe { (a.part(from * per_group, length * per_group), b.part(from, length)) };
        f(x, first, count, a, b);
    });
}

/// One block of float32.
struct Interleave<'a> {
    x: &'a [f32],
    width: usize,
    first: usize,
    count: usize,
    numbers: &'a mut [f32],
    sums: &'a mut [f32],
}

impl Kernel for Interleave<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, width, first, count, numbers, sums } = self;
        for row in 0..count {
            let x = &x[(first + row) * width..][..width];
            for (group, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
                let (halves, _) = x.as_chunks::<LANES>();
                sums[group * count + row] = s.sum(s.add(s.load(&halves[0]), s.load(&halves[1])));
                let to = &mut numbers[group * GROUP * count..][..GROUP * count];
                for (x, to) in x.iter().zip(to.chunks_exact_mut(count)) {
                    to[row] = *x;
                }
            }
        }
    }
}

/// One block of integers.
struct Quantize<'a> {
    x: &'a [f32],
    width: usize,
    first: usize,
    count: usize,
    bytes: &'a mut [Eight],
    both: &'a mut [[f32; 2]],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, width, first, count, bytes, both } = self;
        for row in 0..count {
            let x = &x[(first + row) * width..][..width];
            for (group, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
                let (scale, sum, planes) = quantize(s, x);
                both[group * count + row] = [scale, sum];
                // No closures: they would be compiled without the path's features.
                for plane in 0..2 {
                    let words = planes[plane].as_chunks::<4>().0;
                    let Eight(eight) = &mut bytes[(2 * group + plane) * count + row];
                    for quad in 0..8 {
                        eight[quad] = i32::from_le_bytes(words[quad]);
                    }
                }
            }
        }
    }
}

/// The greatest integer whose upper byte is 127.
const MOST: f32 = 32_639.0;

/// A group as integers: their scale, their sum times the scale, and their upper and lower bytes.
#[inline(always)]
fn quantize<S: Simd>(s: S, x: &[f32; GROUP]) -> (f32, f32, [[u8; GROUP]; 2]) {
    let (halves, _) = x.as_chunks::<LANES>();
    let [a, b] = [s.load(&halves[0]), s.load(&halves[1])];
    let zero = s.splat(0.0);
    let greatest = s.max(s.max(a, s.sub(zero, a)), s.max(b, s.sub(zero, b)));
    let scale = s.greatest(greatest) / MOST;
    let inverse = s.splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
    // The inverse of a tiny scale may be infinite, and 0 times infinity is no number; rounding may pass the greatest.
    let (low, high) = (s.splat(-MOST), s.splat(MOST));
    let a = s.min(s.max(s.round(s.mul(a, inverse)), low), high);
    let b = s.min(s.max(s.round(s.mul(b, inverse)), low), high);
    let mut planes = [[0; GROUP]; 2];
    let halves = [s.split(a), s.split(b)];
    for plane in 0..2 {
        planes[plane][..LANES].copy_from_slice(&halves[0][plane]);
        planes[plane][LANES..].copy_from_slice(&halves[1][plane]);
    }
    (scale, scale * s.sum(s.add(a, b)), planes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_cover_all_rows() {
        for rows in 0..40 {
            let blocks: Vec<_> = blocks(rows).collect();
            let mut next = 0;
            for (first, count) in blocks {
                assert_eq!(first, next);
                assert!([1, 2, 4, 8].contains(&count));
                next += count;
            }
            assert_eq!(next, rows);
        }
    }

    proptest! {
        #[test]
        fn integers_are_within_half_a_step(rows in 0usize..20, groups in 1usize..5, size in -30i32..30, salt in any::<u32>()) {
            let width = groups * GROUP;
            let number = |i: usize| (((i as u32).wrapping_mul(2_654_435_761) ^ salt) as i32 as f32) * 2f32.powi(size - 31);
            let x: Vec<f32> = (0..rows * width).map(number).collect();
            for path in Path::available() {
                let input = Input::new(path, &x, width, Activations::Int16).unwrap();
                let Numbers::Int16 { bytes, scales } = &input.numbers else { unreachable!() };
                for (first, count) in blocks(rows) {
                    for (row, group) in (0..count).flat_map(|row| (0..groups).map(move |group| (row, group))) {
                        let at = first * groups + group * count + row;
                        let x = &x[(first + row) * width + group * GROUP..][..GROUP];
                        let largest = x.iter().fold(0f32, |a, x| a.max(x.abs()));
                        prop_assert!((scales[at] * 32_639.0 - largest).abs() <= largest * 1e-6);
                        let mut sum = 0.0;
                        for (i, x) in x.iter().enumerate() {
                            let pair = 2 * (first * groups + group * count) + row;
                            let [upper, lower] = [0, count].map(|plane| bytes[pair + plane].0[i / 4].to_le_bytes()[i % 4] as i8);
                            let q = 256 * i32::from(upper) + i32::from(lower);
                            // Dividing in float32 is off by a last bit or two of 24, a step is one of 15.
                            prop_assert!((f64::from(scales[at]) * f64::from(q) - f64::from(*x)).abs() <= f64::from(scales[at]) * 0.51);
                            sum += f64::from(scales[at]) * f64::from(q);
                        }
                        prop_assert!((f64::from(input.sums[at]) - sum).abs() <= f64::from(largest) * 1e-4);
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_and_the_smallest_numbers_stay_finite() {
        for path in Path::available() {
            for x in [0.0, f32::from_bits(1), f32::MIN_POSITIVE, -1e-39, f32::MAX] {
                let input = Input::new(path, &[x; 32], 32, Activations::Int16).unwrap();
                assert!(input.sums[0].is_finite() || x == f32::MAX, "{path}: {x}");
            }
        }
    }

    #[test]
    fn widths_that_are_no_multiple_of_a_group_are_refused() {
        for (length, width) in [(33, 33), (31, 31), (32, 0), (48, 32)] {
            assert!(Input::new(Path::PORTABLE, &vec![0.0; length], width, Activations::F32).is_none());
        }
        assert_eq!(Input::new(Path::PORTABLE, &[], 32, Activations::F32).unwrap().rows(), 0);
    }
}
