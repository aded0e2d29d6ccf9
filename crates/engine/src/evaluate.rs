//! How well a model foretells a text, and how far one way of keeping its cache is from another.

use mlx_rs::ops::indexing::{argmax_axis, take_along_axis};
use mlx_rs::ops::{eq, expand_dims, logsumexp_axis};
use mlx_rs::{Array, Dtype};

use crate::cache::{Arrangement, Cache};
use crate::error::{Error, Result};
use crate::generate::{Session, row};
use crate::mlx;

/// What is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Tokens that every window begins with and that are not scored: those that the tokenizer puts before a text.
    pub prefix: &'a [u32],
    /// The text's tokens.
    pub tokens: &'a [u32],
    /// Tokens that run through one cache, the prefix included; then the next window begins with an empty one.
    pub window: usize,
}

/// What an evaluation found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// How many tokens were scored: all that have one before them.
    pub scored: usize,
    /// The mean negative log-probability of a token, in nats. Its exponential is the perplexity.
    pub loss: f64,
    /// How far the distributions are from those of the other cache.
    pub comparison: Option<Comparison>,
}

/// Two ways of keeping the cache, over the same tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The mean Kullback-Leibler divergence of this cache's distributions from the other's, in nats.
    pub divergence: f64,
    /// The largest of any token.
    pub most: f64,
    /// The share of tokens for which both have the same first choice.
    pub same_choice: f64,
}

/// The most logits that are held at a time.
const LOGITS: usize = 1 << 24;

#[derive(Debug, Default)]
struct Sums {
    scored: usize,
    loss: f64,
    divergence: f64,
    most: f64,
    same: f64,
}

impl Session {
    /// Scores a text, and compares with the same model over a cache of another arrangement when one is given. `progress`
    /// hears how many tokens are done.
    ///
    /// # Errors
    /// When the text has nothing to score, a window has no room for two tokens, or a step fails.
    pub fn evaluate(
        &mut self,
        text: Text<'_>,
        other: Option<&Arrangement>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Evaluation> {
        let room = text.window.saturating_sub(text.prefix.len());
        if room < 2 || text.tokens.len() < 2 {
            return Err(Error::Unsupported(format!(
                "a text of {} tokens in windows of {} with {} before each: at least two tokens of a text must fit",
                text.tokens.len(),
                text.window,
                text.prefix.len()
            )));
        }
        let mut sums = Sums::default();
        let mut done = 0;
        for part in text.tokens.chunks(room) {
            let tokens = [text.prefix, part].concat();
            self.window(&tokens, text.prefix.len().max(1), other, &mut sums)?;
            done += part.len();
            progress(done);
        }
        let count = sums.scored.max(1) as f64;
        let comparison = other.map(|_| Comparison {
            divergence: sums.divergence / count,
            most: sums.most,
            same_choice: sums.same / count,
        });
        Ok(Evaluation { scored: sums.scored, loss: sums.loss / count, comparison })
    }

    /// One window, of which tokens from `first` on are scored.
    fn window(&self, tokens: &[u32], first: usize, other: Option<&Arrangement>, sums: &mut Sums) -> Result<()> {
        let mut cache = Cache::new(self.arrangement().clone(), 1)?;
        let mut second = other.map(|other| Cache::new(other.clone(), 1)).transpose()?;
        // The last token is only foretold.
        let inputs = &tokens[..tokens.len() - 1];
        let mut at = 0;
        for chunk in inputs.chunks(self.chunk_tokens()) {
            let hidden = self.forward(&mut cache, &row(chunk))?;
            let hidden2 = second.as_mut().map(|cache| self.forward(cache, &row(chunk))).transpose()?;
            let step = (LOGITS / self.vocabulary().max(1)).max(1);
            for from in (0..chunk.len()).step_by(step) {
                let to = (from + step).min(chunk.len());
                let skip = first.saturating_sub(at + from + 1).min(to - from);
                let following = &tokens[at + from + 1 + skip..at + to + 1];
                if following.is_empty() {
                    continue;
                }
                let ours = self.log_probabilities(&hidden, from + skip, to)?;
                let theirs =
                    hidden2.as_ref().map(|hidden| self.log_probabilities(hidden, from + skip, to)).transpose()?;
                sums.take(&ours, theirs.as_ref(), following)?;
            }
            cache.eval()?;
            second.as_mut().map(Cache::eval).transpose()?;
            at += chunk.len();
        }
        Ok(())
    }

    /// `[to - from, vocabulary]`, float32.
    fn log_probabilities(&self, hidden: &Array, from: usize, to: usize) -> Result<Array> {
        let column = |at: usize| i32::try_from(at).unwrap_or(i32::MAX);
        let logits = self.logits(&mlx::slice(hidden, 1, column(from), column(to))?)?;
        let logits = logits.as_dtype(Dtype::Float32)?.squeeze_axes(&[0])?;
        Ok(logits.subtract(logsumexp_axis(&logits, -1, true)?)?)
    }
}

impl Sums {
    /// Adds some tokens, whose log-probabilities are `[n, vocabulary]`.
    fn take(&mut self, ours: &Array, theirs: Option<&Array>, following: &[u32]) -> Result<()> {
        let tokens = row(following).squeeze_axes(&[0])?;
        let chosen = take_along_axis(ours, expand_dims(&tokens, -1)?, -1)?;
        self.loss -= total(&chosen)?;
        self.scored += following.len();
        if let Some(theirs) = theirs {
            let each = theirs.exp()?.multiply(theirs.subtract(ours)?)?.sum_axes(&[-1], false)?;
            for divergence in each.contiguous()?.try_as_slice::<f32>()? {
                self.divergence += f64::from(*divergence);
                self.most = self.most.max(f64::from(*divergence));
            }
            let same = eq(argmax_axis(ours, -1, false)?, argmax_axis(theirs, -1, false)?)?;
            self.same += total(&same.as_dtype(Dtype::Float32)?)?;
        }
        Ok(())
    }
}

fn total(numbers: &Array) -> Result<f64> {
    Ok(numbers.contiguous()?.try_as_slice::<f32>()?.iter().map(|number| f64::from(*number)).sum())
}
