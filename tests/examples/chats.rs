//! Prints chats as our template renders them: reads one JSON object a line with `messages`, `tools`, `add_generation_prompt`
//! and `kwargs`, writes one a line with `text`, or with what the template said when it `refused` (false: it failed).
//!
//! `cargo run -p annulus-tests --example chats -- MODEL < chats.jsonl`

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use annulus_engine::checkpoint::{Checkpoint, locate};
use annulus_engine::text::{ChatInput, ChatTemplate, TemplateError, Tokenizer};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: chats MODEL < chats.jsonl")?;
    let checkpoint = Checkpoint::open(&locate(&model)?)?;
    let template =
        ChatTemplate::open(&checkpoint, &Tokenizer::open(&checkpoint)?)?.ok_or("the model has no template")?;
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let chat: Value = serde_json::from_str(&line?)?;
        let rendered = template.render(&ChatInput {
            messages: chat["messages"].as_array().cloned().unwrap_or_default(),
            tools: chat["tools"].as_array().cloned(),
            add_generation_prompt: chat["add_generation_prompt"] == true,
            kwargs: chat["kwargs"].as_object().cloned().unwrap_or_default(),
        });
        let answer = match rendered {
            Ok(text) => json!({"text": text}),
            Err(TemplateError::Raised(message)) => json!({"refused": message}),
            Err(_) => json!({"refused": false}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
