//! `POST /v1/completions`.

mod answer;
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

/// Continues one or more prompts.
pub(crate) async fn create(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let bytes = body::read(request, app.settings.max_body).await?;
    let front = app.front()?;
    let request = {
        let front = Arc::clone(&front);
        blocking(move || request::prepare(&bytes, &front)).await?
    };
    let head = Head::new("cmpl", &front);
    let generation = Generation::start(Arc::clone(&app), request.jobs)?;
    let writers = answer::Writers::new(front, request.echoes, request.logprobs);
    Ok(match request.stream {
        Some(streaming) => sse::respond(generation, answer::Stream::new(head, writers, streaming), &app.settings),
        None => {
            let answers = generation.collect().await?;
            Json(answer::whole(&head, writers, answers)).into_response()
        }
    })
}
