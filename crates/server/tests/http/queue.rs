//! The queue as clients see it: order, its end, and signs of life while they wait.

use std::sync::mpsc;
use std::time::Duration;

use annulus_engine::job::{FinishReason, Job, Sink};
use annulus_server::http::app::Settings;
use serde_json::json;

use crate::support::*;

/// A model that runs a job for each message that comes over the channel.
fn gated(setup: Setup) -> (Server, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel::<()>();
    let server = Server::ready(setup, move |job: &Job, sink: &mut dyn Sink| {
        gate.recv_timeout(DEADLINE).unwrap();
        text(sink, "done");
        finish(job, sink, FinishReason::Stop, 4);
        Ok(())
    });
    (server, go)
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let (server, go) = gated(Setup { max_queue: 1, ..Setup::default() });
    let mut running = server.connect();
    running.post(CHAT, &hello());
    server.wait_for_health(|health| health["running"] == 1);
    let mut waiting = server.connect();
    waiting.post(CHAT, &hello());
    server.wait_for_waiting(1);
    for body in [hello(), with(hello(), &json!({"stream": true}))] {
        let response = server.chat(&body);
        assert_eq!(response.status, 429);
        assert_eq!(response.header("retry-after"), Some("1"));
        let error = response.error();
        assert_eq!(error.kind, "rate_limit_error");
        assert_eq!(error.code.as_deref(), Some("queue_full"));
        assert!(error.message.contains("--max-queue"), "{}", error.message);
    }
    go.send(()).unwrap();
    assert_eq!(running.response().status, 200);
    go.send(()).unwrap();
    assert_eq!(waiting.response().status, 200);
    go.send(()).unwrap();
    assert_eq!(server.chat(&hello()).status, 200);
}

/// A request of several prompts that has begun comes to its end, although others have filled the queue meanwhile.
#[test]
fn further_prompts_find_a_place_in_a_full_queue() {
    let (server, go) = gated(Setup { max_queue: 1, ..Setup::default() });
    let mut several = server.connect();
    several.post(COMPLETIONS, &json!({"prompt": ["a", "b", "c"]}));
    server.wait_for_health(|health| health["running"] == 1);
    let mut other = server.connect();
    other.post(CHAT, &hello());
    server.wait_for_waiting(1);
    go.send(()).unwrap();
    // The other's turn comes between the first and the second prompt.
    go.send(()).unwrap();
    assert_eq!(other.response().status, 200);
    go.send(()).unwrap();
    go.send(()).unwrap();
    let answer = several.response();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 3);
}

#[test]
fn streams_that_wait_show_signs_of_life() {
    let settings = Settings { keep_alive: Duration::from_millis(20), ..Settings::default() };
    let (server, go) = gated(Setup { settings, ..Setup::default() });
    let streamed = with(hello(), &json!({"stream": true}));
    let mut running = server.connect();
    running.post(CHAT, &streamed);
    // Only then is the order of the two certain.
    server.wait_for_health(|health| health["running"] == 1);
    let mut waiting = server.connect();
    waiting.post(CHAT, &streamed);
    for connection in [&mut running, &mut waiting] {
        assert_eq!(connection.head().status, 200);
        for _ in 0..2 {
            assert_eq!(connection.event(), ": keep-alive\n\n");
        }
    }
    for connection in [&mut running, &mut waiting] {
        go.send(()).unwrap();
        let mut event = connection.event();
        while event == ": keep-alive\n\n" {
            event = connection.event();
        }
        assert!(event.contains(r#""delta":{"role":"assistant","content":"done"}"#), "{event}");
    }
}
