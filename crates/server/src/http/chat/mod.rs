//! `POST /v1/chat/completions`.

mod answer;
mod messages;
mod request;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use super::answer::Head;
use super::app::{App, blocking};
use super::body;
use super::errors::ApiError;
use super::generation::Generation;
use super::sse;

/// Answers a conversation.
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let bytes = body::read(request, app.settings.max_body).await?;
    let front = app.front()?;
    let request = {
        let front = Arc::clone(&front);
        blocking(move || request::prepare(&bytes, &front)).await?
    };
    let head = Head::new("chatcmpl", &front);
    let logprobs = request.job.logprobs.is_some();
    let generation = Generation::start(Arc::clone(&app), vec![request.job])?;
    Ok(match request.stream {
        Some(streaming) => {
            let chunks = answer::Stream::new(head, front, logprobs, streaming);
            sse::respond(generation, chunks, &app.settings)
        }
        None => {
            let answers = generation.collect().await?;
            Json(answer::whole(&head, &front, logprobs, answers)).into_response()
        }
    })
}
