//! What planning an operation returns, and what it takes.

use crate::column::{ColumnOp, Shape, moved};
use crate::mask::Mask;
use crate::units::{Columns, Pos};

/// The plan of an append: run `ops`, hand the `fetch` columns to attention under `mask`, then adopt `next`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Step<S> {
    /// The column operations, in order.
    pub ops: Vec<ColumnOp>,
    /// The state once they have been executed.
    pub next: S,
    /// The physical columns that attention reads after the write.
    pub fetch: Columns,
    /// The positions of the first incoming column, captured before the write: both keys and queries rotate by them.
    pub rope: Rope,
    /// What each query may see of the fetched columns.
    pub mask: Mask,
    /// How many stored columns the operations copy, counted once per row; 0 in steady decode. Times the bytes of a column, it
    /// is the memory traffic of the step beyond the write itself.
    pub moved: u64,
}

/// The plan of any other operation: run `ops`, then adopt `next`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Move<S> {
    /// The column operations, in order; often none.
    pub ops: Vec<ColumnOp>,
    /// The state once they have been executed.
    pub next: S,
    /// How many stored columns the operations copy, counted once per row.
    pub moved: u64,
}

/// The plan of an extraction: what to copy, and what the copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Extract {
    /// One [`ColumnOp::CopyRow`].
    pub ops: Vec<ColumnOp>,
    /// What the copied columns are, to hand back to a merge or an extend.
    pub source: Source,
}

/// The positions by which an append rotates its first incoming column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rope {
    /// All rows stand at the same position: the scalar kernel serves.
    Same(Pos),
    /// Each row at its own.
    Each(Vec<Pos>),
}

impl Rope {
    /// The rope of rows at these offsets.
    #[must_use]
    pub fn of(offsets: &[Pos]) -> Self {
        match offsets.split_first() {
            Some((first, rest)) if rest.iter().all(|o| o == first) => Self::Same(*first),
            Some(_) => Self::Each(offsets.to_vec()),
            None => Self::Same(Pos(0)),
        }
    }

    /// The position of one row.
    #[must_use]
    pub fn row(&self, row: usize) -> Option<Pos> {
        match self {
            Self::Same(p) => Some(*p),
            Self::Each(all) => all.get(row).copied(),
        }
    }
}

/// A stored row, outside any group: the columns of one row, oldest first, without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Source {
    /// How many columns it holds.
    pub columns: u32,
    /// How many columns its planes have, spare ones included.
    pub capacity: u32,
    /// The position of its next token.
    pub offset: Pos,
    /// How many of its first columns are positions 0, 1, .. apart from the rest, which are the newest. Without sinks 0.
    pub pinned: u32,
}

impl Source {
    /// A row of `tokens` tokens that was prefilled alone and kept whole.
    #[must_use]
    pub fn whole(tokens: u32) -> Self {
        Self { columns: tokens, capacity: tokens, offset: Pos(i32::try_from(tokens).unwrap_or(i32::MAX)), pinned: 0 }
    }
}

/// The padding of a prefill, one entry a row. Empty slices stand for no padding.
///
/// Left padding, length and right padding of a row add up to the same number of columns in every row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Padding<'a> {
    /// The real tokens each row is about to take.
    pub lengths: &'a [u32],
    /// Padding columns before them; only while every row is empty.
    pub left: &'a [u32],
    /// Padding columns after them.
    pub right: &'a [u32],
}

/// How planes get spare columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct Growth {
    /// Columns are added in steps of this many.
    pub step: u32,
    /// The first allocation holds at least this many: the length a request is known to reach.
    pub reserve: u32,
}

impl Default for Growth {
    /// Steps of 256 and nothing reserved, as mlx-lm does.
    fn default() -> Self {
        Self { step: 256, reserve: 0 }
    }
}

impl<S> Move<S> {
    pub(crate) fn new(ops: Vec<ColumnOp>, next: S, before: Shape) -> Self {
        let moved = moved(&ops, before);
        Self { ops, next, moved }
    }

    /// The same plan around another state.
    pub fn map<T>(self, f: impl FnOnce(S) -> T) -> Move<T> {
        Move { ops: self.ops, next: f(self.next), moved: self.moved }
    }
}

impl<S> Step<S> {
    /// The same plan around another state.
    pub fn map<T>(self, f: impl FnOnce(S) -> T) -> Step<T> {
        Step {
            ops: self.ops,
            next: f(self.next),
            fetch: self.fetch,
            rope: self.rope,
            mask: self.mask,
            moved: self.moved,
        }
    }
}
