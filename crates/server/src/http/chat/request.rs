//! From a chat request's fields to a job.

use annulus_engine::engine::Front;
use annulus_engine::job::Job;
use annulus_engine::text::ChatInput;
use axum::http::StatusCode;
use serde_json::Map;

use super::messages;
use crate::http::body;
use crate::http::errors::ApiError;
use crate::http::options::{MAX_TOP_LOGPROBS, Options, Streaming};
use crate::http::params::Object;

/// A request that can run.
pub(super) struct Prepared {
    pub(super) job: Job,
    pub(super) stream: Option<Streaming>,
}

/// Checks a request as far as it can be checked without the model.
pub(super) fn prepare(bytes: &[u8], front: &Front) -> Result<Prepared, ApiError> {
    let fields = body::parse(bytes)?;
    let body = Object::root(&fields);
    // An answer without a token is none, so the least is one here.
    let options = Options::read(&body, front, 1)?;
    let logprobs = logprobs(&body)?;
    check_response_format(&body)?;
    let text = render(&body, front)?;
    // The template has written the special tokens.
    let prompt =
        front.tokenizer.encode(&text, false).map_err(|error| ApiError::invalid("messages", error.to_string()))?;
    if prompt.is_empty() {
        return Err(ApiError::invalid("messages", "The chat template makes an empty prompt of these messages."));
    }
    let max_tokens = options.budget(usize::MAX, prompt.len(), front, "messages")?;
    Ok(Prepared {
        stream: options.stream,
        job: Job {
            prompt,
            max_tokens,
            sampling: options.sampling,
            stop: options.stop,
            logprobs,
            prompt_logprobs: false,
        },
    })
}

fn render(body: &Object<'_, '_>, front: &Front) -> Result<String, ApiError> {
    let messages = messages::read(body)?;
    let tools = messages::tools(body)?;
    let kwargs = match body.get("chat_template_kwargs") {
        Some(kwargs) => kwargs.object()?.map.clone(),
        None => Map::new(),
    };
    let template = front.template.as_ref().ok_or_else(|| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "no_chat_template",
            format!("The model {:?} comes without a chat template; send its prompt to /v1/completions.", front.id),
        )
    })?;
    let input = ChatInput { messages, tools, add_generation_prompt: true, kwargs };
    template.render(&input).map_err(|error| ApiError::invalid("messages", error.to_string()))
}

/// How many alternatives to report with each token, `None` for no report at all.
fn logprobs(body: &Object<'_, '_>) -> Result<Option<usize>, ApiError> {
    let wanted = match body.get("logprobs") {
        Some(logprobs) => logprobs.boolean()?,
        None => false,
    };
    match body.get("top_logprobs") {
        None => Ok(wanted.then_some(0)),
        Some(top) => {
            let count = top.integer(0..=MAX_TOP_LOGPROBS)?;
            if !wanted {
                return Err(ApiError::invalid(
                    "top_logprobs",
                    "top_logprobs takes effect only with \"logprobs\": true.",
                ));
            }
            Ok(usize::try_from(count).ok())
        }
    }
}

fn check_response_format(body: &Object<'_, '_>) -> Result<(), ApiError> {
    let Some(format) = body.get("response_format") else {
        return Ok(());
    };
    let fields = format.object()?;
    match fields.require("type", "\"text\"")?.string()? {
        "text" => Ok(()),
        other => Err(ApiError::unsupported(
            "response_format",
            format!("Only the format \"text\" is offered yet, and {other:?} was asked for."),
        )),
    }
}
