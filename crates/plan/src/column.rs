//! Column operations: what a plan asks of the planes, as data.

use crate::units::{Col, Columns, Row};

/// One operation on the columns of every plane of a layer.
///
/// A plane is a tensor `[rows, .., columns, ..]`; an operation speaks of its rows and columns only, so one list serves keys and
/// values, plain or quantized. *Incoming* columns are those the model computed for this append. Executing the list in order on
/// every plane of a layer is all that moving a cache means; [`Grid`](crate::Grid) does it on integers.
///
/// # JSON
///
/// Each operation is an object whose `do` names it, with these fields; a range is `[from, to]`, the end not included.
///
/// ```json
/// {"do": "grow", "columns": 256}
/// {"do": "write", "at": 4, "columns": 1}
/// {"do": "scatter", "starts": [4, 2], "columns": 3}
/// {"do": "pin", "runs": [{"row": 0, "incoming": [0, 2], "at": 0}]}
/// {"do": "concat", "columns": 3}
/// {"do": "slice", "ranges": [[3, 8], [0, 3]]}
/// {"do": "roll", "over": [0, 8], "shifts": [2, 0]}
/// {"do": "pad_left", "at": 0, "columns": 2}
/// {"do": "take_rows", "rows": [2, 0]}
/// {"do": "join", "rows": [[{"empty": 2}, {"source": [0, 6]}]]}
/// {"do": "copy_row", "row": 1, "ranges": [[2, 8]]}
/// {"do": "copy_columns", "ranges": [[3, 8], [0, 3]]}
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "do", rename_all = "snake_case")
)]
pub enum ColumnOp {
    /// Adds empty columns on the right of every row; creates the planes when there are none.
    Grow {
        /// How many columns to add.
        columns: u32,
    },
    /// Writes all incoming columns of every row at the same column, in place.
    Write {
        /// The first column written.
        at: Col,
        /// How many columns are incoming.
        columns: u32,
    },
    /// Writes all incoming columns of row `r` from `starts[r]` on, in place.
    Scatter {
        /// The first column written in each row.
        starts: Vec<Col>,
        /// How many columns are incoming.
        columns: u32,
    },
    /// Copies some incoming columns into the pinned columns of some rows, in place.
    Pin {
        /// What is copied where.
        runs: Vec<PinRun>,
    },
    /// Adds the incoming columns on the right of every row; they become the planes when there are none.
    Concat {
        /// How many columns are incoming.
        columns: u32,
    },
    /// Keeps these columns of every row, in this order. Keeping none drops the planes.
    Slice {
        /// The columns kept.
        ranges: Vec<Columns>,
    },
    /// Rolls the columns `over` of row `r` right by `shifts[r]`; what leaves on the right enters on the left.
    Roll {
        /// The columns that take part; the others stay.
        over: Columns,
        /// How far each row is rolled.
        shifts: Vec<u32>,
    },
    /// Inserts empty columns before column `at` of every row.
    PadLeft {
        /// Where they go: 0, or the number of pinned columns.
        at: Col,
        /// How many columns to insert.
        columns: u32,
    },
    /// Keeps these rows, in this order. Keeping none drops the planes.
    TakeRows {
        /// The rows kept.
        rows: Vec<Row>,
    },
    /// Adds one row for each stored row that joins, below the others; each is a concatenation of pieces as wide as the planes.
    Join {
        /// The pieces of each joining row, in the order of the sources.
        rows: Vec<Vec<Piece>>,
    },
    /// Copies the ranges of one row out, in this order: the columns of a stored row. The planes stay.
    CopyRow {
        /// The row copied.
        row: Row,
        /// The columns copied.
        ranges: Vec<Columns>,
    },
    /// Copies the ranges of every row out, in this order: what a [`Donor`](crate::Donor) reads. The planes stay.
    CopyColumns {
        /// The columns copied.
        ranges: Vec<Columns>,
    },
}

/// Incoming columns of one row that go to pinned columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PinRun {
    /// The row.
    pub row: Row,
    /// Which of its incoming columns are copied.
    pub incoming: Columns,
    /// The pinned column that takes the first of them.
    pub at: Col,
}

/// A part of a joining row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Piece {
    /// Columns that hold nothing.
    Empty(u32),
    /// Columns of the stored row.
    Source(Columns),
}

/// Rows and columns of the planes: what an operation needs to know of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
}

impl ColumnOp {
    /// How many columns that already lay in the planes this operation copies, counted once per row, and the shape it leaves.
    ///
    /// In-place writes copy none: this is what makes a steady decode step free.
    fn cost(&self, shape: Shape) -> (u64, Shape) {
        let Shape { rows, columns } = shape;
        let area = |r: u32, c: u32| u64::from(r) * u64::from(c);
        match self {
            Self::Grow { columns: n } | Self::Concat { columns: n } | Self::PadLeft { columns: n, .. } => {
                (area(rows, columns), Shape { rows, columns: columns.saturating_add(*n) })
            }
            Self::Write { .. } | Self::Scatter { .. } | Self::Pin { .. } => (0, shape),
            Self::Slice { ranges } => {
                let kept = ranges.iter().fold(0u32, |sum, r| sum.saturating_add(r.len()));
                (area(rows, kept), Shape { rows, columns: kept })
            }
            Self::Roll { over, .. } => (area(rows, over.len()), shape),
            Self::TakeRows { rows: kept } => {
                let kept = u32::try_from(kept.len()).unwrap_or(u32::MAX);
                (area(kept, columns), Shape { rows: kept, columns: if kept == 0 { 0 } else { columns } })
            }
            Self::Join { rows: joined } => {
                let width =
                    joined.first().map_or(0, |pieces| pieces.iter().map(Piece::len).fold(0, u32::saturating_add));
                let n = u32::try_from(joined.len()).unwrap_or(u32::MAX);
                // A single stored row that is taken whole hands its buffers over.
                let alone =
                    rows == 0 && matches!(joined.as_slice(), [only] if matches!(only.as_slice(), [Piece::Source(_)]));
                let all = rows.saturating_add(n);
                (if alone { 0 } else { area(all, width) }, Shape { rows: all, columns: width })
            }
            Self::CopyRow { ranges, .. } => (ranges.iter().map(|r| u64::from(r.len())).sum(), shape),
            Self::CopyColumns { ranges } => {
                (ranges.iter().map(|r| area(rows, r.len())).fold(0, u64::saturating_add), shape)
            }
        }
    }
}

impl Piece {
    /// How many columns the piece has.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Empty(n) => *n,
            Self::Source(c) => c.len(),
        }
    }

    /// Whether the piece has no column.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The columns that a list of operations copies, counted once per row.
pub(crate) fn moved(ops: &[ColumnOp], mut shape: Shape) -> u64 {
    let mut total = 0u64;
    for op in ops {
        let (cost, next) = op.cost(shape);
        total = total.saturating_add(cost);
        shape = next;
    }
    total
}
