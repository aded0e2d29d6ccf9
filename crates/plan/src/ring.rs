//! The ring: a sliding window of W columns whose write head all rows share.

mod append;
mod members;
mod undo;
mod window;

pub use window::Window;

use crate::Error;
use crate::column::{ColumnOp, Shape};
use crate::mask::turned;
use crate::phase::Phase;
use crate::rows;
use crate::step::{Growth, Move, Source};
use crate::units::{Columns, Pos, columns, row_count};

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
/// While the ring is not full its columns lie in the order of time. Then the head goes back to column 0, and each decode step
/// writes over the oldest column, the same for every row. A window of 4, after six tokens of row 0 and four of row 1:
///
/// ```text
///                      head
/// column      0    1  | 2    3
/// row 0       a4   a5 | a2   a3        offset 6
/// row 1       b2   b3 | b0   b1        offset 4
///
/// temporal    2    3    0    1         column 2 is the oldest: rotation 2
/// ```
///
/// Let A be the number of active columns and call the t-th oldest *temporal column* t. One identity is the whole layout: for
/// every row, temporal column t holds position `offset - A + t`, as long as `t >= left_pad`. Everything else is bookkeeping
/// that keeps it true.
///
/// An append of several columns, or one whose rows differ in padding, is a *block*: the columns are brought to temporal order,
/// the newest W-1 are kept, and the block goes behind them, so the planes are for a moment wider than W. Each query of the
/// block still finds its whole window, and the next single column turns the planes back into a ring.
///
/// # Sinks
///
/// With k attention sinks the planes hold k *pinned* columns on the left, then a ring of W-k. Column s of the pinned ones holds
/// a copy of position s; the token also lies in the ring until it is overwritten there. A query sees its ring window, and those
/// pinned columns that are older than it: together exactly the first k positions and the last W-k.
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
        for (&pad, o) in left_pad.iter().zip(&at.offsets) {
            // Padding is in use, or declared and not written yet.
            let most = active.saturating_add(o.0.min(0).unsigned_abs());
            if pad > most {
                return Err(impossible("left_pad", pad, most));
            }
        }
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
