//! What mlx-lm 0.32.2 does instead, where it is wrong: for tests, which must be able to fail, and for the page, which shows it
//! beside the right answer. Nothing here is used unless a session asks for it by name.

use crate::donor::Donor;
use crate::layout::Layout;
use crate::mask::Mask;
use crate::ring::Ring;
use crate::scenario::Op;
use crate::session::Appended;
use crate::units::Columns;

/// Which of upstream's rules to put back in place of the right ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// BR-01: the mask of a block takes the write head for the length of the history, also after the ring has turned. A row
    /// that has not filled its window loses its oldest key.
    pub block_mask: bool,
    /// A roll adds its shift to a left padding that may be negative by then. The padding is understated, and whoever reads
    /// columns directly reads padding or rejected tokens.
    pub left_pad: bool,
    /// BR-02: a ring takes every append of one column for a decode step, and a decode step amid a padded prefill is refused.
    pub one_column: bool,
    /// BR-03: the mask of a block is by column, as if there were no sinks, and hides them from its later queries.
    pub sink_mask: bool,
}

impl Faults {
    /// Everything right.
    pub const NONE: Self = Self { block_mask: false, left_pad: false, one_column: false, sink_mask: false };
    /// Everything as mlx-lm 0.32.2 does it.
    pub const MLX_LM_0_32_2: Self = Self { block_mask: true, left_pad: true, one_column: true, sink_mask: true };
}

/// Left padding by upstream's rule: it may become negative, and rolls add to that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pads(Vec<i64>);

impl Pads {
    pub(crate) fn of(layout: &Layout) -> Self {
        match layout {
            Layout::Ring(ring) => Self(ring.left_pad().iter().map(|&p| i64::from(p)).collect()),
            Layout::Full(_) => Self::default(),
        }
    }

    pub(crate) fn list(&self) -> Vec<i32> {
        self.0.iter().map(|&p| i32::try_from(p).unwrap_or(i32::MIN)).collect()
    }

    /// The padding after an operation that took `before` to `after`.
    pub(crate) fn follow(&mut self, op: &Op, before: &Layout, after: &Layout) {
        let (Layout::Ring(old), Layout::Ring(new)) = (before, after) else { return };
        let (was, is) = (i64::from(old.active()), i64::from(new.active()));
        match op {
            Op::Append { tokens } => {
                let n = tokens.first().map_or(0, Vec::len) as i64;
                let rolls = if old.blocks(n) { old.phase().rolls(old.offsets()) } else { None };
                for (row, pad) in self.0.iter_mut().enumerate() {
                    let shift = rolls.as_ref().and_then(|r| r.get(row)).copied().unwrap_or(0);
                    *pad += i64::from(shift) - (was + n - is);
                }
            }
            Op::Finalize {} | Op::RoundRollback { .. } if was == is => {
                let shifts = old.offsets().iter().zip(new.offsets()).map(|(a, b)| a.wide() - b.wide());
                self.0.iter_mut().zip(shifts).for_each(|(pad, shift)| *pad += shift);
            }
            Op::Prepare { left_padding, .. } => {
                self.0.iter_mut().zip(left_padding).for_each(|(pad, &n)| *pad += i64::from(n));
            }
            Op::Filter { keep } => {
                self.0 = keep.iter().filter_map(|&r| self.0.get(r as usize).copied()).collect();
            }
            Op::Extend { .. } => {
                self.0.iter_mut().for_each(|pad| *pad += is - was);
                self.0.extend(new.left_pad().iter().skip(self.0.len()).map(|&p| i64::from(p)).collect::<Vec<_>>());
            }
            Op::Merge { .. } | Op::Empty { .. } | Op::Adopt { .. } => *self = Self::of(after),
            _ => {}
        }
    }

    /// The physical columns that upstream takes for a row's newest tokens.
    pub(crate) fn held(&self, ring: &Ring, row: usize, limit: u32) -> [Columns; 3] {
        let end = ring.live(row, limit).to;
        let pad = u32::try_from(self.0.get(row).copied().unwrap_or(0).max(0)).unwrap_or(0);
        let [a, b] = ring.physical(Columns::new(pad.max(end.saturating_sub(limit)).min(end), end));
        [Columns::default(), a, b]
    }

    /// Where upstream lets each row of a donor begin.
    pub(crate) fn starts(&self, ring: &Ring, donor: &Donor) -> Vec<u32> {
        let from = ring.active().saturating_sub(donor.width);
        let start = |(&pad, &end): (&i64, &u32)| {
            let pad = u32::try_from(pad.max(0)).unwrap_or(u32::MAX);
            pad.saturating_sub(from).max(end.saturating_sub(ring.window().size)).min(end)
        };
        self.0.iter().zip(&donor.ends).map(start).collect()
    }
}

/// The mask of one query by upstream's rules.
pub(crate) fn line(
    faults: Faults,
    before: &Ring,
    pads: &Pads,
    append: &Appended,
    row: usize,
    query: u32,
) -> Option<Vec<bool>> {
    let n = append.tokens.first().map_or(0, Vec::len) as u32;
    let block = before.blocks(n.into());
    match (before.pinned(), block) {
        (0, true) if faults.block_mask || faults.left_pad => Some(shifted(faults, before, pads, append, row, query)),
        (1.., true) if faults.sink_mask => Some(by_column(before, append, row, query)),
        _ => None,
    }
}

/// The right mask but for its left end.
fn shifted(faults: Faults, before: &Ring, pads: &Pads, append: &Appended, row: usize, query: u32) -> Vec<bool> {
    let n = append.tokens.first().map_or(0, Vec::len) as i64;
    let (columns, window, active) =
        (i64::from(append.fetch.len()), i64::from(before.window().size), i64::from(before.active()));
    let kept = columns - n;
    let dropped = if faults.block_mask && before.rotated() {
        (i64::from(before.head()) - window + 1).max(0)
    } else {
        active - kept
    };
    let pad =
        if faults.left_pad { pads.0.get(row).copied() } else { before.left_pad().get(row).map(|&p| i64::from(p)) };
    let start = pad.unwrap_or(0) - dropped;
    let at = kept + i64::from(query);
    (0..columns).map(|j| j >= start && j <= at && at < j + window).collect()
}

/// Upstream's rule for a row with sinks: columns in the order it keeps them, and a window that slides over all of them.
fn by_column(before: &Ring, append: &Appended, row: usize, query: u32) -> Vec<bool> {
    let window = before.window();
    let (size, sinks) = (i64::from(window.size), i64::from(window.sinks));
    let n = append.tokens.first().map_or(0, Vec::len) as i64;
    let offset = before.offsets().get(row).map_or(0, |o| o.wide());
    let held = offset.min(size - 1);
    let at = held + i64::from(query);
    let column = |position: i64| match position {
        p if p < sinks || offset < size => p,
        p => p - (offset - held),
    };
    let sees = |position: i64| (at - size + 1..=at).contains(&column(position)) && position < offset + n;
    // The fetched columns are pinned positions, then the newest of the ring.
    let ring = match &append.mask {
        Mask::Runs(runs) => i64::from(runs.ring),
        _ => i64::from(append.fetch.len()),
    };
    let pins = i64::from(append.fetch.len()) - ring;
    let first = offset + n - ring;
    let pinned = (0..pins).map(|p| p < first.max(0) && sees(p));
    pinned.chain((0..ring).map(|j| first + j >= 0 && sees(first + j))).collect()
}
