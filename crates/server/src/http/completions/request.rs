//! From a completion request's fields to one job for each prompt.

use annulus_engine::engine::Front;
use annulus_engine::job::Job;

use super::answer::Echo;
use crate::http::body;
use crate::http::errors::ApiError;
use crate::http::options::{MAX_TOP_LOGPROBS, Options, Streaming};
use crate::http::params::{List, Node, Object};

/// OpenAI's default for `max_tokens` at this endpoint.
const DEFAULT_MAX_TOKENS: usize = 16;

const PROMPT: &str = "a string, an array of strings, an array of token ids or an array of arrays of token ids";

/// A request that can run.
pub(super) struct Prepared {
    /// One for each prompt.
    pub(super) jobs: Vec<Job>,
    /// For each prompt what its answer repeats of it, empty when nothing.
    pub(super) echoes: Vec<Echo>,
    pub(super) logprobs: bool,
    pub(super) stream: Option<Streaming>,
}

/// A prompt as the model and as people read it.
struct Prompt {
    /// Which field it came from.
    param: String,
    tokens: Vec<u32>,
    text: String,
}

/// Checks a request as far as it can be checked without the model.
pub(super) fn prepare(bytes: &[u8], front: &Front) -> Result<Prepared, ApiError> {
    let fields = body::parse(bytes)?;
    let body = Object::root(&fields);
    let options = Options::read(&body, front, 0)?;
    let logprobs = logprobs(&body)?;
    let echo = match body.get("echo") {
        Some(echo) => echo.boolean()?,
        None => false,
    };
    refuse_suffix(&body)?;
    let mut prepared =
        Prepared { jobs: Vec::new(), echoes: Vec::new(), logprobs: logprobs.is_some(), stream: options.stream };
    for prompt in prompts(&body, front)? {
        let tokens = prompt.tokens.len();
        prepared.jobs.push(Job {
            max_tokens: options.budget(DEFAULT_MAX_TOKENS, tokens, front, &prompt.param)?,
            sampling: options.sampling.clone(),
            stop: options.stop.clone(),
            logprobs,
            prompt_logprobs: echo && logprobs.is_some(),
            prompt: prompt.tokens.clone(),
        });
        prepared.echoes.push(if echo { Echo::new(prompt.text, prompt.tokens) } else { Echo::default() });
    }
    Ok(prepared)
}

fn logprobs(body: &Object<'_, '_>) -> Result<Option<usize>, ApiError> {
    let count = body.get("logprobs").map(|node| node.integer(0..=MAX_TOP_LOGPROBS)).transpose()?;
    Ok(count.and_then(|count| usize::try_from(count).ok()))
}

fn refuse_suffix(body: &Object<'_, '_>) -> Result<(), ApiError> {
    match body.get("suffix") {
        Some(suffix) if !suffix.string()?.is_empty() => {
            Err(suffix.unsupported("text after the completion is not offered; leave it out"))
        }
        _ => Ok(()),
    }
}

/// One prompt or several, as text or as token ids.
fn prompts(body: &Object<'_, '_>, front: &Front) -> Result<Vec<Prompt>, ApiError> {
    let prompt = body.require("prompt", PROMPT)?;
    if prompt.value.is_string() {
        return Ok(vec![from_text(&prompt, front)?]);
    }
    let list = prompt.list().map_err(|_| prompt.invalid(PROMPT))?;
    let Some(first) = list.values.first() else {
        return Err(prompt.invalid("a prompt that is not empty"));
    };
    if first.is_number() {
        return Ok(vec![from_ids(&prompt, &list, front)?]);
    }
    // Text and ids may stand side by side: nothing forbids it, and each means what it means alone.
    list.iter()
        .map(|node| {
            if node.value.is_string() {
                return from_text(&node, front);
            }
            let ids = node.list().map_err(|_| node.invalid("a string or an array of token ids"))?;
            from_ids(&node, &ids, front)
        })
        .collect()
}

fn from_text(node: &Node<'_, '_>, front: &Front) -> Result<Prompt, ApiError> {
    let text = node.string()?;
    if text.is_empty() {
        return Err(node.invalid("a prompt that is not empty"));
    }
    let tokens =
        front.tokenizer.encode(text, true).map_err(|error| ApiError::invalid(node.param(), error.to_string()))?;
    if tokens.is_empty() {
        return Err(node.invalid("a prompt of at least one token"));
    }
    Ok(Prompt { param: node.param(), tokens, text: text.to_owned() })
}

fn from_ids(node: &Node<'_, '_>, list: &List<'_, '_>, front: &Front) -> Result<Prompt, ApiError> {
    if list.values.is_empty() {
        return Err(node.invalid("a prompt that is not empty"));
    }
    let last = front.tokenizer.vocab_size() as i128 - 1;
    let tokens = list.iter().map(|id| Ok(id.integer(0..=last)? as u32)).collect::<Result<Vec<u32>, ApiError>>()?;
    Ok(Prompt { param: node.param(), text: front.tokenizer.decode(&tokens), tokens })
}
