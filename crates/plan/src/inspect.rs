//! Everything a page has to draw of a scenario, so that the page computes no geometry of its own.
//!
//! Each operation becomes a [`Frame`]: what was asked and done, in data and in words, the physical columns cell by cell, the
//! mask run by run, and the comparison with the definition.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::column::ColumnOp;
use crate::definition::History;
use crate::donor::Donor;
use crate::entry::Entry;
use crate::fault::Faults;
use crate::layout::Layout;
use crate::phase::Phase;
use crate::replay::{Refusal, not_a_scenario};
use crate::ring::Ring;
use crate::scenario::{Op, Scenario};
use crate::session::{Appended, Done, Group, Session};
use crate::step::Growth;
use crate::units::Columns;
use crate::{Error, words};

/// The most cells that the frames of one inspection hold together: 2^20.
pub const CELL_BUDGET: u64 = 1 << 20;

/// How a scenario is inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Show what mlx-lm 0.32.2 does, faults included, instead of what is right.
    pub upstream: bool,
    /// How planes get spare columns.
    pub growth: Growth,
}

/// A scenario, frame by frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The scenario's `id`.
    pub id: Value,
    /// Why it stopped, when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Refusal>,
    /// One frame an operation, up to the one that was refused.
    pub frames: Vec<Frame>,
}

/// The group after one operation, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// The operation's name.
    pub op: &'static str,
    /// The operation in words.
    pub words: String,
    /// The column operations, each with its words.
    pub ops: Vec<Action>,
    /// How many stored columns they copied, counted once per row.
    pub moved: u64,
    /// What the replay says of the operation.
    pub entry: Entry,
    /// What the next append is part of.
    pub phase: PhaseView,
    /// The planes.
    pub planes: Planes,
    /// The rows, cell by cell.
    pub rows: Vec<RowView>,
    /// What the queries of an append may see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<MaskView>,
    /// What each query of an append sees, beside the definition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<Vec<Query>>,
    /// What a donor lends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub donor: Option<DonorView>,
    /// What must always hold, and whether it does.
    pub invariants: Vec<Invariant>,
}

/// A column operation and what it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Action {
    /// The operation.
    pub op: ColumnOp,
    /// The same in words.
    pub words: String,
}

/// What the next append is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PhaseView {
    /// Plain appends.
    Decode,
    /// A padded prefill.
    Prefill {
        /// The position each row ends at, where there is right padding.
        ends: Option<Vec<i32>>,
        /// The columns still to come.
        remaining: Option<u32>,
    },
    /// A speculative round.
    Round {
        /// The offsets at its beginning.
        saved: Vec<i32>,
        /// The tokens each row has appended since.
        taken: Vec<u32>,
    },
}

/// The planes that all rows share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Planes {
    /// How many columns they have.
    pub capacity: u32,
    /// How many of them, on the left, are pinned.
    pub pinned: u32,
    /// How many are in use, pinned ones excluded.
    pub active: u32,
    /// The window, on a ring.
    pub window: Option<u32>,
    /// The column that a single next token of every row goes to; absent when columns must be added or moved for it first.
    pub head: Option<u32>,
    /// How far the ring is turned.
    pub rotation: u32,
    /// Whether the head has gone back to the first column.
    pub rotated: bool,
    /// The columns in use from the oldest to the newest, pinned ones first.
    pub order: Vec<u32>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowView {
    /// The position of its next column.
    pub offset: i32,
    /// The position of its next token: less than `offset` while trailing padding is pending.
    pub valid: i32,
    /// How many columns from the oldest hold no token of it.
    pub left_pad: i32,
    /// The physical column its next token goes to, on full attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u32>,
    /// The physical columns of its newest tokens, oldest first, at most a window of them: what a copy of the row would take.
    pub held: Vec<Columns>,
    /// Every physical column.
    pub cells: Vec<Cell>,
}

/// One physical column of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// What it holds.
    pub kind: CellKind,
    /// The tag that lies there, also where it no longer counts.
    pub tag: u64,
    /// The absolute position of the token; absent where none counts.
    pub position: Option<i64>,
    /// Whether the next append drops or overwrites it.
    pub evicted_next: bool,
}

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// A token of the row.
    Live,
    /// A copy of one of the row's first tokens.
    Sink,
    /// Padding before the row's tokens.
    LeftPadding,
    /// Padding after them, until the prefill or the round ends.
    TrailingPadding,
    /// A token that was taken back.
    Rejected,
    /// Nothing yet.
    Spare,
}

/// What the queries of an append may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MaskView {
    /// `none`, `causal` or `runs`.
    pub kind: &'static str,
    /// The mask in words.
    pub words: String,
    /// The physical columns fetched.
    pub fetch: Columns,
    /// By row and query: the visible runs, in physical columns, left to right.
    pub runs: Vec<Vec<Vec<Columns>>>,
}

/// One query of an append, beside the definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Query {
    /// Its position; absent on a padding query, which is compared with nothing.
    pub position: Option<i64>,
    /// The positions it must see.
    pub expected: Vec<i64>,
    /// The positions it sees; what lies in a column that holds no token of the row is not among them.
    pub seen: Vec<i64>,
    /// The physical columns that it sees and must not.
    pub wrong: Vec<u32>,
    /// The physical columns that it must see and does not, as far as the planes still hold them.
    pub hidden: Vec<u32>,
    /// Whether it sees exactly what it must.
    pub holds: bool,
}

/// What a donor lends: a copy of some columns, and which of them a reader may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DonorView {
    /// How many columns the copy has.
    pub width: u32,
    /// How many of them, on the left, are pinned.
    pub pinned: u32,
    /// The rows.
    pub rows: Vec<Lent>,
}

/// What a donor lends of one row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lent {
    /// The position of its next token.
    pub offset: i32,
    /// The columns of the copy that may be read: pinned ones, then the newest; what is empty is left out.
    pub valid: Vec<Columns>,
    /// The positions there, as ranges `[from, to)`.
    pub positions: Vec<[u32; 2]>,
    /// The physical columns that these are copies of.
    pub columns: Vec<Columns>,
    /// The row in words.
    pub words: String,
}

/// Something that must always hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Invariant {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub words: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Where it does not, the first place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// Inspects one line: an object with `id` and `scenario`.
#[must_use]
pub fn inspect(line: &str, options: Options) -> Inspection {
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(error) => {
            return Inspection { id: Value::Null, error: Some(Refusal::line(error.to_string())), frames: Vec::new() };
        }
    };
    let id = value.get("id").cloned().unwrap_or(Value::Null);
    let mut inspection = Inspection { id, error: None, frames: Vec::new() };
    let scenario = match value.get("scenario").map(Scenario::read) {
        None => {
            inspection.error = Some(not_a_scenario());
            return inspection;
        }
        Some(Err(error)) => {
            inspection.error = Some(Refusal::of(None, None, &error));
            return inspection;
        }
        Some(Ok(scenario)) => scenario,
    };
    let faults = if options.upstream { Faults::MLX_LM_0_32_2 } else { Faults::NONE };
    let mut session = Session::new(scenario.kind).with_growth(options.growth).with_faults(faults);
    let mut budget = CELL_BUDGET;
    for (step, value) in scenario.ops.iter().enumerate() {
        match frame(&mut session, value, &mut budget) {
            Ok(frame) => inspection.frames.push(frame),
            Err(error) => {
                let name = value.get("op").and_then(Value::as_str);
                inspection.error = Some(Refusal::of(Some(step), name, &error));
                break;
            }
        }
    }
    inspection
}

/// Runs one operation and draws what came of it.
fn frame(session: &mut Session, value: &Value, budget: &mut u64) -> Result<Frame, Error> {
    let op = Op::read(value)?;
    let done = session.step(&op)?;
    let Some(group) = session.group() else { return Err(Error::NotStarted { op: op.name(), field: "op" }) };
    let cells = u64::from(group.layout.capacity()).saturating_mul(group.layout.rows() as u64);
    let Some(left) = budget.checked_sub(cells) else {
        return Err(Error::TooLarge { op: "inspect", field: "cells", got: cells as i64, limit: *budget as i64 });
    };
    *budget = left;
    Ok(draw(&op, done, group))
}

/// Draws the group after an operation.
#[must_use]
pub fn draw(op: &Op, done: Done, group: &Group) -> Frame {
    let rows: Vec<RowView> = (0..group.layout.rows()).map(|row| row_view(group, row)).collect();
    let planes = planes(&group.layout);
    let queries = done.append.as_ref().map_or_else(Vec::new, |append| queries(append, &done.entry, group, &rows));
    let mask = done.append.as_ref().map(|append| mask_view(append, &done.entry));
    let donor = done.donor.as_ref().map(|donor| donor_view(donor, &done.ops));
    let invariants = invariants(group, &rows, &planes, &done.entry, &queries, donor.as_ref());
    let action = |op: ColumnOp| Action { words: words::column_op(&op), op };
    Frame {
        op: op.name(),
        words: words::op(op),
        ops: done.ops.into_iter().map(action).collect(),
        moved: done.moved,
        entry: done.entry,
        phase: phase_view(group.layout.phase()),
        planes,
        rows,
        mask,
        queries,
        donor,
        invariants,
    }
}

fn phase_view(phase: &Phase) -> PhaseView {
    let ints = |list: &[crate::Pos]| list.iter().map(|p| p.0).collect::<Vec<_>>();
    match phase {
        Phase::Decode => PhaseView::Decode,
        Phase::Prefill(p) => PhaseView::Prefill { ends: p.trailing.then(|| ints(&p.ends)), remaining: p.remaining },
        Phase::Round(r) => PhaseView::Round { saved: ints(&r.saved), taken: r.taken.clone() },
    }
}

fn planes(layout: &Layout) -> Planes {
    let order = layout.temporal().into_iter().flat_map(Columns::iter).collect();
    match layout {
        Layout::Full(full) => {
            let ends: Vec<u32> = (0..full.rows()).filter_map(|row| full.end(row)).map(|c| c.0).collect();
            let same = ends.first().copied().filter(|first| ends.iter().all(|end| end == first));
            let head = same.filter(|&head| head < full.capacity());
            let (capacity, active) = (full.capacity(), full.width());
            Planes { capacity, pinned: 0, active, window: None, head, rotation: 0, rotated: false, order }
        }
        Layout::Ring(ring) => Planes {
            capacity: ring.capacity(),
            pinned: ring.pinned(),
            active: ring.active(),
            window: Some(ring.window().size),
            head: ring.next_column().filter(|_| in_place(ring)),
            rotation: ring.rotation(),
            rotated: ring.rotated(),
            order,
        },
    }
}

/// Whether a single next column is written in place, without dropping or moving others first.
fn in_place(ring: &Ring) -> bool {
    !ring.phase().blocks() && ring.active() + ring.pinned() <= ring.window().size
}

fn row_view(group: &Group, row: usize) -> RowView {
    let (layout, capacity) = (&group.layout, group.layout.capacity());
    let offset = layout.offsets().get(row).copied().unwrap_or_default();
    let valid = layout.phase().valid(row, offset);
    let (left_pad, end) = match layout {
        Layout::Full(full) => (full.left_pad().get(row).copied().unwrap_or(0), full.end(row).map(|c| c.0)),
        Layout::Ring(ring) => (ring.left_pad().get(row).copied().unwrap_or(0), None),
    };
    let mut cells: Vec<Cell> = (0..capacity)
        .map(|c| {
            let tag = group.grid.get(row, c).unwrap_or(0);
            let kind = if tag == 0 { CellKind::Spare } else { CellKind::Rejected };
            Cell { kind, tag, position: None, evicted_next: false }
        })
        .collect();
    let mut mark = |column: u32, kind: CellKind, position: Option<i64>, evicted_next: bool| {
        if let Some(cell) = cells.get_mut(column as usize) {
            // Padding that still shows a tag is a token that was taken back.
            let taken_back = position.is_none() && cell.tag != 0;
            let kind = if taken_back { CellKind::Rejected } else { kind };
            *cell = Cell { kind, tag: cell.tag, position, evicted_next };
        }
    };
    match layout {
        Layout::Full(full) => {
            let live = full.live(row);
            (0..live.from.min(capacity)).for_each(|c| mark(c, CellKind::LeftPadding, None, false));
            live.iter().for_each(|c| mark(c, CellKind::Live, Some(i64::from(c) - i64::from(live.from)), false));
            (live.to..end.unwrap_or(0)).for_each(|c| mark(c, CellKind::TrailingPadding, None, false));
        }
        Layout::Ring(ring) => ring_cells(ring, row, &mut mark),
    }
    let left_pad = i32::try_from(left_pad).unwrap_or(i32::MAX);
    let held = group.held_columns(row).into_iter().filter(|c| !c.is_empty()).collect();
    RowView { offset: offset.0, valid: valid.0, left_pad, end, held, cells }
}

fn ring_cells(ring: &Ring, row: usize, mark: &mut impl FnMut(u32, CellKind, Option<i64>, bool)) {
    let (active, live, dropped) = (ring.active(), ring.live(row, u32::MAX), ring.dropped_next());
    let newest = ring.offsets().get(row).map_or(0, |&o| ring.phase().valid(row, o).wide());
    let physical = ring.physical(Columns::new(0, active)).into_iter().flat_map(Columns::iter);
    for (t, column) in (0..active).zip(physical) {
        let (kind, position) = if t < live.from {
            (CellKind::LeftPadding, None)
        } else if t < live.to {
            (CellKind::Live, Some(newest - i64::from(live.to) + i64::from(t)))
        } else {
            (CellKind::TrailingPadding, None)
        };
        mark(column, kind, position, t < dropped);
    }
    for sink in 0..ring.pinned().min(u32::try_from(newest).unwrap_or(0)) {
        mark(sink, CellKind::Sink, Some(i64::from(sink)), false);
    }
}

fn mask_view(append: &Appended, entry: &Entry) -> MaskView {
    let kind = match append.mask {
        crate::Mask::None => "none",
        crate::Mask::Causal => "causal",
        crate::Mask::Runs(_) => "runs",
    };
    let runs = |line: &String| {
        let mut runs: Vec<Columns> = Vec::new();
        for (c, _) in (append.fetch.from..).zip(line.bytes()).filter(|&(_, b)| b == b'1') {
            match runs.last_mut() {
                Some(run) if run.to == c => run.to += 1,
                _ => runs.push(Columns::new(c, c + 1)),
            }
        }
        runs
    };
    let lines = entry.mask.as_deref().unwrap_or_default();
    let runs = lines.iter().map(|row| row.iter().map(runs).collect()).collect();
    MaskView { kind, words: words::mask(&append.mask), fetch: append.fetch, runs }
}

/// The rows of a donor, and where its columns were copied from.
fn donor_view(donor: &Donor, ops: &[ColumnOp]) -> DonorView {
    let copied = match ops {
        [ColumnOp::CopyColumns { ranges }] => ranges.as_slice(),
        _ => &[],
    };
    let row = |(row, offset): (usize, &crate::Pos)| {
        let (pins, recent) = (donor.pins(row), donor.recent(row, u32::MAX));
        let next = u32::try_from(offset.0).unwrap_or(0);
        let newest = [next.saturating_sub(recent.len()), next];
        let positions = [[pins.from, pins.to], newest].into_iter().filter(|[from, to]| from < to).collect::<Vec<_>>();
        let valid: Vec<Columns> = [pins, recent].into_iter().filter(|c| !c.is_empty()).collect();
        let columns = valid.iter().flat_map(|c| origin(copied, *c)).collect();
        let words = words::lent(row, &positions, &valid);
        Lent { offset: offset.0, valid, positions, columns, words }
    };
    let rows = donor.offsets.iter().enumerate().map(row).collect();
    DonorView { width: donor.width, pinned: donor.pinned, rows }
}

/// Where columns of a copy of these ranges lie in the planes.
fn origin(copied: &[Columns], columns: Columns) -> Vec<Columns> {
    let mut at = 0;
    let mut parts = Vec::with_capacity(copied.len());
    for range in copied {
        let from = columns.from.max(at);
        let to = columns.to.min(at + range.len());
        if from < to {
            parts.push(Columns::new(range.from + (from - at), range.from + (to - at)));
        }
        at += range.len();
    }
    parts
}

/// Each query beside the definition.
fn queries(append: &Appended, entry: &Entry, group: &Group, rows: &[RowView]) -> Vec<Vec<Query>> {
    let masks = entry.mask.as_deref().unwrap_or_default();
    let row = |(row, tokens): (usize, &Vec<u64>)| {
        let (Some(view), Some(lines), Some(history)) = (rows.get(row), masks.get(row), group.model.rows.get(row))
        else {
            return Vec::new();
        };
        let mut at = history.next - tokens.iter().filter(|&&t| t != 0).count() as i64;
        let query = |(&token, line): (&u64, &String)| {
            let position = (token != 0).then_some(at);
            at += i64::from(token != 0);
            query(group, position, history, view, line, append.fetch)
        };
        tokens.iter().zip(lines).map(query).collect()
    };
    append.tokens.iter().enumerate().map(row).collect()
}

fn query(group: &Group, position: Option<i64>, history: &History, view: &RowView, line: &str, fetch: Columns) -> Query {
    let Some(at) = position else {
        let (expected, seen, wrong, hidden) = Default::default();
        return Query { position, expected, seen, wrong, hidden, holds: true };
    };
    let rule = group.model.rule;
    let expected: Vec<i64> = history.tokens.iter().map(|&(key, _)| key).filter(|&key| rule.sees(at, key)).collect();
    let mut shown = vec![false; expected.len()];
    let (mut wrong, mut missed) = (Vec::new(), Vec::new());
    for (column, visible) in fetch.iter().zip(line.bytes().map(|b| b == b'1')) {
        let Some(cell) = view.cells.get(column as usize) else { continue };
        let right = cell.position.filter(|&p| history.at(p) == Some(cell.tag));
        let place = right.and_then(|p| expected.binary_search(&p).ok());
        match (visible, place) {
            (true, place) => match place.and_then(|place| shown.get_mut(place)) {
                Some(shown) if !*shown => *shown = true,
                _ => wrong.push(column),
            },
            (false, Some(place)) => missed.push((column, place)),
            (false, None) => {}
        }
    }
    let seen: Vec<i64> = expected.iter().zip(&shown).filter(|&(_, &shown)| shown).map(|(&p, _)| p).collect();
    // What lies in two columns is hidden only when it is seen in neither.
    let hidden =
        missed.into_iter().filter(|&(_, place)| shown.get(place) == Some(&false)).map(|(column, _)| column).collect();
    let holds = wrong.is_empty() && seen == expected;
    Query { position, expected, seen, wrong, hidden, holds }
}

fn invariants(
    group: &Group,
    rows: &[RowView],
    planes: &Planes,
    entry: &Entry,
    queries: &[Vec<Query>],
    donor: Option<&DonorView>,
) -> Vec<Invariant> {
    let width = entry.fetched.as_ref().and_then(|f| f.first()).map(Vec::len);
    let same_width = entry.mask.iter().flatten().flatten().all(|line| Some(line.len()) == width);
    let ring = planes.window.is_some();
    let span = planes.window.unwrap_or(0) - planes.pinned.min(planes.window.unwrap_or(0));
    let straight = planes.order.windows(2).all(|w| matches!(w, [a, b] if a < b));
    let padded = |row: &RowView| row.offset < 0 || i64::from(row.left_pad) <= i64::from(planes.active);
    let plain = |holds: bool| (!holds).then(String::new);
    let all = [
        ("positions", "every live column holds the token of its position", misplaced(group, rows)),
        ("definition", "every query sees exactly what the definition says", undefined(queries)),
        ("held", "a copy of a row takes tokens of the row and nothing else", not_held(rows).or(not_lent(rows, donor))),
        ("mask", "the mask is as wide as the fetch", plain(same_width)),
        (
            "rotated",
            "a ring that has turned is exactly as wide as its window",
            plain(!planes.rotated || planes.capacity == planes.pinned + span),
        ),
        (
            "straight",
            "columns that have not turned lie in the order of time",
            plain(!ring || planes.rotated || straight),
        ),
        ("padding", "left padding lies within the columns in use", plain(rows.iter().all(padded))),
    ];
    let invariant = |(name, words, broken): (&'static str, &'static str, Option<String>)| {
        let holds = broken.is_none();
        Invariant { name, words, holds, broken: broken.filter(|place| !place.is_empty()) }
    };
    all.into_iter().map(invariant).collect()
}

/// The first live column that holds another token than that of its position.
fn misplaced(group: &Group, rows: &[RowView]) -> Option<String> {
    let wrong = |history: &History, cell: &Cell| {
        cell.position.is_some_and(|p| cell.tag == 0 || history.at(p).is_some_and(|tag| tag != cell.tag))
    };
    rows.iter().zip(&group.model.rows).enumerate().find_map(|(row, (view, history))| {
        let column = view.cells.iter().position(|cell| wrong(history, cell))?;
        Some(format!("row {row}, column {column}"))
    })
}

/// The first query that does not see what it must.
fn undefined(queries: &[Vec<Query>]) -> Option<String> {
    queries.iter().enumerate().find_map(|(row, queries)| {
        let query = queries.iter().find(|q| !q.holds)?;
        let lost: Vec<i64> = query.expected.iter().copied().filter(|p| query.seen.binary_search(p).is_err()).collect();
        let mut faults = Vec::new();
        if !lost.is_empty() {
            faults.push(format!("does not see {}", words::runs(&lost)));
        }
        if !query.wrong.is_empty() {
            let columns: Vec<i64> = query.wrong.iter().map(|&c| c.into()).collect();
            faults.push(format!("sees what it must not, columns {}", words::runs(&columns)));
        }
        Some(format!("row {row} at position {}: {}", query.position.unwrap_or(0), faults.join(", and ")))
    })
}

/// The first column that a copy of a row would take although it holds no token of it.
fn not_held(rows: &[RowView]) -> Option<String> {
    rows.iter().enumerate().find_map(|(row, view)| {
        let held = view.held.iter().flat_map(|c| c.iter());
        let empty = |&c: &u32| view.cells.get(c as usize).is_none_or(|cell| cell.position.is_none());
        let column = held.into_iter().find(empty)?;
        Some(format!("row {row}, column {column}, which holds none of its tokens"))
    })
}

/// The first column that a donor lends of a row although it does not hold the token of that position.
fn not_lent(rows: &[RowView], donor: Option<&DonorView>) -> Option<String> {
    donor?.rows.iter().zip(rows).enumerate().find_map(|(row, (lent, view))| {
        let columns = lent.columns.iter().flat_map(|c| c.iter());
        let positions = lent.positions.iter().flat_map(|&[from, to]| from..to);
        let holds = |column: u32, position: u32| {
            view.cells.get(column as usize).is_some_and(|cell| cell.position == Some(position.into()))
        };
        let (column, _) = columns.zip(positions).find(|&(column, position)| !holds(column, position))?;
        Some(format!("row {row}, column {column}, which a donor lends"))
    })
}
