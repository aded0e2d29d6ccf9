//! Geometry of KV caches as plain integers.
#![forbid(unsafe_code)]

mod column;
mod error;
mod full;
mod layout;
mod mask;
mod phase;
mod ring;
mod rows;
mod step;
mod units;

pub use column::{ColumnOp, Piece, PinRun};
pub use error::Error;
pub use full::Full;
pub use layout::{Kind, Layout};
pub use mask::{DENSE_LIMIT, Mask, RowRun, Runs};
pub use phase::{Phase, Prefill, Round};
pub use ring::{Positions, Ring, Window};
pub use step::{Extract, Growth, Move, Padding, Rope, Source, Step};
pub use units::{Col, Columns, MAX_COLUMNS, MAX_ROWS, Pos, Row};
