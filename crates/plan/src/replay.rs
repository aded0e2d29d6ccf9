//! Replay: scenarios in, what happened out, text to text.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::entry::{Entry, State};
use crate::layout::Kind;
use crate::scenario::{Op, Scenario, read_kind};
use crate::session::Session;

/// What became of one scenario: one line of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The scenario's `id`, whatever it was.
    pub id: Value,
    /// Why it stopped, when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Refusal>,
    /// One entry an operation, up to the one that was refused.
    pub steps: Vec<Entry>,
}

/// Why a scenario stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The operation's place in the scenario; null when the line was no scenario.
    pub step: Option<usize>,
    /// The operation's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The field to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong with it, and the numbers.
    pub message: String,
}

impl Refusal {
    pub(crate) fn of(step: Option<usize>, op: Option<&str>, error: &Error) -> Self {
        let op = step.map(|_| op.unwrap_or(error.op()).to_owned());
        Self { step, op, field: Some(error.field().to_owned()), message: error.to_string() }
    }

    pub(crate) fn line(message: String) -> Self {
        Self { step: None, op: None, field: None, message }
    }
}

/// Replays a file of scenarios, or the geometry log of a server: one line of output a scenario, in order.
///
/// ```
/// let line = r#"{"id": "a", "scenario": {"cache": {"kind": "full"}, "ops": [{"op": "empty", "rows": 1}]}}"#;
/// let out = annulus_plan::replay(line);
/// assert_eq!(
///     out,
///     "{\"id\":\"a\",\"steps\":[{\"state\":{\"offsets\":[0],\"left_pad\":[0],\"width\":0},\"visible\":[[]]}]}\n"
/// );
/// ```
#[must_use]
pub fn replay(text: &str) -> String {
    let mut out = String::new();
    replay_each(text, |outcome| {
        out.push_str(&to_line(outcome));
        out.push('\n');
    });
    out
}

/// One line of output.
#[must_use]
pub(crate) fn to_line(outcome: &Outcome) -> String {
    // Maps with string keys, strings and integers: there is nothing that could fail to serialize.
    serde_json::to_string(outcome).unwrap_or_default()
}

/// Replays a file of scenarios, or the geometry log of a server, and hands out each outcome as it is known. Returns whether
/// every line was a scenario that ran to its end.
pub fn replay_each(text: &str, mut each: impl FnMut(&Outcome)) -> bool {
    let mut log = Log::default();
    let mut all_ran = true;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let outcome = match serde_json::from_str::<Value>(line) {
            Ok(value) if value.get("group").is_some() && value.get("scenario").is_none() => match log.read(&value) {
                Ok(()) => continue,
                Err(error) => {
                    Outcome { id: Value::Null, error: Some(Refusal::of(None, None, &error)), steps: Vec::new() }
                }
            },
            Ok(value) => replay_one(&value),
            Err(error) => Outcome { id: Value::Null, error: Some(Refusal::line(error.to_string())), steps: Vec::new() },
        };
        all_ran &= outcome.error.is_none();
        each(&outcome);
    }
    for outcome in log.finish() {
        all_ran &= outcome.error.is_none();
        each(&outcome);
    }
    all_ran
}

/// Replays one line: an object with `id` and `scenario`.
#[must_use]
pub(crate) fn replay_one(line: &Value) -> Outcome {
    let id = line.get("id").cloned().unwrap_or(Value::Null);
    let mut outcome = Outcome { id, error: None, steps: Vec::new() };
    let scenario = match line.get("scenario").map(Scenario::read) {
        None => {
            outcome.error =
                Some(Refusal::line("not a scenario: an object with the field scenario is expected".to_owned()));
            return outcome;
        }
        Some(Err(error)) => {
            outcome.error = Some(Refusal::of(None, None, &error));
            return outcome;
        }
        Some(Ok(scenario)) => scenario,
    };
    let mut session = Session::new(scenario.kind);
    for (step, value) in scenario.ops.iter().enumerate() {
        match Op::read(value).and_then(|op| session.step(&op)) {
            Ok(done) => outcome.steps.push(done.entry),
            Err(error) => {
                let name = value.get("op").and_then(Value::as_str);
                outcome.error = Some(Refusal::of(Some(step), name, &error));
                break;
            }
        }
    }
    outcome
}

/// What is said of a line that is JSON and no scenario.
pub(crate) fn not_a_scenario() -> Refusal {
    Refusal::line("not a scenario: an object with the field scenario is expected".to_owned())
}

/// The geometry log of a running server: the operations of several groups and layouts, interleaved.
#[derive(Default)]
struct Log {
    groups: BTreeMap<String, Vec<Result<Kind, Error>>>,
    runs: Vec<Run>,
    index: BTreeMap<(String, u64), usize>,
}

/// One group's one layout: a scenario of its own.
struct Run {
    session: Session,
    last: Option<u64>,
    outcome: Outcome,
}

impl Log {
    /// Reads a line: the layouts of a group, or one operation.
    fn read(&mut self, line: &Value) -> Result<(), Error> {
        let group = line.get("group").map(Value::to_string).unwrap_or_default();
        if let Some(layouts) = line.get("layouts") {
            let kinds = layouts.as_array().ok_or_else(|| malformed("layouts", "a list of caches"))?;
            self.groups.insert(group, kinds.iter().map(read_kind).collect());
            return Ok(());
        }
        let layout = line.get("layout").and_then(Value::as_u64).ok_or_else(|| malformed("layout", "a number"))?;
        let kinds = self.groups.get(&group).ok_or_else(|| malformed("group", "a group whose layouts were named"))?;
        let kind = usize::try_from(layout).ok().and_then(|i| kinds.get(i)).cloned();
        let kind = kind.ok_or_else(|| malformed("layout", "a layout of the group"))?;
        let key = (group, layout);
        let at = match self.index.get(&key) {
            Some(&at) => at,
            None => {
                let id = Value::String(format!("group {} layout {}", key.0, key.1));
                // A layout that cannot be planned is one refused scenario; the others of the group go on.
                let error = kind.as_ref().err().map(|e| Refusal::of(None, None, e));
                let outcome = Outcome { id, error, steps: Vec::new() };
                self.runs.push(Run { session: Session::new(kind.unwrap_or(Kind::Full)), last: None, outcome });
                self.index.insert(key, self.runs.len() - 1);
                self.runs.len() - 1
            }
        };
        if let Some(run) = self.runs.get_mut(at).filter(|run| run.outcome.error.is_none()) {
            run.take(line);
        }
        Ok(())
    }

    fn finish(self) -> impl Iterator<Item = Outcome> {
        self.runs.into_iter().map(|run| run.outcome)
    }
}

impl Run {
    fn take(&mut self, line: &Value) {
        let step = self.outcome.steps.len();
        let op = line.get("op").unwrap_or(&Value::Null);
        match self.step(op, line) {
            Ok(entry) => self.outcome.steps.push(entry),
            Err(error) => {
                let name = op.get("op").and_then(Value::as_str);
                self.outcome.error = Some(Refusal::of(Some(step), name, &error));
            }
        }
    }

    fn step(&mut self, op: &Value, line: &Value) -> Result<Entry, Error> {
        let seq = line.get("seq").and_then(Value::as_u64).ok_or_else(|| malformed("seq", "a number"))?;
        if let Some(last) = self.last.filter(|&last| seq <= last) {
            let (recorded, replayed) = (seq.to_string(), format!("more than {last}"));
            return Err(Error::Differs { op: "log".to_owned(), field: "seq".to_owned(), recorded, replayed });
        }
        self.last = Some(seq);
        let op = Op::read(op)?;
        if let Op::Adopt { .. } = op {
            // A gap: what the server did in it is not known, so the group starts anew.
            self.session.restart();
        }
        let entry = self.session.step(&op)?.entry;
        if let (Some(recorded), Some(state)) = (line.get("state"), &entry.state) {
            compare(op.name(), recorded, state)?;
        }
        Ok(entry)
    }
}

/// Refuses a recorded state that differs from the replayed one. Negative left padding says the same as none.
pub fn compare(op: &str, recorded: &Value, state: &State) -> Result<(), Error> {
    let replayed = serde_json::to_value(state).unwrap_or_default();
    let (Value::Object(recorded), Value::Object(replayed)) = (recorded, &replayed) else {
        return Err(malformed("state", "an object"));
    };
    let pads = |v: &Value| -> Option<Vec<i64>> { v.as_array()?.iter().map(|p| p.as_i64().map(|p| p.max(0))).collect() };
    for name in recorded.keys().chain(replayed.keys()) {
        let (a, b) = (recorded.get(name).unwrap_or(&Value::Null), replayed.get(name).unwrap_or(&Value::Null));
        let same = if name == "left_pad" { pads(a) == pads(b) } else { a == b };
        if !same {
            let field = format!("state.{name}");
            return Err(Error::Differs { op: op.to_owned(), field, recorded: a.to_string(), replayed: b.to_string() });
        }
    }
    Ok(())
}

fn malformed(field: &str, want: &'static str) -> Error {
    Error::Malformed { op: "log".to_owned(), field: field.to_owned(), want }
}
