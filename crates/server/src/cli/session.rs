//! A loaded model for a command that is its only user.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use annulus_engine::engine::{Engine, Front};
use annulus_engine::job::{Job, Sampling};
use annulus_engine::text::ChatInput;
use annulus_engine::worker::Status;
use indicatif::ProgressBar;
use serde_json::{Map, Value};

use super::{Failure, model};
use crate::events::{self, Events};

/// A model that is ready.
pub(super) struct Session {
    engine: Engine,
    pub(super) front: Arc<Front>,
}

impl Session {
    /// Loads the model and waits for it.
    pub(super) fn open(args: &model::Args) -> Result<Self, Failure> {
        let engine = args.open(1, None)?;
        let spinner = spinner(format!("loading {}", args.shown()));
        let status = engine.wait_until_loaded();
        spinner.finish_and_clear();
        match (status, engine.front()) {
            (Status::Ready, Some(front)) => Ok(Self { engine, front }),
            (Status::Failed(reason), _) => Err(reason.into()),
            (_, None) | (Status::Loading, _) => Err("the model is loaded but says nothing of itself".into()),
        }
    }

    /// The tokens of a conversation that waits for the model's next message.
    pub(super) fn conversation(&self, messages: Vec<Value>) -> Result<Vec<u32>, Failure> {
        let template = self.front.template.as_ref().ok_or("the model has no chat template")?;
        let input = ChatInput { messages, tools: None, add_generation_prompt: true, kwargs: Map::new() };
        let text = template.render(&input)?;
        // The template has written the special tokens.
        Ok(self.front.tokenizer.encode(&text, false)?)
    }

    /// Starts to continue a prompt.
    pub(super) fn start(&self, prompt: Vec<u32>, max_tokens: usize, sampling: Sampling) -> Result<Events, Failure> {
        let (tokens, context) = (prompt.len(), self.front.context_length);
        if tokens == 0 {
            return Err("the prompt is empty".into());
        }
        if tokens >= context {
            return Err(format!("the prompt has {tokens} tokens and the model's context holds {context}").into());
        }
        let max_tokens = max_tokens.min(context - tokens);
        let (sink, events) = events::channel();
        self.engine.submit(Job { prompt, max_tokens, sampling, ..Job::default() }, sink)?;
        Ok(events)
    }
}

/// Shows that something takes its time, where somebody may be watching.
fn spinner(message: String) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(message);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
