/*!
Where every key of a KV cache lies, who may see it, and what moves: as plain integers.

A language model that serves several requests at once keeps their keys and values in shared tensors, the *planes*: one row a
request, one column a token. Which column holds which position, which of them a query may see, what must move when a draft is
rejected or a row leaves: that is geometry, and it goes wrong silently. A row that loses its oldest key still answers, only
worse. So here it is apart from the tensors, in a crate that never touches one: integers in, integers out, checked against a
definition of twenty lines.

# Plan, execute, adopt

Every operation is a pure function of the state. It returns a plan: column operations to run on every plane, the state after
them, and for an append what attention needs, namely which columns to fetch, the positions to rotate by, and a mask that is a
description, not a matrix. An error changes nothing, because nothing has happened yet.

```
use annulus_plan::{Col, ColumnOp, Growth, Mask, Pos, Ring, Rope, Source, Window};

// Two requests, prefilled alone with 6 and 4 tokens, share a ring of 4 columns.
let rows = [Source::whole(6), Source::whole(4)];
let ring = Ring::merge(Window::of(4), Growth::default(), &rows)?.next;

// One token for each. Plan:
let step = ring.append(1)?;
// execute: one write in place, on keys and values alike,
assert_eq!(step.ops, [ColumnOp::Write { at: Col(0), columns: 1 }]);
// attend: every row at its own position, no mask,
assert_eq!(step.rope, Rope::Each(vec![Pos(6), Pos(4)]));
assert_eq!((step.fetch.len(), &step.mask), (4, &Mask::None));
// adopt.
let ring = step.next;
assert_eq!(ring.offsets(), [Pos(7), Pos(5)]);
# Ok::<(), annulus_plan::Error>(())
```

# What a ring is

A layer with a sliding window of W needs no more than W columns. When they are full the write head goes back to the first one
and each step writes over the oldest token. All rows share the head, so a step stays one write, however different their
lengths. This is the ring from above after the step, with W = 4, and what its queries see:

```text
                head
 column     0  |  1    2    3
 row 0     a6  | a3   a4   a5      next position 7, sees positions 3 to 6
 row 1     b4  | b1   b2   b3      next position 5, sees positions 1 to 4
            ^     ^
       newest     oldest: temporal column 0, rotation 1
```

Read from the head on and around, the columns are in the order of time. Temporal column t of a row holds position
`offset - A + t`, where A is the number of columns in use, and columns left of `left_pad` hold nothing of the row. That is all
there is to a ring; [`Ring`] keeps it true through blocks of several tokens, prefills padded on both sides, speculative rounds,
and rows that come and go. [`Full`] is the other layout: columns that only grow, with an end for each row. [`Layout`] is either.

# What is right

A query at position p of a row sees that row's keys at the positions `max(0, p-W+1)..=p`, with sinks also the first few, and
nothing else. [`Rule`] says it in one line of code and [`Model`] plays it on lists of tokens. The tests compare every plan with
it: run on a [`Grid`] of integers, where a column operation is a few lines anyone can read, what a query sees must be the same.

# The chapters

- Integers: [`Pos`] is a position, [`Col`] a column, [`Row`] a row, [`Columns`] a range. They do not mix.
- Layouts: [`Full`], [`Ring`] with its [`Window`] and [`Positions`], and [`Layout`]. Their [`Phase`] is part of the state.
- Plans: [`Step`] of an append, [`Move`] of anything else, [`Extract`] of a row that is copied out as a [`Source`], [`Capture`]
  of a [`Donor`]. They hold [`ColumnOp`]s; a step also a [`Rope`] and a [`Mask`].
- Readers: a layer that shares the keys of another one in the same pass reads what that one's step fetches, under its mask; a
  drafter, which reads between passes, gets a [`Donor`].
- Truth: [`Rule`], [`Model`], [`Grid`].
- Text: `replay` runs scenarios, one JSON object a line, and `explain` tells a person about them; `inspect` gives a page
  everything it has to draw. The format is that of the module `scenario`.
- Bytes: [`column_bytes`].

# Architecture invariant

The crate knows nothing of tensors, floats, clocks, files or threads. Nothing public panics. Sizes are bounded by
[`MAX_COLUMNS`] and [`MAX_ROWS`]; a plan costs time and memory in proportion to the rows, never to columns or window.

# Features

- `replay` (default): scenarios, the replay and the inspector; brings `serde` and `serde_json`.
- `serde`: derives alone, for the types that cross a boundary.
- `cli`: the binary `annulus-plan`, and the module `cli` for other binaries that offer its commands.
*/
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bytes;
#[cfg(feature = "cli")]
pub mod cli;
mod column;
mod definition;
mod donor;
#[cfg(feature = "replay")]
mod entry;
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
pub use donor::{Capture, Donor};
#[cfg(feature = "replay")]
pub use entry::{Did, Entry, Fetch, State};
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
