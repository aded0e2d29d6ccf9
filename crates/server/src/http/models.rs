//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use annulus_engine::engine::Front;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;

use super::app::App;
use super::errors::ApiError;

/// A list of models; here of one.
#[derive(Serialize)]
pub(crate) struct List {
    object: &'static str,
    data: Vec<Model>,
}

/// A model, in OpenAI's fields and one more.
#[derive(Serialize)]
pub(crate) struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    context_length: usize,
}

impl Model {
    fn new(front: &Front) -> Self {
        Self {
            id: front.id.clone(),
            object: "model",
            created: front.created,
            owned_by: "annulus",
            context_length: front.context_length,
        }
    }
}

/// All models that are served.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Json<List>, ApiError> {
    let front = app.front()?;
    Ok(Json(List { object: "list", data: vec![Model::new(&front)] }))
}

/// One model; names may have slashes in them.
pub(crate) async fn retrieve(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Model>, ApiError> {
    let front = app.front()?;
    if id != front.id {
        return Err(ApiError::model_not_found(&id, &front.id));
    }
    Ok(Json(Model::new(&front)))
}
