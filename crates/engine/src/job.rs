//! What a caller asks of the engine, and the events it gets back.

use std::time::Duration;

/// How the next token is chosen from the logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 means greedy.
    pub temperature: f32,
    /// Keep the most likely tokens whose probabilities add up to this much, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keep the `k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Drop tokens less likely than this share of the most likely one, in [0, 1); 0 drops none.
    pub min_p: f32,
    /// The same seed gives the same text; without one, two requests differ.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, seed: None }
    }
}

/// One generation request, already tokenized.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// Token ids of the prompt; at least one.
    pub prompt: Vec<u32>,
    /// The most tokens to generate; 0 runs the prompt only (useful with [`Job::prompt_logprobs`]).
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Strings that end the text; they are matched on decoded text and not part of the output.
    pub stop: Vec<String>,
    /// Report log-probabilities of generated tokens, with this many alternatives each. The token that ends the
    /// generation is then reported too, without text: an evaluation that asks for one token must get one.
    pub logprobs: Option<usize>,
    /// Report log-probabilities of the prompt's tokens too, as [`Event::Prompt`].
    pub prompt_logprobs: bool,
}

/// A token with its log-probability under the model's distribution, before temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The token's id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The most likely tokens at this place, most likely first, as many as asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model's end token, or a stop string.
    Stop,
    /// [`Job::max_tokens`] or the context's end was reached.
    Length,
}

/// Figures of a finished generation.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the end token not counted.
    pub completion_tokens: usize,
    /// Prompt tokens that did not have to be computed again.
    pub cached_tokens: usize,
    /// From the job's start to the end of its prefill.
    pub prefill: Duration,
    /// From the end of the prefill to the last token.
    pub decode: Duration,
}

/// What happens to a job, in order: `Started`, any number of `Prefill`, at most one `Prompt`, any number of `Text`,
/// then exactly one of `Finished` and `Failed`.
#[derive(Debug, Clone)]
pub enum Event {
    /// The job left the queue.
    Started,
    /// So many prompt tokens of `total` have been run.
    Prefill {
        /// Tokens run so far.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// Log-probabilities of the prompt's tokens; the first has none.
    Prompt(Vec<Option<TokenLogprob>>),
    /// A piece of text that is final: whole characters, and no start of a stop string.
    Text {
        /// Never empty unless `tokens` is not.
        text: String,
        /// The tokens that became final with this piece; log-probabilities only when asked for.
        tokens: Vec<Token>,
    },
    /// The job ended as it should.
    Finished(Summary),
    /// The job ended with an error.
    Failed(JobError),
}

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// The token's id.
    pub id: u32,
    /// Present when [`Job::logprobs`] asked for it.
    pub logprob: Option<TokenLogprob>,
}

/// Why a job failed after it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The model's thread ended while the job was queued or running; nothing will run any more.
    #[error("the model's thread has ended: {0}")]
    WorkerDied(String),
    /// A step of this job failed; later jobs may still run.
    #[error("generation failed: {0}")]
    Step(String),
}

/// Receives a job's events, on the model's thread.
pub trait Sink: Send {
    /// Takes the next event. It must not block: the model waits meanwhile.
    fn send(&mut self, event: Event);

    /// Whether nobody listens any more. Asked once a decode step and once a prefill chunk, and while the job is
    /// queued; the job is dropped when it says yes.
    fn is_closed(&self) -> bool;
}
