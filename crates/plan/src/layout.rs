//! A group of either layout, for callers that hold both.

use crate::Error;
use crate::donor::Capture;
use crate::full::Full;
use crate::phase::Phase;
use crate::ring::{Ring, Window};
use crate::step::{Extract, Growth, Move, Padding, Source, Step};
use crate::units::{Columns, Pos, Row};

/// Which columns a row keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of them.
    Full,
    /// A window of them.
    Ring(Window),
}

/// The state of a group of rows, of either layout. Every operation is a pure function of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Full attention.
    Full(Full),
    /// A sliding window.
    Ring(Ring),
}

/// Calls the same method of whichever layout it is.
macro_rules! either {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Layout::Full($inner) => $call,
            Layout::Ring($inner) => $call,
        }
    };
    ($self:ident, $inner:ident => $call:expr, wrapped) => {
        match $self {
            Layout::Full($inner) => $call.map(|plan| plan.map(Layout::Full)),
            Layout::Ring($inner) => $call.map(|plan| plan.map(Layout::Ring)),
        }
    };
}

impl Layout {
    /// A group of `rows` empty rows.
    pub fn empty(kind: Kind, growth: Growth, rows: usize) -> Result<Self, Error> {
        match kind {
            Kind::Full => Full::empty(growth, rows).map(Self::Full),
            Kind::Ring(window) => Ring::empty(window, growth, rows).map(Self::Ring),
        }
    }

    /// A group of stored rows.
    pub fn merge(kind: Kind, growth: Growth, sources: &[Source]) -> Result<Move<Self>, Error> {
        match kind {
            Kind::Full => Full::merge(growth, sources).map(|plan| plan.map(Self::Full)),
            Kind::Ring(window) => Ring::merge(window, growth, sources).map(|plan| plan.map(Self::Ring)),
        }
    }

    /// Which columns a row keeps.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Full(_) => Kind::Full,
            Self::Ring(ring) => Kind::Ring(ring.window()),
        }
    }

    /// How many rows the group has.
    #[must_use]
    pub fn rows(&self) -> usize {
        either!(self, group => group.rows())
    }

    /// The position of each row's next column.
    #[must_use]
    pub fn offsets(&self) -> &[Pos] {
        either!(self, group => group.offsets())
    }

    /// What the next append is part of.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        either!(self, group => group.phase())
    }

    /// How many columns the planes have; 0 while there are no planes.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        either!(self, group => group.capacity())
    }

    /// The columns in use in the order of time: pinned ones, then the oldest to the newest. Some of the ranges may be empty.
    #[must_use]
    pub fn temporal(&self) -> [Columns; 3] {
        match self {
            Self::Full(full) => [Columns::new(0, full.width()), Columns::default(), Columns::default()],
            Self::Ring(ring) => {
                let [a, b] = ring.physical(Columns::new(0, ring.active()));
                [Columns::new(0, ring.pinned().min(ring.capacity())), a, b]
            }
        }
    }

    /// Starts a padded prefill.
    pub fn prepare(&self, padding: Padding<'_>) -> Result<Move<Self>, Error> {
        either!(self, group => group.prepare(padding), wrapped)
    }

    /// Writes `n` columns for every row.
    pub fn append(&self, n: u32) -> Result<Step<Self>, Error> {
        either!(self, group => group.append(n), wrapped)
    }

    /// Writes `n` columns for every row of a round, of which only the first `real[r]` of row `r` are tokens.
    pub fn append_ragged(&self, n: u32, real: &[u32]) -> Result<Step<Self>, Error> {
        either!(self, group => group.append_ragged(n, real), wrapped)
    }

    /// Ends a padded prefill.
    pub fn finalize(&self) -> Result<Move<Self>, Error> {
        either!(self, group => group.finalize(), wrapped)
    }

    /// Keeps these rows, in this order.
    pub fn filter(&self, keep: &[Row]) -> Result<Move<Self>, Error> {
        either!(self, group => group.filter(keep), wrapped)
    }

    /// Adds stored rows below the others.
    pub fn extend(&self, sources: &[Source]) -> Result<Move<Self>, Error> {
        either!(self, group => group.extend(sources), wrapped)
    }

    /// Copies one row out.
    pub fn extract(&self, row: Row, limit: Option<u32>) -> Result<Extract, Error> {
        either!(self, group => group.extract(row, limit))
    }

    /// Copies the newest columns out, for a reader that goes on while the group changes.
    pub fn donor(&self) -> Capture {
        either!(self, group => group.donor())
    }

    /// Drops the newest `n` tokens of every row.
    pub fn trim(&self, n: u32) -> Result<Move<Self>, Error> {
        either!(self, group => group.trim(n), wrapped)
    }

    /// Begins a round.
    pub fn round_begin(&self) -> Result<Move<Self>, Error> {
        either!(self, group => group.round_begin(), wrapped)
    }

    /// Ends a round that keeps every token.
    pub fn round_commit(&self) -> Result<Move<Self>, Error> {
        either!(self, group => group.round_commit(), wrapped)
    }

    /// Ends a round of which each row keeps its first `keep[r]` tokens.
    pub fn round_rollback(&self, keep: &[u32]) -> Result<Move<Self>, Error> {
        either!(self, group => group.round_rollback(keep), wrapped)
    }
}
