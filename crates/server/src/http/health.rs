//! `GET /health`: can this server answer? `GET /health/live`: does it run?

use std::sync::Arc;

use annulus_engine::worker::Status;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::app::App;

/// 200 when requests are answered, 503 while the model loads and after its thread has died.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    match app.engine.status() {
        Status::Loading => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "loading"}))),
        Status::Ready => {
            let load = app.engine.load();
            let model = app.engine.front().map(|front| front.id.clone());
            let health = json!({
                "status": "ready",
                "model": model,
                "running": load.running,
                "waiting": load.waiting,
            });
            (StatusCode::OK, Json(health))
        }
        Status::Failed(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "failed", "reason": reason})))
        }
    }
}

/// 200 while the process serves.
pub(crate) async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}
