//! Rows that leave a ring, join it, or are copied out of it; and the copy of all of them that a donor is.

use super::{Ring, Window};
use crate::Error;
use crate::column::{ColumnOp, Piece};
use crate::donor::{Capture, Donor};
use crate::rows;
use crate::step::{Extract, Move, Source};
use crate::units::{Columns, Pos, Row, row_count};

impl Ring {
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

    pub(super) fn join(&self, op: &'static str, sources: &[Source]) -> Result<Move<Self>, Error> {
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
        let next = self.offsets.get(row.index()).map_or(0, |&o| self.phase.valid(row.index(), o).0);
        let [pins, a, b] = self.held(row.index(), recent);
        let held = pins.len() + a.len() + b.len();
        let ranges = [pins, a, b].into_iter().filter(|c| !c.is_empty()).collect();
        let source = Source { columns: held, capacity: held, offset: Pos(next.max(0)), pinned: pins.len() };
        Ok(Extract { ops: vec![ColumnOp::CopyRow { row, ranges }], source })
    }

    /// Copies the newest window of columns out, pinned ones first, for a reader that goes on while the group changes.
    ///
    /// While rows end at different columns, because padding behind them is pending, their windows do too: then every column in
    /// use is copied, and only `starts` and `ends` tell the windows apart. A row that ended a whole chunk before its cohort
    /// holds one token less than its window, as it does for its next query.
    pub fn donor(&self) -> Capture {
        let (span, active, rows) = (self.window.span(), self.active(), self.rows());
        let live: Vec<Columns> = (0..rows).map(|row| self.live(row, span)).collect();
        let uneven = self.phase.prefill_ends().is_some() || live.iter().any(|c| c.to < active);
        let from = if uneven { 0 } else { active.saturating_sub(span) };
        let [a, b] = self.physical(Columns::new(from, active));
        // Pinned columns that are still in every row's window are not needed twice.
        let pinned = (0..rows).map(|row| self.held(row, span)[0].len()).max().unwrap_or(0);
        let at = |temporal: u32| pinned + temporal.saturating_sub(from);
        let valid = |(row, &o): (usize, &Pos)| self.phase.valid(row, o).max(Pos(0));
        let donor = Donor {
            offsets: self.offsets.iter().enumerate().map(valid).collect(),
            starts: live.iter().map(|c| at(c.from)).collect(),
            ends: live.iter().map(|c| at(c.to)).collect(),
            width: pinned + (active - from),
            pinned,
        };
        Capture::new([Columns::new(0, pinned), a, b], donor, self.shape())
    }
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
