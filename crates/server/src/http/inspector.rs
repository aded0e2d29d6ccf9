//! The inspector at `/inspect`: the page of `web`, embedded in the binary as it was when the binary was built.
//!
//! The page is built by other tools (`make web`). A binary built without it is complete but for the page, and says so.

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Page;

const NOT_BUILT: &str = "\
This binary was built without the inspector's page.
Build the page with `make web`, then the server again with `make build`.
";

/// To the folder, so that the page's own addresses, which are relative, find their files.
pub(crate) async fn folder() -> Redirect {
    Redirect::permanent("/inspect/")
}

pub(crate) async fn index() -> Response {
    match Page::get("index.html") {
        Some(file) => answer("index.html", file),
        None => (StatusCode::NOT_FOUND, NOT_BUILT).into_response(),
    }
}

pub(crate) async fn file(Path(path): Path<String>) -> Response {
    match Page::get(&path) {
        Some(file) => answer(&path, file),
        None => (StatusCode::NOT_FOUND, "The inspector has no such file.\n").into_response(),
    }
}

fn answer(path: &str, file: EmbeddedFile) -> Response {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let content = match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    };
    // Names of assets hold a hash of their content; the page that names them does not.
    let keep = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = [(header::CONTENT_TYPE, content), (header::CACHE_CONTROL, keep)];
    (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), file.data).into_response()
}
