//! The flags that say which model to run and how.

use std::io;

use annulus_engine::engine::Engine;

/// Which model, and how its numbers are computed.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// A folder with a checkpoint, a .gguf file, or a name org/model that is in the Hugging Face cache; without one,
    /// the default model.
    #[arg(env = "ANNULUS_MODEL")]
    model: Option<String>,
}

impl Args {
    /// Begins to load the model, on a thread of its own; at most `max_queue` jobs may wait.
    pub(super) fn open(&self, _max_queue: usize, _fault_after: Option<usize>) -> io::Result<Engine> {
        Err(io::Error::other("no engine yet"))
    }

    /// The model as messages name it.
    pub(super) fn shown(&self) -> &str {
        self.model.as_deref().unwrap_or("the default model")
    }
}
