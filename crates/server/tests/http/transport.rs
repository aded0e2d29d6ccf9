//! What surrounds the endpoints: paths, methods, bodies, headers.

use annulus_engine::job::{Job, Sink};
use annulus_server::http::app::Settings;
use serde_json::json;

use crate::support::*;

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn the_models_are_listed() {
    let server = Server::start(say(&[]));
    let model = json!({
        "id": MODEL, "object": "model", "created": 1_700_000_000, "owned_by": "annulus", "context_length": CONTEXT,
    });
    assert_eq!(server.get("/v1/models").json(), json!({"object": "list", "data": [model]}));
    // The official clients send a slash in a name as it is or encoded.
    assert_eq!(server.get("/v1/models/test/model").json(), model);
    assert_eq!(server.get("/v1/models/test%2Fmodel").json(), model);
    let response = server.get("/v1/models/nonsense");
    assert_eq!(response.status, 404);
    assert_eq!(response.error().code.as_deref(), Some("model_not_found"));
}

#[test]
fn the_root_says_what_is_here() {
    let response = Server::start(say(&[])).get("/");
    assert_eq!(response.status, 200);
    assert!(response.text().contains("/v1/chat/completions"));
}

#[test]
fn unknown_paths_are_not_found() {
    let server = Server::start(say(&[]));
    let response = server.get("/v2/nothing");
    assert_eq!(response.status, 404);
    let error = response.error();
    assert_eq!(error.code.as_deref(), Some("unknown_url"));
    assert!(error.message.contains("/v2/nothing"));
}

#[test]
fn wrong_methods_are_told_the_right_ones() {
    let server = Server::start(say(&[]));
    let response = server.get(CHAT);
    assert_eq!(response.status, 405);
    assert_eq!(response.header("allow"), Some("POST"));
    assert_eq!(response.error().code.as_deref(), Some("method_not_allowed"));
    let response = server.post("/v1/models", &json!({}));
    assert_eq!(response.status, 405);
    assert_eq!(response.header("allow"), Some("GET,HEAD"));
    response.error();
}

fn posted(server: &Server, headers: &str, body: &[u8]) -> Response {
    let mut connection = server.connect();
    connection.post_bytes(CHAT, headers, body);
    connection.response()
}

#[test]
fn only_json_is_taken() {
    let server = Server::start(say(&["a"]));
    let body = hello().to_string();
    for wrong in ["", "content-type: text/plain\r\n", "content-type: application/x-www-form-urlencoded\r\n"] {
        let response = posted(&server, wrong, body.as_bytes());
        assert_eq!(response.status, 415, "{wrong}");
        assert!(response.error().message.contains("application/json"));
    }
    let encoded = format!("{JSON}content-encoding: gzip\r\n");
    assert_eq!(posted(&server, &encoded, body.as_bytes()).status, 415);
    for right in ["content-type: application/json; charset=utf-8\r\n", "content-type: Application/JSON\r\n"] {
        assert_eq!(posted(&server, right, body.as_bytes()).status, 200, "{right}");
    }
}

#[test]
fn hostile_bodies_are_refused_and_the_server_goes_on() {
    let server = Server::start(say(&["a"]));
    let deep = [b"{\"messages\":".to_vec(), b"[".repeat(100_000)].concat();
    let cases: [(&[u8], &str); 12] = [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b"5", "a number"),
        (b"\"hi\"", "a string"),
        (b"{", "not JSON"),
        (b"{\"messages\": [}", "not JSON"),
        (b"{\"messages\": 1e999}", "not JSON"),
        (b"{\"messages\": \"\\ud800\"}", "not JSON"),
        (b"{\"messages\": \"\xff\"}", "not UTF-8"),
        (&deep, "not JSON"),
    ];
    for (body, why) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let response = posted(&server, JSON, body);
        assert_eq!(response.status, 400, "{shown}");
        let error = response.error();
        assert_eq!(error.code.as_deref(), Some("invalid_body"), "{shown}");
        assert!(error.message.contains(why), "{shown}: {}", error.message);
        assert_eq!(server.chat(&hello()).status, 200);
    }
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let settings = Settings { max_body: 1000, ..Settings::default() };
    let server = Server::ready(Setup { settings, ..Setup::default() }, say(&["a"]));
    let padded = |length: usize| {
        let body = hello().to_string();
        body + &" ".repeat(length - hello().to_string().len())
    };
    assert_eq!(posted(&server, JSON, padded(1000).as_bytes()).status, 200);
    // With a length, and in chunks without one.
    let response = posted(&server, JSON, padded(1001).as_bytes());
    assert_eq!(response.status, 413);
    assert!(response.error().message.contains("1000"));
    let mut connection = server.connect();
    connection
        .send(format!("POST {CHAT} HTTP/1.1\r\nhost: test\r\n{JSON}transfer-encoding: chunked\r\n\r\n").as_bytes());
    connection.send(format!("3e9\r\n{}\r\n0\r\n\r\n", padded(1001)).as_bytes());
    assert_eq!(connection.response().status, 413);
    assert_eq!(server.chat(&hello()).status, 200);
}

/// Most clients write all of their body before they read: the answer must not be lost to a reset meanwhile.
#[test]
fn twenty_megabytes_get_their_answer() {
    let server = Server::start(say(&["a"]));
    let response = posted(&server, JSON, &vec![b' '; 20 << 20]);
    assert_eq!(response.status, 413);
    response.error();
    assert_eq!(server.chat(&hello()).status, 200);
}

/// Whoever asks before sending is told at once.
#[test]
fn expectations_of_too_much_are_refused_before_the_body() {
    let server = Server::start(say(&["a"]));
    let mut connection = server.connect();
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: test\r\n{JSON}expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n");
    connection.send(head.as_bytes());
    assert_eq!(connection.response().status, 413);
}

#[test]
fn request_ids_are_taken_over_when_they_are_plain() {
    let server = Server::start(say(&["a"]));
    let id_for = |sent: &str| {
        let response = posted(&server, &format!("{JSON}{sent}"), hello().to_string().as_bytes());
        assert_eq!(response.status, 200);
        response.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_for("x-request-id: my-id_1.2:3\r\n"), "my-id_1.2:3");
    let made = [id_for(""), id_for("x-request-id: a b\r\n"), id_for(&format!("x-request-id: {}\r\n", "x".repeat(129)))];
    for id in &made {
        assert!(id.starts_with("req-") && id.len() == 36, "{id}");
    }
    assert_ne!(made[0], made[1]);
    assert!(server.get("/nowhere").header("x-request-id").is_some());
}

#[test]
fn a_connection_serves_several_requests() {
    let server = Server::start(say(&["a"]));
    let mut connection = server.connect();
    for _ in 0..3 {
        connection.post(CHAT, &hello());
        assert_eq!(connection.response().status, 200);
        connection.post(CHAT, &with(hello(), &json!({"stream": true})));
        assert_eq!(connection.response().events().len(), 2);
        connection.post(CHAT, &json!([]));
        assert_eq!(connection.response().status, 400);
    }
}

#[test]
fn web_pages_may_use_it_only_when_told_so() {
    let ask = |server: &Server, origin: &str| {
        let mut connection = server.connect();
        let head = format!(
            "OPTIONS {CHAT} HTTP/1.1\r\nhost: test\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\
             access-control-request-headers: content-type\r\n\r\n"
        );
        connection.send(head.as_bytes());
        connection.response().header("access-control-allow-origin").map(str::to_owned)
    };
    let server = |origins: &[&'static str]| {
        let cors_origins = origins.iter().map(|origin| origin.parse().unwrap()).collect();
        let settings = Settings { cors_origins, ..Settings::default() };
        Server::ready(Setup { settings, ..Setup::default() }, say(&["a"]))
    };
    assert_eq!(ask(&server(&[]), "http://a.test"), None);
    let listed = server(&["http://a.test", "http://b.test"]);
    assert_eq!(ask(&listed, "http://b.test").as_deref(), Some("http://b.test"));
    assert_eq!(ask(&listed, "http://c.test"), None);
    assert_eq!(ask(&server(&["*"]), "http://a.test").as_deref(), Some("*"));
}

/// A step that fails ends its request; the next one runs.
#[test]
fn a_failed_step_fails_its_request_only() {
    let mut fail = true;
    let server = Server::start(move |job: &Job, sink: &mut dyn Sink| {
        if std::mem::take(&mut fail) {
            return Err(annulus_engine::job::JobError::Step("no memory".to_owned()));
        }
        finish(job, sink, annulus_engine::job::FinishReason::Stop, 0);
        Ok(())
    });
    let response = server.chat(&hello());
    assert_eq!(response.status, 500);
    let error = response.error();
    assert_eq!(error.kind, "server_error");
    assert!(error.message.contains("no memory"));
    assert_eq!(server.chat(&hello()).status, 200);
}
