//! What takes columns back: the end of a padded prefill, trims, and rounds.

use super::Ring;
use crate::Error;
use crate::column::ColumnOp;
use crate::phase::{Phase, Prefill};
use crate::rows;
use crate::step::{Move, Padding};
use crate::units::{Columns, Pos};

impl Ring {
    /// Starts a padded prefill.
    pub fn prepare(&self, padding: Padding<'_>) -> Result<Move<Self>, Error> {
        self.phase.idle("prepare")?;
        let prepared = Prefill::plan(padding, &self.offsets)?;
        let left_pad = rows::padded("prepare", &self.left_pad, padding.left)?;
        let phase = Phase::Prefill(prepared.prefill);
        Ok(self.still(Self { offsets: prepared.offsets, left_pad, phase, ..self.clone() }))
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
            next.offsets.iter_mut().for_each(|o| *o = Pos(o.0.saturating_sub_unsigned(*shift)));
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
        rows::roll(&mut self.offsets, &mut self.left_pad, &shifts);
        ops.push(ColumnOp::Roll { over: Columns::new(pinned, pinned + active), shifts });
        ops
    }
}
