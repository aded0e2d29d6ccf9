//! What chat templates expect of Python rather than of Jinja: `json.dumps`, `datetime.strftime`, what a sequence is.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deeper values than any JSON parser here gives.
const MAX_DEPTH: usize = 256;

/// How JSON is laid out: the arguments of `json.dumps`.
struct Layout {
    ensure_ascii: bool,
    /// What a level is indented with; `None` writes all on one line.
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)` of transformers: Python's
/// `json.dumps`, and so with spaces after separators and without escapes for HTML.
#[allow(
    clippy::needless_pass_by_value,
    reason = "minijinja calls filters with values"
)]
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |positional: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional {
            Some(value) => Some(value),
            None => kwargs.get(name)?,
        };
        Ok(value.filter(|value: &Value| !value.is_none() && !value.is_undefined()))
    };
    let indent = match argument(indent, "indent")? {
        None => None,
        Some(value) => match value.as_str() {
            Some(text) => Some(text.to_owned()),
            // Python takes True for 1, and a negative number for 0.
            None if value.kind() == ValueKind::Bool => {
                Some(" ".repeat(usize::from(value.is_true())))
            }
            None => Some(" ".repeat(i64::try_from(value)?.clamp(0, 64).unsigned_abs() as usize)),
        },
    };
    let (between_items, after_key) = match argument(None, "separators")? {
        Some(separators) => {
            let part = |index| {
                separators
                    .get_item_by_index(index)
                    .map(|part| part.to_string())
            };
            (part(0)?, part(1)?)
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let layout = Layout {
        ensure_ascii: argument(ensure_ascii, "ensure_ascii")?.is_some_and(|value| value.is_true()),
        indent,
        between_items,
        after_key,
        sort_keys: argument(None, "sort_keys")?.is_some_and(|value| value.is_true()),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    layout.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

impl Layout {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!(
                "tojson: the value is nested more than {MAX_DEPTH} deep"
            )));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container(['[', ']'], &items, depth, out, |item, out| {
                    self.write(item, depth + 1, out)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.container(['{', '}'], &keys, depth, out, |key, out| {
                    self.string(&key_text(key), out);
                    out.push_str(&self.after_key);
                    self.write(&value.get_item(key)?, depth + 1, out)
                })?;
            }
            kind => {
                return Err(invalid(format!(
                    "tojson: a value of kind {kind} is not JSON"
                )));
            }
        }
        Ok(())
    }

    fn container(
        &self,
        brackets: [char; 2],
        items: &[Value],
        depth: usize,
        out: &mut String,
        mut each: impl FnMut(&Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(brackets[0]);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.between_items);
            }
            self.line_break(depth + 1, out);
            each(item, out)?;
        }
        if !items.is_empty() {
            self.line_break(depth, out);
        }
        out.push(brackets[1]);
        Ok(())
    }

    fn line_break(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                control if control < ' ' => escape(control, out),
                other if self.ensure_ascii && !matches!(other, ' '..='~') => escape(other, out),
                other => out.push(other),
            }
        }
        out.push('"');
    }
}

/// A character as `\u` and four digits, in two such parts where it takes two.
fn escape(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string does not fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// A key as Python writes it: JSON has only strings there.
fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number if !key.is_integer() => {
            f64::try_from(key.clone()).map_or_else(|_| key.to_string(), float)
        }
        _ => key.to_string(),
    }
}

/// A float as Python's `repr` writes it: the shortest digits that read back as the same, with an exponent when that is
/// below -4 or above 15.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(-4..=15) => {
            let plain = value.to_string();
            if plain.contains('.') {
                plain
            } else {
                plain + ".0"
            }
        }
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Err(_) => scientific,
    }
}

/// The test `sequence`: what has a length and items, to Python, and so also strings and mappings.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}

/// The function `strftime_now(format)`: the local date and time.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    strftime(&jiff::ZonedDateTime::now(), format)
}

fn strftime(time: &jiff::ZonedDateTime, format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, time).map_err(|error| {
        invalid(format!(
            "strftime_now: format {format:?} cannot be used: {error}"
        ))
    })
}

fn invalid(problem: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}
