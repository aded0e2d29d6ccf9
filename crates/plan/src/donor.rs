//! Donors: read-only views of a cache, for those who attend to its keys and never write to it.
//!
//! There are two such readers, and only the second needs what is here.
//!
//! - A *KV-sharing layer* of the same pass has no cache of its own. It reads what the layer that owns the cache has just fetched:
//!   the columns `fetch` of that layer's [`Step`](crate::Step), under the same `mask`, its queries turned by the same `rope`.
//! - A *drafter* reads between passes, while the group goes on: rows join and leave, columns are written over and rolled. It
//!   gets a copy, which a [`Capture`] plans, and a [`Donor`] that says where in the copy each row's tokens lie.

use crate::column::{ColumnOp, Shape, moved};
use crate::units::{Columns, Pos};

/// The plan of a donor: what to copy, and what the copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Capture {
    /// One [`ColumnOp::CopyColumns`]; none while there is no column.
    pub ops: Vec<ColumnOp>,
    /// Where in the copy each row's tokens lie.
    pub donor: Donor,
    /// How many stored columns the operation copies, counted once per row.
    pub moved: u64,
}

/// A read-only copy of a group's newest columns: where each row's tokens lie in it.
///
/// All rows share one copy of `width` columns, oldest on the left. Row `r` owns the columns from `starts[r]` to `ends[r]`, the
/// end not included: its newest tokens, at most a window of them, at the positions up to `offsets[r] - 1`. What lies outside is
/// padding, or too old, and must not be read. Tokens of an open round count, as long as nobody has taken them back.
///
/// With sinks the first `pinned` columns are copies of positions 0, 1, ..; a row owns those of them that are older than its
/// newest tokens, see [`pins`](Self::pins).
///
/// ```
/// use annulus_plan::{Columns, Donor, Growth, Padding, Pos, Ring, Window};
///
/// // A window of 4; prompts of 3 and 5 tokens, padded on the right to 5 columns, not finalized yet.
/// let ring = Ring::empty(Window::of(4), Growth::default(), 2)?;
/// let padding = Padding { lengths: &[3, 5], left: &[], right: &[2, 0] };
/// let capture = ring.prepare(padding)?.next.append(5)?.next.donor();
/// // The padding behind the first row is left out, and so is the token that the second row's window has lost.
/// let donor = capture.donor;
/// assert_eq!((donor.offsets.as_slice(), donor.width), ([Pos(3), Pos(5)].as_slice(), 5));
/// assert_eq!([0, 1].map(|row| donor.recent(row, u32::MAX)), [Columns::new(0, 3), Columns::new(1, 5)]);
/// # Ok::<(), annulus_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Donor {
    /// The position of each row's next token.
    pub offsets: Vec<Pos>,
    /// The first column of each row's newest tokens.
    pub starts: Vec<u32>,
    /// The column after each row's newest token.
    pub ends: Vec<u32>,
    /// How many columns the copy has.
    pub width: u32,
    /// How many of them, on the left, are pinned. Without sinks 0.
    pub pinned: u32,
}

impl Capture {
    /// Copies `ranges` of planes of this shape.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Columns>, donor: Donor, shape: Shape) -> Self {
        let mut joined: Vec<Columns> = Vec::with_capacity(1);
        for range in ranges.into_iter().filter(|c| !c.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.to == range.from => last.to = range.to,
                _ => joined.push(range),
            }
        }
        let ops = if joined.is_empty() { Vec::new() } else { vec![ColumnOp::CopyColumns { ranges: joined }] };
        let moved = moved(&ops, shape);
        Self { ops, donor, moved }
    }
}

impl Donor {
    /// The columns of a row's newest tokens, oldest first, at most `limit` of them: a reader whose window is smaller than the
    /// group's passes its own.
    #[must_use]
    pub fn recent(&self, row: usize, limit: u32) -> Columns {
        let (Some(&start), Some(&end)) = (self.starts.get(row), self.ends.get(row)) else {
            return Columns::default();
        };
        Columns::new(start.max(end.saturating_sub(limit)), end)
    }

    /// The pinned columns that hold tokens of a row: its first positions, as far as they are older than its newest tokens.
    #[must_use]
    pub fn pins(&self, row: usize) -> Columns {
        let held = i64::from(self.recent(row, u32::MAX).len());
        let older = self.offsets.get(row).map_or(0, |o| o.wide() - held);
        Columns::new(0, older.clamp(0, i64::from(self.pinned)) as u32)
    }

    /// Whether every column holds a token of every row: then a reader with the group's window needs no mask.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        (0..self.offsets.len()).all(|row| {
            self.recent(row, u32::MAX) == Columns::new(self.pinned, self.width) && self.pins(row).len() == self.pinned
        })
    }
}
