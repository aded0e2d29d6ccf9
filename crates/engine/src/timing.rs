//! How long prefill and decode take, over random tokens.

use std::time::{Duration, Instant};

use annulus_plan::Row;
use mlx_rs::ops::indexing::argmax_axis;
use mlx_rs::{Array, transforms};

use crate::cache::{Arrangement, Cache, StoredRow};
use crate::error::{Error, Result};
use crate::generate::{Session, last};
use crate::mlx;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Rows that run together.
    pub rows: usize,
    /// Tokens of each prompt, at least 1.
    pub prompt: usize,
    /// Tokens decoded for each row.
    pub decode: usize,
    /// Columns that the cache has room for from the start; as many as needed when that is more.
    pub reserve: usize,
    /// Whether the first row is copied out after the prompt and held, as a server that keeps prefixes would.
    pub snapshot: bool,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// The prompts, all rows.
    pub prefill: Duration,
    /// All decode steps.
    pub decode: Duration,
    /// Bytes of the cache at the end, spare columns included.
    pub cache_bytes: usize,
    /// Nodes of MLX's graph in a decode step; 0 when fewer than three steps were run.
    pub step_nodes: usize,
}

impl Session {
    /// Runs prompts of random tokens, then decodes greedily.
    ///
    /// # Errors
    /// When the load is empty or longer than the context, or a step fails.
    pub fn time(&mut self, load: Load) -> Result<Timing> {
        let Load { rows, prompt, decode, reserve, .. } = load;
        let context = self.context_length();
        if rows == 0 || prompt == 0 || prompt.saturating_add(decode) > context {
            return Err(Error::Unsupported(format!(
                "{rows} rows of {prompt} + {decode} tokens cannot run: at least one row and one token, at most {context}"
            )));
        }
        let columns = u32::try_from(reserve.max(prompt + decode)).unwrap_or(u32::MAX);
        let mut arrangement: Arrangement = self.arrangement().clone();
        arrangement.growth.reserve = columns;
        let mut cache = Cache::new(arrangement, rows)?;
        cache.record(self.geometry());
        let started = Instant::now();
        let hidden = self.run_prompts(&mut cache, rows, prompt)?;
        let prefill = started.elapsed();
        let _held: Option<StoredRow> = if load.snapshot { Some(cache.extract(Row(0), None)?) } else { None };
        let started = Instant::now();
        let step_nodes = self.run_steps(&mut cache, hidden, decode)?;
        Ok(Timing { prefill, decode: started.elapsed(), cache_bytes: cache.bytes(), step_nodes })
    }

    /// The last hidden states, `[rows, 1, width]`, evaluated.
    fn run_prompts(&self, cache: &mut Cache, rows: usize, prompt: usize) -> Result<Array> {
        let vocabulary = self.vocabulary().max(1);
        let mut done = 0;
        loop {
            // A chunk's size counts the tokens of all rows.
            let length = (self.chunk_tokens() / rows).max(1).min(prompt - done);
            // Numbers without a pattern: caches of processors shall not help.
            let tokens = (0..rows * length).map(|at| ((at + done) * 7919 + 13) % vocabulary);
            let tokens: Vec<u32> = tokens.map(|token| u32::try_from(token).unwrap_or(0)).collect();
            let shape = [rows, length].map(|n| i32::try_from(n).unwrap_or(i32::MAX));
            let hidden = last(&self.forward(cache, &Array::from_slice(&tokens, &shape))?)?;
            cache.guard(|| Ok(transforms::eval([&hidden])?))?;
            cache.eval()?;
            done += length;
            if done == prompt {
                return Ok(hidden);
            }
        }
    }

    /// Decodes as the server does: a step is built while the one before it runs. The nodes of a step come back.
    fn run_steps(&self, cache: &mut Cache, hidden: Array, steps: usize) -> Result<usize> {
        let mut hidden = hidden;
        let mut before: Option<Array> = None;
        let mut nodes = 0;
        for step in 0..steps {
            let tokens = argmax_axis(self.logits(&hidden)?, -1, false)?;
            if step == 2 {
                nodes = mlx::graph_size(&tokens)?;
            }
            hidden = self.forward(cache, &tokens)?;
            transforms::async_eval([&tokens])?;
            if let Some(before) = before.replace(tokens) {
                transforms::eval([&before])?;
            }
        }
        transforms::eval([&hidden])?;
        cache.eval()?;
        Ok(nodes)
    }
}
