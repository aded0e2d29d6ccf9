//! The fields that both generating endpoints take: which model, how tokens are chosen, where it ends, how it is sent.

use annulus_engine::engine::Front;
use annulus_engine::job::Sampling;

use super::errors::ApiError;
use super::params::{Node, Object};

/// The most stop strings that a request may give, as OpenAI has it.
const MAX_STOPS: usize = 4;

/// The most alternatives reported beside each token, as OpenAI has it for chat.
pub(crate) const MAX_TOP_LOGPROBS: i128 = 20;

/// What a request asks for beside its prompt.
#[derive(Debug)]
pub(crate) struct Options {
    /// The most tokens to generate, when the request says it.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<String>,
    /// `None` when the answer is to come in one piece.
    pub(crate) stream: Option<Streaming>,
}

/// How a streamed answer is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streaming {
    /// One more chunk at the end, with the usage.
    pub(crate) include_usage: bool,
}

impl Options {
    /// Reads the fields; `least_tokens` is the smallest `max_tokens` that makes sense for the endpoint.
    pub(crate) fn read(body: &Object<'_, '_>, front: &Front, least_tokens: usize) -> Result<Self, ApiError> {
        check_model(body, front)?;
        refuse_what_is_not_offered(body)?;
        Ok(Self {
            max_tokens: max_tokens(body, least_tokens)?,
            sampling: sampling(body, &front.sampling)?,
            stop: stop(body)?,
            stream: streaming(body)?,
        })
    }

    /// How many tokens a job with a prompt of `prompt_tokens` may generate.
    ///
    /// A prompt that leaves no room is refused. A `max_tokens` beyond the context's end is not: clients send large
    /// ones as "as many as you can", and the answer says by its `finish_reason` if that was too few.
    pub(crate) fn budget(
        &self,
        default: usize,
        prompt_tokens: usize,
        front: &Front,
        param: &str,
    ) -> Result<usize, ApiError> {
        let wanted = self.max_tokens.unwrap_or(default);
        let least = prompt_tokens + wanted.min(1);
        if least > front.context_length {
            return Err(ApiError::context_overflow(param, prompt_tokens, front.context_length));
        }
        Ok(wanted.min(front.context_length - prompt_tokens))
    }
}

/// A request without `model` means the only one there is.
fn check_model(body: &Object<'_, '_>, front: &Front) -> Result<(), ApiError> {
    match body.get("model") {
        Some(model) if model.string()? != front.id => Err(ApiError::model_not_found(model.string()?, &front.id)),
        _ => Ok(()),
    }
}

/// Fields whose effect is missing here: better refused than accepted and ignored. Values that ask for no effect pass.
fn refuse_what_is_not_offered(body: &Object<'_, '_>) -> Result<(), ApiError> {
    for name in ["n", "best_of"] {
        if let Some(count) = body.get(name)
            && count.count(1)? > 1
        {
            return Err(count.unsupported("one choice per request is all that is offered yet"));
        }
    }
    let neutral = [("frequency_penalty", 0.0), ("presence_penalty", 0.0), ("repetition_penalty", 1.0)];
    for (name, neutral) in neutral {
        if let Some(penalty) = body.get(name)
            && penalty.number(-2.0..=2.0)? != neutral
        {
            return Err(penalty.unsupported("penalties are not offered yet; leave it out"));
        }
    }
    if let Some(bias) = body.get("logit_bias")
        && !bias.object()?.map.is_empty()
    {
        return Err(bias.unsupported("biases are not offered yet; leave it out"));
    }
    Ok(())
}

/// `max_completion_tokens` is the newer name and wins; the older one is checked all the same.
fn max_tokens(body: &Object<'_, '_>, least: usize) -> Result<Option<usize>, ApiError> {
    let read = |name| body.get(name).map(|node| node.count(least)).transpose();
    let older = read("max_tokens")?;
    Ok(read("max_completion_tokens")?.or(older))
}

fn sampling(body: &Object<'_, '_>, default: &Sampling) -> Result<Sampling, ApiError> {
    let mut sampling = default.clone();
    if let Some(temperature) = body.get("temperature") {
        sampling.temperature = temperature.number(0.0..=2.0)? as f32;
    }
    if let Some(top_p) = body.get("top_p") {
        // Zero is allowed by OpenAI and means what the smallest positive number means: the most likely token.
        sampling.top_p = (top_p.number(0.0..=1.0)? as f32).max(f32::MIN_POSITIVE);
    }
    if let Some(top_k) = body.get("top_k") {
        // Other servers write "all" as -1.
        let top_k = top_k.integer(-1..=i128::from(i32::MAX))?;
        sampling.top_k = u32::try_from(top_k).unwrap_or(0);
    }
    if let Some(min_p) = body.get("min_p") {
        sampling.min_p = min_p.number(0.0..=1.0)? as f32;
        if sampling.min_p >= 1.0 {
            return Err(min_p.invalid("a number from 0 on and less than 1"));
        }
    }
    if let Some(seed) = body.get("seed") {
        let seed = seed.integer(i128::from(i64::MIN)..=i128::from(u64::MAX))?;
        // Which seed a negative one becomes does not matter, as long as it is always the same.
        sampling.seed = Some(seed as u64);
    }
    Ok(sampling)
}

fn stop(body: &Object<'_, '_>) -> Result<Vec<String>, ApiError> {
    let Some(stop) = body.get("stop") else {
        return Ok(Vec::new());
    };
    if stop.value.is_string() {
        return Ok(vec![stop_string(&stop)?]);
    }
    let expected = "a string or an array of up to 4 strings";
    let strings = stop.list().map_err(|_| stop.invalid(expected))?;
    if strings.values.len() > MAX_STOPS {
        return Err(stop.invalid(expected));
    }
    strings.iter().map(|stop| stop_string(&stop)).collect()
}

fn stop_string(stop: &Node<'_, '_>) -> Result<String, ApiError> {
    match stop.string()? {
        "" => Err(stop.invalid("a string that is not empty")),
        text => Ok(text.to_owned()),
    }
}

fn streaming(body: &Object<'_, '_>) -> Result<Option<Streaming>, ApiError> {
    let stream = match body.get("stream") {
        Some(stream) => stream.boolean()?,
        None => false,
    };
    let mut include_usage = false;
    if let Some(options) = body.get("stream_options")
        && let Some(include) = options.object()?.get("include_usage")
    {
        include_usage = include.boolean()?;
    }
    Ok(stream.then_some(Streaming { include_usage }))
}
