//! Appends to a ring: one column in place, or a block behind the newest.

use super::Ring;
use crate::Error;
use crate::column::{ColumnOp, PinRun, moved};
use crate::mask::{Mask, RowRun, Runs};
use crate::phase::Phase;
use crate::rows;
use crate::step::{Rope, Step};
use crate::units::{Col, Columns, MAX_COLUMNS, Row, columns};

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

impl Ring {
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
            let more = wanted.clamp(1, MAX_COLUMNS).min(span - held);
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
        let reserve = self.growth.reserve.min(span).min(MAX_COLUMNS);
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
        if let Some(shifts) = &rolls {
            rows::roll(&mut next.offsets, &mut next.left_pad, shifts);
        }
        next.drop_oldest(cut);
        let base = if matches!(self.phase, Phase::Round(_)) { base - cut } else { 0 };
        (next.ring_index, next.rotated, next.base) = (kept + n, false, base);
        // Rows that roll are past their end, so their queries are padding: their mask is planned as if they had not rolled.
        View { ring: kept + n, rotation: 0, head: kept, dropped: cut }
    }

    /// Copies incoming tokens whose positions are sinks to the pinned columns.
    fn pin(&self, n: u32, ops: &mut Vec<ColumnOp>) {
        if self.pinned() == 0 {
            return;
        }
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
}
