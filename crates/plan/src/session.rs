//! A scenario as it runs: plan each operation, execute it on a grid of tags, adopt the state after it.

use std::collections::BTreeMap;

use crate::Error;
use crate::column::ColumnOp;
use crate::definition::{History, Model};
use crate::donor::Donor;
use crate::entry::{Did, Entry, Fetch, State};
use crate::fault::{self, Faults, Pads};
use crate::full::Full;
use crate::grid::{Grid, Inputs};
use crate::layout::{Kind, Layout};
use crate::mask::Mask;
use crate::phase::Phase;
use crate::ring::{Positions, Ring};
use crate::scenario::{AdoptState, JoinRow, Keep, Op};
use crate::step::{Growth, Move, Padding, Rope, Source};
use crate::units::{Columns, Pos, Row};

/// The most mask cells that one append of a scenario may spell out: 2^24.
pub const MASK_LIMIT: u64 = 1 << 24;

/// A group as a scenario holds it: the planner's state, the columns, and what the definition says of the same rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The planner's state.
    pub layout: Layout,
    /// The tags in the physical columns.
    pub grid: Grid<u64>,
    /// The rows by the definition.
    pub model: Model,
    /// Upstream's left padding, for a session that asks for its faults.
    pads: Pads,
    faults: Faults,
}

/// A row that an extraction saved.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Saved {
    source: Source,
    tokens: Vec<u64>,
    history: History,
}

/// What one operation did: the entry, and the plan behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What the replay says.
    pub entry: Entry,
    /// The column operations.
    pub ops: Vec<ColumnOp>,
    /// How many stored columns they copied, counted once per row.
    pub moved: u64,
    /// The plan of an append.
    pub append: Option<Appended>,
    /// What a donor lends.
    pub donor: Option<Donor>,
}

/// The part of a plan that only an append has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The physical columns fetched.
    pub fetch: Columns,
    /// The positions captured before the write.
    pub rope: Rope,
    /// The mask.
    pub mask: Mask,
    /// The tags written.
    pub tokens: Vec<Vec<u64>>,
}

/// A running scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    kind: Kind,
    growth: Growth,
    faults: Faults,
    group: Option<Group>,
    saved: BTreeMap<String, Saved>,
    snapshots: BTreeMap<String, Group>,
}

impl Session {
    /// A scenario in which nothing has happened yet.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let (saved, snapshots) = (BTreeMap::new(), BTreeMap::new());
        Self { kind, growth: Growth::default(), faults: Faults::NONE, group: None, saved, snapshots }
    }

    /// The same with upstream's faults put back.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// The same with another growth policy.
    #[must_use]
    pub fn with_growth(self, growth: Growth) -> Self {
        Self { growth, ..self }
    }

    /// The group, once there is one.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Forgets the group, as if nothing had happened; what was saved and remembered stays.
    pub fn restart(&mut self) {
        self.group = None;
    }

    /// Plans one operation, executes it and adopts the state after it. A refused operation changes nothing.
    pub fn step(&mut self, op: &Op) -> Result<Done, Error> {
        let name = op.name();
        match op {
            Op::Merge { .. } | Op::Empty { .. } | Op::Adopt { .. } => {
                if self.group.is_some() {
                    return Err(Error::Started { op: name, field: "op" });
                }
                self.start(op)
            }
            _ => {
                let Some(group) = &self.group else { return Err(Error::NotStarted { op: name, field: "op" }) };
                let mut group = group.clone();
                let done = self.change(op, &mut group)?;
                self.group = Some(group);
                Ok(done)
            }
        }
    }

    fn start(&mut self, op: &Op) -> Result<Done, Error> {
        let mut group = Group::none(self.kind, self.growth, self.faults)?;
        let done = match op {
            Op::Merge { rows } => {
                let rows = self.joining("merge", rows)?;
                let sources: Vec<Source> = rows.iter().map(|r| r.source).collect();
                let plan = Layout::merge(self.kind, self.growth, &sources)?;
                group.join(op, plan, &rows)?
            }
            Op::Empty { rows } => {
                let layout = Layout::empty(self.kind, self.growth, *rows as usize)?;
                group.model.rows = vec![History::default(); layout.rows()];
                group.still(op, Move { ops: Vec::new(), next: layout, moved: 0 })?
            }
            Op::Adopt { state, cells } => group.adopt(op, self.kind, self.growth, state, cells)?,
            _ => return Err(Error::NotStarted { op: op.name(), field: "op" }),
        };
        self.group = Some(group);
        Ok(done)
    }

    fn change(&mut self, op: &Op, group: &mut Group) -> Result<Done, Error> {
        match op {
            Op::Append { tokens } => group.append(op, tokens),
            Op::Prepare { lengths, left_padding, right_padding } => {
                let padding = Padding { lengths, left: left_padding, right: right_padding };
                group.still(op, group.layout.prepare(padding)?)
            }
            Op::Finalize {} => group.still(op, group.layout.finalize()?),
            Op::Filter { keep } => {
                let rows: Vec<Row> = keep.iter().map(|&r| Row(r)).collect();
                let plan = group.layout.filter(&rows)?;
                group.model.filter(&keep.iter().map(|&r| r as usize).collect::<Vec<_>>());
                group.still(op, plan)
            }
            Op::Extend { rows } => {
                let rows = self.joining("extend", rows)?;
                let sources: Vec<Source> = rows.iter().map(|r| r.source).collect();
                group.join(op, group.layout.extend(&sources)?, &rows)
            }
            Op::Extract { row, limit, name } => {
                let (done, saved) = group.extract(*row, *limit)?;
                if let Some(name) = name {
                    self.saved.insert(name.clone(), saved);
                }
                Ok(done)
            }
            Op::Trim { n } => {
                let plan = group.layout.trim(*n)?;
                group.model.trim(*n);
                group.still(op, plan)
            }
            Op::RoundBegin {} => {
                let plan = group.layout.round_begin()?;
                group.model.round_begin();
                group.still(op, plan)
            }
            Op::RoundCommit {} => {
                let plan = group.layout.round_commit()?;
                group.model.round_end(None);
                group.still(op, plan)
            }
            Op::RoundRollback { keep } => {
                let keep = match keep {
                    Keep::All(n) => vec![*n; group.layout.rows()],
                    Keep::Each(list) => list.clone(),
                };
                let plan = group.layout.round_rollback(&keep)?;
                group.model.round_end(Some(&keep));
                group.still(op, plan)
            }
            Op::Donor {} => Ok(group.donor()),
            Op::Snapshot { name } => {
                self.snapshots.insert(name.clone(), group.clone());
                group.still(op, Move { ops: Vec::new(), next: group.layout.clone(), moved: 0 })
            }
            Op::Restore { name } => {
                let unknown = || Error::UnknownName { op: "restore", field: "name", name: name.clone() };
                *group = self.snapshots.get(name).ok_or_else(unknown)?.clone();
                group.still(op, Move { ops: Vec::new(), next: group.layout.clone(), moved: 0 })
            }
            Op::Merge { .. } | Op::Empty { .. } | Op::Adopt { .. } => {
                Err(Error::Started { op: op.name(), field: "op" })
            }
        }
    }

    fn joining(&self, op: &'static str, rows: &[JoinRow]) -> Result<Vec<Saved>, Error> {
        let row = |row: &JoinRow| match row {
            JoinRow::Tokens(tokens) => {
                let source = Source::whole(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
                Ok(Saved { source, tokens: tokens.clone(), history: History::of(tokens) })
            }
            JoinRow::Saved { from } => {
                let unknown = || Error::UnknownName { op, field: "rows", name: from.clone() };
                self.saved.get(from).cloned().ok_or_else(unknown)
            }
        };
        rows.iter().map(row).collect()
    }
}

impl Group {
    fn none(kind: Kind, growth: Growth, faults: Faults) -> Result<Self, Error> {
        let layout = Layout::empty(kind, growth, 0)?;
        let model = Model::new(kind.into(), Vec::new());
        Ok(Self { layout, grid: Grid::new(0, 0), model, pads: Pads::default(), faults })
    }

    /// Executes a plan that reads no tokens.
    fn still(&mut self, op: &Op, plan: Move<Layout>) -> Result<Done, Error> {
        self.execute(op, plan, &[])
    }

    fn join(&mut self, op: &Op, plan: Move<Layout>, rows: &[Saved]) -> Result<Done, Error> {
        let sources: Vec<Vec<u64>> = rows.iter().map(|r| r.tokens.clone()).collect();
        self.model.extend(rows.iter().map(|r| r.history.clone()).collect());
        self.execute(op, plan, &sources)
    }

    fn execute(&mut self, op: &Op, plan: Move<Layout>, sources: &[Vec<u64>]) -> Result<Done, Error> {
        self.grid.run(&plan.ops, Inputs { incoming: &[], sources })?;
        self.grid.set_rows(plan.next.rows());
        self.pads.follow(op, &self.layout, &plan.next);
        self.layout = plan.next;
        let entry = Entry {
            state: Some(self.state()),
            visible: Some((0..self.layout.rows()).map(|row| self.held(row)).collect()),
            ops: plan.ops.iter().cloned().map(Did::Column).collect(),
            ..Entry::default()
        };
        Ok(Done { entry, ops: plan.ops, moved: plan.moved, append: None, donor: None })
    }

    fn append(&mut self, op: &Op, tokens: &[Vec<u64>]) -> Result<Done, Error> {
        let (n, real) = self.check_tokens(tokens)?;
        if self.faults.one_column
            && n == 1
            && matches!(&self.layout, Layout::Ring(ring) if ring.phase().prefill_ends().is_some())
        {
            return Err(Error::PrefillPending { op: "append", field: "tokens" });
        }
        let plan = match &real {
            Some(real) => self.layout.append_ragged(n, real)?,
            None => self.layout.append(n)?,
        };
        let cells = tokens.len() as u64 * u64::from(n) * u64::from(plan.fetch.len());
        if cells > MASK_LIMIT {
            let got = i64::try_from(cells).unwrap_or(i64::MAX);
            return Err(Error::TooLarge { op: "append", field: "tokens", got, limit: MASK_LIMIT as i64 });
        }
        self.grid.run(&plan.ops, Inputs { incoming: tokens, sources: &[] })?;
        self.model.append(tokens);
        let mut ops: Vec<Did> = plan.ops.iter().cloned().map(Did::Column).collect();
        ops.push(Did::Fetch(Fetch { columns: plan.fetch }));
        let append = Appended { fetch: plan.fetch, rope: plan.rope, mask: plan.mask, tokens: tokens.to_vec() };
        let pads = self.pads.clone();
        self.pads.follow(op, &self.layout, &plan.next);
        let before = core::mem::replace(&mut self.layout, plan.next);
        let mut entry = self.attend(&append, &before, &pads)?;
        entry.ops = ops;
        Ok(Done { entry, ops: plan.ops, moved: plan.moved, append: Some(append), donor: None })
    }

    /// What the queries of an append see: the mask, spelled out, applied to the columns that were fetched.
    fn attend(&self, append: &Appended, before: &Layout, pads: &Pads) -> Result<Entry, Error> {
        let columns = append.fetch.len();
        let order = self.layout.temporal();
        let (mut fetched, mut masks, mut sees) = (Vec::new(), Vec::new(), Vec::new());
        for (row, tokens) in append.tokens.iter().enumerate() {
            let n = tokens.len() as u32;
            let cells: Vec<u64> = self.grid.read(row, append.fetch).collect();
            let mut lines = Vec::with_capacity(tokens.len());
            let mut seen = Vec::with_capacity(tokens.len());
            for (query, &token) in (0u32..).zip(tokens) {
                let line = match before {
                    Layout::Ring(ring) => fault::line(self.faults, ring, pads, append, row, query),
                    Layout::Full(_) => None,
                };
                let line = line.map_or_else(|| append.mask.dense(columns, n, row, query), Ok)?;
                let visible = |c: &u32| line.get(c.wrapping_sub(append.fetch.from) as usize) == Some(&true);
                let tags = order.iter().flat_map(|c| c.iter()).filter(visible).filter_map(|c| self.grid.get(row, c));
                seen.push((token != 0).then(|| tags.collect()));
                lines.push(line.iter().map(|&v| if v { '1' } else { '0' }).collect());
            }
            fetched.push(cells);
            masks.push(lines);
            sees.push(seen);
        }
        let rope = (0..append.tokens.len()).map(|row| append.rope.row(row).map_or(0, |p| p.0)).collect();
        Ok(Entry {
            state: Some(self.state()),
            rope_offsets: Some(rope),
            fetched: Some(fetched),
            mask: Some(masks),
            sees: Some(sees),
            ..Entry::default()
        })
    }

    /// The width of an append and, inside a round, how many tokens each row brings.
    fn check_tokens(&self, tokens: &[Vec<u64>]) -> Result<(u32, Option<Vec<u32>>), Error> {
        let (op, field) = ("append", "tokens");
        let (rows, width) = (self.layout.rows(), tokens.first().map_or(0, Vec::len));
        if tokens.len() != rows {
            return Err(Error::Rows { op, field, got: tokens.len(), rows });
        }
        if let Some(row) = tokens.iter().position(|t| t.len() != width) {
            return Err(Error::Ragged {
                op,
                field,
                row,
                got: tokens.get(row).map_or(0, Vec::len) as i64,
                want: width as i64,
            });
        }
        let n = u32::try_from(width).unwrap_or(u32::MAX);
        let padding = |row: usize, column: usize| match self.layout.phase() {
            Phase::Prefill(p) => p.is_padding(row, self.offset(row).wide() + column as i64),
            _ => false,
        };
        match self.layout.phase() {
            Phase::Round(_) => {
                let mut real = Vec::with_capacity(rows);
                for (row, tokens) in tokens.iter().enumerate() {
                    let count = tokens.iter().take_while(|&&t| t != 0).count();
                    if tokens.iter().skip(count).any(|&t| t != 0) {
                        return Err(Error::AfterPadding { op, field, row });
                    }
                    real.push(u32::try_from(count).unwrap_or(u32::MAX));
                }
                Ok((n, Some(real)))
            }
            Phase::Decode | Phase::Prefill(_) => {
                for (row, tokens) in tokens.iter().enumerate() {
                    let wrong = |&(column, &t): &(usize, &u64)| (t == 0) != padding(row, column);
                    if let Some((column, &t)) = tokens.iter().enumerate().find(wrong) {
                        return Err(Error::Padding { op, field, row, column, declared: t != 0 });
                    }
                }
                Ok((n, None))
            }
        }
    }

    fn extract(&self, row: u32, limit: Option<u32>) -> Result<(Done, Saved), Error> {
        let mut plan = self.layout.extract(Row(row), limit)?;
        if let (Layout::Ring(ring), true) = (&self.layout, self.faults.left_pad) {
            let ranges = self.ring_held(ring, row as usize, limit.unwrap_or(ring.window().size) - ring.pinned());
            let held = ranges.iter().map(|c| c.len()).sum();
            plan.source = Source { columns: held, capacity: held, ..plan.source };
            plan.ops = vec![ColumnOp::CopyRow {
                row: Row(row),
                ranges: ranges.into_iter().filter(|c| !c.is_empty()).collect(),
            }];
        }
        let tokens = self.grid.clone().run(&plan.ops, Inputs { incoming: &[], sources: &[] })?.concat();
        let entry = Entry {
            tokens: Some(tokens.clone()),
            offset: Some(plan.source.offset.0),
            ops: plan.ops.iter().cloned().map(Did::Column).collect(),
            ..Entry::default()
        };
        let history = self.model.extract(row as usize, limit);
        let moved = tokens.len() as u64;
        let done = Done { entry, ops: plan.ops, moved, append: None, donor: None };
        Ok((done, Saved { source: plan.source, tokens, history }))
    }

    fn donor(&self) -> Done {
        let mut plan = self.layout.donor();
        if let (Layout::Ring(ring), true) = (&self.layout, self.faults.left_pad && plan.donor.pinned == 0) {
            plan.donor.starts = self.pads.starts(ring, &plan.donor);
        }
        let donor = plan.donor;
        let entry = Entry {
            offsets: Some(donor.offsets.iter().map(|p| p.0).collect()),
            starts: Some(donor.starts.clone()),
            ends: Some(donor.ends.clone()),
            width: Some(donor.width),
            ops: plan.ops.iter().cloned().map(Did::Column).collect(),
            ..Entry::default()
        };
        Done { entry, ops: plan.ops, moved: plan.moved, append: None, donor: Some(donor) }
    }

    fn adopt(
        &mut self,
        op: &Op,
        kind: Kind,
        growth: Growth,
        state: &AdoptState,
        cells: &[Vec<u64>],
    ) -> Result<Done, Error> {
        let name = "adopt";
        let rows = state.offsets.len();
        if cells.len() != rows {
            return Err(Error::Rows { op: name, field: "cells", got: cells.len(), rows });
        }
        let width = cells.first().map_or(0, Vec::len);
        if let Some(row) = cells.iter().position(|c| c.len() != width) {
            return Err(Error::Ragged {
                op: name,
                field: "cells",
                row,
                got: cells.get(row).map_or(0, Vec::len) as i64,
                want: width as i64,
            });
        }
        let list = |ints: &[i32]| ints.iter().map(|&p| Pos(p)).collect::<Vec<_>>();
        let (offsets, ends) = (list(&state.offsets), state.prefill_ends.as_deref().map(list));
        let capacity = u32::try_from(width).unwrap_or(u32::MAX);
        let need = |field: &str, want| Error::Malformed { op: name.to_owned(), field: format!("state.{field}"), want };
        self.layout = match kind {
            Kind::Full => Layout::Full(Full::adopt(growth, &offsets, &state.left_pad, ends.as_deref(), capacity)?),
            Kind::Ring(window) => {
                let at = Positions {
                    max_size: window.size,
                    offsets,
                    left_pad: state.left_pad.clone(),
                    ring_index: state.ring_index.ok_or(need("ring_index", "the write head of a ring"))?,
                    total_offset: state.total_offset.ok_or(need("total_offset", "the columns ever appended"))?,
                    rotated: state.rotated.ok_or(need("rotated", "true or false"))?,
                    prefill_ends: ends,
                };
                Layout::Ring(Ring::adopt(window, growth, &at, capacity)?)
            }
        };
        self.grid = Grid::of(cells.to_vec(), 0);
        self.model.rows = (0..rows).map(|row| self.history(row)).collect();
        self.still(op, Move { ops: Vec::new(), next: self.layout.clone(), moved: 0 })
    }

    /// A row's tokens and positions, read off the columns that hold them.
    fn history(&self, row: usize) -> History {
        let tags = self.held(row);
        let offset = self.offset(row);
        let next = self.layout.phase().valid(row, offset).wide().max(0);
        let pinned = match &self.layout {
            Layout::Full(_) => 0,
            Layout::Ring(ring) => ring.held(row, ring.window().size - ring.pinned())[0].len() as usize,
        };
        let recent = tags.len() - pinned;
        let at = |i: usize| if i < pinned { i as i64 } else { next - recent as i64 + (i - pinned) as i64 };
        History { tokens: tags.iter().enumerate().map(|(i, &t)| (at(i), t)).collect(), next }
    }

    fn offset(&self, row: usize) -> Pos {
        self.layout.offsets().get(row).copied().unwrap_or_default()
    }

    fn ring_held(&self, ring: &Ring, row: usize, recent: u32) -> [Columns; 3] {
        if self.faults.left_pad && ring.pinned() == 0 {
            self.pads.held(ring, row, recent)
        } else {
            ring.held(row, recent)
        }
    }

    fn state(&self) -> State {
        let mut state = State::of(&self.layout);
        if self.faults.left_pad && matches!(&self.layout, Layout::Ring(ring) if ring.pinned() == 0) {
            state.left_pad = self.pads.list();
        }
        state
    }

    /// The physical columns of the tokens that a row still holds, at most a window of them, oldest first.
    pub(crate) fn held_columns(&self, row: usize) -> [Columns; 3] {
        match &self.layout {
            Layout::Full(full) => [full.live(row), Columns::default(), Columns::default()],
            Layout::Ring(ring) => self.ring_held(ring, row, ring.window().size - ring.pinned()),
        }
    }

    /// The tags of the tokens that a row still holds, at most a window of them, oldest first.
    fn held(&self, row: usize) -> Vec<u64> {
        self.held_columns(row).into_iter().flat_map(|c| self.grid.read(row, c).collect::<Vec<_>>()).collect()
    }
}
