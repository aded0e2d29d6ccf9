//! Every error that a client can see, in OpenAI's shape.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use annulus_engine::job::JobError;
use annulus_engine::worker::SubmitError;

/// An error as a client gets it: a status, and `{"error": {"message", "type", "param", "code"}}`.
///
/// All four fields are always there. The official clients lose message, parameter and code of any other shape.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field of the request that is to blame, as a path such as `messages[1].content`.
    pub(crate) param: Option<String>,
    /// A word for programs.
    pub(crate) code: Option<&'static str>,
    /// Seconds after which it makes sense to try again.
    pub(crate) retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: Some(code), retry_after: None }
    }

    /// A field that is missing, of the wrong type or out of range.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, "invalid_value", message) }
    }

    /// A field that is right by OpenAI's definition and that this server does not offer.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::invalid(param, message) }
    }

    pub(crate) fn model_not_found(asked: &str, served: &str) -> Self {
        Self {
            param: Some("model".to_owned()),
            ..Self::new(
                StatusCode::NOT_FOUND,
                "model_not_found",
                format!("The model {asked:?} is not served here; this server has {served:?}."),
            )
        }
    }

    pub(crate) fn context_overflow(param: &str, tokens: usize, context: usize) -> Self {
        Self {
            code: Some("context_length_exceeded"),
            ..Self::invalid(
                param,
                format!(
                    "The prompt has {tokens} tokens and the model's context holds {context}, at least one of them for \
                     the answer; shorten the prompt."
                ),
            )
        }
    }

    pub(crate) fn loading() -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "model_loading",
                "The model is still being loaded; try again in a moment (GET /health says when it is ready).",
            )
        }
    }

    pub(crate) fn failed(reason: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "model_failed",
            format!("The model's thread has ended ({reason}); restart the server."),
        )
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting_down",
            "The server is shutting down; send the request again when it is back.",
        )
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    pub(crate) fn submit(error: SubmitError, retry_after: u64) -> Self {
        match error {
            SubmitError::QueueFull { .. } => Self {
                retry_after: Some(retry_after),
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "queue_full",
                    format!("{error} (--max-queue); try again in {retry_after} s."),
                )
            },
            SubmitError::Died(reason) => Self::failed(&reason),
            SubmitError::ShuttingDown => Self::shutting_down(),
        }
    }

    /// The body: also what a stream carries as its last event when it fails half-way.
    pub(crate) fn body(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Body {
            error: Fields,
        }
        #[derive(Serialize)]
        struct Fields {
            message: String,
            r#type: &'static str,
            param: Option<String>,
            code: Option<&'static str>,
        }
        Body {
            error: Fields {
                message: self.message.clone(),
                r#type: self.kind(),
                param: self.param.clone(),
                code: self.code,
            },
        }
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::WorkerDied(reason) => Self::failed(&reason),
            JobError::Step(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "generation_failed", error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
