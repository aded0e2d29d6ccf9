//! Log-probabilities in the two shapes that OpenAI's endpoints have for them.

use std::fmt::Write;

use annulus_engine::engine::Front;
use annulus_engine::job::{Token, TokenLogprob};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A probability of zero has no finite logarithm and JSON no infinite number; OpenAI writes this instead.
const LEAST: f32 = -9999.0;

/// What a chat answer reports.
#[derive(Debug, serde::Serialize)]
pub(crate) struct ChatLogprobs {
    content: Vec<ChatToken>,
}

#[derive(Debug, serde::Serialize)]
struct ChatToken {
    #[serde(flatten)]
    token: ChatCandidate,
    top_logprobs: Vec<ChatCandidate>,
}

#[derive(Debug, serde::Serialize)]
struct ChatCandidate {
    /// As text; a token that is part of a character shows as U+FFFD, and `bytes` says what it is.
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatLogprobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// The token that ended the answer is no part of it.
    pub(crate) fn new(front: &Front, tokens: &[Token]) -> Self {
        let content = tokens
            .iter()
            .filter(|token| !front.end_tokens.contains(&token.id))
            .filter_map(|token| token.logprob.as_ref())
            .map(|entry| ChatToken {
                token: candidate(front, entry.id, entry.logprob),
                top_logprobs: entry.top.iter().map(|(id, logprob)| candidate(front, *id, *logprob)).collect(),
            })
            .collect();
        Self { content }
    }
}

fn candidate(front: &Front, id: u32, logprob: f32) -> ChatCandidate {
    let bytes = front.tokenizer.token_bytes(id).to_vec();
    ChatCandidate { token: String::from_utf8_lossy(&bytes).into_owned(), logprob: logprob.max(LEAST), bytes }
}

/// What a completion reports: four lists of the same length.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct CompletionLogprobs {
    tokens: Vec<String>,
    /// `None` for a prompt's first token, which nothing predicts.
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Top>>,
    /// Where the token begins in the choice's text, in characters.
    text_offset: Vec<usize>,
}

/// The most likely tokens of a place and the chosen one, as a JSON object.
#[derive(Debug)]
struct Top(Vec<(String, f32)>);

impl Serialize for Top {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (token, logprob) in &self.0 {
            map.serialize_entry(token, logprob)?;
        }
        map.end()
    }
}

/// Writes a choice's entries piece by piece and keeps count of the text before them.
#[derive(Debug, Default)]
pub(crate) struct CompletionWriter {
    /// Characters that have begun.
    characters: usize,
}

impl CompletionWriter {
    /// Entries for the tokens of a prompt whose text begins the choice's.
    ///
    /// A special token may be written out in the text, when the client wrote it, or not, when the tokenizer added it.
    pub(crate) fn prompt(
        &mut self,
        front: &Front,
        text: &str,
        prompt: &[u32],
        logprobs: &[Option<TokenLogprob>],
    ) -> CompletionLogprobs {
        let mut lists = CompletionLogprobs::default();
        let mut rest = text.as_bytes();
        for (index, id) in prompt.iter().enumerate() {
            let bytes = front.tokenizer.token_bytes(*id);
            let written = rest.strip_prefix(bytes);
            rest = written.unwrap_or(rest);
            let in_text = written.is_some() || !front.tokenizer.is_special(*id);
            let entry = logprobs.get(index).and_then(Option::as_ref);
            self.push(front, &mut lists, (*id, in_text), entry);
        }
        lists
    }

    /// Entries for generated tokens; the text leaves special ones out.
    pub(crate) fn answer(&mut self, front: &Front, tokens: &[Token]) -> CompletionLogprobs {
        let mut lists = CompletionLogprobs::default();
        for token in tokens {
            let in_text = !front.tokenizer.is_special(token.id);
            self.push(front, &mut lists, (token.id, in_text), token.logprob.as_ref());
        }
        lists
    }

    fn push(
        &mut self,
        front: &Front,
        lists: &mut CompletionLogprobs,
        (id, in_text): (u32, bool),
        entry: Option<&TokenLogprob>,
    ) {
        let bytes = front.tokenizer.token_bytes(id);
        let shown = if in_text { bytes } else { &[] };
        let within_character = shown.first().is_some_and(|byte| is_continuation(*byte));
        lists.text_offset.push(self.characters.saturating_sub(usize::from(within_character)));
        self.characters += shown.iter().filter(|byte| !is_continuation(**byte)).count();
        lists.tokens.push(token_text(bytes));
        lists.token_logprobs.push(entry.map(|entry| entry.logprob.max(LEAST)));
        lists.top_logprobs.push(entry.map(|entry| top(front, entry)));
    }
}

impl CompletionLogprobs {
    /// Adds the entries of a later piece.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.tokens.append(&mut later.tokens);
        self.token_logprobs.append(&mut later.token_logprobs);
        self.top_logprobs.append(&mut later.top_logprobs);
        self.text_offset.append(&mut later.text_offset);
    }
}

/// The alternatives, and the chosen token behind them when it is none of them: evaluation tools take the best of
/// these for the greedy choice and compare it with the chosen one.
fn top(front: &Front, entry: &TokenLogprob) -> Top {
    let mut candidates: Vec<(String, f32)> = Vec::with_capacity(entry.top.len() + 1);
    for (id, logprob) in entry.top.iter().chain([&(entry.id, entry.logprob)]) {
        let text = token_text(front.tokenizer.token_bytes(*id));
        // Two tokens may have the same text; an object has room for the more likely one.
        if candidates.iter().all(|(other, _)| *other != text) {
            candidates.push((text, logprob.max(LEAST)));
        }
    }
    Top(candidates)
}

/// A token as text; what is no text is written as OpenAI does, so that different tokens stay different.
fn token_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
            text
        }),
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
