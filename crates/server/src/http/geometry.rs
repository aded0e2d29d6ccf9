//! `GET /v1/geometry/events`: every move of the KV cache as it is planned, one line of the scenario format an event.

use std::convert::Infallible;
use std::sync::Arc;

use annulus_engine::geometry::{Heard, Listener};
use axum::extract::State;
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use super::app::App;
use super::sse::unbuffered;

/// Lines that wait for a client that reads slowly; after that it misses some, and is then told where the cache stands.
const WAITING: usize = 256;

/// Streams until the client leaves or the server is asked to stop.
pub(super) async fn events(State(app): State<Arc<App>>) -> Response {
    let (sender, lines) = channel(WAITING);
    app.engine.geometry().listen(Box::new(Client(sender)));
    let frames = stream::unfold((lines, app.draining.clone()), async |(mut lines, mut draining)| {
        let frame = next(&mut lines, &mut draining).await?;
        Some((Ok::<_, Infallible>(frame), (lines, draining)))
    });
    let keep_alive = KeepAlive::new().interval(app.settings.keep_alive).text("keep-alive");
    unbuffered(Sse::new(frames).keep_alive(keep_alive).into_response())
}

async fn next(lines: &mut Receiver<String>, draining: &mut watch::Receiver<bool>) -> Option<Frame> {
    tokio::select! {
        line = lines.recv() => Some(Frame::default().data(line?)),
        // Whoever watches shall not keep a server alive that has nothing more to show.
        _ = draining.wait_for(|draining| *draining) => None,
    }
}

/// The model's end of a client's stream.
struct Client(Sender<String>);

impl Listener for Client {
    fn take(&mut self, line: &str) -> Heard {
        match self.0.try_send(line.to_owned()) {
            Ok(()) => Heard::Yes,
            Err(TrySendError::Full(_)) => Heard::Lost,
            Err(TrySendError::Closed(_)) => Heard::Gone,
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}
