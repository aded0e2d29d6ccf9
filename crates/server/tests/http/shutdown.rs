//! How the server ends.

use std::sync::mpsc;
use std::time::Duration;

use annulus_engine::job::{FinishReason, Job, Sink};
use serde_json::json;

use crate::support::*;

/// A model that says one piece, waits, and says another.
fn halting(setup: Setup) -> (Server, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel::<()>();
    let server = Server::ready(setup, move |job: &Job, sink: &mut dyn Sink| {
        text(sink, "one");
        while gate.try_recv().is_err() {
            if sink.is_closed() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        text(sink, "two");
        finish(job, sink, FinishReason::Stop, 6);
        Ok(())
    });
    (server, go)
}

fn open_stream(server: &Server) -> Connection {
    let mut connection = server.connect();
    connection.post(CHAT, &with(hello(), &json!({"stream": true})));
    assert_eq!(connection.head().status, 200);
    assert!(connection.event().contains("one"));
    connection
}

fn wait_for_refused_connections(server: &Server) {
    let began = std::time::Instant::now();
    while std::net::TcpStream::connect(server.address).is_ok() {
        assert!(began.elapsed() < DEADLINE, "the server still accepts connections");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn answers_that_run_come_to_their_end() {
    let (mut server, go) = halting(Setup { patience: DEADLINE, ..Setup::default() });
    let mut stream = open_stream(&server);
    let idle = server.connect();
    server.stop();
    wait_for_refused_connections(&server);
    go.send(()).unwrap();
    assert!(stream.event().contains("two"));
    assert!(stream.event().contains("\"finish_reason\":\"stop\""));
    assert_eq!(stream.event(), "data: [DONE]\n\n");
    assert_eq!(stream.chunk(), None);
    assert!(stream.is_at_end());
    server.join().unwrap();
    drop(idle);
}

fn ends_with_an_error(mut stream: Connection) {
    let event = stream.event();
    let json = event.strip_prefix("data: ").unwrap();
    assert_eq!(error_of(&serde_json::from_str(json).unwrap()).code.as_deref(), Some("shutting_down"));
    assert_eq!(stream.event(), "data: [DONE]\n\n");
    assert_eq!(stream.chunk(), None);
}

#[test]
fn answers_that_take_too_long_end_with_an_error() {
    let (mut server, _go) = halting(Setup { patience: Duration::from_millis(50), ..Setup::default() });
    let stream = open_stream(&server);
    let mut collected = server.connect();
    collected.post(CHAT, &hello());
    server.wait_for_waiting(1);
    server.stop();
    ends_with_an_error(stream);
    let response = collected.response();
    assert_eq!(response.status, 503);
    assert_eq!(response.error().code.as_deref(), Some("shutting_down"));
    server.join().unwrap();
}

#[test]
fn a_second_request_to_stop_ends_them_at_once() {
    let (mut server, _go) = halting(Setup { patience: Duration::from_secs(3600), ..Setup::default() });
    let stream = open_stream(&server);
    server.stop();
    server.stop();
    ends_with_an_error(stream);
    server.join().unwrap();
}
