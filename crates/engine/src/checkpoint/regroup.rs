//! Groups that MLX has no kernels for, in groups that it has.
//!
//! Q6_K has a scale for every 16 numbers; MLX's smallest groups have 32. Two neighbouring groups become one of 8 bits on the
//! grid of the coarser of the two, refined as far as 255 steps reach: the numbers of that group keep their values, and only
//! those of the finer one are rounded.

use super::Affine;
use super::gguf::Packed;
use super::parallel::in_parts;

/// Elements of a group that MLX's kernels take at least.
pub const SMALLEST_GROUP: usize = 32;

const BITS: usize = 8;
const STEPS: f32 = 255.0;

/// What rounding cost: sums of squares over all elements.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    error: f64,
    power: f64,
}

impl Loss {
    /// The root mean square of the errors, relative to that of the numbers.
    #[must_use]
    pub fn relative(self) -> f64 {
        if self.error == 0.0 { 0.0 } else { (self.error / self.power).sqrt() }
    }
}

impl std::ops::AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.error += other.error;
        self.power += other.power;
    }
}

impl Affine<'_> {
    /// The numbers, rounded to 8 bits in groups of 32, with float32 scales; and what rounding cost.
    ///
    /// `None` when rows do not divide into groups of 32, or the parts do not fit each other.
    #[must_use]
    pub fn regrouped(&self) -> Option<(Affine<'static>, Loss)> {
        let columns = *self.shape.last()?;
        if !columns.is_multiple_of(SMALLEST_GROUP) || !SMALLEST_GROUP.is_multiple_of(self.group_size) {
            return None;
        }
        let rows = self.rows()?;
        let parts = in_parts(rows.count, columns, |range| {
            let mut packed = Packed::with_capacity(range.len() * columns, BITS, SMALLEST_GROUP);
            let mut loss = Loss::default();
            rows.for_each(range, |row, scales, biases| loss += regroup(row, scales, biases, &mut packed));
            (packed, loss)
        });
        let mut loss = Loss::default();
        parts.iter().for_each(|(_, part)| loss += *part);
        let packed = Packed::concat(parts.into_iter().map(|(packed, _)| packed).collect());
        Some((packed.finish(BITS, SMALLEST_GROUP, self.shape.clone()), loss))
    }
}

/// Appends a row's numbers, which come with a scale and a bias for each of its own, smaller groups.
fn regroup(row: &[f32], scales: &[f32], biases: &[f32], out: &mut Packed) -> Loss {
    let (groups, _) = row.as_chunks::<SMALLEST_GROUP>();
    let parts = scales.len() / groups.len().max(1);
    let parts = scales.chunks_exact(parts).zip(biases.chunks_exact(parts));
    let mut loss = Loss::default();
    for (numbers, (scales, biases)) in groups.iter().zip(parts) {
        let grid = Grid::over(numbers, scales, biases);
        let integers = grid.nearest(numbers);
        out.push(grid.scale, grid.bias, &integers, BITS);
        let (mut error, mut power) = (0.0, 0.0);
        for (number, integer) in numbers.iter().zip(integers) {
            let difference = grid.scale * f32::from(integer) + grid.bias - number;
            error += difference * difference;
            power += number * number;
        }
        loss += Loss { error: error.into(), power: power.into() };
    }
    loss
}

/// The numbers that 8 bits can stand for: `scale * q + bias`.
struct Grid {
    scale: f32,
    bias: f32,
}

impl Grid {
    /// A grid over numbers that come in groups with these scales and biases.
    fn over(numbers: &[f32; SMALLEST_GROUP], scales: &[f32], biases: &[f32]) -> Self {
        let low = numbers.iter().copied().fold(f32::INFINITY, f32::min);
        let high = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let coarsest = scales.iter().zip(biases).max_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs()));
        if let Some((scale, bias)) = coarsest {
            let step = scale.abs();
            let (first, last) = (((low - bias) / step).floor(), ((high - bias) / step).ceil());
            let refined = (STEPS / (last - first)).floor();
            if refined >= 1.0 && refined.is_finite() {
                return Self { scale: step / refined, bias: bias + first * step };
            }
        }
        // Groups that lie so far apart that the coarser grid does not reach: as MLX quantizes.
        Self { scale: (high - low) / STEPS, bias: low }
    }

    fn nearest(&self, numbers: &[f32; SMALLEST_GROUP]) -> [u8; SMALLEST_GROUP] {
        // No grid has a step of infinity, and one of zero has all its numbers at its bias.
        let steps = if self.scale == 0.0 { 0.0 } else { 1.0 / self.scale };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from float saturates")]
        numbers.map(|number| ((number - self.bias) * steps + 0.5) as u8)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One row in groups of 16 with 6 bits: integers, and a scale and a bias a group.
    fn row(integers: &[u8], scales: &[f32], biases: &[f32]) -> Affine<'static> {
        let mut packed = Packed::default();
        for ((integers, scale), bias) in integers.chunks_exact(16).zip(scales).zip(biases) {
            packed.push(*scale, *bias, integers, 6);
        }
        packed.finish(6, 16, vec![1, integers.len()])
    }

    /// As Q6_K has them: the bias is -32 scales.
    fn symmetric(integers: &[u8], scales: &[f32]) -> Affine<'static> {
        let biases: Vec<f32> = scales.iter().map(|scale| -32.0 * scale).collect();
        row(integers, scales, &biases)
    }

    /// The numbers, by how much each is off afterwards, and the loss.
    fn errors(affine: &Affine<'_>) -> (Vec<f32>, Vec<f32>, Loss) {
        let before = affine.to_f32().unwrap();
        let (after, loss) = affine.regrouped().unwrap();
        assert_eq!((after.bits, after.group_size, &after.shape), (8, 32, &affine.shape));
        let errors =
            after.to_f32().unwrap().iter().zip(&before).map(|(after, before)| (after - before).abs()).collect();
        (before, errors, loss)
    }

    #[test]
    fn a_pair_that_shares_a_grid_is_kept() {
        // 0.5 and 0.125: a step of 0.125 reaches 63 * 0.5 in 252 steps.
        let integers: Vec<u8> = (0..16).map(|i| i * 4 + i / 5).chain(32..48).collect();
        let (_, errors, loss) = errors(&symmetric(&integers, &[0.5, 0.125]));
        assert!(errors.iter().all(|error| *error == 0.0), "{errors:?}");
        assert_eq!(loss.relative(), 0.0);
    }

    #[test]
    fn groups_of_nothing_and_groups_far_apart() {
        let (_, zeros, loss) = errors(&symmetric(&[7; 32], &[0.0, 0.0]));
        assert!(zeros.iter().all(|error| *error == 0.0));
        assert_eq!(loss.relative(), 0.0);
        // 1000 apart with steps of 1 and 0.5: only a step of (1000 + 31.5) / 255 reaches.
        let integers: Vec<u8> = (0..16).chain(48..64).collect();
        let (_, errors, _) = errors(&row(&integers, &[1.0, 0.5], &[0.0, 1000.0]));
        let worst = errors.iter().copied().fold(0.0, f32::max);
        assert!(worst > 0.5 && worst <= 1031.5 / 255.0 / 2.0 + 1e-3, "{worst}");
    }

    #[test]
    fn rows_that_do_not_divide_are_refused() {
        assert!(symmetric(&[1; 48], &[1.0; 3]).regrouped().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// The coarser group keeps its numbers; the finer one is off by half a step of a grid at least three times as fine
        /// as the coarser group's own. (Both span at most 64 steps, and 64 * 3 are below 255.)
        #[test]
        fn only_the_finer_group_is_rounded(
            integers in proptest::collection::vec(0_u8..64, 32),
            scales in proptest::collection::vec(-1.0_f32..1.0, 2),
        ) {
            let (_, errors, loss) = errors(&symmetric(&integers, &scales));
            let coarse = usize::from(scales[1].abs() > scales[0].abs());
            let step = scales[coarse].abs();
            for (place, error) in errors.iter().enumerate() {
                // Some units of the last place of the largest number.
                let allowed = step * 64.0 * 4e-7 + if place / 16 == coarse { 0.0 } else { step / 6.0 };
                prop_assert!(*error <= allowed, "number {}: {} of {}", place, error, step);
            }
            prop_assert!(loss.relative() < 0.2);
        }
    }

    /// Numbers as models have them: normally distributed, quantized to 6 bits by their group's largest.
    #[test]
    fn the_loss_is_below_half_a_percent() {
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0
        };
        let (mut integers, mut scales) = (Vec::new(), Vec::new());
        for _ in 0..2000 {
            // The sum of twelve uniform numbers is nearly normal.
            let numbers: Vec<f32> = (0..16).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect();
            let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
            scales.push(largest / 31.0);
            integers.extend(numbers.iter().map(|number| (number / largest * 31.0 + 32.0).round() as u8));
        }
        let affine = symmetric(&integers, &scales);
        let (before, errors, loss) = errors(&affine);
        let power = |numbers: &[f32]| numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>();
        let by_hand = (power(&errors) / power(&before)).sqrt();
        assert!((loss.relative() / by_hand - 1.0).abs() < 1e-3, "{} {by_hand}", loss.relative());
        assert!(loss.relative() < 0.005, "{}", loss.relative());
    }
}
