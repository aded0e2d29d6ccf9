//! A loaded model as the rest of the program sees it: its text side, and a queue of jobs for its tensors.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::geometry::Geometry;
use crate::job::{Job, Sampling, Sink};
use crate::text::{ChatTemplate, Tokenizer};
use crate::worker::{Load, Status, SubmitError, Worker};

/// What can be known and done about a model without its tensors. Shared by all threads.
#[derive(Debug)]
pub struct Front {
    /// The name that requests and answers use.
    pub id: String,
    /// Seconds since 1970 of the checkpoint's newest file.
    pub created: u64,
    /// Positions that the model was made for.
    pub context_length: usize,
    /// Tokens that end a generation.
    pub end_tokens: Vec<u32>,
    /// Sampling that the checkpoint recommends, where it does.
    pub sampling: Sampling,
    /// Between text and token ids.
    pub tokenizer: Arc<Tokenizer>,
    /// Between a conversation and a prompt, where the checkpoint has one.
    pub template: Option<ChatTemplate>,
    /// Facts for people: architecture, representation, backend and the like.
    pub details: BTreeMap<String, String>,
}

/// A model that loads or has loaded, with its queue.
pub struct Engine {
    worker: Worker,
    front: Arc<OnceLock<Arc<Front>>>,
    geometry: Arc<Geometry>,
}

impl Engine {
    /// Joins a worker with the cell that its loading fills before the worker becomes ready.
    #[must_use]
    pub fn from_parts(worker: Worker, front: Arc<OnceLock<Arc<Front>>>, geometry: Arc<Geometry>) -> Self {
        Self { worker, front, geometry }
    }

    /// What the caches of requests do.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The model's text side, once it is loaded.
    #[must_use]
    pub fn front(&self) -> Option<Arc<Front>> {
        self.front.get().cloned()
    }

    /// See [`Worker::submit`].
    ///
    /// # Errors
    /// See [`Worker::submit`].
    pub fn submit(&self, job: Job, sink: Box<dyn Sink>) -> Result<(), SubmitError> {
        self.worker.submit(job, sink)
    }

    /// See [`Worker::submit_further`].
    ///
    /// # Errors
    /// See [`Worker::submit_further`].
    pub fn submit_further(&self, job: Job, sink: Box<dyn Sink>) -> Result<(), SubmitError> {
        self.worker.submit_further(job, sink)
    }

    /// See [`Worker::wait_until_loaded`].
    #[must_use]
    pub fn wait_until_loaded(&self) -> Status {
        self.worker.wait_until_loaded()
    }

    /// See [`Worker::status`].
    #[must_use]
    pub fn status(&self) -> Status {
        self.worker.status()
    }

    /// See [`Worker::load`].
    #[must_use]
    pub fn load(&self) -> Load {
        self.worker.load()
    }

    /// See [`Worker::stop_within`].
    #[must_use]
    pub fn stop_within(&self, patience: Duration) -> bool {
        self.worker.stop_within(patience)
    }

    /// See [`Worker::stop`].
    pub fn stop(&self) {
        self.worker.stop();
    }
}
