//! A scenario frame by frame, kept compactly.
//!
//! A page that scrubs through 64 rows of 4,096 columns needs any step at once. The planner's [`Frame`] spells everything out;
//! here each cell takes 13 bytes, and a list of positions is a list of runs.

use std::collections::VecDeque;

use annulus_plan::State;
use annulus_plan::inspect::{Action, Cell, CellKind, DonorView, Frame, Invariant, Options, PhaseView, Query, draw};
use annulus_plan::scenario::{Op, Scenario};
use annulus_plan::session::Session;
use annulus_plan::{Columns, Error, Faults, Refusal, compare};
use serde::Serialize;
use serde_json::{Value, json};

/// What [`Still::positions`] says of a cell in which no token counts.
pub const NO_POSITION: i32 = i32::MIN;

/// Added to the kind of a cell that the next append drops or overwrites.
pub const EVICTED_NEXT: u8 = 8;

/// The most cells that the steps of one scenario hold together: 2^25, somewhat under half a gigabyte.
pub const CELL_LIMIT: u64 = 1 << 25;

/// A running scenario and its steps so far.
#[derive(Debug)]
pub struct Stills {
    session: Session,
    ops: Vec<Value>,
    planned: usize,
    kept: VecDeque<Still>,
    cells: u64,
}

/// One step.
#[derive(Debug)]
pub struct Still {
    head: String,
    columns: usize,
    kinds: Vec<u8>,
    positions: Vec<i32>,
    tags: Vec<f64>,
    order: Vec<u32>,
    runs: Vec<Vec<Vec<Columns>>>,
    queries: Vec<Vec<Compared>>,
}

/// A query beside the definition, its positions as runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Its position; null on a padding query.
    pub position: Option<i64>,
    /// The positions it must see.
    pub expected: Vec<[i64; 2]>,
    /// The positions it sees.
    pub seen: Vec<[i64; 2]>,
    /// The physical columns that it sees and must not.
    pub wrong: Vec<u32>,
    /// The physical columns that it must see and does not.
    pub hidden: Vec<u32>,
    /// Whether it sees exactly what it must.
    pub holds: bool,
}

/// What a page shows of a step around its cells.
#[derive(Serialize)]
struct Head<'a> {
    step: usize,
    op: &'a str,
    words: &'a str,
    ops: &'a [Action],
    moved: u64,
    state: &'a Option<State>,
    rope_offsets: &'a Option<Vec<i32>>,
    tokens: &'a Option<Vec<u64>>,
    offset: Option<i32>,
    phase: &'a PhaseView,
    planes: Planes,
    rows: Vec<Row<'a>>,
    mask: Option<Mask<'a>>,
    donor: Option<&'a DonorView>,
    invariants: &'a [Invariant],
    broken_queries: usize,
}

/// The planes that all rows share.
#[derive(Serialize)]
struct Planes {
    capacity: u32,
    pinned: u32,
    active: u32,
    window: Option<u32>,
    head: Option<u32>,
    rotation: u32,
    rotated: bool,
}

#[derive(Serialize)]
struct Row<'a> {
    offset: i32,
    valid: i32,
    left_pad: i32,
    end: Option<u32>,
    held: &'a [Columns],
}

#[derive(Serialize)]
struct Mask<'a> {
    kind: &'a str,
    words: &'a str,
    fetch: Columns,
    queries: usize,
}

impl Stills {
    /// A scenario of which nothing is planned yet.
    pub fn new(line: &Value, options: Options) -> Result<Self, Refusal> {
        let scenario = Scenario::read(line.get("scenario").unwrap_or(&Value::Null)).map_err(|e| refusal(&e))?;
        let faults = if options.upstream { Faults::MLX_LM_0_32_2 } else { Faults::NONE };
        let session = Session::new(scenario.kind).with_growth(options.growth).with_faults(faults);
        Ok(Self { session, ops: scenario.ops, planned: 0, kept: VecDeque::new(), cells: 0 })
    }

    /// How many operations there are, planned or not.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ops.len()
    }

    /// How many operations were planned.
    #[must_use]
    pub fn length(&self) -> usize {
        self.planned
    }

    /// The first step that is still kept.
    #[must_use]
    pub fn first(&self) -> usize {
        self.planned - self.kept.len()
    }

    /// How many cells the kept steps hold together.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells
    }

    /// A step that is still kept.
    #[must_use]
    pub fn still(&self, step: usize) -> Option<&Still> {
        self.kept.get(step.checked_sub(self.first())?)
    }

    /// Plans the next operation and says whether there is one after it.
    pub fn advance(&mut self) -> Result<bool, Refusal> {
        if self.planned < self.ops.len() {
            self.plan(None)?;
        }
        Ok(self.planned < self.ops.len())
    }

    /// Adds an operation and plans it; what a server recorded of the state after it must agree. A refused operation is not
    /// added, but one whose state differs is: the page shows both.
    pub fn push(&mut self, op: Value, recorded: Option<&Value>) -> Result<(), Refusal> {
        if op.get("op").and_then(Value::as_str) == Some("adopt") {
            // A gap in a log: what the server did in it is not known, so the group starts anew.
            self.session.restart();
        }
        self.ops.push(op);
        self.plan(recorded).inspect_err(|_| self.ops.truncate(self.planned))
    }

    /// Forgets the oldest steps, the newest excepted, so that no more than so many cells are kept.
    pub fn forget(&mut self, cells: u64) {
        while self.cells > cells && self.kept.len() > 1 {
            self.cells -= self.kept.pop_front().map_or(0, |still| still.kinds.len() as u64);
        }
    }

    fn plan(&mut self, recorded: Option<&Value>) -> Result<(), Refusal> {
        let value = self.ops.get(self.planned).unwrap_or(&Value::Null);
        let at = |error: &Error| Refusal {
            step: Some(self.planned),
            op: Some(value.get("op").and_then(Value::as_str).unwrap_or(error.op()).to_owned()),
            ..refusal(error)
        };
        let op = Op::read(value).map_err(|e| at(&e))?;
        let done = self.session.step(&op).map_err(|e| at(&e))?;
        let Some(group) = self.session.group() else { return Ok(()) };
        let cells = u64::from(group.layout.capacity()).saturating_mul(group.layout.rows() as u64);
        if self.cells + cells > CELL_LIMIT {
            let (got, limit) = ((self.cells + cells) as i64, CELL_LIMIT as i64);
            return Err(at(&Error::TooLarge { op: "inspect", field: "cells", got, limit }));
        }
        let state = done.entry.state.clone();
        let differs = match (recorded, &state) {
            (Some(recorded), Some(state)) => compare(op.name(), recorded, state).map_err(|e| at(&e)),
            _ => Ok(()),
        };
        let frame = draw(&op, done, group);
        self.cells += cells;
        self.kept.push_back(Still::new(self.planned, frame));
        self.planned += 1;
        differs
    }
}

impl Still {
    fn new(step: usize, frame: Frame) -> Self {
        let head = serde_json::to_string(&Head::new(step, &frame)).unwrap_or_default();
        let cells = || frame.rows.iter().flat_map(|row| &row.cells);
        let position = |cell: &Cell| cell.position.and_then(|p| i32::try_from(p).ok()).unwrap_or(NO_POSITION);
        Self {
            head,
            columns: frame.planes.capacity as usize,
            kinds: cells().map(code).collect(),
            positions: cells().map(position).collect(),
            tags: cells().map(|cell| cell.tag as f64).collect(),
            runs: frame.mask.map(|mask| mask.runs).unwrap_or_default(),
            queries: frame.queries.iter().map(|row| row.iter().map(Compared::of).collect()).collect(),
            order: frame.planes.order,
        }
    }

    /// Everything but cells and queries, as JSON.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// The kind of every cell, row by row.
    #[must_use]
    pub fn kinds(&self) -> &[u8] {
        &self.kinds
    }

    /// The position of every cell of a row.
    #[must_use]
    pub fn positions(&self, row: usize) -> &[i32] {
        self.positions.get(self.cells(row)).unwrap_or_default()
    }

    /// The tag of every cell of a row.
    #[must_use]
    pub fn tags(&self, row: usize) -> &[f64] {
        self.tags.get(self.cells(row)).unwrap_or_default()
    }

    fn cells(&self, row: usize) -> core::ops::Range<usize> {
        let from = row.saturating_mul(self.columns);
        from..from.saturating_add(self.columns)
    }

    /// The columns in use from the oldest to the newest.
    #[must_use]
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// The visible runs of every query of a row.
    #[must_use]
    pub fn runs(&self, row: usize) -> &[Vec<Columns>] {
        self.runs.get(row).map_or(&[], Vec::as_slice)
    }

    /// Every query of a row, beside the definition.
    #[must_use]
    pub fn queries(&self, row: usize) -> &[Compared] {
        self.queries.get(row).map_or(&[], Vec::as_slice)
    }
}

impl<'a> Head<'a> {
    fn new(step: usize, frame: &'a Frame) -> Self {
        let p = &frame.planes;
        let row = |view: &'a annulus_plan::inspect::RowView| Row {
            offset: view.offset,
            valid: view.valid,
            left_pad: view.left_pad,
            end: view.end,
            held: &view.held,
        };
        Self {
            step,
            op: frame.op,
            words: &frame.words,
            ops: &frame.ops,
            moved: frame.moved,
            state: &frame.entry.state,
            rope_offsets: &frame.entry.rope_offsets,
            tokens: &frame.entry.tokens,
            offset: frame.entry.offset,
            phase: &frame.phase,
            planes: Planes {
                capacity: p.capacity,
                pinned: p.pinned,
                active: p.active,
                window: p.window,
                head: p.head,
                rotation: p.rotation,
                rotated: p.rotated,
            },
            rows: frame.rows.iter().map(row).collect(),
            mask: frame.mask.as_ref().map(|mask| Mask {
                kind: mask.kind,
                words: &mask.words,
                fetch: mask.fetch,
                queries: mask.runs.first().map_or(0, Vec::len),
            }),
            donor: frame.donor.as_ref(),
            invariants: &frame.invariants,
            broken_queries: frame.queries.iter().flatten().filter(|q| !q.holds).count(),
        }
    }
}

impl Compared {
    fn of(query: &Query) -> Self {
        Self {
            position: query.position,
            expected: runs(&query.expected),
            seen: runs(&query.seen),
            wrong: query.wrong.clone(),
            hidden: query.hidden.clone(),
            holds: query.holds,
        }
    }
}

/// Ascending positions as half-open ranges.
fn runs(positions: &[i64]) -> Vec<[i64; 2]> {
    let mut runs: Vec<[i64; 2]> = Vec::new();
    for &p in positions {
        match runs.last_mut() {
            Some([_, to]) if *to == p => *to += 1,
            _ => runs.push([p, p + 1]),
        }
    }
    runs
}

/// A cell's kind as the page reads it: an index into `KINDS` of the types, and whether the cell goes next.
fn code(cell: &Cell) -> u8 {
    let kind = match cell.kind {
        CellKind::Spare => 0,
        CellKind::Live => 1,
        CellKind::Sink => 2,
        CellKind::LeftPadding => 3,
        CellKind::TrailingPadding => 4,
        CellKind::Rejected => 5,
    };
    if cell.evicted_next { kind + EVICTED_NEXT } else { kind }
}

/// Reads a line: an object with `scenario`, or a scenario alone.
pub fn line(text: &str) -> Result<Value, Refusal> {
    let value: Value = serde_json::from_str(text).map_err(|error| not_json(&error.to_string()))?;
    if value.get("scenario").is_none() && value.get("cache").is_some() {
        return Ok(json!({ "scenario": value }));
    }
    Ok(value)
}

/// A planner's error as a refusal that names no step.
#[must_use]
pub fn refusal(error: &Error) -> Refusal {
    Refusal {
        step: None,
        op: Some(error.op().to_owned()),
        field: Some(error.field().to_owned()),
        message: error.to_string(),
    }
}

/// What came is not what it should be.
#[must_use]
pub fn not_json(message: &str) -> Refusal {
    Refusal { step: None, op: None, field: None, message: message.to_owned() }
}

/// A step that was not planned, or that was forgotten.
#[must_use]
pub fn no_step(step: usize) -> Refusal {
    not_json(&format!("there is no step {step}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W=2, one row of three tokens: the third overwrites the first.
    fn wrapped() -> Stills {
        let scenario = json!({ "scenario": { "cache": { "kind": "rotating", "max_size": 2 }, "ops": [
            { "op": "merge", "rows": [[1000, 1001]] }, { "op": "append", "tokens": [[1002]] }] } });
        let mut stills = Stills::new(&scenario, Options::default()).expect("a scenario");
        assert_eq!(stills.advance(), Ok(true));
        assert_eq!(stills.advance(), Ok(false));
        stills
    }

    #[test]
    fn cells_say_kind_position_and_tag() {
        let stills = wrapped();
        let last = stills.still(1).expect("planned");
        assert_eq!(last.positions(0), [2, 1]);
        assert_eq!(last.tags(0), [1002.0, 1001.0]);
        assert_eq!(last.tags(7), [] as [f64; 0]);
        assert_eq!(last.kinds(), [1, 1 + EVICTED_NEXT]);
        assert_eq!(last.order(), [1, 0]);
        assert_eq!(last.queries(0)[0].seen, [[1, 3]]);
    }

    #[test]
    fn a_refused_operation_is_not_added() {
        let mut stills = wrapped();
        let error = stills.push(json!({ "op": "append", "tokens": [[1], [2]] }), None).expect_err("two rows");
        assert_eq!((error.step, error.field.as_deref()), (Some(2), Some("tokens")));
        assert_eq!((stills.total(), stills.length()), (2, 2));
    }

    #[test]
    fn a_recorded_state_that_differs_is_named_and_the_step_is_kept() {
        let mut stills = wrapped();
        let recorded = json!({ "offsets": [5], "left_pad": [0], "ring_index": 2, "total_offset": 4, "rotated": true });
        let error = stills.push(json!({ "op": "append", "tokens": [[1003]] }), Some(&recorded)).expect_err("offset 4");
        assert_eq!(error.field.as_deref(), Some("state.offsets"));
        assert_eq!(stills.length(), 3);
    }

    #[test]
    fn forgetting_keeps_the_newest_step() {
        let mut stills = wrapped();
        stills.forget(0);
        assert_eq!((stills.first(), stills.cells()), (1, 2));
        assert!(stills.still(0).is_none() && stills.still(1).is_some());
    }
}
