//! Rotary position embedding with sines and cosines from a table.

use std::sync::{PoisonError, RwLock};

use crate::pool::{self, Parts};

/// Positions up to which turns are kept; those beyond are computed each time.
const KEPT: usize = 1 << 17;

/// A rotation of the first `dims` numbers of a head.
#[derive(Debug)]
pub struct Rope {
    /// Radians that a position turns each pair by.
    rates: Vec<f64>,
    /// Whether pairs are neighbours instead of halves.
    traditional: bool,
    /// Cosine and sine of each pair, for the positions from 0 on.
    table: RwLock<Vec<[f32; 2]>>,
}

/// Numbers in memory by row, head and position, `dim` of them side by side.
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Rows, heads, positions.
    pub shape: [usize; 3],
    /// Numbers between neighbours on these axes.
    pub strides: [usize; 3],
    /// Numbers of a head.
    pub dim: usize,
}

impl<'a> Heads<'a> {
    /// The numbers of one head at one position.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize, head: usize, position: usize) -> &'a [f32] {
        let from = row * self.strides[0] + head * self.strides[1] + position * self.strides[2];
        &self.data[from..from + self.dim]
    }
}

impl Rope {
    /// A rotation that turns pair `i` by `position * rates[i]`.
    #[must_use]
    pub fn new(rates: Vec<f64>, traditional: bool) -> Self {
        Self { rates, traditional, table: RwLock::default() }
    }

    /// Turns every head: position `i` of row `r` by `first[r] + i`. The result is `[rows, heads, positions, dim]`; numbers
    /// of a head beyond the rotation are copied.
    ///
    /// # Panics
    /// When heads are narrower than the rotation, or sizes do not fit.
    pub fn turn(&self, x: Heads<'_>, first: &[i32], out: &mut [f32]) {
        let [rows, heads, length] = x.shape;
        let pairs = self.rates.len();
        assert!(2 * pairs <= x.dim && first.len() == rows, "{} of {}, {rows} rows", 2 * pairs, x.dim);
        assert_eq!(out.len(), rows * heads * length * x.dim, "the result's length");
        if out.is_empty() {
            return;
        }
        let turns: Vec<[f32; 2]> = first.iter().flat_map(|first| self.turns(*first, length)).collect();
        let out = Parts::new(out);
        let step = (8192 / (heads * x.dim)).max(1);
        let steps = length.div_ceil(step);
        pool::for_each(rows * steps, |piece| {
            let (row, from) = (piece / steps, piece % steps * step);
            for (head, at) in (0..heads).flat_map(|head| (from..length.min(from + step)).map(move |at| (head, at))) {
                let turns = &turns[(row * length + at) * pairs..][..pairs];
                // SAFETY: each head at each position is in one piece.
                let out = unsafe { out.part(((row * heads + head) * length + at) * x.dim, x.dim) };
                self.one(x.at(row, head, at), turns, out);
            }
        });
    }

    fn one(&self, x: &[f32], turns: &[[f32; 2]], out: &mut [f32]) {
        let pairs = turns.len();
        if self.traditional {
            let pairs = x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0).zip(turns);
            for (([a, b], out), [cos, sin]) in pairs {
                *out = [a * cos - b * sin, a * sin + b * cos];
            }
        } else {
            let (a, b) = x[..2 * pairs].split_at(pairs);
            let (out_a, out_b) = out[..2 * pairs].split_at_mut(pairs);
            for ((((a, b), out_a), out_b), [cos, sin]) in a.iter().zip(b).zip(out_a).zip(out_b).zip(turns) {
                (*out_a, *out_b) = (a * cos - b * sin, a * sin + b * cos);
            }
        }
        out[2 * pairs..].copy_from_slice(&x[2 * pairs..]);
    }

    /// The turns of `length` positions from `first` on.
    fn turns(&self, first: i32, length: usize) -> Vec<[f32; 2]> {
        let pairs = self.rates.len();
        let compute = |position: i64| {
            self.rates.iter().map(move |rate| {
                let (sin, cos) = (position as f64 * rate).sin_cos();
                [cos as f32, sin as f32]
            })
        };
        let Some(from) = usize::try_from(first).ok().filter(|from| from + length <= KEPT) else {
            return (0..length).flat_map(|i| compute(i64::from(first) + i as i64)).collect();
        };
        let wanted = from * pairs..(from + length) * pairs;
        if let Some(turns) = self.table.read().unwrap_or_else(PoisonError::into_inner).get(wanted.clone()) {
            return turns.to_vec();
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        // Some more than is asked for, since the next step will ask for more.
        let end = (from + length).next_multiple_of(256);
        let known = table.len() / pairs.max(1);
        table.extend((known..end).flat_map(|position| compute(position as i64)));
        table[wanted].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pairs_turn_by_their_positions(
            (rows, heads, length) in (0usize..4, 1usize..4, 0usize..20),
            (pairs, rest) in (1usize..20, 0usize..5),
            traditional in any::<bool>(),
            first in prop::collection::vec(prop_oneof![-50i32..1000, Just(i32::MAX - 40), 131_060i32..131_080], 4),
        ) {
            let dim = 2 * pairs + rest;
            let x: Vec<f32> = (0..rows * heads * length * dim).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
            let rates: Vec<f64> = (0..pairs).map(|i| 100f64.powf(-(i as f64) / pairs as f64)).collect();
            let rope = Rope::new(rates.clone(), traditional);
            // As a product leaves them: [rows, positions, heads, dim].
            let strides = [length * heads * dim, dim, heads * dim];
            let input = Heads { data: &x, shape: [rows, heads, length], strides, dim };
            let mut out = vec![f32::NAN; x.len()];
            rope.turn(input, &first[..rows], &mut out);
            for (row, head, at) in (0..rows).flat_map(|r| (0..heads).flat_map(move |h| (0..length).map(move |a| (r, h, a)))) {
                let x = &x[row * strides[0] + head * strides[1] + at * strides[2]..][..dim];
                let found = &out[((row * heads + head) * length + at) * dim..][..dim];
                for pair in 0..pairs {
                    let (i, j) = if traditional { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
                    let (sin, cos) = ((f64::from(first[row]) + at as f64) * rates[pair]).sin_cos();
                    let (a, b) = (f64::from(x[i]), f64::from(x[j]));
                    prop_assert!((f64::from(found[i]) - (a * cos - b * sin)).abs() < 1e-6);
                    prop_assert!((f64::from(found[j]) - (a * sin + b * cos)).abs() < 1e-6);
                }
                prop_assert_eq!(&found[2 * pairs..], &x[2 * pairs..]);
            }
        }
    }
}
