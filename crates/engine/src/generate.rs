//! Generation: a prompt is run in chunks, then tokens are decoded one step ahead of the one that is read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use annulus_plan::Growth;
use mlx_rs::{Array, transforms};

use crate::cache::{Arrangement, Cache, KvOptions};
use crate::chunk::ChunkSize;
use crate::engine::Front;
use crate::error::{Error, Result};
use crate::job::{Event, FinishReason, Job, JobError, Sink, Summary, Token, TokenLogprob};
use crate::mlx;
use crate::models::Model;
use crate::sample::{Logprobs, Sampler};
use crate::text::{Piece, TextStream};
use crate::worker::Generator;

/// A loaded model that runs jobs.
pub struct Session {
    model: Box<dyn Model>,
    front: Arc<Front>,
    /// What each request's cache is made of.
    arrangement: Arrangement,
    chunk: ChunkSize,
    /// Decode steps until a panic, for tests of what follows one.
    fault_after: Option<usize>,
}

impl Session {
    /// A session over a loaded model.
    #[must_use]
    pub fn new(
        model: Box<dyn Model>,
        front: Arc<Front>,
        arrangement: Arrangement,
        chunk: ChunkSize,
        fault_after: Option<usize>,
    ) -> Self {
        Self { model, front, arrangement, chunk, fault_after }
    }

    /// What each request's cache is made of.
    #[must_use]
    pub fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    /// The cache that these choices make of the model.
    ///
    /// # Errors
    /// See [`KvOptions::arrange`].
    pub fn arrange(&self, kv: KvOptions) -> Result<Arrangement> {
        kv.arrange(&self.model.facts().cache)
    }

    /// Positions that requests may take.
    #[must_use]
    pub fn context_length(&self) -> usize {
        self.front.context_length
    }

    /// How many tokens the model knows: ids are below this.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.model.facts().vocabulary
    }

    pub(crate) fn chunk_tokens(&self) -> usize {
        self.chunk.tokens()
    }

    pub(crate) fn logits(&self, hidden: &Array) -> Result<Array> {
        self.model.logits(hidden)
    }

    /// An empty cache of one row with room for so many tokens.
    fn cache(&self, reserve: usize) -> Result<Cache> {
        let growth = Growth { reserve: u32::try_from(reserve).unwrap_or(u32::MAX), ..self.arrangement.growth };
        Cache::new(Arrangement { growth, ..self.arrangement.clone() }, 1)
    }

    /// Runs chunks of several sizes, so that kernels which MLX compiles at their first use are there before the first
    /// request: it uses others for one token, a few, and many, and for a prompt's later chunks.
    ///
    /// # Errors
    /// When a step fails.
    pub fn warm_up(&mut self) -> Result<()> {
        let whole = self.chunk.tokens().min(512);
        for lengths in [&[whole, whole, 1][..], &[40, 1], &[8, 1, 1]] {
            let mut cache = self.cache(0)?;
            let mut room = self.front.context_length;
            for length in lengths {
                if *length > room {
                    break;
                }
                let hidden = self.forward(&mut cache, &row(&vec![0; *length]))?;
                let token = self.choose(&last(&hidden)?, &Sampler::new(&self.front.sampling), &Job::default(), 0)?;
                token.read()?;
                room -= length;
            }
        }
        Ok(())
    }

    /// The logits of every position, `[tokens, vocabulary]` row after row in float32. The tokens are run through one
    /// cache in parts of these lengths; what is left goes one at a time.
    ///
    /// # Errors
    /// When a step fails, or the parts are longer than the tokens.
    pub fn all_logits(&mut self, tokens: &[u32], split: &[usize]) -> Result<Vec<f32>> {
        let mut cache = self.cache(0)?;
        let mut out = Vec::with_capacity(tokens.len() * self.model.facts().vocabulary);
        let mut rest = tokens;
        let mut parts = split.iter().copied();
        while !rest.is_empty() {
            let length = parts.next().unwrap_or(1);
            let Some((part, behind)) = rest.split_at_checked(length).filter(|_| length > 0) else {
                return Err(Error::Unsupported(format!(
                    "the parts {split:?} do not divide {} tokens: each must be at least 1, and their sum no more",
                    tokens.len()
                )));
            };
            let hidden = self.forward(&mut cache, &row(part))?;
            let logits = self.model.logits(&hidden)?.as_dtype(mlx_rs::Dtype::Float32)?.contiguous()?;
            out.extend_from_slice(logits.try_as_slice::<f32>()?);
            rest = behind;
        }
        Ok(out)
    }

    /// One forward pass, adopted into the cache: the hidden states, not yet evaluated.
    pub(crate) fn forward(&self, cache: &mut Cache, tokens: &Array) -> Result<Array> {
        let columns = u32::try_from(tokens.dim(1)).unwrap_or(0);
        let mut pass = cache.begin(columns)?;
        let hidden = self.model.forward(tokens, &mut pass)?;
        let staged = pass.finish()?;
        cache.adopt(staged);
        Ok(hidden)
    }

    /// Runs the prompt. The hidden state of its last token comes back, not yet evaluated, or nothing when the listener
    /// has gone.
    fn prefill(&mut self, job: &Job, cache: &mut Cache, sink: &mut dyn Sink) -> Result<Option<Array>> {
        let total = job.prompt.len();
        let mut scores = job.prompt_logprobs.then(|| PromptScores::new(job));
        let mut done = 0;
        let hidden = loop {
            if sink.is_closed() {
                return Ok(None);
            }
            let started = Instant::now();
            let length = self.chunk.tokens().min(total - done);
            let hidden = self.forward(cache, &row(&job.prompt[done..done + length]))?;
            if let Some(scores) = &mut scores {
                scores.take(&job.prompt[done + 1..], &self.model.logits(&hidden)?)?;
            }
            done += length;
            if done == total {
                break hidden;
            }
            cache.eval()?;
            self.chunk.took(length, started.elapsed());
            sink.send(Event::Prefill { done, total });
        };
        let hidden = last(&hidden)?;
        // The last chunk is evaluated here as well, so that its time counts as the prompt's.
        cache.guard(|| Ok(transforms::eval([&hidden])?))?;
        sink.send(Event::Prefill { done, total });
        if let Some(scores) = scores {
            sink.send(Event::Prompt(scores.found));
        }
        Ok(Some(hidden))
    }

    /// Builds the step that follows from a hidden state, `[1, 1, width]`, and starts it.
    fn choose(&self, hidden: &Array, sampler: &Sampler, job: &Job, step: usize) -> Result<Step> {
        let logits = self.model.logits(hidden)?.reshape(&[1, -1])?;
        let token = sampler.sample(&logits, step as u64)?;
        let logprobs = job.logprobs.map(|n| Logprobs::new(&logits, &token, n)).transpose()?;
        transforms::async_eval(std::iter::once(&token).chain(logprobs.iter().flat_map(Logprobs::arrays)))?;
        Ok(Step { token, logprobs })
    }

    /// Decodes until the text, the tokens or the context end. Nothing comes back when the listener has gone.
    fn decode(
        &mut self,
        job: &Job,
        cache: &mut Cache,
        first: &Array,
        sink: &mut dyn Sink,
    ) -> Result<Option<(FinishReason, usize)>> {
        let room = self.front.context_length.saturating_sub(job.prompt.len());
        let limit = job.max_tokens.min(room);
        if limit == 0 {
            return Ok(Some((FinishReason::Length, 0)));
        }
        let sampler = Sampler::new(&job.sampling);
        let mut output = Output::new(TextStream::new(Arc::clone(&self.front.tokenizer), job.stop.clone()));
        let mut step = self.choose(first, &sampler, job, 0)?;
        for count in 1..=limit {
            self.count_down_to_fault();
            let next = if count < limit {
                let hidden = self.forward(cache, &step.token.reshape(&[1, 1])?)?;
                Some(self.choose(&hidden, &sampler, job, count)?)
            } else {
                None
            };
            let token = step.read()?;
            if sink.is_closed() {
                return Ok(None);
            }
            if self.front.end_tokens.contains(&token.id) {
                output.finish(sink);
                // Whoever asked for log-probabilities gets one for each choice of the model, this one too: evaluations
                // count on an entry behind the prompt's.
                if job.logprobs.is_some() {
                    sink.send(Event::Text { text: String::new(), tokens: vec![token] });
                }
                return Ok(Some((FinishReason::Stop, count - 1)));
            }
            if output.push(token, sink) {
                return Ok(Some((FinishReason::Stop, count)));
            }
            match next {
                Some(next) => step = next,
                None => break,
            }
        }
        // A stop string may be complete only once the text has ended.
        let reason = if output.finish(sink) { FinishReason::Stop } else { FinishReason::Length };
        Ok(Some((reason, limit)))
    }

    fn count_down_to_fault(&mut self) {
        if let Some(left) = &mut self.fault_after {
            assert!(*left > 0, "a fault was asked for after this many steps");
            *left -= 1;
        }
    }

    fn generate(&mut self, job: &Job, sink: &mut dyn Sink) -> Result<()> {
        let started = Instant::now();
        // One step of growth is reserved in advance, so that short answers never move the prompt.
        let reserve = job.prompt.len().saturating_add(job.max_tokens.min(256));
        let mut cache = self.cache(reserve)?;
        let Some(hidden) = self.prefill(job, &mut cache, sink)? else { return Ok(()) };
        let prefill = started.elapsed();
        let Some((reason, completion_tokens)) = self.decode(job, &mut cache, &hidden, sink)? else { return Ok(()) };
        sink.send(Event::Finished(Summary {
            reason,
            prompt_tokens: job.prompt.len(),
            completion_tokens,
            cached_tokens: 0,
            prefill,
            decode: started.elapsed() - prefill,
        }));
        Ok(())
    }
}

impl Generator for Session {
    fn run(&mut self, job: &Job, sink: &mut dyn Sink) -> std::result::Result<(), JobError> {
        let context = self.front.context_length;
        if job.prompt.is_empty() || job.prompt.len() > context {
            let problem = format!("a prompt of {} tokens does not fit a context of {context}", job.prompt.len());
            return Err(JobError::Step(problem));
        }
        let vocabulary = self.model.facts().vocabulary;
        if let Some(id) = job.prompt.iter().find(|id| **id as usize >= vocabulary) {
            return Err(JobError::Step(format!("token {id} is beyond the model's {vocabulary} tokens")));
        }
        let ran = self.generate(job, sink).map_err(|error| JobError::Step(error.to_string()));
        // MLX keeps freed buffers; those of a long prompt are of no use to the next request.
        let _ = mlx_rs::memory::clear_cache();
        ran
    }
}

/// A step that has been started and whose token is not read yet.
struct Step {
    /// `[1]`, unsigned.
    token: Array,
    logprobs: Option<Logprobs>,
}

impl Step {
    /// Waits for the step.
    fn read(&self) -> Result<Token> {
        let ids = self.token.try_as_slice::<u32>()?;
        let id = ids.first().copied().ok_or_else(|| Error::Read("no token was chosen".to_owned()))?;
        let logprob = match &self.logprobs {
            Some(logprobs) => logprobs.read(&[id])?.pop(),
            None => None,
        };
        Ok(Token { id, logprob })
    }
}

/// The log-probabilities of a prompt's tokens, gathered chunk by chunk.
struct PromptScores {
    alternatives: usize,
    found: Vec<Option<TokenLogprob>>,
}

impl PromptScores {
    fn new(job: &Job) -> Self {
        Self { alternatives: job.logprobs.unwrap_or(0), found: vec![None] }
    }

    /// Takes the logits of a chunk, `[1, L, vocabulary]`, and the tokens that follow its positions; the last chunk has
    /// one position more than tokens follow.
    fn take(&mut self, following: &[u32], logits: &Array) -> Result<()> {
        let length = usize::try_from(logits.dim(1)).unwrap_or(0).min(following.len());
        if length == 0 {
            return Ok(());
        }
        let following = &following[..length];
        let rows = mlx::slice(logits, 1, 0, i32::try_from(length).unwrap_or(i32::MAX))?.squeeze_axes(&[0])?;
        let tokens = row(following).squeeze_axes(&[0])?;
        let scores = Logprobs::new(&rows, &tokens, self.alternatives)?.read(following)?;
        self.found.extend(scores.into_iter().map(Some));
        Ok(())
    }
}

/// Turns tokens into final pieces of text.
struct Output {
    stream: TextStream,
    /// Tokens whose text is not final yet.
    pending: VecDeque<Token>,
}

impl Output {
    fn new(stream: TextStream) -> Self {
        Self { stream, pending: VecDeque::new() }
    }

    /// Takes a token and sends what became final; says whether a stop string ended the text.
    fn push(&mut self, token: Token, sink: &mut dyn Sink) -> bool {
        let piece = self.stream.push(token.id);
        self.pending.push_back(token);
        self.emit(piece, sink)
    }

    /// Sends what is left; says whether a stop string ended the text.
    fn finish(&mut self, sink: &mut dyn Sink) -> bool {
        let piece = self.stream.finish();
        self.emit(piece, sink)
    }

    fn emit(&mut self, piece: Piece, sink: &mut dyn Sink) -> bool {
        let tokens: Vec<Token> = self.pending.drain(..piece.tokens.min(self.pending.len())).collect();
        if !piece.text.is_empty() || !tokens.is_empty() {
            sink.send(Event::Text { text: piece.text, tokens });
        }
        piece.stopped
    }
}

/// `[1, L]`.
pub(crate) fn row(tokens: &[u32]) -> Array {
    Array::from_slice(tokens, &[1, i32::try_from(tokens.len()).unwrap_or(i32::MAX)])
}

/// The last column of `[B, L, width]`: `[B, 1, width]`.
pub(crate) fn last(hidden: &Array) -> Result<Array> {
    let length = hidden.dim(1);
    Ok(mlx::slice(hidden, 1, length - 1, length)?)
}
