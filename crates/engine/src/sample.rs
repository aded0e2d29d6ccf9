//! Choosing the next token on the device, so that the next step can be built before this one's token is read.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use mlx_rs::ops::indexing::{argmax_axis, take_along_axis};
use mlx_rs::ops::{
    argpartition_axis, argsort_axis, cumsum, expand_dims, logsumexp_axis, lt, max_axis, select, softmax_axis,
};
use mlx_rs::{Array, Dtype, random};

use annulus_kernels::sample::Choice;

use crate::error::Result;
use crate::job::{Sampling, TokenLogprob};
use crate::mlx;
use crate::ops::{self, Ops};

/// Chooses tokens as a [`Sampling`] asks.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
}

impl Sampler {
    /// A sampler with the seed that is asked for, or one of its own.
    #[must_use]
    pub fn new(sampling: &Sampling) -> Self {
        // The standard library's hasher is keyed by the operating system's randomness.
        let seed = sampling.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Self { sampling: sampling.clone(), seed }
    }

    /// A token for each row of `logits`, `[B, vocabulary]`: `[B]`, unsigned. `step` counts the tokens of the request, so
    /// that a token depends on the seed and its own place alone.
    ///
    /// The distribution is divided by the temperature, then cut to the `top_k` likeliest tokens, then to the fewest whose
    /// probabilities reach `top_p`, then to those at least `min_p` times as likely as the likeliest.
    ///
    /// # Errors
    /// When MLX refuses an operation.
    pub fn sample(&self, logits: &Array, step: u64) -> Result<Array> {
        self.sample_with(ops::chosen(), logits, step)
    }

    fn sample_with(&self, ops: &dyn Ops, logits: &Array, step: u64) -> Result<Array> {
        if self.sampling.temperature <= 0.0 {
            return Ok(argmax_axis(logits, -1, false)?);
        }
        ops.sample(logits, self, step)
    }

    /// How this project's kernels are told to cut a distribution.
    pub(crate) fn choice(&self) -> Choice {
        let Sampling { temperature, top_p, top_k, min_p, .. } = self.sampling;
        Choice { temperature, top_k: usize::try_from(top_k).unwrap_or(usize::MAX), top_p, min_p }
    }

    /// Numbers from 0 up to 1, one a row.
    pub(crate) fn randoms(&self, step: u64, rows: i32) -> Vec<f64> {
        let key = mix(self.seed, step);
        // 53 bits are what a float64 holds.
        (0..u64::from(rows.unsigned_abs())).map(|row| (mix(key, row) >> 11) as f64 / (1u64 << 53) as f64).collect()
    }

    /// [`sample`](Self::sample) above temperature 0, by MLX's own operations.
    pub(crate) fn with_mlx(&self, logits: &Array, step: u64) -> Result<Array> {
        let Sampling { temperature, top_p, top_k, min_p, .. } = self.sampling;
        let key = random::key(mix(self.seed, step))?;
        let mut logits = logits.as_dtype(Dtype::Float32)?.divide(Array::from_f32(temperature))?;
        let mut tokens = None;
        let vocabulary = logits.dim(-1);
        let k = i32::try_from(top_k).unwrap_or(i32::MAX);
        if 0 < k && k < vocabulary {
            let likeliest = argpartition_axis(logits.negative()?, k - 1, -1)?;
            let likeliest = mlx::slice(&likeliest, 1, 0, k)?;
            logits = take_along_axis(&logits, &likeliest, -1)?;
            tokens = Some(likeliest);
        }
        if top_p < 1.0 {
            let order = argsort_axis(logits.negative()?, -1)?;
            let sorted = take_along_axis(&logits, &order, -1)?;
            let likelier = cumsum(softmax_axis(&sorted, -1, true)?, -1, false, false)?;
            logits = cut(&sorted, &lt(likelier, Array::from_f32(top_p))?)?;
            tokens = Some(match tokens {
                None => order,
                Some(tokens) => take_along_axis(tokens, order, -1)?,
            });
        }
        if min_p > 0.0 {
            let least = max_axis(&logits, -1, true)?.add(Array::from_f32(min_p.ln()))?;
            logits = cut(&logits, &logits.ge(least)?)?;
        }
        let chosen = random::categorical(&logits, -1, None, &key)?;
        Ok(match tokens {
            None => chosen,
            Some(tokens) => take_along_axis(tokens, expand_dims(chosen, -1)?, -1)?.squeeze_axes(&[-1])?,
        })
    }
}

/// `logits` where `keep` is true, and minus infinity elsewhere.
fn cut(logits: &Array, keep: &Array) -> Result<Array> {
    Ok(select(keep, logits, Array::from_f32(f32::NEG_INFINITY))?)
}

/// A well-mixed function of both numbers (the finaliser of SplitMix64; Steele et al., 2014).
fn mix(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The log-probabilities of one step, on the device until they are read.
#[derive(Debug)]
pub struct Logprobs {
    /// `[rows]`, the log-probability of each row's token.
    chosen: Array,
    /// `[rows, n]` each, the likeliest tokens and their log-probabilities, in no order.
    top: Option<(Array, Array)>,
}

impl Logprobs {
    /// Of `logits`, `[rows, vocabulary]`: the log-probabilities of `tokens`, `[rows]`, and of the `n` likeliest tokens.
    ///
    /// # Errors
    /// When MLX refuses an operation.
    pub fn new(logits: &Array, tokens: &Array, n: usize) -> Result<Self> {
        let logits = logits.as_dtype(Dtype::Float32)?;
        let n = i32::try_from(n).unwrap_or(i32::MAX).min(logits.dim(-1));
        let logprobs = logits.subtract(logsumexp_axis(&logits, -1, true)?)?;
        let chosen =
            take_along_axis(&logprobs, expand_dims(tokens.as_dtype(Dtype::Uint32)?, -1)?, -1)?.squeeze_axes(&[-1])?;
        let top = if n == 0 {
            None
        } else {
            // Partitioning by the last place but n is enough: the few that stay are sorted when they are read.
            let order = argpartition_axis(logprobs.negative()?, n - 1, -1)?;
            let likeliest = mlx::slice(&order, 1, 0, n)?;
            let values = take_along_axis(&logprobs, &likeliest, -1)?;
            Some((likeliest, values))
        };
        Ok(Self { chosen, top })
    }

    /// The arrays to evaluate.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        [Some(&self.chosen), self.top.as_ref().map(|top| &top.0), self.top.as_ref().map(|top| &top.1)]
            .into_iter()
            .flatten()
    }

    /// Reads them for these tokens, one a row.
    ///
    /// # Errors
    /// When the evaluation fails.
    pub fn read(&self, tokens: &[u32]) -> Result<Vec<TokenLogprob>> {
        let chosen = self.chosen.contiguous()?;
        let chosen = chosen.try_as_slice::<f32>()?;
        let mut rows: Vec<TokenLogprob> =
            tokens.iter().zip(chosen).map(|(&id, &logprob)| TokenLogprob { id, logprob, top: Vec::new() }).collect();
        if let Some((ids, values)) = &self.top {
            let (ids, values) = (ids.contiguous()?, values.contiguous()?);
            let width = usize::try_from(ids.dim(-1)).unwrap_or(1).max(1);
            let (ids, values) = (ids.try_as_slice::<u32>()?, values.try_as_slice::<f32>()?);
            for (row, (ids, values)) in rows.iter_mut().zip(ids.chunks(width).zip(values.chunks(width))) {
                row.top = ids.iter().copied().zip(values.iter().copied()).collect();
                row.top.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::f32::consts::LN_2;

    use super::*;
    use crate::ops::{Cpu, Mlx};

    fn sampling(temperature: f32) -> Sampling {
        Sampling { temperature, seed: Some(7), ..Sampling::default() }
    }

    /// How often each token is chosen in `n` steps, by MLX's operations and by our kernels.
    fn frequencies(sampling: &Sampling, logits: &[f32], n: usize) -> [Vec<usize>; 2] {
        mlx_rs::Device::set_default(&mlx_rs::Device::cpu());
        let row = Array::from_slice(logits, &[1, logits.len() as i32]);
        let sampler = Sampler::new(sampling);
        let count = |ops: &dyn Ops| {
            let mut counts = vec![0; logits.len()];
            for step in 0..n {
                let token = sampler.sample_with(ops, &row, step as u64).unwrap();
                counts[token.item_cast::<u32>() as usize] += 1;
            }
            counts
        };
        [count(&Mlx), count(&Cpu)]
    }

    #[test]
    fn zero_temperature_takes_the_likeliest() {
        for counts in frequencies(&sampling(0.0), &[0.0, 3.0, 1.0, 2.9], 5) {
            assert_eq!(counts, [0, 5, 0, 0]);
        }
    }

    #[test]
    fn one_candidate_is_the_likeliest_however_it_was_cut() {
        let logits = [0.0, 3.0, 1.0, 2.9];
        for cut in [
            Sampling { top_k: 1, ..sampling(1.0) },
            Sampling { top_p: 0.01, ..sampling(1.0) },
            Sampling { min_p: 0.99, ..sampling(1.0) },
            Sampling { top_k: 3, top_p: 0.01, ..sampling(5.0) },
        ] {
            for counts in frequencies(&cut, &logits, 20) {
                assert_eq!(counts, [0, 20, 0, 0], "{cut:?}");
            }
        }
    }

    /// The logarithms of 1/8, 1/2, 1/8 and 1/4.
    const HALVES: [f32; 4] = [-3.0 * LN_2, -LN_2, -3.0 * LN_2, -2.0 * LN_2];

    /// Counts of 4,000 draws lie within five standard deviations of what the shares say.
    fn assert_shares(counts: &[Vec<usize>; 2], shares: &[f64]) {
        for (count, share) in counts.iter().flat_map(|counts| counts.iter().zip(shares)) {
            let expected = 4000.0 * share;
            let deviation = (4000.0 * share * (1.0 - share)).sqrt();
            assert!((*count as f64 - expected).abs() <= 5.0 * deviation, "{counts:?} for {shares:?}");
        }
    }

    #[test]
    fn frequencies_follow_the_distribution_that_is_left() {
        assert_shares(&frequencies(&sampling(1.0), &HALVES, 4000), &[0.125, 0.5, 0.125, 0.25]);
        let cut = |top_p, top_k, min_p| Sampling { top_p, top_k, min_p, ..sampling(1.0) };
        let two = [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0];
        assert_shares(&frequencies(&cut(1.0, 2, 0.0), &HALVES, 4000), &two);
        assert_shares(&frequencies(&cut(0.6, 0, 0.0), &HALVES, 4000), &two);
        assert_shares(&frequencies(&cut(1.0, 0, 0.3), &HALVES, 4000), &two);
        // At temperature 2 the shares are those of the square roots.
        let roots = [0.125f64, 0.5, 0.125, 0.25].map(f64::sqrt);
        let sum: f64 = roots.iter().sum();
        let warm = Sampling { temperature: 2.0, ..sampling(1.0) };
        assert_shares(&frequencies(&warm, &HALVES, 4000), &roots.map(|root| root / sum));
    }

    #[test]
    fn a_seed_repeats_and_no_seed_does_not() {
        let logits: Vec<f32> = (0..512).map(|i| (i % 7) as f32 / 10.0).collect();
        let row = Array::from_slice(&logits, &[1, 512]);
        let seedless = Sampling { seed: None, ..sampling(1.0) };
        for ops in [&Mlx as &dyn Ops, &Cpu] {
            let run = |sampling: &Sampling| -> Vec<u32> {
                let sampler = Sampler::new(sampling);
                let token = |step| sampler.sample_with(ops, &row, step).unwrap().item_cast::<u32>();
                (0..16).map(token).collect()
            };
            assert_eq!(run(&sampling(1.0)), run(&sampling(1.0)));
            assert_ne!(run(&sampling(1.0)), run(&Sampling { seed: Some(8), ..sampling(1.0) }));
            assert_ne!(run(&seedless), run(&seedless));
        }
    }

    #[test]
    fn logprobs_are_sorted_and_normalised() {
        let logits = Array::from_slice(&[0.0f32, 1.0, 2.0, 5.0, 5.0, 5.0, 1.0, -3.0], &[2, 4]);
        let tokens = Array::from_slice(&[1u32, 3], &[2]);
        let found = Logprobs::new(&logits, &tokens, 3).unwrap().read(&[1, 3]).unwrap();
        let total = |row: [f64; 4]| row.iter().map(|x| x.exp()).sum::<f64>().ln();
        let (first, second) = (total([0.0, 1.0, 2.0, 5.0]), total([5.0, 5.0, 1.0, -3.0]));
        assert!((f64::from(found[0].logprob) - (1.0 - first)).abs() < 1e-5);
        assert!((f64::from(found[1].logprob) - (-3.0 - second)).abs() < 1e-5);
        let ids = |row: &TokenLogprob| row.top.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&found[0]), [3, 2, 1]);
        assert_eq!(ids(&found[1])[..2], [0, 1]);
        assert!((f64::from(found[0].top[0].1) - (5.0 - first)).abs() < 1e-5);
    }
}
