//! Chat templates, against what Python's transformers makes of the same chats (`fixtures/templates`).

use annulus_engine::text::{ChatInput, ChatTemplate, TemplateError};
use serde_json::{Map, Value};

const CASES: &str = include_str!("../fixtures/templates/cases.json");
/// Templates that cases name by their file.
const FILES: [(&str, &str); 1] = [("qwen3.jinja", include_str!("../fixtures/templates/qwen3.jinja"))];

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn render(case: &Value) -> Result<String, TemplateError> {
    let file = FILES.iter().find(|(name, _)| case["file"].as_str() == Some(name));
    let source = file.map_or_else(|| case["template"].as_str().unwrap(), |(_, source)| source);
    let template = ChatTemplate::from_source(source, object(&case["special_tokens"]))
        .unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
    template.render(&ChatInput {
        messages: case["messages"].as_array().unwrap().clone(),
        tools: case["tools"].as_array().cloned(),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        kwargs: object(&case["kwargs"]),
    })
}

#[test]
fn chats_are_rendered_as_transformers_renders_them() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut differences = Vec::new();
    for case in &cases {
        let ours = render(case);
        let theirs = match (case["expected"].as_str(), case["raises"].as_str()) {
            (Some(text), None) => Ok(text.to_owned()),
            (None, Some(message)) => Err(TemplateError::Raised(message.to_owned())),
            _ => panic!("{} has no expectation", case["name"]),
        };
        if ours != theirs {
            differences.push(format!("{}\n  theirs {theirs:?}\n  ours   {ours:?}", case["name"]));
        }
    }
    assert!(cases.len() >= 75, "only {} cases", cases.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
