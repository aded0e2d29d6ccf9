//! The channel over which the model's thread tells a request what happens to its job.

use annulus_engine::job::{Event, Sink};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The listening end. Dropping it ends the job: this is all that a disconnect has to do.
#[derive(Debug)]
pub struct Events {
    receiver: UnboundedReceiver<Event>,
}

impl Events {
    /// The next event; `None` when there will be none.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// The next event, for threads outside the asynchronous runtime.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.receiver.blocking_recv()
    }
}

/// The sending end.
///
/// The channel has no bound, because a [`Sink`] must never make the model wait for a slow reader. What it can hold is
/// bounded by the job: a few dozen bytes for each token up to its `max_tokens`.
struct ChannelSink(UnboundedSender<Event>);

impl Sink for ChannelSink {
    fn send(&mut self, event: Event) {
        // Nobody listens any more; the worker learns that from `is_closed`.
        let _ = self.0.send(event);
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// A sink for the engine and the listening end for the request.
#[must_use]
pub fn channel() -> (Box<dyn Sink>, Events) {
    let (sender, receiver) = unbounded_channel();
    (Box::new(ChannelSink(sender)), Events { receiver })
}
