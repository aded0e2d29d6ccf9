//! The ring: a sliding window of W columns whose write head all rows share.
//!
//! While the ring is not full its columns lie in the order of time. Then the head goes back to column 0, and each decode step
//! writes over the oldest column, the same for every row. A window of 4, after six tokens of row 0 and four of row 1:
//!
//! ```text
//!                      head
//! column      0    1  | 2    3
//! row 0       a4   a5 | a2   a3        offset 6
//! row 1       b2   b3 | b0   b1        offset 4
//!
//! temporal    2    3    0    1         column 2 is the oldest: rotation 2
//! ```
//!
//! Let A be the number of active columns and call the t-th oldest *temporal column* t. One identity is the whole layout: for
//! every row, temporal column t holds position `offset - A + t`, as long as `t >= left_pad`. Everything else is bookkeeping
//! that keeps it true.
//!
//! An append of several columns, or one whose rows differ in padding, is a *block*: the columns are brought to temporal order,
//! the newest W-1 are kept, and the block goes behind them, so the planes are for a moment wider than W. Each query of the
//! block still finds its whole window, and the next single column turns the planes back into a ring.
//!
//! # Sinks
//!
//! With k attention sinks the planes hold k *pinned* columns on the left, then a ring of W-k. Column s of the pinned ones holds
//! a copy of position s; the token also lies in the ring until it is overwritten there. A query sees its ring window, and those
//! pinned columns that are older than it: together exactly the first k positions and the last W-k.

use crate::Error;
use crate::column::{ColumnOp, Piece, PinRun, Shape, moved};
use crate::mask::{Mask, RowRun, Runs, turned};
use crate::phase::{Phase, Prefill};
use crate::rows;
use crate::step::{Extract, Growth, Move, Padding, Rope, Source, Step};
use crate::units::{Col, Columns, Pos, Row, columns, row_count};

/// What a ring is made of, before it has rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// W: the most columns a query sees.
    pub size: u32,
    /// How many of them are the first positions of the row. Less than `size`.
    pub sinks: u32,
}

impl Window {
    /// A window of the newest `size` columns.
    #[must_use]
    pub const fn of(size: u32) -> Self {
        Self { size, sinks: 0 }
    }

    /// The columns that turn over.
    fn span(self) -> u32 {
        self.size.saturating_sub(self.sinks)
    }

    fn check(self, op: &'static str) -> Result<(), Error> {
        if self.size == 0 {
            return Err(Error::OutOfRange { op, field: "max_size", row: None, got: 0, low: 1, high: u32::MAX.into() });
        }
        if self.sinks >= self.size {
            let high = i64::from(self.size) - 1;
            return Err(Error::OutOfRange { op, field: "sinks", row: None, got: self.sinks.into(), low: 0, high });
        }
        columns(op, "sinks", self.sinks.into()).map(|_| ())
    }
}

/// The integers of a ring, as other systems store them: enough to resume one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Positions {
    /// The window.
    pub max_size: u32,
    /// The position of each row's next column.
    pub offsets: Vec<Pos>,
    /// How many temporal columns of each row, from the oldest, hold no token of it. Negative is the same as 0.
    pub left_pad: Vec<i32>,
    /// The column the next token goes to.
    pub ring_index: u32,
    /// How many columns were ever appended.
    pub total_offset: u32,
    /// Whether the head has gone back to the first column.
    pub rotated: bool,
    /// The position each row ends at, while right padding is pending.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub prefill_ends: Option<Vec<Pos>>,
}

/// The state of a group of rows that share a ring.
///
/// ```
/// use annulus_plan::{ColumnOp, Col, Growth, Mask, Ring, Source, Window};
///
/// // Two rows of 4 and 2 tokens in a window of 4; the ring is full.
/// let group = Ring::merge(Window::of(4), Growth::default(), &[Source::whole(4), Source::whole(2)])?.next;
/// let step = group.append(1)?;
/// // The head goes back to column 0. Nothing moves, and row 1 still has padding to hide.
/// assert_eq!(step.ops, [ColumnOp::Write { at: Col(0), columns: 1 }]);
/// assert!(matches!(step.mask, Mask::Runs(_)));
/// // One step later every column is visible to every row.
/// let step = step.next.append(1)?;
/// assert_eq!(step.mask, Mask::None);
/// assert_eq!(step.moved, 0);
/// # Ok::<(), annulus_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    window: Window,
    growth: Growth,
    offsets: Vec<Pos>,
    left_pad: Vec<u32>,
    ring_index: u32,
    total: u32,
    rotated: bool,
    /// Columns of the planes, pinned ones included; 0 while there are no planes.
    columns: u32,
    /// Ring columns that were there when the round began and are still needed for its rollback.
    base: u32,
    phase: Phase,
}

impl Ring {
    /// A group of `rows` empty rows.
    pub fn empty(window: Window, growth: Growth, rows: usize) -> Result<Self, Error> {
        row_count("empty", "rows", rows)?;
        let ring = Self::new("empty", window, growth)?;
        Ok(Self { offsets: vec![Pos(0); rows], left_pad: vec![0; rows], ..ring })
    }

    fn new(op: &'static str, window: Window, growth: Growth) -> Result<Self, Error> {
        window.check(op)?;
        let (offsets, left_pad, phase) = (Vec::new(), Vec::new(), Phase::Decode);
        Ok(Self {
            window,
            growth,
            offsets,
            left_pad,
            ring_index: 0,
            total: 0,
            rotated: false,
            columns: 0,
            base: 0,
            phase,
        })
    }

    /// A group of stored rows. A single one keeps its buffers.
    pub fn merge(window: Window, growth: Growth, sources: &[Source]) -> Result<Move<Self>, Error> {
        Self::new("merge", window, growth)?.join("merge", sources)
    }

    /// A group that stands anywhere: positions and the capacity of its planes, pinned columns included.
    pub fn adopt(window: Window, growth: Growth, at: &Positions, capacity: u32) -> Result<Self, Error> {
        let op = "adopt";
        let mut ring = Self::new(op, window, growth)?;
        let impossible =
            |field, got: u32, want: u32| Error::Impossible { op, field, got: got.into(), want: want.into() };
        columns(op, "cells", capacity.into())?;
        columns(op, "total_offset", at.total_offset.into())?;
        let (left_pad, phase) = rows::adopted(&at.offsets, &at.left_pad, at.prefill_ends.as_deref())?;
        let (pinned, span) = (window.sinks, window.span());
        let held = if capacity == 0 {
            0
        } else {
            capacity.checked_sub(pinned).ok_or(impossible("cells", capacity, pinned))?
        };
        if at.max_size != window.size {
            return Err(impossible("max_size", at.max_size, window.size));
        }
        if at.rotated && held != span {
            return Err(impossible("cells", held, span));
        }
        if at.ring_index > held || (!at.rotated && held > span && at.ring_index != held) {
            return Err(impossible("ring_index", at.ring_index, held));
        }
        let active = if at.rotated { span } else { at.ring_index };
        if at.total_offset < active.min(span) {
            return Err(impossible("total_offset", at.total_offset, active));
        }
        (ring.offsets, ring.left_pad, ring.phase) = (at.offsets.clone(), left_pad, phase);
        (ring.ring_index, ring.total, ring.rotated, ring.columns) =
            (at.ring_index, at.total_offset, at.rotated, capacity);
        Ok(ring)
    }

    /// The integers of the ring.
    #[must_use]
    pub fn positions(&self) -> Positions {
        Positions {
            max_size: self.window.size,
            offsets: self.offsets.clone(),
            left_pad: self.left_pad.iter().map(|&p| i32::try_from(p).unwrap_or(i32::MAX)).collect(),
            ring_index: self.ring_index,
            total_offset: self.total,
            rotated: self.rotated,
            prefill_ends: self.phase.prefill_ends().map(<[Pos]>::to_vec),
        }
    }

    /// How many rows the group has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.offsets.len()
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// The position of each row's next column.
    #[must_use]
    pub fn offsets(&self) -> &[Pos] {
        &self.offsets
    }

    /// How many temporal columns of each row, from the oldest, hold no token of it: exact, after any roll.
    #[must_use]
    pub fn left_pad(&self) -> &[u32] {
        &self.left_pad
    }

    /// What the next append is part of.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The ring column that a single next token goes to; equal to [`active`](Self::active) when it must grow or go back first.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.ring_index
    }

    /// How many columns were ever appended.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Whether the head has gone back to the first column.
    #[must_use]
    pub fn rotated(&self) -> bool {
        self.rotated
    }

    /// A: how many ring columns are in use.
    #[must_use]
    pub fn active(&self) -> u32 {
        if self.rotated { self.window.span() } else { self.ring_index }
    }

    /// Where the oldest ring column lies, counted from the first ring column.
    #[must_use]
    pub fn rotation(&self) -> u32 {
        if self.rotated && self.ring_index < self.window.span() { self.ring_index } else { 0 }
    }

    /// How many columns the planes have, pinned and spare ones included; 0 while there are no planes.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.columns
    }

    /// How many columns on the left of the planes are pinned.
    #[must_use]
    pub fn pinned(&self) -> u32 {
        self.window.sinks
    }

    /// The physical column that a single next token goes to; absent when the planes must grow for it.
    #[must_use]
    pub fn next_column(&self) -> Option<u32> {
        let (pinned, span) = (self.pinned(), self.window.span());
        let at = if self.ring_index >= span { 0 } else { self.ring_index };
        (self.columns > pinned + at).then_some(pinned + at)
    }

    /// How many temporal columns, from the oldest, the next append drops or overwrites.
    #[must_use]
    pub fn dropped_next(&self) -> u32 {
        let base = if matches!(self.phase, Phase::Round(_)) { self.base } else { self.active() };
        base.saturating_sub(self.window.span() - 1)
    }

    /// Where temporal columns lie in the planes: one or two ranges, oldest first.
    #[must_use]
    pub fn physical(&self, temporal: Columns) -> [Columns; 2] {
        turned(temporal, self.rotation(), self.active()).map(
            |c| {
                if c.is_empty() { c } else { c.shifted(self.pinned()) }
            },
        )
    }

    /// The temporal columns of a row that hold its newest tokens, at most `limit`; padding on neither side.
    #[must_use]
    pub fn live(&self, row: usize, limit: u32) -> Columns {
        let (Some(&o), Some(&pad)) = (self.offsets.get(row), self.left_pad.get(row)) else {
            return Columns::default();
        };
        let trailing = u32::try_from(o.wide() - self.phase.valid(row, o).wide()).unwrap_or(0);
        let end = self.active().saturating_sub(trailing);
        Columns::new(pad.max(end.saturating_sub(limit)).min(end), end)
    }

    /// Starts a padded prefill.
    pub fn prepare(&self, padding: Padding<'_>) -> Result<Move<Self>, Error> {
        self.phase.idle("prepare")?;
        let prepared = Prefill::plan(padding, &self.offsets)?;
        let left_pad = rows::padded("prepare", &self.left_pad, padding.left)?;
        let phase = Phase::Prefill(prepared.prefill);
        Ok(self.still(Self { offsets: prepared.offsets, left_pad, phase, ..self.clone() }))
    }

    /// Writes `n` columns for every row.
    pub fn append(&self, n: u32) -> Result<Step<Self>, Error> {
        self.write(n, None)
    }

    /// Writes `n` columns for every row of a round, of which only the first `real[r]` of row `r` are tokens.
    pub fn append_ragged(&self, n: u32, real: &[u32]) -> Result<Step<Self>, Error> {
        self.write(n, Some(real))
    }

    fn write(&self, n: u32, real: Option<&[u32]>) -> Result<Step<Self>, Error> {
        let op = "append";
        rows::appendable(self.rows(), n)?;
        let phase = self.phase.append(n, real, self.rows())?;
        columns(op, "tokens", i64::from(self.active()) + i64::from(n) + i64::from(self.pinned()))?;
        let offsets = rows::advanced(&self.offsets, n)?;
        let total = self.total.saturating_add(n);
        let mut next = Self { offsets, left_pad: self.left_pad.clone(), total, phase, ..*self };
        let mut ops = Vec::with_capacity(1);
        let view =
            if self.blocks(n.into()) { self.block(n, &mut next, &mut ops) } else { self.in_place(&mut next, &mut ops) };
        self.pin(n, &mut ops);
        let moved = moved(&ops, self.shape());
        let (fetch, mask) = self.attend(n, view);
        Ok(Step { ops, next, fetch, rope: Rope::of(&self.offsets), mask, moved })
    }

    /// What is fetched for `n` queries a row, and what of it each may see.
    fn attend(&self, n: u32, view: View) -> (Columns, Mask) {
        let (pinned, span) = (self.pinned(), self.window.span());
        let View { ring, rotation, head, dropped } = view;
        let rows = self.left_pad.iter().zip(&self.offsets).map(move |(&pad, o)| RowRun {
            start: pad.saturating_sub(dropped),
            head,
            origin: o.0.saturating_sub_unsigned(head),
        });
        // A query sees those pinned columns that are older than what it sees of the ring: the newest query the most of them.
        let oldest = (head + n).saturating_sub(span);
        let wanted = pinned > 0 && rows.clone().any(|r| r.origin.saturating_add_unsigned(r.start.max(oldest)) > 0);
        let (from, pinned) = if wanted { (0, pinned) } else { (pinned, 0) };
        let runs = Runs { queries: n, pinned, ring, rotation, window: Some(span), rows: Vec::new() };
        (Columns::new(from, self.pinned() + ring), Mask::shortest(runs, rows))
    }

    /// Whether `n` columns are written behind the others, rather than where the head stands.
    pub(crate) fn blocks(&self, n: i64) -> bool {
        n != 1 || self.phase.blocks()
    }

    /// One column, written where the head stands.
    fn in_place(&self, next: &mut Self, ops: &mut Vec<ColumnOp>) -> View {
        let (pinned, span) = (self.pinned(), self.window.span());
        let mut dropped = 0;
        let held = self.columns.saturating_sub(pinned);
        if held > span {
            // A block left the planes wider than the window: only the newest columns stay.
            let over = held - span;
            let mut ranges = Vec::with_capacity(2);
            ranges.extend((pinned > 0).then_some(Columns::new(0, pinned)));
            ranges.push(Columns::new(pinned + over, self.columns));
            ops.push(ColumnOp::Slice { ranges });
            dropped += over;
            (next.columns, next.ring_index) = (pinned + span, span);
        } else if self.ring_index >= held && held < span {
            let wanted = if self.columns == 0 { self.growth.reserve.max(self.growth.step) } else { self.growth.step };
            let more = wanted.max(1).min(span - held);
            let anew = if self.columns == 0 { pinned } else { 0 };
            ops.push(ColumnOp::Grow { columns: anew + more });
            next.columns = pinned + held + more;
        }
        if next.ring_index == span {
            (next.rotated, next.ring_index) = (true, 0);
        }
        dropped += u32::from(next.rotated);
        next.drop_oldest(dropped);
        ops.push(ColumnOp::Write { at: Col(pinned + next.ring_index), columns: 1 });
        next.ring_index += 1;
        let ring = next.active();
        View { ring, rotation: next.rotation(), head: ring - 1, dropped }
    }

    /// Columns that go behind the newest of those in use.
    fn block(&self, n: u32, next: &mut Self, ops: &mut Vec<ColumnOp>) -> View {
        let (pinned, span, active) = (self.pinned(), self.window.span(), self.active());
        let base = if matches!(self.phase, Phase::Round(_)) { self.base } else { active };
        let cut = base.saturating_sub(span - 1);
        let kept = active - cut;
        let rolls = self.phase.rolls(&self.offsets);
        if let Some(shifts) = &rolls {
            self.keep(ops, Columns::new(0, active), self.columns.max(pinned + active));
            ops.push(ColumnOp::Roll { over: Columns::new(pinned, pinned + active), shifts: shifts.clone() });
            let straight = Self { rotated: false, ring_index: active, columns: pinned + active, ..self.clone() };
            straight.keep(ops, Columns::new(cut, active), pinned + active);
        }
        let room = self.columns.saturating_sub(pinned + active);
        let reserve = self.growth.reserve.min(span);
        if rolls.is_none() && cut == 0 && !self.rotated && room >= n {
            ops.push(ColumnOp::Write { at: Col(pinned + active), columns: n });
            next.columns = self.columns;
        } else if self.columns == 0 && reserve > n {
            ops.push(ColumnOp::Grow { columns: pinned + reserve });
            ops.push(ColumnOp::Write { at: Col(pinned), columns: n });
            next.columns = pinned + reserve;
        } else {
            if self.columns == 0 && pinned > 0 {
                ops.push(ColumnOp::Grow { columns: pinned });
            } else if rolls.is_none() {
                self.keep(ops, Columns::new(cut, active), self.columns);
            }
            ops.push(ColumnOp::Concat { columns: n });
            next.columns = pinned + kept + n;
        }
        next.roll(rolls.as_deref());
        next.drop_oldest(cut);
        let base = if matches!(self.phase, Phase::Round(_)) { base - cut } else { 0 };
        (next.ring_index, next.rotated, next.base) = (kept + n, false, base);
        // Rows that roll are past their end, so their queries are padding: their mask is planned as if they had not rolled.
        View { ring: kept + n, rotation: 0, head: kept, dropped: cut }
    }

    /// Copies incoming tokens whose positions are sinks to the pinned columns.
    fn pin(&self, n: u32, ops: &mut Vec<ColumnOp>) {
        let sinks = i64::from(self.pinned());
        let mut runs = Vec::new();
        for (row, o) in self.offsets.iter().enumerate().filter(|(_, o)| o.wide() < sinks) {
            let from = (-o.wide()).max(0);
            let to = (sinks - o.wide()).min(n.into());
            if from < to {
                let at = Col((o.wide() + from) as u32);
                runs.push(PinRun { row: Row(row as u32), incoming: Columns::new(from as u32, to as u32), at });
            }
        }
        if !runs.is_empty() {
            ops.push(ColumnOp::Pin { runs });
        }
    }

    /// Ends a padded prefill: trailing padding is rolled to the front.
    pub fn finalize(&self) -> Result<Move<Self>, Error> {
        let mut next = self.clone();
        if let Phase::Prefill(_) = self.phase {
            next.phase = Phase::Decode;
            rows::forget_unwritten(&mut next.offsets, &mut next.left_pad);
        }
        let Some(shifts) = self.phase.rolls(&self.offsets) else {
            return Ok(self.still(next));
        };
        let ops = next.roll_all(shifts);
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Keeps these rows, in this order. The columns stay, also those that only the others used.
    pub fn filter(&self, keep: &[Row]) -> Result<Move<Self>, Error> {
        rows::check_keep(keep, self.rows())?;
        let (offsets, left_pad) = (rows::pick(&self.offsets, keep), rows::pick(&self.left_pad, keep));
        let mut next = Self { offsets, left_pad, phase: self.phase.select(keep), ..self.clone() };
        if keep.is_empty() {
            (next.ring_index, next.total, next.rotated, next.columns, next.base) = (0, 0, false, 0, 0);
        }
        let same = rows::is_identity(keep, self.rows());
        let ops = if same { Vec::new() } else { vec![ColumnOp::TakeRows { rows: keep.to_vec() }] };
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Adds stored rows below the others.
    pub fn extend(&self, sources: &[Source]) -> Result<Move<Self>, Error> {
        self.phase.idle("extend")?;
        self.join("extend", sources)
    }

    fn join(&self, op: &'static str, sources: &[Source]) -> Result<Move<Self>, Error> {
        row_count(op, "rows", self.rows() + sources.len())?;
        let (pinned, span, active) = (self.pinned(), self.window.span(), self.active());
        let mut parts = Vec::with_capacity(sources.len());
        let (mut newest, mut total) = (0, self.total);
        for (row, s) in sources.iter().enumerate() {
            rows::check_source(op, row, s)?;
            let part = Joining::of(op, row, s, self.window)?;
            newest = newest.max(part.ring.len());
            total = total.max(s.columns.min(self.window.size));
            parts.push(part);
        }
        let width = active.max(newest);
        let mut next = self.clone();
        next.left_pad.iter_mut().for_each(|pad| *pad += width - active);
        for (s, part) in sources.iter().zip(&parts) {
            next.offsets.push(s.offset);
            next.left_pad.push(width - part.ring.len());
        }
        (next.ring_index, next.total, next.rotated) = (width, total, false);
        let mut ops = Vec::new();
        if let ([only], [part], 0, 0) = (sources, parts.as_slice(), self.rows(), pinned)
            && part.ring.from == 0
            && only.capacity > 0
        {
            next.columns = only.capacity.min(span.max(part.ring.len()));
            ops.push(ColumnOp::Join { rows: vec![vec![Piece::Source(Columns::new(0, next.columns))]] });
            return Ok(Move::new(ops, next, self.shape()));
        }
        // There are planes as soon as any row has something to keep in them, be it only sinks.
        let planes = self.columns > 0 || width > 0 || parts.iter().any(|p| !p.pins.is_empty());
        next.columns = if planes { pinned + width } else { 0 };
        if self.columns > 0 && next.columns == 0 {
            ops.push(ColumnOp::Slice { ranges: Vec::new() });
        } else if self.rotated {
            self.keep(&mut ops, Columns::new(0, active), self.columns);
            rows::widen(&mut ops, pinned + active, active, width, pinned);
        } else if self.rows() > 0 && planes {
            rows::widen(&mut ops, self.columns, active, width, pinned);
        }
        if next.columns > 0 && !parts.is_empty() {
            ops.push(ColumnOp::Join { rows: parts.iter().map(|p| p.pieces(pinned, width)).collect() });
        }
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Copies one row out: its newest `limit` tokens, by default a window of them. Sinks are always among them.
    pub fn extract(&self, row: Row, limit: Option<u32>) -> Result<Extract, Error> {
        let op = "extract";
        rows::check_row(op, row, self.rows())?;
        let limit = limit.unwrap_or(self.window.size);
        let Some(recent) = limit.checked_sub(self.pinned()) else {
            let (low, high) = (self.pinned().into(), u32::MAX.into());
            return Err(Error::OutOfRange { op, field: "limit", row: None, got: limit.into(), low, high });
        };
        let offset = Pos(self.phase.valid(row.index(), self.offsets[row.index()]).0.max(0));
        let [pins, a, b] = self.held(row.index(), recent);
        let held = pins.len() + a.len() + b.len();
        let ranges = [pins, a, b].into_iter().filter(|c| !c.is_empty()).collect();
        let source = Source { columns: held, capacity: held, offset, pinned: pins.len() };
        Ok(Extract { ops: vec![ColumnOp::CopyRow { row, ranges }], source })
    }

    /// The physical columns of the tokens a row still holds, oldest first: pinned ones, then at most `recent` of the ring.
    #[must_use]
    pub fn held(&self, row: usize, recent: u32) -> [Columns; 3] {
        let live = self.live(row, recent);
        let [a, b] = self.physical(live);
        let valid = self.offsets.get(row).map_or(0, |&o| self.phase.valid(row, o).wide());
        let older = (valid - i64::from(live.len())).clamp(0, i64::from(self.pinned()));
        let pins = if self.columns == 0 { 0 } else { older as u32 };
        [Columns::new(0, pins), a, b]
    }

    /// Drops the newest `n` tokens of every row, while none has been dropped at the other end.
    pub fn trim(&self, n: u32) -> Result<Move<Self>, Error> {
        let op = "trim";
        self.phase.idle(op)?;
        if self.total >= self.window.size {
            return Err(Error::Turned { op, field: "n", total: self.total, window: self.window.size });
        }
        let offsets = rows::trimmed(&self.offsets, n)?;
        let active = self.active();
        let kept = active.saturating_sub(n);
        let mut next = Self { offsets, ring_index: kept, total: self.total.saturating_sub(n), ..self.clone() };
        // A row that came back short may hold fewer tokens than go.
        next.left_pad.iter_mut().for_each(|pad| *pad = (*pad).min(kept));
        let mut ops = Vec::new();
        // Only a ring with sinks can have turned here: what it lost is pinned.
        if self.rotated || self.columns > self.pinned() + self.window.span() {
            self.keep(&mut ops, Columns::new(0, kept), self.columns);
            (next.rotated, next.columns) = (false, self.pinned() + kept);
        }
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Begins a round: until it ends, nothing that a rollback needs is dropped.
    pub fn round_begin(&self) -> Result<Move<Self>, Error> {
        let phase = self.phase.begin(&self.offsets)?;
        Ok(self.still(Self { phase, base: self.active(), ..self.clone() }))
    }

    /// Ends a round that keeps every token.
    pub fn round_commit(&self) -> Result<Move<Self>, Error> {
        self.phase.commit()?;
        Ok(self.still(Self { phase: Phase::Decode, base: 0, ..self.clone() }))
    }

    /// Ends a round of which each row keeps its first `keep[r]` tokens.
    ///
    /// A single row whose ring has not turned moves its head back. Otherwise each row is rolled right by what it rejects, which
    /// makes the rejected columns padding on the left: the columns of the group stay where its rows agree on them.
    pub fn round_rollback(&self, keep: &[u32]) -> Result<Move<Self>, Error> {
        let shifts = self.phase.rejected(keep)?;
        let mut next = Self { phase: Phase::Decode, base: 0, ..self.clone() };
        if let ([shift], true) = (shifts.as_slice(), self.total < self.window.span()) {
            next.offsets[0] = Pos(next.offsets[0].0.saturating_sub_unsigned(*shift));
            next.total = next.total.saturating_sub(*shift);
            next.ring_index = next.ring_index.saturating_sub(*shift);
            return Ok(self.still(next));
        }
        if shifts.iter().all(|&s| s == 0) {
            return Ok(self.still(next));
        }
        let ops = next.roll_all(shifts);
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Rolls the columns in use, brought to temporal order first.
    fn roll_all(&mut self, shifts: Vec<u32>) -> Vec<ColumnOp> {
        let (pinned, active) = (self.pinned(), self.active());
        let mut ops = Vec::with_capacity(1);
        if self.rotated {
            self.keep(&mut ops, Columns::new(0, active), self.columns);
            (self.rotated, self.ring_index) = (false, active);
        }
        self.roll(Some(&shifts));
        ops.push(ColumnOp::Roll { over: Columns::new(pinned, pinned + active), shifts });
        ops
    }

    /// The integers of a roll: what leaves on the right becomes padding on the left.
    fn roll(&mut self, shifts: Option<&[u32]>) {
        let Some(shifts) = shifts else { return };
        for ((o, pad), &shift) in self.offsets.iter_mut().zip(&mut self.left_pad).zip(shifts) {
            *o = Pos(o.0.saturating_sub_unsigned(shift));
            *pad = pad.saturating_add(shift);
        }
    }

    fn drop_oldest(&mut self, n: u32) {
        self.left_pad.iter_mut().for_each(|pad| *pad = pad.saturating_sub(n));
    }

    /// Keeps the pinned columns and these temporal ones of planes of `capacity` columns, in temporal order.
    fn keep(&self, ops: &mut Vec<ColumnOp>, temporal: Columns, capacity: u32) {
        let pins = Columns::new(0, self.pinned());
        let mut ranges: Vec<Columns> =
            [pins].into_iter().chain(self.physical(temporal)).filter(|c| !c.is_empty()).collect();
        // Neighbours are one range.
        if let [a, b, ..] = ranges.as_slice()
            && a.to == b.from
        {
            ranges.splice(0..2, [Columns::new(a.from, b.to)]);
        }
        if ranges != [Columns::new(0, capacity)] && capacity > 0 {
            ops.push(ColumnOp::Slice { ranges });
        }
    }

    fn shape(&self) -> Shape {
        Shape { rows: self.rows() as u32, columns: self.columns }
    }

    fn still(&self, next: Self) -> Move<Self> {
        Move { ops: Vec::new(), next, moved: 0 }
    }
}

/// The ring columns after a write, as the mask needs to know them.
#[derive(Clone, Copy)]
struct View {
    /// How many there are.
    ring: u32,
    /// Where the oldest lies.
    rotation: u32,
    /// The temporal column of the first query's own key.
    head: u32,
    /// How many of the oldest were dropped.
    dropped: u32,
}

/// What a stored row brings into a ring.
struct Joining {
    /// Its columns that are sinks.
    pins: Columns,
    /// Its columns that go to the ring: the newest.
    ring: Columns,
}

impl Joining {
    fn of(op: &'static str, row: usize, s: &Source, window: Window) -> Result<Self, Error> {
        let offset = u32::try_from(s.offset.0).unwrap_or(0);
        // Without a gap between its first and its newest columns the row is one run.
        let gap = s.pinned > 0 && offset > s.columns;
        let run = if gap { s.columns - s.pinned } else { s.columns };
        let ring = Columns::new(s.columns - run.min(window.span()), s.columns);
        let sinks = window.sinks.min(offset);
        let first = if gap {
            s.pinned
        } else if offset == s.columns {
            s.columns
        } else {
            0
        };
        if first < sinks {
            return Err(Error::NoSinks { op, field: "rows", row, sinks });
        }
        Ok(Self { pins: Columns::new(0, sinks), ring })
    }

    fn pieces(&self, pinned: u32, width: u32) -> Vec<Piece> {
        let pieces = [
            Piece::Source(self.pins),
            Piece::Empty(pinned - self.pins.len()),
            Piece::Empty(width - self.ring.len()),
            Piece::Source(self.ring),
        ];
        pieces.into_iter().filter(|p| !p.is_empty()).collect()
    }
}
