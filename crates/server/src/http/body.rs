//! Takes in a request's body: its type, its size, its text, its JSON.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Map, Value};

use super::errors::ApiError;

/// How much of a body that is too large is read and thrown away before the answer, as a multiple of the limit.
///
/// A client that is still writing when the connection closes sees a reset instead of the answer, so the answer waits
/// for the end of the body, within reason.
const DISCARD_FACTOR: usize = 16;

/// A client that sends nothing for so long has lost its connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a body of at most `limit` bytes.
pub(crate) async fn read(request: Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    let (head, body) = request.into_parts();
    check_headers(&head.headers)?;
    let claimed = claimed_length(&head.headers);
    if claimed.is_some_and(|length| length > limit) {
        // Whoever asks first (`Expect: 100-continue`) has sent nothing that would have to be read.
        if !head.headers.contains_key(header::EXPECT) {
            discard(body, limit.saturating_mul(DISCARD_FACTOR)).await;
        }
        return Err(too_large(limit));
    }
    collect(body, claimed.unwrap_or(0), limit).await
}

/// Only JSON, and only as it is. A form or plain text is refused also because a web page may send those to any
/// address without asking the browser; `application/json` it may not.
fn check_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let unsupported =
        |message: String| ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message);
    let sent = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if !sent.as_deref().is_some_and(is_json) {
        let sent = sent.map_or("missing".to_owned(), |sent| format!("{sent:?}"));
        return Err(unsupported(format!("The header Content-Type must be application/json, but is {sent}.")));
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(unsupported(format!(
            "The body must be sent as it is, but the header Content-Encoding says {encoding:?}."
        ))),
        _ => Ok(()),
    }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn claimed_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn collect(mut body: Body, claimed: usize, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::with_capacity(claimed.min(limit));
    while let Some(piece) = next_piece(&mut body).await? {
        if bytes.len() + piece.len() > limit {
            discard(body, limit.saturating_mul(DISCARD_FACTOR)).await;
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

async fn discard(mut body: Body, most: usize) {
    let mut read = 0;
    while read < most
        && let Ok(Some(piece)) = next_piece(&mut body).await
    {
        read += piece.len();
    }
}

/// The next bytes of a body; `None` at its end.
async fn next_piece(body: &mut Body) -> Result<Option<axum::body::Bytes>, ApiError> {
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.map_err(|_| {
            ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                format!("The body stopped coming for {} s.", PATIENCE.as_secs()),
            )
        })?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(bad_request(format!("The body could not be read: {error}.")));
            }
            // Anything but data is a trailer, which nothing here reads.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "request_too_large",
        format!("The body has more than the {limit} bytes that this server takes (--max-body)."),
    )
}

/// Parses a body, which must be an object.
pub(crate) fn parse(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        bad_request(format!("The body is not UTF-8: the byte at {} begins no character.", error.valid_up_to()))
    })?;
    if text.trim_ascii().is_empty() {
        return Err(bad_request("The body is empty; it must be a JSON object."));
    }
    // serde_json refuses nesting deeper than 128 levels, long before the stack is in danger.
    let value: Value =
        serde_json::from_str(text).map_err(|error| bad_request(format!("The body is not JSON: {error}.")))?;
    match value {
        Value::Object(map) => Ok(map),
        other => Err(bad_request(format!("The body must be a JSON object, but is {}.", kind(&other)))),
    }
}

fn bad_request(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_body", message)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
