//! `POST /v1/completions` as clients see it.

use annulus_engine::job::{Event, FinishReason, Job, Sink, Token, TokenLogprob};
use serde_json::{Value, json};

use crate::support::*;

fn without_head(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().unwrap();
    let id = fields.remove("id").unwrap();
    assert!(id.as_str().unwrap().starts_with("cmpl-"), "{id}");
    fields.remove("created").unwrap().as_u64().unwrap();
    answer
}

/// A model that repeats its prompt's tokens, as many as it may, and counts them.
fn parrot(job: &Job, sink: &mut dyn Sink) {
    let said = job.max_tokens.min(job.prompt.len());
    let entry = |id: u32, logprob: f32| TokenLogprob {
        id,
        logprob,
        top: [(120, -0.125), (121, -8.0)][..job.logprobs.unwrap_or(0)].to_vec(),
    };
    if job.prompt_logprobs {
        let known = job.prompt[1..].iter().map(|id| Some(entry(*id, -0.5)));
        sink.send(Event::Prompt([None].into_iter().chain(known).collect()));
    }
    for id in &job.prompt[..said] {
        sink.send(Event::Text {
            text: char::from(u8::try_from(*id).unwrap()).to_string(),
            tokens: vec![Token { id: *id, logprob: job.logprobs.map(|_| entry(*id, -2.0)) }],
        });
    }
    let reason = if said == job.max_tokens { FinishReason::Length } else { FinishReason::Stop };
    finish(job, sink, reason, said);
}

fn parrot_server() -> Server {
    Server::start(|job: &Job, sink: &mut dyn Sink| {
        parrot(job, sink);
        Ok(())
    })
}

#[test]
fn a_whole_completion_has_all_fields() {
    let response = parrot_server().complete(&json!({"model": MODEL, "prompt": "abc"}));
    assert_eq!(response.status, 200);
    assert_eq!(
        without_head(response.json()),
        json!({
            "object": "text_completion",
            "model": "test/model",
            "choices": [{"index": 0, "text": "abc", "logprobs": null, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 3,
                "completion_tokens": 3,
                "total_tokens": 6,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        })
    );
}

#[test]
fn a_streamed_completion_has_chunks_of_text() {
    let request = json!({"prompt": "ab", "stream": true, "stream_options": {"include_usage": true}});
    let events: Vec<_> = parrot_server().complete(&request).events().into_iter().map(without_head).collect();
    let chunk = |choices: Value, usage: Value| json!({"object": "text_completion", "model": MODEL, "choices": choices, "usage": usage});
    let text = |text: &str, reason: Option<&str>| {
        chunk(json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}]), Value::Null)
    };
    let usage = json!({
        "prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(events, [text("a", None), text("b", None), text("", Some("stop")), chunk(json!([]), usage)]);
}

#[test]
fn sixteen_tokens_are_the_default() {
    let response = parrot_server().complete(&json!({"prompt": "0123456789abcdefghij"})).json();
    assert_eq!(response["choices"][0]["text"], "0123456789abcdef");
    assert_eq!(response["choices"][0]["finish_reason"], "length");
}

#[test]
fn prompts_of_every_kind_give_choices_in_order() {
    let server = parrot_server();
    let texts = |prompt: Value| {
        let response = server.complete(&json!({"prompt": prompt}));
        assert_eq!(response.status, 200, "{}", response.text());
        let choices = response.json()["choices"].as_array().unwrap().clone();
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
        }
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(json!("ab")), ["ab"]);
    assert_eq!(texts(json!(["ab", "c", "def"])), ["ab", "c", "def"]);
    assert_eq!(texts(json!([97, 98])), ["ab"]);
    assert_eq!(texts(json!([[97, 98], [99]])), ["ab", "c"]);
    // More than the queue holds.
    let many: Vec<String> = (0..40).map(|index| format!("<{index}>")).collect();
    assert_eq!(texts(json!(many)), many);
}

#[test]
fn several_prompts_share_one_response_and_its_usage() {
    let server = parrot_server();
    let usage = json!({
        "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0},
    });
    let request = json!({"prompt": ["ab", "cde"]});
    assert_eq!(server.complete(&request).json()["usage"], usage);

    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server.complete(&with(request, &more)).events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(last["usage"], usage);
    for (index, text) in [(0, "ab"), (1, "cde")] {
        let of_choice = || chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|choice| choice["index"] == index);
        assert_eq!(of_choice().map(|choice| choice["text"].as_str().unwrap()).collect::<String>(), text);
        assert_eq!(of_choice().filter(|choice| !choice["finish_reason"].is_null()).count(), 1);
    }
}

/// mlx-lm #1689: an unbound variable, or one token out.
#[test]
fn br_45_no_tokens_are_no_tokens() {
    let server = parrot_server();
    let response = server.complete(&json!({"prompt": "ab", "max_tokens": 0}));
    assert_eq!(response.status, 200);
    let answer = response.json();
    assert_eq!(answer["choices"][0]["text"], "");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    for wrong in [json!(-1), json!(1.0), json!(true), json!("1")] {
        for (path, body) in [(COMPLETIONS, json!({"prompt": "ab"})), (CHAT, hello())] {
            let response = server.post(path, &with(body, &json!({"max_tokens": wrong})));
            assert_eq!(response.status, 400, "{wrong}");
            assert_eq!(response.error().param.as_deref(), Some("max_tokens"));
        }
    }
    let response = server.chat(&with(hello(), &json!({"max_tokens": 0})));
    assert_eq!(response.status, 400);
    assert_eq!(response.error().param.as_deref(), Some("max_tokens"));
}

/// llama.cpp #27174: a server that ignores `echo` scores at chance with no error.
#[test]
fn br_49_echo_with_logprobs_has_an_entry_for_each_token() {
    let server = parrot_server();
    let answer = server.complete(&json!({"prompt": [[1, 2, 3]], "max_tokens": 1, "echo": true, "logprobs": 1})).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], "\u{1}\u{2}\u{3}\u{1}");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["\u{1}", "\u{2}", "\u{3}", "\u{1}"]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -0.5, -0.5, -2.0]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3]));
    // The chosen token is there even when others are more likely.
    let top = |chosen: &str, logprob: f32| json!({"x": -0.125, chosen: logprob});
    assert_eq!(logprobs["top_logprobs"], json!([null, top("\u{2}", -0.5), top("\u{3}", -0.5), top("\u{1}", -2.0)]));
}

/// What an evaluation of a continuation asks for: the prompt's entries and one token more.
#[test]
fn br_49_echo_without_tokens_scores_the_prompt() {
    let server = parrot_server();
    let answer = server.complete(&json!({"prompt": "ab", "max_tokens": 0, "echo": true, "logprobs": 0})).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], "ab");
    assert_eq!(
        choice["logprobs"],
        json!({
            "tokens": ["a", "b"],
            "token_logprobs": [null, -0.5],
            "top_logprobs": [null, {"b": -0.5}],
            "text_offset": [0, 1],
        })
    );
}

#[test]
fn br_49_a_streamed_echo_says_the_same() {
    let server = parrot_server();
    for logprobs in [json!(null), json!(2)] {
        let request = json!({"prompt": "ab", "max_tokens": 1, "echo": true, "logprobs": logprobs});
        let whole = server.complete(&request).json();
        let events = server.complete(&with(request, &json!({"stream": true}))).events();
        let choices: Vec<_> = events.iter().map(|event| &event["choices"][0]).collect();
        let text: String = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(text, whole["choices"][0]["text"]);
        assert_eq!(choices[0]["text"], "ab");
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let pieces: Vec<Value> =
                choices.iter().filter_map(|choice| choice["logprobs"][list].as_array().cloned()).flatten().collect();
            let all = whole["choices"][0]["logprobs"][list].as_array().cloned().unwrap_or_default();
            assert_eq!(pieces, all, "{list}");
        }
    }
}

#[test]
fn echo_alone_repeats_the_prompt() {
    let answer = parrot_server().complete(&json!({"prompt": "ab", "max_tokens": 1, "echo": true})).json();
    assert_eq!(answer["choices"][0]["text"], "aba");
    assert_eq!(answer["choices"][0]["logprobs"], Value::Null);
}

/// Offsets count characters; tokens that are no text of their own stay distinguishable.
#[test]
fn logprobs_of_parts_of_characters() {
    let server = parrot_server();
    let answer = server.complete(&json!({"prompt": "é€x", "max_tokens": 0, "echo": true, "logprobs": 0})).json();
    let logprobs = &answer["choices"][0]["logprobs"];
    assert_eq!(
        logprobs["tokens"],
        json!(["bytes:\\xc3", "bytes:\\xa9", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "x"])
    );
    assert_eq!(logprobs["text_offset"], json!([0, 0, 1, 1, 1, 2]));
    assert_eq!(answer["choices"][0]["text"], "é€x");
}

/// A special token has a place in the text where the client wrote it out, and none where it came as an id.
#[test]
fn offsets_of_special_tokens() {
    let server = parrot_server();
    for (prompt, text, offsets) in
        [(json!("a<end>b"), "a<end>b", json!([0, 1, 6])), (json!([97, END, 98]), "ab", json!([0, 1, 1]))]
    {
        let answer = server.complete(&json!({"prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 0})).json();
        let choice = &answer["choices"][0];
        assert_eq!(choice["text"], text);
        assert_eq!(choice["logprobs"]["tokens"], json!(["a", "<end>", "b"]));
        assert_eq!(choice["logprobs"]["text_offset"], offsets);
    }
}

/// An evaluation counts on an entry for the one token that it asked for, also when that ends the text.
#[test]
fn br_49_the_end_token_has_an_entry() {
    let server = Server::start(|job: &Job, sink: &mut dyn Sink| {
        let end = TokenLogprob { id: END, logprob: -0.5, top: vec![(END, -0.5)] };
        sink.send(Event::Prompt(vec![None]));
        sink.send(Event::Text { text: String::new(), tokens: vec![Token { id: END, logprob: Some(end) }] });
        finish(job, sink, FinishReason::Stop, 0);
        Ok(())
    });
    let answer = server.complete(&json!({"prompt": "a", "max_tokens": 1, "echo": true, "logprobs": 1})).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], "a");
    assert_eq!(choice["logprobs"]["tokens"], json!(["a", "<end>"]));
    assert_eq!(choice["logprobs"]["token_logprobs"], json!([null, -0.5]));
    assert_eq!(choice["logprobs"]["text_offset"], json!([0, 1]));
}

/// mlx-vlm #1485, mlxcel #803: refused before the engine hears of it.
#[test]
fn br_47_empty_prompts_are_refused() {
    let server = Server::start(|job: &Job, _: &mut dyn Sink| panic!("the engine got {job:?}"));
    let cases = [
        (COMPLETIONS, json!({"prompt": ""}), "prompt"),
        (COMPLETIONS, json!({"prompt": []}), "prompt"),
        (COMPLETIONS, json!({"prompt": [[]]}), "prompt[0]"),
        (COMPLETIONS, json!({"prompt": ["a", ""]}), "prompt[1]"),
        (COMPLETIONS, json!({"prompt": [[1], []]}), "prompt[1]"),
        (COMPLETIONS, json!({"prompt": null}), "prompt"),
        (COMPLETIONS, json!({}), "prompt"),
        (CHAT, json!({"messages": []}), "messages"),
        (CHAT, json!({"messages": "hi"}), "messages"),
        (CHAT, json!({"messages": null}), "messages"),
        (CHAT, json!({}), "messages"),
    ];
    for (path, body, param) in cases {
        let response = server.post(path, &body);
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(response.error().param.as_deref(), Some(param), "{body}");
    }
    assert_eq!(server.get("/health").status, 200);
}
