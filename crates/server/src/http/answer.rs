//! The parts that every answer has: who gives it, why it ended, what it took.

use std::time::{SystemTime, UNIX_EPOCH};

use annulus_engine::engine::Front;
use annulus_engine::job::{FinishReason, Summary};
use serde::Serialize;
use uuid::Uuid;

/// The fields that an answer begins with; all chunks of a stream have the same.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Head {
    id: String,
    /// Seconds since 1970.
    created: u64,
    model: String,
}

impl Head {
    pub(crate) fn new(prefix: &str, front: &Front) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: format!("{prefix}-{}", Uuid::new_v4().simple()),
            created: since_1970.map_or(0, |since| since.as_secs()),
            model: front.id.clone(),
        }
    }
}

/// OpenAI's word for why a generation ended.
pub(crate) fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// How many tokens a request took: the sum over its jobs.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

impl Usage {
    pub(crate) fn add(&mut self, summary: &Summary) {
        self.prompt_tokens += summary.prompt_tokens;
        self.completion_tokens += summary.completion_tokens;
        self.total_tokens += summary.prompt_tokens + summary.completion_tokens;
        self.prompt_tokens_details.cached_tokens += summary.cached_tokens;
    }
}

impl<'s> FromIterator<&'s Summary> for Usage {
    fn from_iter<I: IntoIterator<Item = &'s Summary>>(summaries: I) -> Self {
        let mut usage = Self::default();
        for summary in summaries {
            usage.add(summary);
        }
        usage
    }
}
