//! The routes, what their handlers share, and the layers around them.

use std::sync::Arc;
use std::time::Duration;

use annulus_engine::engine::{Engine, Front};
use annulus_engine::worker::Status;
use axum::Router;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::watch;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

use super::errors::ApiError;
use super::generation::Pace;
use super::{access, chat, completions, geometry, health, inspector, models};

/// What the command line decides about the server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The most bytes of a request's body.
    pub max_body: usize,
    /// Web pages from these origins may use the server; `*` stands for all.
    pub cors_origins: Vec<HeaderValue>,
    /// After so long without anything to send, a stream sends a comment.
    pub keep_alive: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_body: 8 << 20, cors_origins: Vec::new(), keep_alive: Duration::from_secs(10) }
    }
}

/// What the handlers share.
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    /// Becomes true when the server is asked to stop; answers that run may come to their end.
    pub(crate) draining: watch::Receiver<bool>,
    /// Becomes true when answers that are still running have to end.
    pub(crate) closing: watch::Receiver<bool>,
}

impl App {
    /// The model's text side, or why there is none to be had.
    pub(crate) fn front(&self) -> Result<Arc<Front>, ApiError> {
        match self.engine.status() {
            Status::Loading => Err(ApiError::loading()),
            Status::Failed(reason) => Err(ApiError::failed(&reason)),
            Status::Ready => {
                self.engine.front().ok_or_else(|| ApiError::internal("The model is ready but says nothing of itself."))
            }
        }
    }
}

/// The whole application.
pub(crate) fn router(app: Arc<App>) -> Router {
    let cors = cors(&app.settings.cors_origins);
    let router = Router::new()
        .route("/", get(index))
        .route("/health", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/geometry/events", get(geometry::events))
        .route("/inspect", get(inspector::folder))
        .route("/inspect/", get(inspector::index))
        .route("/inspect/{*file}", get(inspector::file))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app);
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::internal("The request made the server fail; its log says more.").into_response()
        }))
        .layer(axum::middleware::from_fn(access::log))
}

/// Runs work that may take long, such as the tokenizer on megabytes of text, where it holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ApiError::shutting_down()),
        },
    }
}

const INDEX: &str = "\
Annulus serves a language model over OpenAI's HTTP interface.

POST /v1/chat/completions   answer a conversation, streamed or not
POST /v1/completions        continue a prompt, streamed or not
GET  /v1/models             the model that is served
GET  /v1/geometry/events    every move of the KV cache, as server-sent events
GET  /inspect               the inspector: a page that shows how the cache works
GET  /health                200 when it can answer, 503 while it loads or after it failed
GET  /health/live           200 while the process serves
";

async fn index() -> &'static str {
    INDEX
}

async fn not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown_url",
        format!("There is no {method} {} here; GET / says what there is.", uri.path()),
    )
}

/// The router adds the header `Allow`.
async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} does not take {method}; the header Allow says what it takes.", uri.path()),
    )
    .into_response()
}

fn cors(origins: &[HeaderValue]) -> Option<CorsLayer> {
    let origin = match origins {
        [] => return None,
        origins if origins.iter().any(|origin| origin == "*") => AllowOrigin::from(Any),
        origins => AllowOrigin::list(origins.to_vec()),
    };
    Some(
        CorsLayer::new()
            .allow_origin(origin)
            .allow_methods([Method::GET, Method::POST])
            .allow_headers([header::CONTENT_TYPE, header::AUTHORIZATION])
            .expose_headers([header::RETRY_AFTER, access::REQUEST_ID.clone()]),
    )
}
