//! Health through a model's life: loading, ready, failed. mlx-lm #1505, oMLX #1884: no socket that never answers.

use std::sync::mpsc;

use annulus_engine::job::{FinishReason, Job, Sink};
use serde_json::json;

use crate::support::*;

#[test]
fn it_answers_while_the_model_loads() {
    let (go, gate) = mpsc::channel::<()>();
    let load = Box::new(move || gate.recv_timeout(DEADLINE).map_err(|error| error.to_string()));
    let server = Server::with(Setup { load, ..Setup::default() }, say(&["a"]));
    let health = server.get("/health");
    assert_eq!((health.status, health.json()), (503, json!({"status": "loading"})));
    assert_eq!(server.get("/health/live").status, 200);
    for response in [server.chat(&hello()), server.get("/v1/models"), server.get("/v1/models/x")] {
        assert_eq!(response.status, 503);
        assert_eq!(response.header("retry-after"), Some("1"));
        let error = response.error();
        assert_eq!(error.kind, "server_error");
        assert_eq!(error.code.as_deref(), Some("model_loading"));
    }
    go.send(()).unwrap();
    server.wait_for_health(|health| health["status"] == "ready");
    let health = server.get("/health");
    assert_eq!(
        (health.status, health.json()),
        (200, json!({"status": "ready", "model": MODEL, "running": 0, "waiting": 0}))
    );
    assert_eq!(server.chat(&hello()).status, 200);
}

#[test]
fn a_model_that_does_not_load_is_reported() {
    let load = Box::new(|| Err("model.safetensors is cut off".to_owned()));
    let server = Server::ready(Setup { load, ..Setup::default() }, say(&["a"]));
    let health = server.get("/health");
    assert_eq!(health.status, 503);
    assert_eq!(health.json(), json!({"status": "failed", "reason": "model.safetensors is cut off"}));
    let response = server.chat(&hello());
    assert_eq!(response.status, 503);
    assert!(response.error().message.contains("model.safetensors is cut off"));
}

/// A server whose model says something and then dies, once it may.
fn mortal() -> (Server, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel::<()>();
    let server = Server::start(move |_: &Job, sink: &mut dyn Sink| {
        text(sink, "last words");
        gate.recv_timeout(DEADLINE).unwrap();
        panic!("out of luck");
    });
    (server, go)
}

#[test]
fn br_48_a_dead_thread_ends_all_requests_and_is_reported() {
    let (server, go) = mortal();
    let streamed = with(hello(), &json!({"stream": true}));
    let mut running = server.connect();
    running.post(CHAT, &streamed);
    assert_eq!(running.head().status, 200);
    assert!(running.event().contains("last words"));
    let mut queued = server.connect();
    queued.post(CHAT, &hello());
    server.wait_for_waiting(1);
    let mut queued_stream = server.connect();
    queued_stream.post(CHAT, &streamed);
    server.wait_for_waiting(2);
    go.send(()).unwrap();

    // After the headers an error is an event, and the stream still ends as streams do.
    assert_eq!(queued_stream.head().status, 200);
    for stream in [&mut running, &mut queued_stream] {
        let event = stream.event();
        let json = event.strip_prefix("data: ").unwrap();
        let error = error_of(&serde_json::from_str(json).unwrap());
        assert_eq!(error.code.as_deref(), Some("model_failed"));
        assert!(error.message.contains("out of luck"), "{}", error.message);
        assert_eq!(stream.event(), "data: [DONE]\n\n");
        assert_eq!(stream.chunk(), None);
    }
    let response = queued.response();
    assert_eq!(response.status, 503);
    assert_eq!(response.error().code.as_deref(), Some("model_failed"));

    let health = server.get("/health");
    assert_eq!((health.status, health.json()), (503, json!({"status": "failed", "reason": "out of luck"})));
    assert_eq!(server.get("/health/live").status, 200);
    let response = server.chat(&hello());
    assert_eq!(response.status, 503);
    assert_eq!(response.header("retry-after"), None);
    assert!(response.error().message.contains("out of luck"));
}

/// Whoever reads the error sees the server as failed already.
#[test]
fn br_48_health_fails_before_the_error_arrives() {
    let (server, go) = mortal();
    go.send(()).unwrap();
    assert_eq!(server.chat(&hello()).status, 503);
    assert_eq!(server.get("/health").status, 503);
}

#[test]
fn a_job_that_ends_well_leaves_the_server_ready() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        finish(job, sink, FinishReason::Length, 0);
        Ok(())
    });
    assert_eq!(server.chat(&hello()).status, 200);
    assert_eq!(server.get("/health").status, 200);
}
