//! The one thread that owns the model, and the queue in front of it.
//!
//! MLX arrays belong to the thread that made them, so a [`Worker`] loads the model on a thread of its own and runs one
//! job at a time there. Everybody else talks to it through [`Worker::submit`] and a [`Sink`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::job::{Event, Job, JobError, Sink};

/// What runs jobs on the worker's thread: a loaded model, or a stand-in for it in tests.
pub trait Generator {
    /// Runs one job to its end and sends every event but [`Event::Started`] and [`Event::Failed`].
    ///
    /// It looks at [`Sink::is_closed`] once a decode step and once a prefill chunk, and returns early, with `Ok`, when
    /// that says yes.
    ///
    /// # Errors
    /// When a step fails in a way that leaves later jobs possible. A panic means that none is.
    fn run(&mut self, job: &Job, sink: &mut dyn Sink) -> Result<(), JobError>;
}

/// What the worker can do at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The model is being loaded.
    Loading,
    /// Jobs run.
    Ready,
    /// The thread has ended, for this reason; no job will run any more.
    Failed(String),
}

/// Why a job was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many jobs wait as may.
    #[error("{waiting} requests are waiting, which is as many as the queue holds")]
    QueueFull {
        /// Jobs that wait.
        waiting: usize,
    },
    /// The model's thread has ended.
    #[error("the model's thread has ended: {0}")]
    Died(String),
    /// The worker is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Figures about the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Jobs that run: 0 or 1.
    pub running: usize,
    /// Jobs that wait.
    pub waiting: usize,
}

struct Waiting {
    job: Job,
    sink: Box<dyn Sink>,
}

struct State {
    status: Status,
    queue: VecDeque<Waiting>,
    running: usize,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    max_queue: usize,
}

impl Shared {
    /// No code panics while it holds the lock, so a poisoned one still holds a sound state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the worker as ended and tells everybody who waits.
    fn fail(&self, reason: &str) {
        let queue = {
            let mut state = self.lock();
            state.status = Status::Failed(reason.to_owned());
            state.running = 0;
            std::mem::take(&mut state.queue)
        };
        self.changed.notify_all();
        for mut waiting in queue {
            waiting.sink.send(Event::Failed(JobError::WorkerDied(reason.to_owned())));
        }
    }

    /// The next job whose listener is still there; `None` when the worker is to stop.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.lock();
        state.running = 0;
        self.changed.notify_all();
        loop {
            if state.stopping {
                return None;
            }
            match state.queue.pop_front() {
                Some(waiting) if waiting.sink.is_closed() => {}
                Some(waiting) => {
                    state.running = 1;
                    return Some(waiting);
                }
                None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// A handle to the model's thread. Dropping it stops the thread after the job that runs.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread, which first calls `load` and then runs jobs; at most `max_queue` of them wait.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start<G, F>(max_queue: usize, load: F) -> std::io::Result<Self>
    where
        G: Generator,
        F: FnOnce() -> Result<G, String> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { status: Status::Loading, queue: VecDeque::new(), running: 0, stopping: false }),
            changed: Condvar::new(),
            max_queue,
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("annulus-model".to_owned()).spawn(move || {
            // A panic is caught only to be reported: the model is not used after it.
            let ended = catch_unwind(AssertUnwindSafe(|| serve(&theirs, load)));
            match ended {
                Ok(Ok(())) => theirs.fail("it was stopped"),
                Ok(Err(reason)) => theirs.fail(&reason),
                Err(panic) => theirs.fail(&panic_message(&*panic)),
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Puts a job at the end of the queue.
    ///
    /// A job accepted while the model loads waits for it. Jobs whose listener has gone do not count against the queue.
    ///
    /// # Errors
    /// When the queue is full or the thread has ended; the sink then gets no event.
    pub fn submit(&self, job: Job, sink: Box<dyn Sink>) -> Result<(), SubmitError> {
        let mut state = self.accepting()?;
        state.queue.retain(|waiting| !waiting.sink.is_closed());
        let starts_at_once = state.status == Status::Ready && state.running == 0 && state.queue.is_empty();
        if state.queue.len() >= self.shared.max_queue && !starts_at_once {
            return Err(SubmitError::QueueFull { waiting: state.queue.len() });
        }
        self.enqueue(state, job, sink);
        Ok(())
    }

    /// Puts a further job of a request that has been accepted at the end of the queue, even of a full one.
    ///
    /// A request of several prompts submits them one after another, each when the one before has finished: it takes
    /// its turn with the others, and is not turned away half-way. The queue stays bounded, because such a job comes
    /// only in place of one that has left it.
    ///
    /// # Errors
    /// When the thread has ended or is to end; the sink then gets no event.
    pub fn submit_further(&self, job: Job, sink: Box<dyn Sink>) -> Result<(), SubmitError> {
        let state = self.accepting()?;
        self.enqueue(state, job, sink);
        Ok(())
    }

    /// The state, unless the worker takes no jobs any more.
    fn accepting(&self) -> Result<MutexGuard<'_, State>, SubmitError> {
        let state = self.shared.lock();
        if let Status::Failed(reason) = &state.status {
            return Err(SubmitError::Died(reason.clone()));
        }
        if state.stopping {
            return Err(SubmitError::ShuttingDown);
        }
        Ok(state)
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, job: Job, sink: Box<dyn Sink>) {
        state.queue.push_back(Waiting { job, sink });
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until the model is loaded, or its loading has failed, and says which.
    #[must_use]
    pub fn wait_until_loaded(&self) -> Status {
        let mut state = self.shared.lock();
        while state.status == Status::Loading {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.status.clone()
    }

    /// What the worker can do at the moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.lock().status.clone()
    }

    /// How much is running and waiting; jobs whose listener has gone are not counted.
    #[must_use]
    pub fn load(&self) -> Load {
        let mut state = self.shared.lock();
        state.queue.retain(|waiting| !waiting.sink.is_closed());
        Load { running: state.running, waiting: state.queue.len() }
    }

    /// Refuses new jobs and ends the thread after the job that runs; those that wait get an error.
    pub fn stop(&self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
    }

    /// As [`Worker::stop`], and waits at most so long for the thread's end. It says whether that came: a load that is
    /// under way cannot be interrupted.
    #[must_use]
    pub fn stop_within(&self, patience: Duration) -> bool {
        self.stop();
        let running = |state: &mut State| !matches!(state.status, Status::Failed(_));
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), patience, running);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        matches!(state.status, Status::Failed(_))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its panics have been reported through the status.
            let _ = thread.join();
        }
    }
}

fn serve<G: Generator>(shared: &Shared, load: impl FnOnce() -> Result<G, String>) -> Result<(), String> {
    let mut generator = load()?;
    shared.lock().status = Status::Ready;
    shared.changed.notify_all();
    while let Some(Waiting { job, mut sink }) = shared.next() {
        sink.send(Event::Started);
        let ran = catch_unwind(AssertUnwindSafe(|| generator.run(&job, &mut *sink)));
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(error)) => sink.send(Event::Failed(error)),
            Err(panic) => {
                let reason = panic_message(&*panic);
                // Whoever reads this event must already see the worker as failed.
                shared.fail(&reason);
                sink.send(Event::Failed(JobError::WorkerDied(reason.clone())));
                return Err(reason);
            }
        }
    }
    Ok(())
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
