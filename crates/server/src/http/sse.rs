//! From a generation's events to a stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use annulus_engine::job::Event;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

use super::app::Settings;
use super::generation::Generation;

/// Says what an endpoint's chunks look like. Pure: events in, chunks out.
pub(crate) trait Chunks: Send + 'static {
    /// One chunk of the stream.
    type Chunk: Serialize;

    /// The chunks that an event of choice `index` leads to.
    fn on_event(&mut self, index: usize, event: Event) -> Vec<Self::Chunk>;

    /// The chunk after the last choice's end, if there is one.
    fn on_end(&mut self) -> Option<Self::Chunk>;
}

/// Streams a generation. Whatever happens, the stream ends with `data: [DONE]`: some clients wait for it for ever.
///
/// A failure after the headers have been sent becomes a last event with an `error`, which the official clients raise
/// as an exception.
pub(crate) fn respond<C: Chunks>(generation: Generation, chunks: C, settings: &Settings) -> Response {
    let source = Source { generation, chunks, pending: VecDeque::new(), ended: false };
    let frames = stream::unfold(source, async |mut source| {
        let frame = source.next().await?;
        Some((Ok::<_, Infallible>(frame), source))
    });
    // While a request waits or its prompt runs, comments show to client and proxies that the connection lives.
    let keep_alive = KeepAlive::new().interval(settings.keep_alive).text("keep-alive");
    unbuffered(Sse::new(frames).keep_alive(keep_alive).into_response())
}

/// Asks proxies of the nginx family not to collect a stream.
pub(crate) fn unbuffered(mut response: Response) -> Response {
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

struct Source<C> {
    generation: Generation,
    chunks: C,
    /// Frames that are ready to be sent.
    pending: VecDeque<Frame>,
    /// No frames will be added to `pending`.
    ended: bool,
}

impl<C: Chunks> Source<C> {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            match self.generation.next().await {
                Some(Ok((index, event))) => {
                    let chunks = self.chunks.on_event(index, event);
                    self.pending.extend(chunks.iter().map(frame));
                }
                Some(Err(error)) => self.end(Some(frame(&error.body()))),
                None => {
                    let last = self.chunks.on_end().as_ref().map(frame);
                    self.end(last);
                }
            }
        }
    }

    fn end(&mut self, last: Option<Frame>) {
        self.pending.extend(last);
        self.pending.push_back(Frame::default().data("[DONE]"));
        self.ended = true;
    }
}

fn frame(chunk: &impl Serialize) -> Frame {
    // Chunks hold strings and finite numbers, so this cannot fail; if one ever does, the client learns of it.
    let json = serde_json::to_string(chunk).unwrap_or_else(|error| {
        tracing::error!(%error, "a chunk could not be written");
        r#"{"error":{"message":"A chunk could not be written.","type":"server_error","param":null,"code":"internal_error"}}"#.to_owned()
    });
    Frame::default().data(json)
}
