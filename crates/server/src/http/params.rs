//! Reads fields of a request's JSON; every refusal names the field by its path and says what would be right.
//!
//! A derived deserializer would say `invalid type: string "hot", expected f32 at line 1 column 90`. A client's author
//! needs the field's path in `param`, ranges, and limits of this server in the same terms, so the fields are read one
//! by one. A `null` counts as absent, as it does for OpenAI: typed clients send it for whatever their user left out.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::errors::ApiError;

/// A value with the way to it.
#[derive(Clone, Copy)]
pub(crate) struct Node<'v, 'p> {
    pub(crate) value: &'v Value,
    path: Path<'p>,
}

/// An object with the way to it.
#[derive(Clone, Copy)]
pub(crate) struct Object<'v, 'p> {
    pub(crate) map: &'v Map<String, Value>,
    path: Path<'p>,
}

/// A list with the way to it.
#[derive(Clone, Copy)]
pub(crate) struct List<'v, 'p> {
    pub(crate) values: &'v [Value],
    path: Path<'p>,
}

/// The way to a value: links to the parents on the stack, so that it costs nothing until an error prints it.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl<'v> Object<'v, 'static> {
    /// The whole body.
    pub(crate) fn root(map: &'v Map<String, Value>) -> Self {
        Self { map, path: Path::Root }
    }
}

impl<'v, 'p> Node<'v, 'p> {
    /// The way to this value, as an error's `param`.
    pub(crate) fn param(&self) -> String {
        self.path.to_string()
    }

    /// An error about this value.
    pub(crate) fn invalid(&self, expected: &str) -> ApiError {
        let path = self.param();
        let message = format!("{path} must be {expected}, but is {}.", shown(self.value));
        ApiError::invalid(path, message)
    }

    /// An error about this value: right in OpenAI's terms, and not offered here.
    pub(crate) fn unsupported(&self, reason: &str) -> ApiError {
        let path = self.param();
        let message = format!("{path} is {}: {reason}.", shown(self.value));
        ApiError::unsupported(path, message)
    }

    pub(crate) fn object(&self) -> Result<Object<'v, 'p>, ApiError> {
        match self.value {
            Value::Object(map) => Ok(Object { map, path: self.path }),
            _ => Err(self.invalid("an object")),
        }
    }

    pub(crate) fn list(&self) -> Result<List<'v, 'p>, ApiError> {
        match self.value {
            Value::Array(values) => Ok(List { values, path: self.path }),
            _ => Err(self.invalid("an array")),
        }
    }

    pub(crate) fn string(&self) -> Result<&'v str, ApiError> {
        self.value.as_str().ok_or_else(|| self.invalid("a string"))
    }

    pub(crate) fn boolean(&self) -> Result<bool, ApiError> {
        self.value.as_bool().ok_or_else(|| self.invalid("true or false"))
    }

    /// A number in a range; integers are numbers too.
    pub(crate) fn number(&self, range: RangeInclusive<f64>) -> Result<f64, ApiError> {
        self.value.as_f64().filter(|number| range.contains(number)).ok_or_else(|| {
            let (from, to) = range.into_inner();
            self.invalid(&format!("a number between {from} and {to}"))
        })
    }

    /// An integer in a range. `1.0` is none: a client that sends it has a bug that other servers would show it.
    pub(crate) fn integer(&self, range: RangeInclusive<i128>) -> Result<i128, ApiError> {
        let integer = match self.value {
            Value::Number(number) => number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from)),
            _ => None,
        };
        integer.filter(|integer| range.contains(integer)).ok_or_else(|| self.invalid(&integers(&range)))
    }

    /// A count: an integer from `least` on.
    pub(crate) fn count(&self, least: usize) -> Result<usize, ApiError> {
        let range = least as i128..=i128::from(u64::MAX);
        let integer = self.integer(range)?;
        // More than the address space is as good as its end: every use of a count is capped by the context.
        Ok(usize::try_from(integer).unwrap_or(usize::MAX))
    }
}

impl<'v, 'p> Object<'v, 'p> {
    /// A field; `null` counts as absent.
    pub(crate) fn get<'s>(&'s self, name: &'s str) -> Option<Node<'v, 's>> {
        self.map
            .get(name)
            .filter(|value| !value.is_null())
            .map(|value| Node { value, path: Path::Key(&self.path, name) })
    }

    /// A field that has to be there.
    pub(crate) fn require<'s>(&'s self, name: &'s str, expected: &str) -> Result<Node<'v, 's>, ApiError> {
        self.get(name).ok_or_else(|| {
            let path = Path::Key(&self.path, name).to_string();
            let message = format!("{path} is missing: it must be {expected}.");
            ApiError { code: Some("missing_required_parameter"), ..ApiError::invalid(path, message) }
        })
    }
}

impl<'v, 'p> List<'v, 'p> {
    pub(crate) fn at<'s>(&'s self, index: usize) -> Node<'v, 's> {
        Node { value: &self.values[index], path: Path::Index(&self.path, index) }
    }

    pub(crate) fn iter<'s>(&'s self) -> impl Iterator<Item = Node<'v, 's>> {
        (0..self.values.len()).map(|index| self.at(index))
    }
}

fn integers(range: &RangeInclusive<i128>) -> String {
    let (from, to) = (range.start(), range.end());
    if *to >= i128::from(i64::MAX) {
        format!("an integer from {from} on")
    } else {
        format!("an integer between {from} and {to}")
    }
}

/// A value as a message quotes it: short, whatever the client sent.
fn shown(value: &Value) -> String {
    const MOST: usize = 40;
    match value {
        Value::Array(values) => format!("an array of {} values", values.len()),
        Value::Object(map) => format!("an object with {} fields", map.len()),
        Value::String(text) if text.chars().count() > MOST => {
            let start: String = text.chars().take(MOST).collect();
            format!("a string that begins with {start:?}")
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn root(value: &Value) -> Node<'_, 'static> {
        Node { value, path: Path::Root }
    }

    #[test]
    fn a_path_names_every_step() {
        let body = json!({"messages": [{}, {"content": [{"text": 5}]}]});
        let body = root(&body).object().unwrap();
        let messages = body.require("messages", "").unwrap();
        let list = messages.list().unwrap();
        let message = list.at(1).object().unwrap();
        let content = message.require("content", "").unwrap();
        let parts = content.list().unwrap();
        let part = parts.at(0).object().unwrap();
        let error = part.require("text", "").unwrap().string().unwrap_err();
        assert_eq!(error.param.unwrap(), "messages[1].content[0].text");
        assert_eq!(error.message, "messages[1].content[0].text must be a string, but is 5.");
    }

    #[test]
    fn only_integers_are_integers() {
        for value in [json!(1.0), json!(1.5), json!(true), json!("1"), json!(1e30)] {
            assert!(root(&value).integer(0..=9).is_err(), "{value}");
        }
        for value in [json!(-1), json!(10)] {
            assert!(root(&value).integer(0..=9).is_err(), "{value}");
        }
        assert_eq!(root(&json!(9)).integer(0..=9).unwrap(), 9);
        assert_eq!(root(&json!(u64::MAX)).count(0).unwrap(), usize::MAX);
    }

    #[test]
    fn a_message_quotes_little_of_a_long_value() {
        let value = json!("é".repeat(100_000));
        let error = root(&value).boolean().unwrap_err();
        assert!(error.message.len() < 200, "{}", error.message);
    }
}
