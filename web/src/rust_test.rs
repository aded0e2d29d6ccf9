//! A scenario as a Rust test: what someone pastes into a bug report or a test file.

use annulus_plan::inspect::{Options, inspect};
use annulus_plan::scenario::Op;
use serde_json::Value;

/// A test that every law of the planner holds in a scenario, or that it is refused where it is refused today.
#[must_use]
pub fn rust_test(line: &Value) -> String {
    let id = line.get("id").and_then(Value::as_str).unwrap_or("a shared scenario");
    let scenario = line.get("scenario").unwrap_or(&Value::Null);
    let ops = scenario.get("ops").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let ops: Vec<String> = ops.iter().map(|op| format!("        {}", json(op))).collect();
    let cache = scenario.get("cache").unwrap_or(&Value::Null);
    let head = format!(r#"{{"id": {}, "scenario": {{"cache": {cache}, "ops": ["#, Value::from(id));
    let text = format!("{head}\n{}\n    ]}}}}", ops.join(",\n"));
    let (open, close) = raw(&text);
    let refused = inspect(&text, Options::default()).error.and_then(|error| error.step);
    let refused = refused.map_or("None".to_owned(), |step| format!("Some({step})"));
    format!(
        r#"#[test]
fn {name}() {{
    let line = {open}{text}{close};
    let inspection = annulus_plan::inspect::inspect(line, annulus_plan::inspect::Options::default());
    assert_eq!(inspection.error.and_then(|error| error.step), {refused});
    for (step, frame) in inspection.frames.iter().enumerate() {{
        for law in &frame.invariants {{
            assert!(law.holds, "step {{step}}: {{}} {{:?}}", law.words, law.broken);
        }}
    }}
}}
"#,
        name = name(id),
    )
}

/// An operation with its name first, whatever the order of its fields was.
fn json(op: &Value) -> String {
    let written = Op::read(op).ok().and_then(|op| serde_json::to_string(&op).ok());
    written.unwrap_or_else(|| op.to_string())
}

/// A function's name: lower case, underscores for everything else.
fn name(id: &str) -> String {
    let plain: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let words: Vec<&str> = plain.split('_').filter(|word| !word.is_empty()).collect();
    let name = words.join("_");
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) { format!("scenario_{name}") } else { name }
}

/// The quotes of a raw string that may hold the text.
fn raw(text: &str) -> (String, String) {
    let longest =
        text.split('"').skip(1).map(|rest| rest.bytes().take_while(|&b| b == b'#').count()).max().unwrap_or(0);
    let hashes = "#".repeat(longest + 1);
    (format!("r{hashes}\""), format!("\"{hashes}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_identifiers() {
        assert_eq!(name("BR-01: a lost key"), "br_01_a_lost_key");
        assert_eq!(name("2 rows"), "scenario_2_rows");
        assert_eq!(name("環"), "scenario_");
    }

    /// `tests/copied.rs` is what the page copies of two scenarios: cargo compiles and runs it like any test.
    #[test]
    fn what_is_copied_is_a_test_that_runs() {
        let lost_key = json!({ "id": "BR-01: a lost key", "scenario": { "cache": { "kind": "rotating", "max_size": 3 }, "ops": [
            { "op": "merge", "rows": [[1000], [2000, 2001, 2002]] },
            { "op": "append", "tokens": [[1001], [2003]] },
            { "op": "prepare", "lengths": [1, 2], "right_padding": [1, 0] },
            { "op": "append", "tokens": [[1002, 0], [2004, 2005]] },
            { "op": "finalize" },
        ] } });
        let refused = json!({ "id": "refused", "scenario": { "cache": { "kind": "full" }, "ops": [
            { "op": "empty", "rows": 1 },
            { "op": "trim", "n": 1 },
        ] } });
        let copied = include_str!("../tests/copied.rs");
        let (_, copied) = copied.split_once("\n\n").expect("a line of doc, then the tests");
        assert_eq!(format!("{}\n{}", rust_test(&lost_key), rust_test(&refused)), copied);
    }

    #[test]
    fn quotes_grow_with_the_text() {
        assert_eq!(raw("{\"a\": 1}").0, "r#\"");
        assert_eq!(raw("\"## \"").0, "r###\"");
    }
}
