//! Geometry of KV caches as plain integers.
#![forbid(unsafe_code)]

mod bytes;
#[cfg(feature = "cli")]
pub mod cli;
mod column;
mod definition;
mod error;
#[cfg(feature = "replay")]
mod explain;
#[cfg(feature = "replay")]
mod fault;
mod full;
mod grid;
#[cfg(feature = "replay")]
pub mod inspect;
mod layout;
mod mask;
mod phase;
#[cfg(feature = "replay")]
mod replay;
mod ring;
mod rows;
#[cfg(feature = "replay")]
pub mod scenario;
#[cfg(feature = "replay")]
pub mod session;
mod step;
mod units;
#[cfg(feature = "replay")]
pub mod words;

pub use bytes::{Format, Heads, column_bytes};
pub use column::{ColumnOp, Piece, PinRun};
pub use definition::{History, Model, Rule};
pub use error::Error;
#[cfg(feature = "replay")]
pub use explain::explain;
#[cfg(feature = "replay")]
pub use fault::Faults;
pub use full::Full;
pub use grid::{CELL_LIMIT, Grid, Inputs};
pub use layout::{Kind, Layout};
pub use mask::{DENSE_LIMIT, Mask, RowRun, Runs};
pub use phase::{Phase, Prefill, Round};
#[cfg(feature = "replay")]
pub use replay::{Outcome, Refusal, compare, replay, replay_each};
pub use ring::{Positions, Ring, Window};
pub use step::{Extract, Growth, Move, Padding, Rope, Source, Step};
pub use units::{Col, Columns, MAX_COLUMNS, MAX_ROWS, Pos, Row};
