//! What a chat answer looks like, whole and in chunks.

use std::sync::Arc;

use annulus_engine::engine::Front;
use annulus_engine::job::{Event, Token};
use serde::Serialize;

use crate::http::answer::{Head, Usage, finish_reason};
use crate::http::generation::Answer;
use crate::http::logprobs::ChatLogprobs;
use crate::http::options::Streaming;
use crate::http::sse::Chunks;

#[derive(Serialize)]
struct Completion<'h> {
    #[serde(flatten)]
    head: &'h Head,
    object: &'static str,
    choices: Vec<Choice>,
    usage: Usage,
}

#[derive(Serialize)]
struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<ChatLogprobs>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: String,
    refusal: Option<String>,
}

/// The body of an answer that is not streamed.
pub(super) fn whole(head: &Head, front: &Front, logprobs: bool, answers: Vec<Answer>) -> impl Serialize {
    let usage = answers.iter().map(|answer| &answer.summary).collect();
    let choices = answers
        .into_iter()
        .enumerate()
        .map(|(index, answer)| Choice {
            index,
            message: Message { role: "assistant", content: answer.text, refusal: None },
            logprobs: logprobs.then(|| ChatLogprobs::new(front, &answer.tokens)),
            finish_reason: finish_reason(answer.summary.reason),
        })
        .collect();
    Completion { head, object: "chat.completion", choices, usage }
}

/// Writes the chunks of a streamed answer.
pub(super) struct Stream {
    head: Head,
    front: Arc<Front>,
    logprobs: bool,
    streaming: Streaming,
    /// The role has been sent. It travels with the first text, not ahead of it: benchmarks take the first chunk for
    /// the first token.
    begun: bool,
    usage: Usage,
}

/// One chunk.
#[derive(Serialize)]
pub(super) struct Chunk {
    #[serde(flatten)]
    head: Head,
    object: &'static str,
    choices: Vec<ChunkChoice>,
    /// Absent unless asked for; then `null` on all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl Stream {
    pub(super) fn new(head: Head, front: Arc<Front>, logprobs: bool, streaming: Streaming) -> Self {
        Self { head, front, logprobs, streaming, begun: false, usage: Usage::default() }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Chunk {
        Chunk {
            head: self.head.clone(),
            object: "chat.completion.chunk",
            choices,
            usage: self.streaming.include_usage.then_some(usage),
        }
    }

    fn text(&mut self, index: usize, text: String, tokens: &[Token]) -> Option<Chunk> {
        let logprobs =
            self.logprobs.then(|| ChatLogprobs::new(&self.front, tokens)).filter(|logprobs| !logprobs.is_empty());
        if text.is_empty() && logprobs.is_none() && self.begun {
            return None;
        }
        let role = (!self.begun).then_some("assistant");
        self.begun = true;
        let choice = ChunkChoice { index, delta: Delta { role, content: Some(text) }, logprobs, finish_reason: None };
        Some(self.chunk(vec![choice], None))
    }
}

impl Chunks for Stream {
    type Chunk = Chunk;

    fn on_event(&mut self, index: usize, event: Event) -> Vec<Chunk> {
        match event {
            Event::Text { text, tokens } if !text.is_empty() || self.logprobs => {
                self.text(index, text, &tokens).into_iter().collect()
            }
            Event::Finished(summary) => {
                self.usage.add(&summary);
                let mut chunks = Vec::new();
                if !self.begun {
                    // An answer without text has a role all the same.
                    chunks.extend(self.text(index, String::new(), &[]));
                }
                let last = ChunkChoice {
                    index,
                    delta: Delta::default(),
                    logprobs: None,
                    finish_reason: Some(finish_reason(summary.reason)),
                };
                chunks.push(self.chunk(vec![last], None));
                chunks
            }
            _ => Vec::new(),
        }
    }

    fn on_end(&mut self) -> Option<Chunk> {
        self.streaming.include_usage.then(|| self.chunk(Vec::new(), Some(self.usage)))
    }
}
