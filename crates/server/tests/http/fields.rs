//! Requests that are refused: each names its field, and the server answers afterwards.

use annulus_engine::job::{Job, Sink};
use serde_json::{Value, json};

use crate::support::*;

/// A server whose model must not hear of anything.
fn deaf() -> Server {
    Server::start(|job: &Job, _: &mut dyn Sink| panic!("the engine got {job:?}"))
}

fn refused(server: &Server, path: &str, body: &Value, param: &str, code: &str) -> String {
    let response = server.post(path, body);
    assert_eq!(response.status, 400, "{body}: {}", response.text());
    let error = response.error();
    assert_eq!(error.param.as_deref(), Some(param), "{body}: {}", error.message);
    assert_eq!(error.code.as_deref(), Some(code), "{body}: {}", error.message);
    assert_eq!(error.kind, "invalid_request_error");
    error.message
}

#[test]
fn fields_of_both_endpoints() {
    let server = deaf();
    let invalid = [
        ("temperature", json!("hot")),
        ("temperature", json!(-0.1)),
        ("temperature", json!(2.1)),
        ("top_p", json!(1.5)),
        ("top_k", json!(1.5)),
        ("top_k", json!(-2)),
        ("min_p", json!(1)),
        ("min_p", json!(-1)),
        ("seed", json!("x")),
        ("seed", json!(1.5)),
        ("stop", json!("")),
        ("stop", json!(5)),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("stream", json!("yes")),
        ("stream", json!(1)),
        ("stream_options", json!(true)),
        ("max_completion_tokens", json!(-1)),
        ("model", json!(5)),
        ("n", json!(0)),
        ("n", json!("1")),
        ("frequency_penalty", json!("x")),
        ("logit_bias", json!([])),
    ];
    for (path, body) in [(CHAT, hello()), (COMPLETIONS, json!({"prompt": "hi"}))] {
        for (param, value) in &invalid {
            refused(&server, path, &with(body.clone(), &json!({*param: value})), param, "invalid_value");
        }
        let nested = [
            ("stop[1]", json!({"stop": ["a", ""]})),
            ("stop[1]", json!({"stop": ["a", 1]})),
            ("stream_options.include_usage", json!({"stream_options": {"include_usage": 1}})),
        ];
        for (param, more) in &nested {
            refused(&server, path, &with(body.clone(), more), param, "invalid_value");
        }
        let unsupported = [
            ("n", json!(2)),
            ("best_of", json!(3)),
            ("frequency_penalty", json!(0.5)),
            ("presence_penalty", json!(-1)),
            ("logit_bias", json!({"5": 1})),
        ];
        for (param, value) in &unsupported {
            refused(&server, path, &with(body.clone(), &json!({*param: value})), param, "unsupported_parameter");
        }
    }
}

#[test]
fn fields_of_chat() {
    let server = deaf();
    let messages = |messages: Value| json!({"messages": messages});
    let content = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let invalid = [
        ("messages[0]", messages(json!(["hi"]))),
        ("messages[0].role", messages(json!([{"role": "wizard", "content": "x"}]))),
        ("messages[0].role", messages(json!([{"role": 1, "content": "x"}]))),
        ("messages[0].content", content(json!(5))),
        ("messages[0].content", content(json!([]))),
        ("messages[0].content", content(json!({"text": "x"}))),
        ("messages[0].content[0]", content(json!(["x"]))),
        ("messages[0].content[0].text", content(json!([{"type": "text", "text": 5}]))),
        ("messages[0].name", messages(json!([{"role": "user", "content": "x", "name": 5}]))),
        ("logprobs", json!({"logprobs": 1})),
        ("top_logprobs", json!({"top_logprobs": 2})),
        ("top_logprobs", json!({"logprobs": true, "top_logprobs": 21})),
        ("tools", json!({"tools": {}})),
        ("tools[0]", json!({"tools": [1]})),
        ("tools[0].function.name", json!({"tools": [{"type": "function", "function": {"name": 1}}]})),
        ("response_format", json!({"response_format": "text"})),
        ("chat_template_kwargs", json!({"chat_template_kwargs": []})),
    ];
    for (param, more) in &invalid {
        refused(&server, CHAT, &with(hello(), more), param, "invalid_value");
    }
    let missing = [
        ("messages[0].role", messages(json!([{"content": "x"}]))),
        ("messages[0].content", messages(json!([{"role": "user"}]))),
        ("messages[0].content", messages(json!([{"role": "assistant", "content": null}]))),
        ("messages[0].tool_call_id", messages(json!([{"role": "tool", "content": "x"}]))),
        ("messages[0].content[0].type", content(json!([{"text": "x"}]))),
        ("messages[0].content[1].text", content(json!([{"type": "text", "text": "x"}, {"type": "text"}]))),
        (
            "messages[0].tool_calls[0].function",
            messages(json!([{"role": "assistant", "tool_calls": [{"type": "function"}]}])),
        ),
        ("tools[0].function", json!({"tools": [{"type": "function"}]})),
        ("response_format.type", json!({"response_format": {}})),
    ];
    for (param, more) in &missing {
        refused(&server, CHAT, &with(hello(), more), param, "missing_required_parameter");
    }
    let unsupported = [
        ("messages[0].content[0].type", content(json!([{"type": "image_url", "image_url": {"url": "x"}}]))),
        ("tool_choice", json!({"tool_choice": "required"})),
        ("tool_choice", json!({"tool_choice": {"type": "function", "function": {"name": "f"}}})),
        ("tools[0].type", json!({"tools": [{"type": "custom"}]})),
        ("response_format", json!({"response_format": {"type": "json_object"}})),
    ];
    for (param, more) in &unsupported {
        refused(&server, CHAT, &with(hello(), more), param, "unsupported_parameter");
    }
}

#[test]
fn fields_of_completions() {
    let server = deaf();
    let prompt = |prompt: Value| json!({"prompt": prompt});
    let invalid = [
        ("prompt", prompt(json!(5))),
        ("prompt", prompt(json!({}))),
        ("prompt[1]", prompt(json!(["a", 5]))),
        ("prompt[1]", prompt(json!([1, "a"]))),
        ("prompt[1]", prompt(json!([1, -1]))),
        ("prompt[1]", prompt(json!([1, 257]))),
        ("prompt[0][1]", prompt(json!([[1, 1.5]]))),
        ("logprobs", json!({"logprobs": true})),
        ("logprobs", json!({"logprobs": 21})),
        ("echo", json!({"echo": 1})),
    ];
    for (param, more) in &invalid {
        refused(&server, COMPLETIONS, &with(prompt(json!("hi")), more), param, "invalid_value");
    }
    let suffix = json!({"prompt": "a", "suffix": "b"});
    refused(&server, COMPLETIONS, &suffix, "suffix", "unsupported_parameter");
}

#[test]
fn messages_say_what_was_asked_and_what_is_possible() {
    let server = deaf();
    let message = |more| refused(&server, CHAT, &with(hello(), &more), "temperature", "invalid_value");
    assert_eq!(message(json!({"temperature": "hot"})), "temperature must be a number between 0 and 2, but is \"hot\".");
    let message = |more| refused(&server, CHAT, &with(hello(), &more), "n", "unsupported_parameter");
    assert_eq!(message(json!({"n": 2})), "n is 2: one choice per request is all that is offered yet.");
}

#[test]
fn another_model_is_not_found() {
    let server = deaf();
    for (path, body) in [(CHAT, hello()), (COMPLETIONS, json!({"prompt": "hi"}))] {
        let response = server.post(path, &with(body, &json!({"model": "other"})));
        assert_eq!(response.status, 404);
        let error = response.error();
        assert_eq!(error.code.as_deref(), Some("model_not_found"));
        assert_eq!(error.param.as_deref(), Some("model"));
        assert!(error.message.contains("\"other\"") && error.message.contains(MODEL), "{}", error.message);
    }
}

#[test]
fn a_prompt_beyond_the_context_is_refused() {
    let server = Server::start(say(&["a"]));
    let fits = "x".repeat(CONTEXT - 1);
    let full = "x".repeat(CONTEXT);
    let beyond = "x".repeat(CONTEXT + 1);
    assert_eq!(server.complete(&json!({"prompt": fits})).status, 200);
    assert_eq!(server.complete(&json!({"prompt": full, "max_tokens": 0})).status, 200);
    let code = "context_length_exceeded";
    let message = refused(&server, COMPLETIONS, &json!({"prompt": full}), "prompt", code);
    assert!(message.contains("256"), "{message}");
    refused(&server, COMPLETIONS, &json!({"prompt": beyond, "max_tokens": 0}), "prompt", code);
    refused(&server, COMPLETIONS, &json!({"prompt": ["a", full]}), "prompt[1]", code);
    let long = json!({"messages": [{"role": "user", "content": beyond}]});
    refused(&server, CHAT, &long, "messages", code);
}
