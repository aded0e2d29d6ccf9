//! A client that goes frees its place, whatever phase its request is in. BR-42: mlx-lm #677, llama.cpp #24496.

use std::sync::mpsc;

use annulus_engine::job::{Event, FinishReason, Job, Sink};
use serde_json::{Value, json};

use crate::support::*;

/// What the model does with the first job before it waits for its client to go.
type Phase = fn(&mut dyn Sink);

/// A server whose first job never ends by itself; the channel tells when it is at the point where its client may go.
fn stuck(phase: Phase) -> (Server, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let mut first = true;
    let server = Server::start(move |job: &Job, sink: &mut dyn Sink| {
        if std::mem::take(&mut first) {
            phase(sink);
            tell.send(()).unwrap();
            run_until_closed(sink);
            return Ok(());
        }
        text(sink, "next");
        finish(job, sink, FinishReason::Stop, 4);
        Ok(())
    });
    (server, told)
}

/// Opens a request, lets another queue behind it, closes the first: the second runs.
fn the_next_one_runs(body: &Value, phase: Phase, read: fn(&mut Connection)) {
    let (server, told) = stuck(phase);
    let mut first = server.connect();
    first.post(CHAT, body);
    told.recv_timeout(DEADLINE).unwrap();
    read(&mut first);
    let mut second = server.connect();
    second.post(CHAT, &hello());
    server.wait_for_waiting(1);
    drop(first);
    assert_eq!(second.response().json()["choices"][0]["message"]["content"], "next");
    server.wait_for_health(|health| health["running"] == 0 && health["waiting"] == 0);
}

fn streamed() -> Value {
    with(hello(), &json!({"stream": true}))
}

fn decode(sink: &mut dyn Sink) {
    text(sink, "one");
    text(sink, "two");
}

fn prefill(sink: &mut dyn Sink) {
    sink.send(Event::Prefill { done: 1, total: 1000 });
}

#[test]
fn br_42_mid_stream() {
    the_next_one_runs(&streamed(), decode, |first| {
        assert_eq!(first.head().status, 200);
        assert!(first.event().contains("one"));
        assert!(first.event().contains("two"));
    });
}

#[test]
fn br_42_while_an_answer_is_collected() {
    the_next_one_runs(&hello(), decode, |_| {});
}

#[test]
fn br_42_mid_prefill() {
    the_next_one_runs(&streamed(), prefill, |_| {});
    the_next_one_runs(&hello(), prefill, |_| {});
}

#[test]
fn br_42_while_queued() {
    for body in [hello(), streamed()] {
        let (tell, told) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let server = Server::start(move |job: &Job, sink: &mut dyn Sink| {
            tell.send(job.max_tokens).unwrap();
            gate.recv_timeout(DEADLINE).unwrap();
            finish(job, sink, FinishReason::Length, 0);
            Ok(())
        });
        let send = |max_tokens: usize| {
            let mut connection = server.connect();
            connection.post(CHAT, &with(body.clone(), &json!({"max_tokens": max_tokens})));
            connection
        };
        let mut running = send(1);
        assert_eq!(told.recv_timeout(DEADLINE), Ok(1));
        let gone = send(2);
        server.wait_for_waiting(1);
        let mut waiting = send(3);
        server.wait_for_waiting(2);
        drop(gone);
        server.wait_for_waiting(1);
        go.send(()).unwrap();
        assert_eq!(running.response().status, 200);
        // Not 2: nobody wants that one any more.
        assert_eq!(told.recv_timeout(DEADLINE), Ok(3));
        go.send(()).unwrap();
        assert_eq!(waiting.response().status, 200);
    }
}

/// A request of several prompts is gone with all of them.
#[test]
fn br_42_between_the_prompts_of_one_request() {
    let (server, told) = stuck(decode);
    let mut first = server.connect();
    first.post(COMPLETIONS, &json!({"prompt": ["a", "b", "c"]}));
    told.recv_timeout(DEADLINE).unwrap();
    drop(first);
    let answer = server.chat(&hello()).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "next");
    server.wait_for_health(|health| health["running"] == 0 && health["waiting"] == 0);
}
