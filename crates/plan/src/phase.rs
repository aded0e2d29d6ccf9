//! Where a group stands between operations. The phase is part of the state; it is never guessed from the width of an append.

use crate::Error;
use crate::rows::pick;
use crate::step::Padding;
use crate::units::{Pos, Row, columns, position};

/// What the next append is part of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Phase {
    /// Plain appends: every column is a token.
    #[default]
    Decode,
    /// A padded prefill, until `finalize`.
    Prefill(Prefill),
    /// A speculative round, until its commit or rollback.
    Round(Round),
}

/// A prefill whose rows have unequal lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefill {
    /// The position each row ends at: columns at or past it are trailing padding, columns below 0 left padding.
    pub ends: Vec<Pos>,
    /// Whether any row has right padding: then every append is a block, so that all rows keep the same columns.
    pub trailing: bool,
    /// The columns still to come; unknown when the group was adopted amid a prefill.
    pub remaining: Option<u32>,
}

/// A speculative round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The offsets at its beginning.
    pub saved: Vec<Pos>,
    /// The tokens each row has appended since, padding not counted.
    pub taken: Vec<u32>,
    /// The columns appended since.
    pub columns: u32,
}

impl Phase {
    /// Refuses an operation that must not happen amid a padded prefill or a round.
    pub(crate) fn idle(&self, op: &'static str) -> Result<(), Error> {
        match self {
            Self::Decode => Ok(()),
            Self::Prefill(_) => Err(Error::PrefillPending { op, field: "op" }),
            Self::Round(_) => Err(Error::RoundOpen { op, field: "op" }),
        }
    }

    /// The open round.
    pub(crate) fn round(&self, op: &'static str) -> Result<&Round, Error> {
        match self {
            Self::Round(round) => Ok(round),
            _ => Err(Error::NoRound { op, field: "op" }),
        }
    }

    /// The prefill ends, while right padding is pending.
    #[must_use]
    pub fn prefill_ends(&self) -> Option<&[Pos]> {
        match self {
            Self::Prefill(p) if p.trailing => Some(&p.ends),
            _ => None,
        }
    }

    /// The position after row `row`'s newest token, given the position `offset` after its newest column. Negative while the row
    /// is still inside its left padding.
    #[must_use]
    pub fn valid(&self, row: usize, offset: Pos) -> Pos {
        match self {
            Self::Decode => offset,
            Self::Prefill(p) => p.ends.get(row).map_or(offset, |&end| offset.min(end)),
            Self::Round(r) => match (r.saved.get(row), r.taken.get(row)) {
                (Some(saved), Some(&taken)) => Pos(saved.0.saturating_add_unsigned(taken)).min(offset),
                _ => offset,
            },
        }
    }

    /// Whether the next columns of every row are written as one block rather than in the ring's place.
    pub(crate) fn blocks(&self) -> bool {
        match self {
            Self::Decode => false,
            Self::Prefill(p) => p.trailing,
            Self::Round(_) => true,
        }
    }

    /// How far each row must be rolled right before its trailing padding is out of the way; absent when nothing moves.
    pub(crate) fn rolls(&self, offsets: &[Pos]) -> Option<Vec<u32>> {
        let ends = self.prefill_ends()?;
        let over = |(o, e): (&Pos, &Pos)| u32::try_from(o.wide() - e.wide()).unwrap_or(0);
        if offsets.iter().zip(ends).all(|pair| over(pair) == 0) {
            return None;
        }
        Some(offsets.iter().zip(ends).map(over).collect())
    }

    /// The phase after `columns` more columns, of which the first `real[r]` of row `r` are tokens where `real` is given.
    pub(crate) fn append(&self, columns: u32, real: Option<&[u32]>, rows: usize) -> Result<Self, Error> {
        let (op, field) = ("append", "tokens");
        if let Some(real) = real {
            if real.len() != rows {
                return Err(Error::Rows { op, field, got: real.len(), rows });
            }
            let high = i64::from(columns);
            let beyond = |&(_, &n): &(usize, &u32)| n > columns;
            if let Some((row, &n)) = real.iter().enumerate().find(beyond) {
                return Err(Error::OutOfRange { op, field, row: Some(row), got: n.into(), low: 0, high });
            }
        }
        match self {
            Self::Decode => match real.and_then(|real| real.iter().position(|&n| n < columns)) {
                Some(row) => {
                    let column = real.and_then(|r| r.get(row)).map_or(0, |&n| n as usize);
                    Err(Error::Padding { op, field, row, column, declared: false })
                }
                None => Ok(Self::Decode),
            },
            Self::Prefill(p) => p.append(columns).map(Self::Prefill),
            Self::Round(r) => r.append(columns, real).map(Self::Round),
        }
    }

    /// The phase of the rows kept.
    pub(crate) fn select(&self, keep: &[Row]) -> Self {
        match self {
            Self::Decode => Self::Decode,
            Self::Prefill(p) => Self::Prefill(Prefill { ends: pick(&p.ends, keep), ..p.clone() }),
            Self::Round(r) => {
                Self::Round(Round { saved: pick(&r.saved, keep), taken: pick(&r.taken, keep), ..r.clone() })
            }
        }
    }

    /// Begins a round.
    pub(crate) fn begin(&self, offsets: &[Pos]) -> Result<Self, Error> {
        self.idle("round_begin")?;
        Ok(Self::Round(Round { saved: offsets.to_vec(), taken: vec![0; offsets.len()], columns: 0 }))
    }

    /// Refuses the commit of a round in which a row holds padding.
    pub(crate) fn commit(&self) -> Result<(), Error> {
        let op = "round_commit";
        let round = self.round(op)?;
        match round.taken.iter().position(|&n| n < round.columns) {
            Some(row) => Err(Error::RoundPadded { op, field: "op", row }),
            None => Ok(()),
        }
    }

    /// How many of each row's newest columns a rollback to `keep` tokens rejects, padding included.
    pub(crate) fn rejected(&self, keep: &[u32]) -> Result<Vec<u32>, Error> {
        let (op, field) = ("round_rollback", "keep");
        let round = self.round(op)?;
        if keep.len() != round.taken.len() {
            return Err(Error::Rows { op, field, got: keep.len(), rows: round.taken.len() });
        }
        let beyond = |&(_, (keep, taken)): &(usize, (&u32, &u32))| keep > taken;
        if let Some((row, (&keep, &taken))) = keep.iter().zip(&round.taken).enumerate().find(beyond) {
            return Err(Error::OutOfRange { op, field, row: Some(row), got: keep.into(), low: 0, high: taken.into() });
        }
        Ok(keep.iter().map(|k| round.columns - k).collect())
    }
}

impl Prefill {
    /// The padded prefill of rows that stand at `offsets`, with the left padding already taken off them.
    pub(crate) fn plan(padding: Padding<'_>, offsets: &[Pos]) -> Result<Prepared, Error> {
        let op = "prepare";
        let rows = offsets.len();
        for (field, list) in
            [("lengths", padding.lengths), ("left_padding", padding.left), ("right_padding", padding.right)]
        {
            if list.len() != rows && !(list.is_empty() && field != "lengths") {
                return Err(Error::Rows { op, field, got: list.len(), rows });
            }
        }
        if padding.left.iter().any(|&n| n > 0)
            && let Some((row, o)) = offsets.iter().enumerate().find(|(_, o)| o.0 != 0)
        {
            return Err(Error::NotEmpty { op, field: "left_padding", row, offset: o.0 });
        }
        let at = |list: &[u32], row: usize| i64::from(list.get(row).copied().unwrap_or(0));
        let total = |row| at(padding.left, row) + at(padding.lengths, row) + at(padding.right, row);
        let want = if rows == 0 { 0 } else { total(0) };
        if let Some(row) = (0..rows).find(|&row| total(row) != want) {
            return Err(Error::Ragged { op, field: "lengths", row, got: total(row), want });
        }
        let remaining = columns(op, "lengths", want)?;
        let mut ends = Vec::with_capacity(rows);
        let mut starts = Vec::with_capacity(rows);
        for (row, o) in offsets.iter().enumerate() {
            ends.push(position(op, "lengths", o.wide() + at(padding.lengths, row))?);
            starts.push(position(op, "left_padding", o.wide() - at(padding.left, row))?);
        }
        let trailing = padding.right.iter().any(|&n| n > 0);
        Ok(Prepared { offsets: starts, prefill: Self { ends, trailing, remaining: Some(remaining) } })
    }

    fn append(&self, columns: u32) -> Result<Self, Error> {
        let remaining = match self.remaining {
            Some(left) if columns > left => {
                let (got, high) = (columns.into(), left.into());
                return Err(Error::OutOfRange { op: "append", field: "tokens", row: None, got, low: 1, high });
            }
            Some(left) => Some(left - columns),
            None => None,
        };
        Ok(Self { remaining, ..self.clone() })
    }

    /// Whether the column at position `at` of a row is padding.
    #[must_use]
    pub fn is_padding(&self, row: usize, at: i64) -> bool {
        at < 0 || (self.trailing && self.ends.get(row).is_some_and(|end| at >= end.wide()))
    }
}

/// A padded prefill about to start.
pub(crate) struct Prepared {
    pub(crate) offsets: Vec<Pos>,
    pub(crate) prefill: Prefill,
}

impl Round {
    fn append(&self, columns: u32, real: Option<&[u32]>) -> Result<Self, Error> {
        let mut next = self.clone();
        next.columns = next.columns.saturating_add(columns);
        for (row, taken) in next.taken.iter_mut().enumerate() {
            let tokens = real.and_then(|r| r.get(row)).copied().unwrap_or(columns);
            if tokens > 0 && *taken < self.columns {
                return Err(Error::AfterPadding { op: "append", field: "tokens", row });
            }
            *taken = taken.saturating_add(tokens);
        }
        Ok(next)
    }
}
