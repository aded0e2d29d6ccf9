//! The integers of the crate: positions, columns, rows, and how large they may be.
//!
//! A *position* belongs to a row and is what RoPE rotates by; a *column* belongs to the planes and is where a key lies. Mixing
//! the two is the oldest fault in cache code, so they are different types. Every bound is far above what a machine holds, and
//! low enough that no sum of two of them leaves its type.

use crate::Error;

/// The largest position, and the largest number of columns a group may hold: 2^30.
pub const MAX_COLUMNS: u32 = 1 << 30;

/// The largest number of rows in a group.
pub const MAX_ROWS: usize = 1 << 16;

/// An absolute position in a row: 0 is the row's first token. Negative inside declared left padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Pos(pub i32);

/// A physical column: an index on the token axis of every plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Col(pub u32);

/// A row of a group: an index on the batch axis of every plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Row(pub u32);

impl Row {
    /// The row as an index into a slice.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Pos {
    /// The position as a wide integer, for arithmetic that cannot overflow.
    #[must_use]
    pub fn wide(self) -> i64 {
        i64::from(self.0)
    }
}

/// A half-open range of physical columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "[u32; 2]", into = "[u32; 2]")
)]
pub struct Columns {
    /// The first column.
    pub from: u32,
    /// One past the last column.
    pub to: u32,
}

impl Columns {
    /// The columns `from..to`; empty when `to` does not exceed `from`.
    #[must_use]
    pub const fn new(from: u32, to: u32) -> Self {
        Self { from, to }
    }

    /// How many columns these are.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.to.saturating_sub(self.from)
    }

    /// Whether there is no column.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The same columns, `by` further right.
    #[must_use]
    pub const fn shifted(self, by: u32) -> Self {
        Self { from: self.from.saturating_add(by), to: self.to.saturating_add(by) }
    }

    /// The columns one by one.
    pub fn iter(self) -> core::ops::Range<u32> {
        self.from..self.to.max(self.from)
    }
}

impl From<[u32; 2]> for Columns {
    fn from([from, to]: [u32; 2]) -> Self {
        Self { from, to }
    }
}

impl From<Columns> for [u32; 2] {
    fn from(c: Columns) -> Self {
        [c.from, c.to]
    }
}

/// `value` as a position, or an error that names the operation and the field it came from.
pub(crate) fn position(op: &'static str, field: &'static str, value: i64) -> Result<Pos, Error> {
    let limit = i64::from(MAX_COLUMNS);
    match i32::try_from(value) {
        Ok(p) if (-limit..=limit).contains(&value) => Ok(Pos(p)),
        _ => Err(Error::TooLarge { op, field, got: value, limit }),
    }
}

/// `value` as a count of columns.
pub(crate) fn columns(op: &'static str, field: &'static str, value: i64) -> Result<u32, Error> {
    let limit = i64::from(MAX_COLUMNS);
    match u32::try_from(value) {
        Ok(c) if c <= MAX_COLUMNS => Ok(c),
        _ => Err(Error::TooLarge { op, field, got: value, limit }),
    }
}

/// Refuses a number of rows that no group may have.
pub(crate) fn row_count(op: &'static str, field: &'static str, rows: usize) -> Result<(), Error> {
    if rows > MAX_ROWS {
        let got = i64::try_from(rows).unwrap_or(i64::MAX);
        return Err(Error::TooLarge { op, field, got, limit: MAX_ROWS as i64 });
    }
    Ok(())
}
