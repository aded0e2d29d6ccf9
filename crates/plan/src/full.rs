//! Full attention: columns only grow, and each row ends at a column of its own.

use crate::Error;
use crate::column::{ColumnOp, Piece, Shape};
use crate::donor::{Capture, Donor};
use crate::mask::{Mask, RowRun, Runs};
use crate::phase::{Phase, Prefill};
use crate::rows;
use crate::step::{Extract, Growth, Move, Padding, Rope, Source, Step};
use crate::units::{Col, Columns, Pos, Row, columns, row_count};

/// The state of a group of rows under full attention.
///
/// Row `r` has `left_pad[r]` empty columns, then its tokens, and the next one goes to column `left_pad[r] + offset`: its *end*.
/// A rejected draft is forgotten by moving the end back; nothing else moves, and the next append writes over it.
///
/// ```text
/// column      0    1    2    3    4    5
/// row 0       .    .    a0   a1   x         left_pad 2, offset 2, end 4; x was rejected
/// row 1       b0   b1   b2   b3   b4        left_pad 0, offset 5, end 5
/// ```
///
/// When all ends agree an append is one contiguous write, otherwise each row is written where it ends.
///
/// ```
/// use annulus_plan::{Full, Growth, Source};
///
/// let group = Full::merge(Growth::default(), &[Source::whole(2), Source::whole(5)])?.next;
/// let step = group.append(1)?;
/// assert_eq!(step.rope.row(0).map(|p| p.0), Some(2));
/// assert_eq!(step.fetch.len(), 6);
/// # Ok::<(), annulus_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Full {
    offsets: Vec<Pos>,
    left_pad: Vec<u32>,
    capacity: u32,
    growth: Growth,
    phase: Phase,
}

impl Full {
    /// A group of `rows` empty rows.
    pub fn empty(growth: Growth, rows: usize) -> Result<Self, Error> {
        row_count("empty", "rows", rows)?;
        Ok(Self { offsets: vec![Pos(0); rows], left_pad: vec![0; rows], growth, ..Self::default() })
    }

    /// A group of stored rows. A single one keeps its buffers, spare columns included.
    pub fn merge(growth: Growth, sources: &[Source]) -> Result<Move<Self>, Error> {
        Self { growth, ..Self::default() }.join("merge", sources)
    }

    /// A group that stands anywhere: positions and the capacity of its planes.
    pub fn adopt(
        growth: Growth,
        offsets: &[Pos],
        left_pad: &[i32],
        prefill_ends: Option<&[Pos]>,
        capacity: u32,
    ) -> Result<Self, Error> {
        let op = "adopt";
        let (left_pad, phase) = rows::adopted(offsets, left_pad, prefill_ends)?;
        let full = Self {
            offsets: offsets.to_vec(),
            left_pad,
            capacity: columns(op, "cells", capacity.into())?,
            growth,
            phase,
        };
        for (row, (o, &pad)) in full.offsets.iter().zip(&full.left_pad).enumerate() {
            let end = o.wide() + i64::from(pad);
            if !(0..=i64::from(capacity)).contains(&end) {
                let high = capacity.into();
                return Err(Error::OutOfRange { op, field: "offsets", row: Some(row), got: end, low: 0, high });
            }
        }
        Ok(full)
    }

    /// How many rows the group has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.offsets.len()
    }

    /// The position of each row's next column.
    #[must_use]
    pub fn offsets(&self) -> &[Pos] {
        &self.offsets
    }

    /// How many columns of each row, on the left, hold no token of it.
    #[must_use]
    pub fn left_pad(&self) -> &[u32] {
        &self.left_pad
    }

    /// What the next append is part of.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// How many columns the planes have, spare ones included; 0 while there are no planes.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The column that a row's next token goes to.
    #[must_use]
    pub fn end(&self, row: usize) -> Option<Col> {
        let (o, pad) = (self.offsets.get(row)?, self.left_pad.get(row)?);
        Some(Col(u32::try_from(o.wide() + i64::from(*pad)).unwrap_or(0)))
    }

    /// The largest end of a row.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.ends().max().unwrap_or(0)
    }

    /// Where a row's tokens lie, oldest first: from its left padding to the newest token, trailing padding left out.
    #[must_use]
    pub fn live(&self, row: usize) -> Columns {
        let (Some(&o), Some(&pad)) = (self.offsets.get(row), self.left_pad.get(row)) else {
            return Columns::default();
        };
        let held = u32::try_from(self.phase.valid(row, o).0).unwrap_or(0);
        Columns::new(pad, pad.saturating_add(held))
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
        let needed = columns(op, "tokens", i64::from(self.width()) + i64::from(n))?;
        let offsets = rows::advanced(&self.offsets, n)?;
        let mut ops = Vec::with_capacity(1);
        let capacity = self.grown(needed);
        if capacity > self.capacity {
            ops.push(ColumnOp::Grow { columns: capacity - self.capacity });
        }
        let first = self.ends().next().unwrap_or(0);
        ops.push(if self.ends().all(|end| end == first) {
            ColumnOp::Write { at: Col(first), columns: n }
        } else {
            ColumnOp::Scatter { starts: self.ends().map(Col).collect(), columns: n }
        });
        let next = Self { offsets, left_pad: self.left_pad.clone(), capacity, growth: self.growth, phase };
        let moved = crate::column::moved(&ops, self.shape());
        let run = |((o, &pad), head): ((&Pos, &u32), u32)| RowRun {
            start: pad,
            head,
            origin: o.0.saturating_sub_unsigned(head),
        };
        let runs = Runs { queries: n, pinned: 0, ring: needed, rotation: 0, window: None, rows: Vec::new() };
        let mask = Mask::shortest(runs, self.offsets.iter().zip(&self.left_pad).zip(self.ends()).map(run));
        Ok(Step { ops, next, fetch: Columns::new(0, needed), rope: Rope::of(&self.offsets), mask, moved })
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
        rows::roll(&mut next.offsets, &mut next.left_pad, &shifts);
        let over = Columns::new(0, self.width());
        Ok(Move::new(vec![ColumnOp::Roll { over, shifts }], next, self.shape()))
    }

    /// Keeps these rows, in this order, and drops the left padding that all of them share.
    pub fn filter(&self, keep: &[Row]) -> Result<Move<Self>, Error> {
        rows::check_keep(keep, self.rows())?;
        let mut next = Self {
            offsets: rows::pick(&self.offsets, keep),
            left_pad: rows::pick(&self.left_pad, keep),
            phase: self.phase.select(keep),
            ..self.clone()
        };
        let mut ops = Vec::new();
        if !rows::is_identity(keep, self.rows()) {
            ops.push(ColumnOp::TakeRows { rows: keep.to_vec() });
        }
        if keep.is_empty() {
            next.capacity = 0;
        }
        // Only columns that were written can go: a row inside its left padding ends before the padding does.
        let shared = next.left_pad.iter().zip(next.ends()).map(|(&pad, end)| pad.min(end)).min().unwrap_or(0);
        if shared > 0 {
            ops.push(ColumnOp::Slice { ranges: vec![Columns::new(shared, next.capacity)] });
            next.capacity = next.capacity.saturating_sub(shared);
            next.left_pad.iter_mut().for_each(|pad| *pad -= shared);
        }
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Adds stored rows below the others. A row that lacks its oldest tokens is refused: every query would need them.
    pub fn extend(&self, sources: &[Source]) -> Result<Move<Self>, Error> {
        self.phase.idle("extend")?;
        self.join("extend", sources)
    }

    fn join(&self, op: &'static str, sources: &[Source]) -> Result<Move<Self>, Error> {
        row_count(op, "rows", self.rows() + sources.len())?;
        let old = self.width();
        let mut width = old;
        for (row, s) in sources.iter().enumerate() {
            rows::check_source(op, row, s)?;
            if i64::from(s.columns) != s.offset.wide() {
                return Err(Error::Partial { op, field: "rows", row, held: s.columns, offset: s.offset.0 });
            }
            width = width.max(s.columns);
        }
        let mut next = self.clone();
        next.left_pad.iter_mut().for_each(|pad| *pad += width - old);
        for s in sources {
            next.offsets.push(s.offset);
            next.left_pad.push(width - s.columns);
        }
        let mut ops = Vec::new();
        next.capacity = width;
        if let ([only], 0) = (sources, self.rows()) {
            next.capacity = only.capacity;
            if only.capacity > 0 {
                ops.push(ColumnOp::Join { rows: vec![vec![Piece::Source(Columns::new(0, only.capacity))]] });
            }
            return Ok(Move::new(ops, next, self.shape()));
        }
        if sources.is_empty() {
            next.capacity = self.capacity;
            return Ok(self.still(next));
        }
        if width == 0 {
            if self.capacity > 0 {
                ops.push(ColumnOp::Slice { ranges: Vec::new() });
            }
            return Ok(Move::new(ops, next, self.shape()));
        }
        if self.rows() > 0 {
            rows::widen(&mut ops, self.capacity, old, width, 0);
        }
        let pieces = |s: &Source| vec![Piece::Empty(width - s.columns), Piece::Source(Columns::new(0, s.columns))];
        ops.push(ColumnOp::Join { rows: sources.iter().map(pieces).collect() });
        Ok(Move::new(ops, next, self.shape()))
    }

    /// Copies one row out: its newest `limit` tokens, or all of them.
    pub fn extract(&self, row: Row, limit: Option<u32>) -> Result<Extract, Error> {
        rows::check_row("extract", row, self.rows())?;
        let live = self.live(row.index());
        let held = live.len().min(limit.unwrap_or(u32::MAX));
        let ranges = vec![Columns::new(live.to - held, live.to)];
        let next = self.offsets.get(row.index()).map_or(0, |&o| self.phase.valid(row.index(), o).0);
        let source = Source { columns: held, capacity: held, offset: Pos(next.max(0)), pinned: 0 };
        Ok(Extract { ops: vec![ColumnOp::CopyRow { row, ranges }], source })
    }

    /// Copies every column in use out, for a reader that goes on while the group changes.
    pub fn donor(&self) -> Capture {
        let width = self.width();
        // Left padding that was declared and not written yet lies beyond the columns in use.
        let live = |row: usize| {
            let live = self.live(row);
            Columns::new(live.from.min(width), live.to.min(width))
        };
        let valid = |(row, &o): (usize, &Pos)| self.phase.valid(row, o).max(Pos(0));
        let donor = Donor {
            offsets: self.offsets.iter().enumerate().map(valid).collect(),
            starts: (0..self.rows()).map(|row| live(row).from).collect(),
            ends: (0..self.rows()).map(|row| live(row).to).collect(),
            width,
            pinned: 0,
        };
        Capture::new([Columns::new(0, width)], donor, self.shape())
    }

    /// Drops the newest `n` tokens of every row. Nothing moves.
    pub fn trim(&self, n: u32) -> Result<Move<Self>, Error> {
        self.phase.idle("trim")?;
        let offsets = rows::trimmed(&self.offsets, n)?;
        Ok(self.still(Self { offsets, ..self.clone() }))
    }

    /// Begins a round.
    pub fn round_begin(&self) -> Result<Move<Self>, Error> {
        Ok(self.still(Self { phase: self.phase.begin(&self.offsets)?, ..self.clone() }))
    }

    /// Ends a round that keeps every token.
    pub fn round_commit(&self) -> Result<Move<Self>, Error> {
        self.phase.commit()?;
        Ok(self.still(Self { phase: Phase::Decode, ..self.clone() }))
    }

    /// Ends a round of which each row keeps its first `keep[r]` tokens. Nothing moves.
    pub fn round_rollback(&self, keep: &[u32]) -> Result<Move<Self>, Error> {
        let rejected = self.phase.rejected(keep)?;
        let mut next = Self { phase: Phase::Decode, ..self.clone() };
        for (o, n) in next.offsets.iter_mut().zip(rejected) {
            *o = Pos(o.0.saturating_sub_unsigned(n));
        }
        Ok(self.still(next))
    }

    fn ends(&self) -> impl Iterator<Item = u32> + Clone {
        let end = |(o, &pad): (&Pos, &u32)| u32::try_from(o.wide() + i64::from(pad)).unwrap_or(0);
        self.offsets.iter().zip(&self.left_pad).map(end)
    }

    fn grown(&self, needed: u32) -> u32 {
        if needed <= self.capacity {
            return self.capacity;
        }
        let step = self.growth.step.max(1);
        let target = needed.div_ceil(step).saturating_mul(step);
        let reserved = if self.capacity == 0 { self.growth.reserve } else { 0 };
        target.max(reserved).min(crate::MAX_COLUMNS).max(needed)
    }

    fn shape(&self) -> Shape {
        Shape { rows: self.rows() as u32, columns: self.capacity }
    }

    fn still(&self, next: Self) -> Move<Self> {
        Move { ops: Vec::new(), next, moved: 0 }
    }
}
