//! What the replay says of one operation: the entries of the format.

use serde::Serialize;

use crate::column::ColumnOp;
use crate::layout::Layout;
use crate::units::{Columns, Pos};

/// What a scenario's replay says of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(default)]
pub struct Entry {
    /// The integers of the group after the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The rows' positions captured before the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_offsets: Option<Vec<i32>>,
    /// The physical columns handed to attention, 0 where there is no token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Vec<Vec<u64>>>,
    /// Strings of 0 and 1 over the fetched columns, by row and query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<Vec<Vec<String>>>,
    /// The mask applied to what was fetched, oldest first; null for a padding query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sees: Option<Vec<Vec<Option<Vec<u64>>>>>,
    /// Each row's newest tokens still held, oldest first, at most a window of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<Vec<Vec<u64>>>,
    /// The tokens of an extracted row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Vec<u64>>,
    /// The position of an extracted row's next token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i32>,
    /// The position of each row's next token, as a donor lends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offsets: Option<Vec<i32>>,
    /// The first valid column of each row of a donor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<Vec<u32>>,
    /// The column after the last valid one of each row of a donor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<Vec<u32>>,
    /// How many columns a donor has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// The column operations of the plan, and what was fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<Did>,
}

/// A column operation, or the fetch after them: `{"do": "fetch", "columns": [0, 8]}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Did {
    /// A column operation.
    Column(ColumnOp),
    /// The physical columns that attention reads.
    Fetch(Fetch),
}

/// The physical columns that attention reads after an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename = "fetch")]
pub struct Fetch {
    /// Which columns.
    pub columns: Columns,
}

/// The integers of a group, as the format names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
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

impl State {
    /// The integers of a layout.
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        let ints = |list: &[Pos]| list.iter().map(|p| p.0).collect::<Vec<_>>();
        let pads = |list: &[u32]| list.iter().map(|&p| i32::try_from(p).unwrap_or(i32::MAX)).collect();
        let offsets = ints(layout.offsets());
        let prefill_ends = layout.phase().prefill_ends().map(ints);
        match layout {
            Layout::Full(full) => Self {
                offsets,
                left_pad: pads(full.left_pad()),
                prefill_ends,
                ring_index: None,
                total_offset: None,
                rotated: None,
                width: Some(full.width()),
            },
            Layout::Ring(ring) => Self {
                offsets,
                left_pad: pads(ring.left_pad()),
                prefill_ends,
                ring_index: Some(ring.head()),
                total_offset: Some(ring.total()),
                rotated: Some(ring.rotated()),
                width: None,
            },
        }
    }
}
