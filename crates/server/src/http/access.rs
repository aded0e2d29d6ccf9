//! Request ids and the access log.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use uuid::Uuid;

/// The header that names a request.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a client that is taken over.
const MAX_ID: usize = 128;

/// Gives the request an id and writes one line of log when its answer has been sent, or when its client has gone.
pub(crate) async fn log(request: Request, next: Next) -> Response {
    let id = request_id(&request);
    let mut line = Line {
        id: id.clone(),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        began: Instant::now(),
        status: None,
        bytes: 0,
        complete: false,
    };
    let mut response = next.run(request).await;
    line.status = Some(response.status());
    // Nobody asks an empty body for its end.
    line.complete = http_body::Body::is_end_stream(response.body());
    response.headers_mut().insert(REQUEST_ID.clone(), id);
    response.map(|body| Body::new(Logged { body, line }))
}

/// The client's own id when it is a plain word, which nobody can forge lines of log with; otherwise a new one.
fn request_id(request: &Request) -> HeaderValue {
    let is_plain = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=MAX_ID).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    };
    request.headers().get(&REQUEST_ID).filter(is_plain).cloned().unwrap_or_else(|| {
        let id = format!("req-{}", Uuid::new_v4().simple());
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("req-unnamed"))
    })
}

/// A line of the access log, written when it is dropped: that happens at an answer's end and at a disconnect alike,
/// in whatever phase.
struct Line {
    id: HeaderValue,
    method: Method,
    path: String,
    began: Instant,
    /// `None` until the handler has answered.
    status: Option<StatusCode>,
    bytes: u64,
    complete: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        tracing::info!(
            target: "annulus::access",
            id = self.id.to_str().unwrap_or_default(),
            method = %self.method,
            path = self.path,
            status = self.status.map(|status| status.as_u16()),
            bytes = self.bytes,
            ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "{}",
            if self.complete { "answered" } else { "client gone" },
        );
    }
}

/// A body that keeps its line of log up to date.
struct Logged {
    body: Body,
    line: Line,
}

impl http_body::Body for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.line.bytes += bytes as u64;
                self.line.complete = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.line.complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
