//! The command as a shell sees it: exit statuses, messages, what goes to which stream. Nothing here needs a model.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

/// The command in an environment without models.
fn annulus(arguments: &[&str]) -> Command {
    let nowhere = std::env::temp_dir().join("annulus-test-nowhere");
    let mut command = Command::new(env!("CARGO_BIN_EXE_annulus"));
    command.args(arguments).env("ANNULUS_HOME", &nowhere).env("HF_HUB_CACHE", &nowhere).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(annulus(arguments).output().unwrap())
}

fn run_with_input(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child =
        annulus(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    outcome(child.wait_with_output().unwrap())
}

fn outcome(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_port_in_use_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (status, out, err) = run(&["serve", "--port", &port]);
    assert_eq!(status, Some(1));
    assert_eq!(out, "");
    assert!(err.starts_with(&format!("error: cannot listen on 127.0.0.1:{port}: ")), "{err}");
    assert!(err.contains("--port"), "{err}");
}

#[test]
fn serving_a_model_that_is_not_there_ends_with_an_error() {
    let (status, out, err) = run(&["serve", "no/such-model", "--port", "0"]);
    assert_eq!(status, Some(1));
    // It listens before it loads.
    assert!(out.starts_with("listening on http://127.0.0.1:"), "{out}");
    assert!(err.contains("error: ") && err.contains("no/such-model"), "{err}");
}

#[test]
fn the_log_is_json_when_asked_for() {
    let mut server = annulus(&["serve", "--port", "0", "--host", "0.0.0.0", "--log-format", "json", "no/such-model"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let _ = server.wait();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "WARN");
    assert!(line["message"].as_str().unwrap().contains("open to the network"), "{line}");
}

#[test]
fn other_commands_say_which_model_is_missing() {
    for arguments in [
        &["generate", "no/such-model", "--prompt", "hi"][..],
        &["chat", "no/such-model"],
        &["logits", "no/such-model", "--tokens", "1", "--out", "unused.safetensors"],
    ] {
        let (status, out, err) = run(arguments);
        assert_eq!((status, &*out), (Some(1), ""), "{arguments:?}");
        assert!(err.contains("no/such-model"), "{err}");
    }
}

#[test]
fn flags_may_come_from_the_environment() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (status, _, err) = outcome(annulus(&["serve"]).env("ANNULUS_PORT", &port).output().unwrap());
    assert_eq!(status, Some(1));
    assert!(err.contains(&port), "{err}");
}

#[test]
fn wrong_flags_are_refused_with_the_right_ones() {
    let (status, _, err) = run(&["serve", "--compute-dtype", "f64"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("auto, f32, bf16, f16"), "{err}");
    let (status, _, err) = run(&["logits", "--out", "unused.safetensors"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("--tokens"), "{err}");
}

#[test]
fn token_files_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.txt");
    std::fs::write(&file, "1, 2\n3 four").unwrap();
    let (status, _, err) = run(&["logits", "--tokens-file", file.to_str().unwrap(), "--out", "unused.safetensors"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("\"four\" is no token id"), "{err}");
}

#[test]
fn no_models_are_no_error() {
    let (status, out, err) = run(&["list"]);
    assert_eq!((status, &*out), (Some(0), ""));
    assert!(err.contains("make setup"), "{err}");
}

#[test]
fn the_doctor_says_what_is_missing_and_what_to_do() {
    let (status, out, _) = run(&["doctor"]);
    assert_eq!(status, Some(1));
    assert!(out.contains("! default model  not here"), "{out}");
    assert!(out.contains("make setup"), "{out}");
}

const SCENARIO: &str =
    r#"{"scenario":{"cache":{"kind":"rotating","max_size":4},"ops":[{"op":"merge","rows":[[1000,1001],[2000]]}]}}"#;

#[test]
fn plans_are_replayed_and_explained() {
    let (status, out, err) = run_with_input(&["plan", "replay", "-"], SCENARIO);
    assert_eq!((status, &*err), (Some(0), ""));
    assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok(), "{out}");
    let (status, out, _) = run_with_input(&["plan", "explain", "-"], SCENARIO);
    assert_eq!(status, Some(0));
    assert!(out.contains("merge"), "{out}");
}

#[test]
fn plans_that_fail_have_a_status_of_their_own() {
    let (status, _, _) = run_with_input(&["plan", "replay", "-"], "{}");
    assert_eq!(status, Some(1));
    let (status, _, err) = run(&["plan", "replay", "/no/such/file"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("/no/such/file"), "{err}");
}

/// `annulus plan replay … | head` ends without a complaint.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = annulus(&["plan", "explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let writing = std::thread::spawn(move || {
        for _ in 0..5000 {
            if writeln!(input, "{SCENARIO}").is_err() {
                return;
            }
        }
    });
    // The planner reads all before it writes.
    writing.join().unwrap();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    drop(out);
    let (status, _, err) = outcome(child.wait_with_output().unwrap());
    assert_eq!((status, &*err), (Some(0), ""));
}
