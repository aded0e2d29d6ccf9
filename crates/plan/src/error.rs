//! Why an operation is impossible: one variant a reason, each with the operation, the field and the numbers.

use core::fmt;

/// An operation that cannot be planned. Nothing has changed when one is returned.
///
/// Every variant names the operation `op` and the field `field` that is to blame; the other fields are the numbers in question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the variant's line speaks of")]
pub enum Error {
    /// A list has another length than the group has rows.
    Rows { op: &'static str, field: &'static str, got: usize, rows: usize },
    /// A row that the group does not have.
    NoSuchRow { op: &'static str, field: &'static str, row: i64, rows: usize },
    /// A row that is named twice.
    RowTwice { op: &'static str, field: &'static str, row: u32 },
    /// A number outside what the operation allows here.
    OutOfRange { op: &'static str, field: &'static str, row: Option<usize>, got: i64, low: i64, high: i64 },
    /// A number beyond the bounds of the crate or of the interpreter.
    TooLarge { op: &'static str, field: &'static str, got: i64, limit: i64 },
    /// Rows of one operation that have different widths.
    Ragged { op: &'static str, field: &'static str, row: usize, got: i64, want: i64 },
    /// Left padding on a row that already holds tokens.
    NotEmpty { op: &'static str, field: &'static str, row: usize, offset: i32 },
    /// A token where padding was declared, or padding where a token was.
    Padding { op: &'static str, field: &'static str, row: usize, column: usize, declared: bool },
    /// A token after padding of the same row in one round.
    AfterPadding { op: &'static str, field: &'static str, row: usize },
    /// The operation must wait for `finalize`.
    PrefillPending { op: &'static str, field: &'static str },
    /// The operation must wait for the end of the round.
    RoundOpen { op: &'static str, field: &'static str },
    /// The operation ends a round, and none is open.
    NoRound { op: &'static str, field: &'static str },
    /// A commit of a round in which a row holds padding.
    RoundPadded { op: &'static str, field: &'static str, row: usize },
    /// A trim after the ring has dropped columns.
    Turned { op: &'static str, field: &'static str, total: u32, window: u32 },
    /// A stored row that lacks the first positions, which a group with sinks must pin.
    NoSinks { op: &'static str, field: &'static str, row: usize, sinks: u32 },
    /// A stored row that lacks its oldest tokens, where attention is full.
    Partial { op: &'static str, field: &'static str, row: usize, held: u32, offset: i32 },
    /// Integers that no history can have produced.
    Impossible { op: &'static str, field: &'static str, got: i64, want: i64 },
    /// Column operations that do not fit the columns they are run on.
    Misfit { op: &'static str, field: &'static str, got: i64, want: i64 },
    /// A group was started twice.
    Started { op: &'static str, field: &'static str },
    /// No group was started yet.
    NotStarted { op: &'static str, field: &'static str },
    /// A name under which nothing was saved.
    UnknownName { op: &'static str, field: &'static str, name: String },
    /// A field or operation that the format does not have.
    Unknown { op: String, field: String },
    /// A field that is missing or of another type.
    Malformed { op: String, field: String, want: &'static str },
    /// Something that this version does not plan yet.
    Unsupported { op: &'static str, field: &'static str, what: &'static str },
    /// A recorded value that differs from the replayed one.
    Differs { op: String, field: String, recorded: String, replayed: String },
}

impl Error {
    /// The operation that was refused.
    #[must_use]
    pub fn op(&self) -> &str {
        self.place().0
    }

    /// The field of the operation that is to blame.
    #[must_use]
    pub fn field(&self) -> &str {
        self.place().1
    }

    fn place(&self) -> (&str, &str) {
        match self {
            Self::Rows { op, field, .. }
            | Self::NoSuchRow { op, field, .. }
            | Self::RowTwice { op, field, .. }
            | Self::OutOfRange { op, field, .. }
            | Self::TooLarge { op, field, .. }
            | Self::Ragged { op, field, .. }
            | Self::NotEmpty { op, field, .. }
            | Self::Padding { op, field, .. }
            | Self::AfterPadding { op, field, .. }
            | Self::PrefillPending { op, field }
            | Self::RoundOpen { op, field }
            | Self::NoRound { op, field }
            | Self::RoundPadded { op, field, .. }
            | Self::Turned { op, field, .. }
            | Self::NoSinks { op, field, .. }
            | Self::Partial { op, field, .. }
            | Self::Impossible { op, field, .. }
            | Self::Misfit { op, field, .. }
            | Self::Started { op, field }
            | Self::NotStarted { op, field }
            | Self::UnknownName { op, field, .. }
            | Self::Unsupported { op, field, .. } => (op, field),
            Self::Unknown { op, field } | Self::Malformed { op, field, .. } | Self::Differs { op, field, .. } => {
                (op, field)
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, field) = self.place();
        write!(f, "{op}.{field}: ")?;
        match self {
            Self::Rows { got, rows, .. } => write!(f, "{got} entries for {rows} rows"),
            Self::NoSuchRow { row, rows, .. } => write!(f, "row {row} of a group of {rows}"),
            Self::RowTwice { row, .. } => write!(f, "row {row} is named twice"),
            Self::OutOfRange { row: Some(row), got, low, high, .. } => {
                write!(f, "{got} for row {row}, must lie in {low}..={high}")
            }
            Self::OutOfRange { got, low, high, .. } => {
                write!(f, "{got}, must lie in {low}..={high}")
            }
            Self::TooLarge { got, limit, .. } => write!(f, "{got} is beyond the bound of {limit}"),
            Self::Ragged { row, got, want, .. } => {
                write!(f, "row {row} has {got} columns where others have {want}")
            }
            Self::NotEmpty { row, offset, .. } => {
                write!(f, "row {row} already holds {offset} tokens")
            }
            Self::Padding { row, column, declared: true, .. } => {
                write!(f, "a token in row {row}, column {column}, where padding was declared")
            }
            Self::Padding { row, column, .. } => {
                write!(f, "padding in row {row}, column {column}, where none was declared")
            }
            Self::AfterPadding { row, .. } => {
                write!(f, "row {row} has a token after its padding in this round")
            }
            Self::PrefillPending { .. } => {
                write!(f, "a padded prefill is pending, finalize it first")
            }
            Self::RoundOpen { .. } => write!(f, "a round is open, commit it or roll it back first"),
            Self::NoRound { .. } => write!(f, "no round is open"),
            Self::RoundPadded { row, .. } => write!(f, "row {row} holds padding in this round, roll it back instead"),
            Self::Turned { total, window, .. } => {
                write!(f, "{total} columns were appended to a window of {window}, the oldest are gone")
            }
            Self::NoSinks { row, sinks, .. } => {
                write!(f, "row {row} does not hold its first {sinks} positions")
            }
            Self::Partial { row, held, offset, .. } => write!(f, "row {row} holds {held} of its {offset} tokens"),
            Self::Impossible { got, want, .. } => write!(f, "{got} cannot be, expected {want}"),
            Self::Misfit { got, want, .. } => write!(f, "{got} does not fit, expected {want}"),
            Self::Started { .. } => write!(f, "the group was started already"),
            Self::NotStarted { .. } => write!(f, "no group yet: merge, empty or adopt comes first"),
            Self::UnknownName { name, .. } => write!(f, "nothing was saved as {name:?}"),
            Self::Unknown { .. } => write!(f, "unknown"),
            Self::Malformed { want, .. } => write!(f, "expected {want}"),
            Self::Unsupported { what, .. } => write!(f, "{what} cannot be planned by this version"),
            Self::Differs { recorded, replayed, .. } => write!(f, "recorded {recorded}, replayed {replayed}"),
        }
    }
}

impl std::error::Error for Error {}
