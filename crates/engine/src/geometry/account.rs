//! One move of a group, as lines.

use annulus_plan::scenario::{AdoptState, Op};
use annulus_plan::{Columns, Kind, Layout, Phase, State};
use serde::Serialize;
use serde_json::{Value, json};

/// What a group has just done, and where it stands now.
pub(super) struct Account<'a> {
    pub(super) group: u64,
    pub(super) seq: u64,
    /// Nothing came before it.
    pub(super) begins: bool,
    /// What was done; none when the format has no operation for it.
    pub(super) op: Option<Op>,
    pub(super) after: &'a [Layout],
    /// By row and position, the serial numbers of the tokens.
    pub(super) rows: &'a [Vec<u64>],
}

impl Account<'_> {
    /// The first line of a group: its layouts.
    pub(super) fn layouts(&self) -> String {
        let layouts: Vec<Value> = self.after.iter().map(|layout| kind(layout.kind())).collect();
        json!({"group": self.group, "layouts": layouts}).to_string()
    }

    /// What was done to a layout, for listeners that have heard all that came before.
    pub(super) fn done(&self, layout: &Layout, number: usize) -> Option<String> {
        Some(self.line(number, self.op.as_ref()?, &State::of(layout)))
    }

    /// Where a layout stands, for listeners that have not. None within a round, where no `adopt` can stand: they wait for its end.
    pub(super) fn stands(&self, number: usize) -> Option<String> {
        let layout = self.after.get(number)?;
        let state = State::of(layout);
        Some(self.line(number, &adopt(layout, &state, self.rows)?, &state))
    }

    fn line(&self, layout: usize, op: &Op, state: &State) -> String {
        let line = Line { group: self.group, layout, seq: self.seq, op, state };
        // Strings, integers and lists: there is nothing that could fail to serialize.
        serde_json::to_string(&line).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    group: u64,
    layout: usize,
    seq: u64,
    op: &'a Op,
    state: &'a State,
}

fn kind(kind: Kind) -> Value {
    match kind {
        Kind::Full => json!({"kind": "full"}),
        Kind::Ring(window) if window.sinks == 0 => json!({"kind": "rotating", "max_size": window.size}),
        Kind::Ring(window) => json!({"kind": "rotating", "max_size": window.size, "sinks": window.sinks}),
    }
}

/// The operation that puts a group where this layout stands.
fn adopt(layout: &Layout, state: &State, rows: &[Vec<u64>]) -> Option<Op> {
    if matches!(layout.phase(), Phase::Round(_)) {
        return None;
    }
    let State { offsets, left_pad, prefill_ends, ring_index, total_offset, rotated, width } = state.clone();
    let state = AdoptState { offsets, left_pad, prefill_ends, ring_index, total_offset, rotated, width };
    let cells = rows.iter().enumerate().map(|(row, tags)| cells(layout, row, tags)).collect();
    Some(Op::Adopt { state, cells })
}

/// What a row's columns hold: tokens that it may still see, and nothing elsewhere.
fn cells(layout: &Layout, row: usize, tags: &[u64]) -> Vec<u64> {
    let mut cells = vec![0; usize::try_from(layout.capacity()).unwrap_or(0)];
    let (pinned, newest) = match layout {
        Layout::Full(full) => (0, vec![full.live(row)]),
        Layout::Ring(ring) => (ring.pinned(), ring.held(row, ring.window().size - ring.pinned())[1..].to_vec()),
    };
    let newest: Vec<u32> = newest.into_iter().flat_map(Columns::iter).collect();
    // A row that has few tokens may have one of its first in both places.
    let first = (0..pinned).zip(tags);
    let newest = newest.iter().copied().zip(tags.iter().skip(tags.len().saturating_sub(newest.len())));
    for (column, tag) in first.chain(newest) {
        if let Some(cell) = cells.get_mut(column as usize) {
            *cell = *tag;
        }
    }
    cells
}
