//! The scenario format: one JSON object, a cache and a list of operations.
//!
//! ```json
//! {"id": "any string",
//!  "scenario": {"cache": {"kind": "rotating", "max_size": 4}, "ops": [
//!    {"op": "merge", "rows": [[1000, 1001], [2000]]},
//!    {"op": "append", "tokens": [[1002], [2001]]}]}}
//! ```
//!
//! A token is an integer tag greater than 0; 0 is padding. Operations are read one at a time, so that a scenario which goes
//! wrong in its fifth line still shows what the first four did. Reading is by hand rather than derived: a refusal has to name
//! the operation and the field.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::layout::Kind;
use crate::ring::Window;

/// A cache and what is done to it. The operations are not read yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Which columns rows keep.
    pub kind: Kind,
    /// The operations, unread.
    pub ops: Vec<Value>,
}

/// A row that joins a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum JoinRow {
    /// A row prefilled alone with these tokens.
    Tokens(Vec<u64>),
    /// A row that an extraction saved.
    Saved {
        /// The name it was saved under.
        from: String,
    },
}

/// How many tokens a rollback keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Keep {
    /// The same number in every row.
    All(u32),
    /// A number for each row.
    Each(Vec<u32>),
}

/// The positions of an adopted group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct AdoptState {
    /// The position of each row's next column.
    pub offsets: Vec<i32>,
    /// Padding on the left of each row.
    pub left_pad: Vec<i32>,
    /// The position each row ends at, while right padding is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_ends: Option<Vec<i32>>,
    /// Rings: the write head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_index: Option<u32>,
    /// Rings: the columns ever appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_offset: Option<u32>,
    /// Rings: whether the head has gone back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotated: Option<bool>,
    /// Full: the largest end of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
}

/// One operation of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the format")]
pub enum Op {
    /// Builds a group from rows that were each prefilled alone.
    Merge { rows: Vec<JoinRow> },
    /// A group of empty rows.
    Empty { rows: u32 },
    /// A padded prefill starts.
    Prepare {
        lengths: Vec<u32>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        left_padding: Vec<u32>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        right_padding: Vec<u32>,
    },
    /// Writes columns for every row.
    Append { tokens: Vec<Vec<u64>> },
    /// The padded prefill ends.
    Finalize {},
    /// Keeps these rows, in this order.
    Filter { keep: Vec<u32> },
    /// Rows prefilled alone join.
    Extend { rows: Vec<JoinRow> },
    /// Copies one row out.
    Extract {
        row: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Drops the newest tokens of every row.
    Trim { n: u32 },
    /// A speculative round begins.
    RoundBegin {},
    /// The round ends and keeps everything.
    RoundCommit {},
    /// The round ends and keeps its first tokens.
    RoundRollback { keep: Keep },
    /// A read-only copy for a reader that shares this cache.
    Donor {},
    /// A group that stands anywhere.
    Adopt { state: AdoptState, cells: Vec<Vec<u64>> },
    /// Remembers the group.
    Snapshot { name: String },
    /// Brings the group back.
    Restore { name: String },
}

impl Op {
    /// The operation's name in the format.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Merge { .. } => "merge",
            Self::Empty { .. } => "empty",
            Self::Prepare { .. } => "prepare",
            Self::Append { .. } => "append",
            Self::Finalize {} => "finalize",
            Self::Filter { .. } => "filter",
            Self::Extend { .. } => "extend",
            Self::Extract { .. } => "extract",
            Self::Trim { .. } => "trim",
            Self::RoundBegin {} => "round_begin",
            Self::RoundCommit {} => "round_commit",
            Self::RoundRollback { .. } => "round_rollback",
            Self::Donor {} => "donor",
            Self::Adopt { .. } => "adopt",
            Self::Snapshot { .. } => "snapshot",
            Self::Restore { .. } => "restore",
        }
    }

    /// Reads one operation.
    pub fn read(value: &Value) -> Result<Self, Error> {
        let name = value.get("op").and_then(Value::as_str).unwrap_or("?");
        let mut f = Fields::of(name, value)?;
        f.take("op");
        let op = match name {
            "merge" => Self::Merge { rows: f.get("rows")? },
            "empty" => Self::Empty { rows: f.get("rows")? },
            "prepare" => Self::Prepare {
                lengths: f.get("lengths")?,
                left_padding: f.maybe("left_padding")?.unwrap_or_default(),
                right_padding: f.maybe("right_padding")?.unwrap_or_default(),
            },
            "append" => Self::Append { tokens: f.get("tokens")? },
            "finalize" => Self::Finalize {},
            "filter" => Self::Filter { keep: f.get("keep")? },
            "extend" => Self::Extend { rows: f.get("rows")? },
            "extract" => Self::Extract { row: f.get("row")?, limit: f.maybe("limit")?, name: f.maybe("as")? },
            "trim" => Self::Trim { n: f.get("n")? },
            "round_begin" => Self::RoundBegin {},
            "round_commit" => Self::RoundCommit {},
            "round_rollback" => Self::RoundRollback { keep: f.get("keep")? },
            "donor" => Self::Donor {},
            "adopt" => Self::Adopt { state: AdoptState::read_fields(f.object("state")?)?, cells: f.get("cells")? },
            "snapshot" => Self::Snapshot { name: f.get("name")? },
            "restore" => Self::Restore { name: f.get("name")? },
            _ => return Err(Error::Unknown { op: name.to_owned(), field: "op".to_owned() }),
        };
        f.done(op)
    }
}

impl AdoptState {
    fn read_fields(mut f: Fields<'_>) -> Result<Self, Error> {
        let state = Self {
            offsets: f.get("offsets")?,
            left_pad: f.get("left_pad")?,
            prefill_ends: f.maybe("prefill_ends")?,
            ring_index: f.maybe("ring_index")?,
            total_offset: f.maybe("total_offset")?,
            rotated: f.maybe("rotated")?,
            width: f.maybe("width")?,
        };
        f.done(state)
    }
}

impl Scenario {
    /// Reads the `scenario` of a line, its operations excepted.
    pub fn read(value: &Value) -> Result<Self, Error> {
        let mut f = Fields::of("scenario", value)?;
        let kind = read_kind(f.take("cache").unwrap_or(&Value::Null))?;
        let ops = match f.take("ops") {
            Some(Value::Array(ops)) => ops.clone(),
            _ => return Err(f.malformed("ops", "a list of operations")),
        };
        f.done(Self { kind, ops })
    }
}

/// Reads a cache: `{"kind": "full"}`, or `{"kind": "rotating", "max_size": W, "sinks": k}`.
pub fn read_kind(value: &Value) -> Result<Kind, Error> {
    let mut f = Fields::of("cache", value)?;
    let kind: String = f.get("kind")?;
    let cache = match kind.as_str() {
        "full" => Kind::Full,
        "rotating" => {
            let size: u32 = f.get("max_size")?;
            let sinks: u32 = f.maybe("sinks")?.unwrap_or(0);
            let out = |field, got: u32, low, high| Error::OutOfRange {
                op: "cache",
                field,
                row: None,
                got: got.into(),
                low,
                high,
            };
            if size == 0 {
                return Err(out("max_size", size, 1, u32::MAX.into()));
            }
            if sinks >= size {
                return Err(out("sinks", sinks, 0, i64::from(size) - 1));
            }
            Kind::Ring(Window { size, sinks })
        }
        "recurrent" => return Err(Error::Unsupported { op: "cache", field: "kind", what: "a recurrent cache" }),
        _ => return Err(f.malformed("kind", "full, rotating or recurrent")),
    };
    f.done(cache)
}

/// A value that a field may hold.
trait Read: Sized {
    /// What to ask for where it is something else.
    const WANT: &'static str;
    /// What to ask for where a list of them is something else.
    const LIST: &'static str;

    fn read(value: &Value) -> Option<Self>;
}

/// Implements [`Read`] by a function.
macro_rules! read {
    ($($type:ty: $want:literal, $list:literal, $read:expr;)*) => {$(
        impl Read for $type {
            const WANT: &'static str = $want;
            const LIST: &'static str = $list;
            fn read(value: &Value) -> Option<Self> {
                let read: fn(&Value) -> Option<Self> = $read;
                read(value)
            }
        }
    )*};
}

read! {
    u32: "a number not below 0", "a list of numbers not below 0", |v| v.as_u64()?.try_into().ok();
    u64: "a tag, or 0 for padding", "a list of tags, 0 for padding", Value::as_u64;
    i32: "a position", "a list of positions", |v| v.as_i64()?.try_into().ok();
    bool: "true or false", "a list of booleans", Value::as_bool;
    String: "a string", "a list of strings", |v| v.as_str().map(str::to_owned);
    JoinRow: "a row: a list of tags above 0, or {\"from\": name}", "rows: each a list of tags above 0, or {\"from\": name}", |v| {
        match v {
            Value::Object(o) if o.len() == 1 => Some(Self::Saved { from: String::read(o.get("from")?)? }),
            _ => Vec::<u64>::read(v).filter(|tags| !tags.contains(&0)).map(Self::Tokens),
        }
    };
    Keep: "a number, or one for each row", "a list of keeps", |v| {
        u32::read(v).map(Self::All).or_else(|| Vec::read(v).map(Self::Each))
    };
}

impl<T: Read> Read for Vec<T> {
    const WANT: &'static str = T::LIST;
    const LIST: &'static str = "a list of rows, each a list of tags";

    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::read).collect()
    }
}

/// The fields of a JSON object, taken one by one; what is left over is unknown.
struct Fields<'a> {
    op: &'a str,
    object: &'a Map<String, Value>,
    taken: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn of(op: &'a str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Object(object) => Ok(Self { op, object, taken: Vec::new() }),
            _ => Err(Error::Malformed { op: op.to_owned(), field: "op".to_owned(), want: "an object" }),
        }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.object.get(name)
    }

    fn get<T: Read>(&mut self, name: &'static str) -> Result<T, Error> {
        self.take(name).and_then(T::read).ok_or_else(|| self.malformed(name, T::WANT))
    }

    fn maybe<T: Read>(&mut self, name: &'static str) -> Result<Option<T>, Error> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::read(value).map(Some).ok_or_else(|| self.malformed(name, T::WANT)),
        }
    }

    fn object(&mut self, name: &'static str) -> Result<Fields<'a>, Error> {
        let value = self.take(name).unwrap_or(&Value::Null);
        Fields::of(self.op, value).map_err(|_| self.malformed(name, "an object"))
    }

    fn done<T>(self, value: T) -> Result<T, Error> {
        match self.object.keys().find(|key| !self.taken.contains(&key.as_str())) {
            Some(field) => Err(Error::Unknown { op: self.op.to_owned(), field: field.clone() }),
            None => Ok(value),
        }
    }

    fn malformed(&self, field: &str, want: &'static str) -> Error {
        Error::Malformed { op: self.op.to_owned(), field: field.to_owned(), want }
    }
}
