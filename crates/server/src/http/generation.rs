//! One request's jobs, from the queue to the last event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annulus_engine::job::{Event, Job, Summary, Token, TokenLogprob};
use tokio::sync::watch;

use super::app::App;
use super::errors::ApiError;
use crate::events::{self, Events};

/// The jobs of one request, which run one after another. Dropping it ends the one that runs or waits.
pub(crate) struct Generation {
    app: Arc<App>,
    to_come: std::vec::IntoIter<Job>,
    /// Of the job that runs or waits; `None` between two jobs and after the last.
    events: Option<Events>,
    /// Which of the jobs that is.
    index: usize,
    closing: watch::Receiver<bool>,
}

/// What became of one job.
pub(crate) struct Answer {
    /// Log-probabilities of the prompt, when asked for.
    pub(crate) prompt: Vec<Option<TokenLogprob>>,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) summary: Summary,
}

impl Generation {
    /// Puts the first job into the queue, so that a full one is known before an answer begins.
    pub(crate) fn start(app: Arc<App>, jobs: Vec<Job>) -> Result<Self, ApiError> {
        let mut to_come = jobs.into_iter();
        let first = to_come.next().ok_or_else(|| ApiError::internal("A request without a job."))?;
        let (sink, events) = events::channel();
        app.engine.submit(first, sink).map_err(|error| ApiError::submit(error, app.pace.retry_after()))?;
        Ok(Self { closing: app.closing.clone(), app, to_come, events: Some(events), index: 0 })
    }

    /// The next event with the index of its job, `None` after the last job's end. Nothing follows an error.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Event), ApiError>> {
        if self.events.is_none() {
            let job = self.to_come.next()?;
            if let Err(error) = self.go_on(job) {
                return Some(Err(self.end(error)));
            }
        }
        let events = self.events.as_mut()?;
        let event = tokio::select! {
            event = events.next() => event.ok_or_else(|| {
                ApiError::internal("The model's thread dropped the request without an answer.")
            }),
            _ = self.closing.wait_for(|closing| *closing) => Err(ApiError::shutting_down()),
        };
        let index = self.index;
        Some(match event {
            Err(error) => Err(self.end(error)),
            Ok(Event::Failed(error)) => Err(self.end(error.into())),
            Ok(event) => {
                if let Event::Finished(summary) = &event {
                    self.app.pace.note(summary.prefill + summary.decode);
                    self.events = None;
                    self.index += 1;
                }
                Ok((index, event))
            }
        })
    }

    /// All answers, in the order of the jobs.
    pub(crate) async fn collect(mut self) -> Result<Vec<Answer>, ApiError> {
        let mut answers = Vec::new();
        let (mut prompt, mut text, mut tokens) = (Vec::new(), String::new(), Vec::new());
        while let Some(next) = self.next().await {
            match next?.1 {
                Event::Prompt(logprobs) => prompt = logprobs,
                Event::Text { text: piece, tokens: more } => {
                    text.push_str(&piece);
                    tokens.extend(more);
                }
                Event::Finished(summary) => answers.push(Answer {
                    prompt: std::mem::take(&mut prompt),
                    text: std::mem::take(&mut text),
                    tokens: std::mem::take(&mut tokens),
                    summary,
                }),
                Event::Started | Event::Prefill { .. } | Event::Failed(_) => {}
            }
        }
        Ok(answers)
    }

    fn go_on(&mut self, job: Job) -> Result<(), ApiError> {
        let (sink, events) = events::channel();
        self.app
            .engine
            .submit_further(job, sink)
            .map_err(|error| ApiError::submit(error, self.app.pace.retry_after()))?;
        self.events = Some(events);
        Ok(())
    }

    fn end(&mut self, error: ApiError) -> ApiError {
        self.events = None;
        self.to_come = Vec::new().into_iter();
        error
    }
}

/// How long jobs have taken lately, to tell those who find the queue full when a place may be free.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Smoothed; zero before the first job's end.
    millis: AtomicU64,
}

impl Pace {
    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        // Two jobs that end at once may lose one of the two figures, which is no worse than either.
        let smooth = match self.millis.load(Ordering::Relaxed) {
            0 => took,
            before => before - before / 4 + took / 4,
        };
        self.millis.store(smooth, Ordering::Relaxed);
    }

    /// Whole seconds, between one and a minute: clients take longer waits for a mistake.
    pub(crate) fn retry_after(&self) -> u64 {
        self.millis.load(Ordering::Relaxed).div_ceil(1000).clamp(1, 60)
    }
}
