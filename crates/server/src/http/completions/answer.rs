//! What a completion looks like, whole and in chunks.

use std::sync::Arc;

use annulus_engine::engine::Front;
use annulus_engine::job::{Event, FinishReason, Token, TokenLogprob};
use serde::Serialize;

use crate::http::answer::{Head, Usage, finish_reason};
use crate::http::generation::Answer;
use crate::http::logprobs::{CompletionLogprobs, CompletionWriter};
use crate::http::options::Streaming;
use crate::http::sse::Chunks;

/// What a choice repeats of its prompt.
#[derive(Default)]
pub(super) struct Echo {
    text: String,
    tokens: Vec<u32>,
}

impl Echo {
    pub(super) fn new(text: String, tokens: Vec<u32>) -> Self {
        Self { text, tokens }
    }
}

/// Writes the pieces of each choice.
pub(super) struct Writers {
    front: Arc<Front>,
    logprobs: bool,
    choices: Vec<Writer>,
}

struct Writer {
    echo: Echo,
    logprobs: CompletionWriter,
}

/// A piece of a choice, or all of it.
#[derive(Serialize)]
struct Choice {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
}

impl Writers {
    pub(super) fn new(front: Arc<Front>, echoes: Vec<Echo>, logprobs: bool) -> Self {
        let writer = |echo| Writer { echo, logprobs: CompletionWriter::default() };
        Self { front, logprobs, choices: echoes.into_iter().map(writer).collect() }
    }

    /// The prompt again, `None` when it is not to be repeated.
    fn echo(&mut self, index: usize, logprobs: &[Option<TokenLogprob>]) -> Option<Choice> {
        let writer = &mut self.choices[index];
        let echo = std::mem::take(&mut writer.echo);
        if echo.tokens.is_empty() {
            return None;
        }
        let logprobs = self.logprobs.then(|| writer.logprobs.prompt(&self.front, &echo.text, &echo.tokens, logprobs));
        Some(Choice { index, text: echo.text, logprobs, finish_reason: None })
    }

    fn text(&mut self, index: usize, text: String, tokens: &[Token]) -> Choice {
        let writer = &mut self.choices[index].logprobs;
        Choice { index, text, logprobs: self.logprobs.then(|| writer.answer(&self.front, tokens)), finish_reason: None }
    }

    fn end(index: usize, reason: FinishReason) -> Choice {
        Choice { index, text: String::new(), logprobs: None, finish_reason: Some(finish_reason(reason)) }
    }
}

#[derive(Serialize)]
struct Completion<'h> {
    #[serde(flatten)]
    head: &'h Head,
    object: &'static str,
    choices: Vec<Choice>,
    usage: Usage,
}

/// The body of an answer that is not streamed.
pub(super) fn whole(head: &Head, mut writers: Writers, answers: Vec<Answer>) -> impl Serialize {
    let usage = answers.iter().map(|answer| &answer.summary).collect();
    let choices = answers
        .into_iter()
        .enumerate()
        .map(|(index, answer)| {
            let echo = writers.echo(index, &answer.prompt);
            let mut choice = writers.text(index, answer.text, &answer.tokens);
            if let Some(mut echo) = echo {
                echo.text.push_str(&choice.text);
                if let (Some(all), Some(later)) = (&mut echo.logprobs, choice.logprobs) {
                    all.append(later);
                }
                choice = echo;
            }
            choice.finish_reason = Some(finish_reason(answer.summary.reason));
            choice
        })
        .collect();
    Completion { head, object: "text_completion", choices, usage }
}

/// Writes the chunks of a streamed completion.
pub(super) struct Stream {
    head: Head,
    writers: Writers,
    streaming: Streaming,
    usage: Usage,
}

/// One chunk.
#[derive(Serialize)]
pub(super) struct Chunk {
    #[serde(flatten)]
    head: Head,
    object: &'static str,
    choices: Vec<Choice>,
    /// Absent unless asked for; then `null` on all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

impl Stream {
    pub(super) fn new(head: Head, writers: Writers, streaming: Streaming) -> Self {
        Self { head, writers, streaming, usage: Usage::default() }
    }

    fn chunk(&self, choices: Vec<Choice>, usage: Option<Usage>) -> Chunk {
        Chunk {
            head: self.head.clone(),
            object: "text_completion",
            choices,
            usage: self.streaming.include_usage.then_some(usage),
        }
    }
}

impl Chunks for Stream {
    type Chunk = Chunk;

    fn on_event(&mut self, index: usize, event: Event) -> Vec<Chunk> {
        let choices: Vec<Choice> = match event {
            // With log-probabilities the prompt waits for them, without it goes out at once.
            Event::Started if !self.writers.logprobs => self.writers.echo(index, &[]).into_iter().collect(),
            Event::Prompt(logprobs) => self.writers.echo(index, &logprobs).into_iter().collect(),
            Event::Text { text, tokens } if !text.is_empty() || self.writers.logprobs => {
                vec![self.writers.text(index, text, &tokens)]
            }
            Event::Finished(summary) => {
                self.usage.add(&summary);
                vec![Writers::end(index, summary.reason)]
            }
            _ => Vec::new(),
        };
        choices.into_iter().map(|choice| self.chunk(vec![choice], None)).collect()
    }

    fn on_end(&mut self) -> Option<Chunk> {
        self.streaming.include_usage.then(|| self.chunk(Vec::new(), Some(self.usage)))
    }
}
