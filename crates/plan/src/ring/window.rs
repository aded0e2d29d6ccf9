//! The size of a ring.

use crate::Error;
use crate::units::columns;

/// What a ring is made of, before it has rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// W: the most columns a query sees.
    pub size: u32,
    /// How many of them are the first positions of the row. Less than `size`.
    pub sinks: u32,
}

impl Window {
    /// A window of the newest `size` columns.
    #[must_use]
    pub const fn of(size: u32) -> Self {
        Self { size, sinks: 0 }
    }

    /// The columns that turn over.
    pub(super) fn span(self) -> u32 {
        self.size.saturating_sub(self.sinks)
    }

    pub(super) fn check(self, op: &'static str) -> Result<(), Error> {
        if self.size == 0 {
            return Err(Error::OutOfRange { op, field: "max_size", row: None, got: 0, low: 1, high: u32::MAX.into() });
        }
        if self.sinks >= self.size {
            let high = i64::from(self.size) - 1;
            return Err(Error::OutOfRange { op, field: "sinks", row: None, got: self.sinks.into(), low: 0, high });
        }
        columns(op, "sinks", self.sinks.into()).map(|_| ())
    }
}
