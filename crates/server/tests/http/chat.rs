//! `POST /v1/chat/completions` as clients see it.

use std::sync::mpsc;

use annulus_engine::job::{Event, FinishReason, Job, Sink, Token, TokenLogprob};
use serde_json::{Value, json};

use crate::support::*;

/// The parts of an answer that differ from one to the next, checked and taken out.
fn without_head(mut answer: Value, prefix: &str) -> Value {
    let fields = answer.as_object_mut().unwrap();
    let id = fields.remove("id").unwrap();
    assert!(id.as_str().unwrap().starts_with(prefix), "{id}");
    let created = fields.remove("created").unwrap().as_u64().unwrap();
    // Seconds, not milliseconds: between 2023 and 2096.
    assert!((1_700_000_000..4_000_000_000).contains(&created), "{created}");
    answer
}

/// The payloads of a stream: one head for all, which is checked and taken out.
fn chunks(response: &Response, prefix: &str) -> Vec<Value> {
    let events = response.events();
    let head = |event: &Value| (event["id"].clone(), event["created"].clone());
    assert!(events.iter().all(|event| head(event) == head(&events[0])), "{events:?}");
    events.into_iter().map(|event| without_head(event, prefix)).collect()
}

fn streamed(more: &Value) -> Value {
    with(with(hello(), &json!({"stream": true})), more)
}

#[test]
fn a_whole_answer_has_all_fields() {
    let server = Server::start(say(&["Par", "is."]));
    let response = server.chat(&hello());
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        without_head(response.json(), "chatcmpl-"),
        json!({
            "object": "chat.completion",
            "model": "test/model",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "Paris.", "refusal": null},
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 8,
                "completion_tokens": 6,
                "total_tokens": 14,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        })
    );
}

#[test]
fn a_stream_is_these_bytes() {
    let server = Server::start(say(&["Par", "is."]));
    let response = server.chat(&streamed(&json!({})));
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    let head = &response.events()[0];
    let head = format!(
        r#""id":{},"created":{},"model":"test/model","object":"chat.completion.chunk""#,
        head["id"], head["created"]
    );
    let expected = [
        r#""choices":[{"index":0,"delta":{"role":"assistant","content":"Par"},"logprobs":null,"finish_reason":null}]"#,
        r#""choices":[{"index":0,"delta":{"content":"is."},"logprobs":null,"finish_reason":null}]"#,
        r#""choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]"#,
    ];
    let expected: String = expected.iter().map(|choices| format!("data: {{{head},{choices}}}\n\n")).collect();
    assert_eq!(response.text(), expected + "data: [DONE]\n\n");
}

#[test]
fn an_answer_without_text_still_has_a_role_and_an_end() {
    let server = Server::start(say(&[]));
    let choices: Vec<_> =
        chunks(&server.chat(&streamed(&json!({}))), "chatcmpl-").iter().map(|chunk| chunk["choices"].clone()).collect();
    assert_eq!(
        choices,
        [
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}]),
            json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop"}]),
        ]
    );
    assert_eq!(server.chat(&hello()).json()["choices"][0]["message"]["content"], "");
}

/// A token that ends within a character becomes final with the character's last token. vllm-mlx #109.
#[test]
fn br_40_characters_of_several_tokens_arrive_whole() {
    let pieces = ["🦀", "é", "\u{fffd}", "한", "\"\\\n\u{1}"];
    let server = Server::start(move |job: &Job, sink: &mut dyn Sink| {
        for piece in pieces {
            text(sink, piece);
        }
        finish(job, sink, FinishReason::Stop, 5);
        Ok(())
    });
    let chunks = chunks(&server.chat(&streamed(&json!({}))), "chatcmpl-");
    let deltas: Vec<_> = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(deltas, pieces);
    let whole = server.chat(&hello()).json();
    assert_eq!(whole["choices"][0]["message"]["content"], pieces.concat());
}

/// Tokens without text (special ones, or a piece that is held back) make no chunk.
#[test]
fn tokens_without_text_make_no_chunk() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        text(sink, "");
        text(sink, "a");
        sink.send(Event::Text { text: String::new(), tokens: vec![Token { id: END, logprob: None }] });
        finish(job, sink, FinishReason::Stop, 1);
        Ok(())
    });
    assert_eq!(chunks(&server.chat(&streamed(&json!({}))), "chatcmpl-").len(), 2);
}

/// llama.cpp #15443, apfel #100.
#[test]
fn br_43_usage_comes_in_a_chunk_of_its_own_and_only_when_asked() {
    let server = Server::start(say(&["a", "b"]));
    let asked = json!({"stream_options": {"include_usage": true}});
    let with_usage = chunks(&server.chat(&streamed(&asked)), "chatcmpl-");
    let (last, others) = with_usage.split_last().unwrap();
    assert_eq!(
        *last,
        json!({
            "object": "chat.completion.chunk",
            "model": "test/model",
            "choices": [],
            "usage": {
                "prompt_tokens": 8,
                "completion_tokens": 2,
                "total_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        })
    );
    assert_eq!(others.len(), 3);
    for chunk in others {
        assert_eq!(chunk.as_object().unwrap().get("usage"), Some(&Value::Null));
    }
    let not_asked = [json!({}), json!({"stream_options": {}}), json!({"stream_options": {"include_usage": false}})];
    for not_asked in not_asked {
        let chunks = chunks(&server.chat(&streamed(&not_asked)), "chatcmpl-");
        assert_eq!(chunks.len(), 3);
        assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "{chunks:?}");
    }
}

/// vllm-mlx #628, Ollama #4357.
#[test]
fn br_44_each_choice_has_one_finish_reason() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        let length = job.max_tokens.min(2);
        text(sink, &"ab"[..length]);
        let reason = if job.max_tokens < 2 { FinishReason::Length } else { FinishReason::Stop };
        finish(job, sink, reason, length);
        Ok(())
    });
    for (max_tokens, reason) in [(1, "length"), (9, "stop")] {
        let more = json!({"max_tokens": max_tokens});
        let chunks = chunks(&server.chat(&streamed(&more)), "chatcmpl-");
        let (last, interim) = chunks.split_last().unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], reason);
        assert_eq!(last["choices"][0]["delta"], json!({}));
        for chunk in interim {
            assert_eq!(chunk["choices"][0].as_object().unwrap().get("finish_reason"), Some(&Value::Null));
        }
        let whole = server.chat(&with(hello(), &more)).json();
        assert_eq!(whole["choices"][0]["finish_reason"], reason);
    }
}

#[test]
fn cached_tokens_are_reported() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        sink.send(Event::Finished(annulus_engine::job::Summary {
            reason: FinishReason::Stop,
            prompt_tokens: job.prompt.len(),
            completion_tokens: 0,
            cached_tokens: 5,
            prefill: std::time::Duration::ZERO,
            decode: std::time::Duration::ZERO,
        }));
        Ok(())
    });
    assert_eq!(server.chat(&hello()).json()["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
}

fn with_logprobs(job: &Job, sink: &mut dyn Sink) {
    let entry = |id, logprob, top: &[(u32, f32)]| Token {
        id,
        logprob: Some(TokenLogprob { id, logprob, top: top[..job.logprobs.unwrap()].to_vec() }),
    };
    let crab = "🦀".as_bytes();
    sink.send(Event::Text {
        text: "a".to_owned(),
        tokens: vec![entry(97, -0.25, &[(97, -0.25), (98, f32::NEG_INFINITY)])],
    });
    sink.send(Event::Text {
        text: "🦀".to_owned(),
        tokens: crab.iter().map(|byte| entry(u32::from(*byte), -0.5, &[(99, -0.125), (100, -1.0)])).collect(),
    });
    sink.send(Event::Text { text: String::new(), tokens: vec![entry(END, -1.5, &[(END, -1.5), (97, -3.0)])] });
    finish(job, sink, FinishReason::Stop, 5);
}

fn expected_logprobs() -> Vec<Value> {
    let crab = |byte: u8| {
        json!({
            "token": "\u{fffd}", "logprob": -0.5, "bytes": [byte],
            "top_logprobs": [
                {"token": "c", "logprob": -0.125, "bytes": [99]},
                {"token": "d", "logprob": -1.0, "bytes": [100]},
            ],
        })
    };
    let mut entries = vec![json!({
        "token": "a", "logprob": -0.25, "bytes": [97],
        "top_logprobs": [
            {"token": "a", "logprob": -0.25, "bytes": [97]},
            {"token": "b", "logprob": -9999.0, "bytes": [98]},
        ],
    })];
    entries.extend([0xf0, 0x9f, 0xa6, 0x80].map(crab));
    entries
}

#[test]
fn br_49_logprobs_come_with_bytes_and_without_the_end_token() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        with_logprobs(job, sink);
        Ok(())
    });
    let asked = json!({"logprobs": true, "top_logprobs": 2});
    let whole = server.chat(&with(hello(), &asked)).json();
    assert_eq!(whole["choices"][0]["logprobs"], json!({"content": expected_logprobs()}));

    let chunks = chunks(&server.chat(&streamed(&asked)), "chatcmpl-");
    assert_eq!(chunks.len(), 3, "{chunks:?}");
    let entries: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(entries, expected_logprobs());
}

#[test]
fn logprobs_without_alternatives_have_empty_lists() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        with_logprobs(job, sink);
        Ok(())
    });
    let whole = server.chat(&with(hello(), &json!({"logprobs": true}))).json();
    assert_eq!(
        whole["choices"][0]["logprobs"]["content"][0],
        json!({"token": "a", "logprob": -0.25, "bytes": [97], "top_logprobs": []})
    );
}

/// What the engine is asked for a request with these fields more.
fn job_for(more: &Value) -> Job {
    let (tell, told) = mpsc::channel();
    let server = Server::start(move |job: &Job, sink: &mut dyn Sink| {
        tell.send(job.clone()).unwrap();
        finish(job, sink, FinishReason::Stop, 0);
        Ok(())
    });
    let response = server.chat(&with(hello(), more));
    assert_eq!(response.status, 200, "{}", response.text());
    told.recv_timeout(DEADLINE).unwrap()
}

fn prompt_for(messages: &Value) -> String {
    let job = job_for(&json!({"messages": messages}));
    String::from_utf8(job.prompt.iter().map(|id| u8::try_from(*id).unwrap()).collect()).unwrap()
}

#[test]
fn messages_reach_the_template() {
    let messages = json!([
        {"role": "developer", "content": "be kind", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": ""},
    ]);
    assert_eq!(
        prompt_for(&messages),
        "system:be kind\nuser:one two\nassistant:\nadd(1)\ntool:3\nassistant:three\nuser:\n"
    );
}

#[test]
fn options_reach_the_engine() {
    let job = job_for(&json!({
        "max_tokens": 3, "max_completion_tokens": 5, "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
        "seed": -1, "stop": ["a", "b", "c", "d"], "user": "someone", "store": true, "unheard_of": [1],
        "n": 1, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "response_format": {"type": "text"},
    }));
    assert_eq!(job.max_tokens, 5);
    assert_eq!(job.sampling.temperature, 0.5);
    assert_eq!(job.sampling.top_p, 0.25);
    assert_eq!(job.sampling.top_k, 7);
    assert_eq!(job.sampling.min_p, 0.125);
    assert_eq!(job.sampling.seed, Some(u64::MAX));
    assert_eq!(job.stop, ["a", "b", "c", "d"]);
    assert_eq!(job.logprobs, None);
    assert!(!job.prompt_logprobs);
}

#[test]
fn what_is_left_out_or_null_has_its_default() {
    let nulls = json!({
        "max_tokens": null, "temperature": null, "top_p": null, "seed": null, "stop": null, "stream": null,
        "stream_options": null, "logprobs": null, "top_logprobs": null, "tools": null, "response_format": null,
    });
    for more in [json!({}), nulls] {
        let job = job_for(&more);
        // As long as the context has room.
        assert_eq!(job.max_tokens, CONTEXT - job.prompt.len());
        assert_eq!(job.sampling, annulus_engine::job::Sampling::default());
        assert!(job.stop.is_empty());
    }
    assert_eq!(job_for(&json!({"stop": "x"})).stop, ["x"]);
    assert_eq!(job_for(&json!({"top_k": -1})).sampling.top_k, 0);
    assert_eq!(job_for(&json!({"max_tokens": 1_000_000})).max_tokens, CONTEXT - 8);
}

#[test]
fn a_request_without_a_model_gets_the_only_one() {
    let server = Server::start(say(&["a"]));
    let response = server.chat(&json!({"messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!(response.status, 200);
    assert_eq!(response.json()["model"], MODEL);
}

#[test]
fn a_model_without_a_template_says_so() {
    let server = Server::ready(Setup { template: false, ..Setup::default() }, say(&["a"]));
    let response = server.chat(&hello());
    assert_eq!(response.status, 400);
    let error = response.error();
    assert_eq!(error.code.as_deref(), Some("no_chat_template"));
    assert!(error.message.contains("/v1/completions"), "{}", error.message);
    assert_eq!(server.complete(&json!({"prompt": "hi"})).status, 200);
}
