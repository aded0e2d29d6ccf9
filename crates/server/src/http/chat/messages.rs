//! Reads the conversation of a chat request into what a chat template takes.

use serde_json::{Map, Value, json};

use crate::http::errors::ApiError;
use crate::http::params::{Node, Object};

const ROLES: &str = "one of system, developer, user, assistant and tool";
const CONTENT: &str = "a string or an array of parts of type text";

/// Reads `messages`: at least one, each with a known role and text content.
pub(super) fn read(body: &Object<'_, '_>) -> Result<Vec<Value>, ApiError> {
    let messages = body.require("messages", "an array of messages")?;
    let list = messages.list()?;
    if list.values.is_empty() {
        return Err(messages.invalid("an array of at least one message"));
    }
    list.iter().map(|node| message(&node)).collect()
}

/// Reads `tools`: passed to the template as they are, which is where models learn of them.
///
/// With `tool_choice: "none"` the model does not hear of them. Calls in an answer are text so far: nothing parses
/// them, so a choice that demands a call is refused.
pub(super) fn tools(body: &Object<'_, '_>) -> Result<Option<Vec<Value>>, ApiError> {
    let wanted = match body.get("tool_choice") {
        None => true,
        Some(choice) => match choice.value.as_str() {
            Some("auto") => true,
            Some("none") => false,
            _ => return Err(choice.unsupported("only \"auto\" and \"none\" are offered yet")),
        },
    };
    let Some(tools) = body.get("tools") else {
        return Ok(None);
    };
    let list = tools.list()?;
    for tool in list.iter() {
        let tool = tool.object()?;
        let kind = tool.require("type", "\"function\"")?;
        if kind.string()? != "function" {
            return Err(kind.unsupported("only tools of type \"function\" are offered"));
        }
        let function = tool.require("function", "an object")?;
        function.object()?.require("name", "a string")?.string()?;
    }
    Ok((wanted && !list.values.is_empty()).then(|| list.values.to_vec()))
}

fn message(node: &Node<'_, '_>) -> Result<Value, ApiError> {
    let fields = node.object()?;
    let role = fields.require("role", ROLES)?;
    let role = match role.string()? {
        // The newer name of the same role, which templates do not know.
        "developer" => "system",
        known @ ("system" | "user" | "assistant" | "tool") => known,
        _ => return Err(role.invalid(ROLES)),
    };
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    let calls = match fields.get("tool_calls") {
        Some(calls) if role == "assistant" => tool_calls(&calls)?,
        _ => Vec::new(),
    };
    // An assistant that only called tools has said nothing.
    let text = match fields.get("content") {
        None if !calls.is_empty() => String::new(),
        _ => content(&fields.require("content", CONTENT)?)?,
    };
    message.insert("content".to_owned(), text.into());
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    if role == "tool" {
        let id = fields.require("tool_call_id", "a string")?;
        message.insert("tool_call_id".to_owned(), id.string()?.into());
    }
    if let Some(name) = fields.get("name") {
        message.insert("name".to_owned(), name.string()?.into());
    }
    Ok(Value::Object(message))
}

/// A string, or parts of type text, which are joined as they are.
fn content(node: &Node<'_, '_>) -> Result<String, ApiError> {
    if let Value::String(text) = node.value {
        return Ok(text.clone());
    }
    let parts = node.list().map_err(|_| node.invalid(CONTENT))?;
    if parts.values.is_empty() {
        return Err(node.invalid("a string or an array of at least one part of type text"));
    }
    let mut text = String::new();
    for part in parts.iter() {
        let part = part.object()?;
        let kind = part.require("type", "\"text\"")?;
        if kind.string()? != "text" {
            return Err(kind.unsupported("only parts of type \"text\" are offered"));
        }
        text.push_str(part.require("text", "a string")?.string()?);
    }
    Ok(text)
}

/// Earlier calls. Templates expect the arguments as an object, where the wire has it as a string of JSON.
fn tool_calls(node: &Node<'_, '_>) -> Result<Vec<Value>, ApiError> {
    let list = node.list()?;
    let mut calls = Vec::with_capacity(list.values.len());
    for call in list.iter() {
        let call = call.object()?;
        let function = call.require("function", "an object")?;
        let function = function.object()?;
        let name = function.require("name", "a string")?.string()?;
        let arguments = function.require("arguments", "a string")?.string()?;
        let arguments = match serde_json::from_str(arguments) {
            Ok(Value::Object(map)) => Value::Object(map),
            _ => arguments.into(),
        };
        let mut entry = json!({
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        });
        if let Some(id) = call.get("id") {
            entry["id"] = id.string()?.into();
        }
        calls.push(entry);
    }
    Ok(calls)
}
