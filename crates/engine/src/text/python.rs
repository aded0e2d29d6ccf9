//! What chat templates expect of Python rather than of Jinja: `json.dumps`, `datetime.strftime`, methods of strings, what a
//! sequence is.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

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
#[allow(clippy::needless_pass_by_value, reason = "minijinja calls filters with values")]
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
            None if value.kind() == ValueKind::Bool => Some(" ".repeat(usize::from(value.is_true()))),
            None => Some(" ".repeat(i64::try_from(value)?.clamp(0, 64).unsigned_abs() as usize)),
        },
    };
    let (between_items, after_key) = match argument(None, "separators")? {
        Some(separators) => {
            let part = |index| separators.get_item_by_index(index).map(|part| part.to_string());
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
            return Err(invalid(format!("tojson: the value is nested more than {MAX_DEPTH} deep")));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container(['[', ']'], &items, depth, out, |item, out| self.write(item, depth + 1, out))?;
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
                return Err(invalid(format!("tojson: a value of kind {kind} is not JSON")));
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
        ValueKind::Number if !key.is_integer() => f64::try_from(key.clone()).map_or_else(|_| key.to_string(), float),
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
            if plain.contains('.') { plain } else { plain + ".0" }
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
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
}

/// The test `iterable`: what Python can loop over. Nothing is no empty list there.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// The filter `escape`, as Python's `markupsafe` writes the entities.
pub(super) fn escape_html(value: &Value) -> String {
    let mut out = String::new();
    for character in value.to_string().chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Methods that values have in Python: those of `minijinja_contrib`, and some of strings that it lacks.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let text = value.as_str();
    match (text, name) {
        (Some(text), "removeprefix") => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        (Some(text), "removesuffix") => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        (Some(text), "rsplit") => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            // A negative number, and none, mean all.
            let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
            rsplit(text, separator, most).map(Value::from)
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Splits at most `most` times, from the right; at white space when there is no separator.
fn rsplit(text: &str, separator: Option<&str>, most: usize) -> Result<Vec<String>, Error> {
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(invalid("rsplit: the separator is empty".to_owned())),
        Some(separator) => text.rsplitn(most + 1, separator).collect(),
        None => {
            let (mut parts, mut rest) = (Vec::new(), text.trim_end());
            while !rest.is_empty() {
                let cut = rest.rfind(char::is_whitespace).filter(|_| parts.len() < most);
                let start = cut.map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
                parts.push(&rest[start..]);
                rest = rest[..start].trim_end();
            }
            parts
        }
    };
    parts.reverse();
    Ok(parts.into_iter().map(str::to_owned).collect())
}

/// The function `strftime_now(format)`: the local date and time.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    strftime(&jiff::ZonedDateTime::now(), format)
}

fn strftime(time: &jiff::ZonedDateTime, format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, time)
        .map_err(|error| invalid(format!("strftime_now: format {format:?} cannot be used: {error}")))
}

fn invalid(problem: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expectations are those of Python's `datetime(2024, 7, 3, 9, 5, 7).strftime(…)`.
    #[test]
    fn dates_are_written_as_in_python() {
        let time = jiff::civil::date(2024, 7, 3).at(9, 5, 7, 0).to_zoned_datetime(jiff::tz::TimeZone::UTC).unwrap();
        for (format, expected) in [
            ("%d %b %Y", "03 Jul 2024"),
            ("%Y-%m-%d", "2024-07-03"),
            ("%A, %B %d, %Y", "Wednesday, July 03, 2024"),
            ("%a %-d %y", "Wed 3 24"),
            ("%H:%M:%S %I %p %j %%", "09:05:07 09 AM 185 %"),
        ] {
            assert_eq!(strftime(&time, format).unwrap(), expected, "{format}");
        }
        let error = strftime(&time, "%!").unwrap_err().to_string();
        assert!(error.contains("strftime_now: format \"%!\" cannot be used"), "{error}");
        assert_eq!(strftime_now("%Y").unwrap().len(), 4);
    }

    /// The expectations are those of Python's `repr`.
    #[test]
    fn floats_are_written_as_in_python() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    /// The expectations are those of Python's `str.rsplit`.
    #[test]
    fn rsplit_splits_from_the_right() {
        let split = |text, separator, most| rsplit(text, separator, most).unwrap();
        assert_eq!(split("a.b.c", Some("."), 1), ["a.b", "c"]);
        assert_eq!(split("a.b.c", Some("."), 9), ["a", "b", "c"]);
        assert_eq!(split("a.b.c", Some("."), 0), ["a.b.c"]);
        assert_eq!(split("", Some("."), 1), [""]);
        assert_eq!(split("  a \u{2003} b  c ", None, 1), ["  a \u{2003} b", "c"]);
        assert_eq!(split(" a  b ", None, 9), ["a", "b"]);
        assert_eq!(split("  ", None, 9), [""; 0]);
        rsplit("a", Some(""), 1).unwrap_err();
    }
}
