//! Operations in words.

use crate::column::{ColumnOp, Piece};
use crate::mask::Mask;
use crate::scenario::{JoinRow, Keep, Op};
use crate::units::Columns;

/// `1 column`, `2 columns`.
pub(crate) fn count(n: impl Into<u64>, thing: &str) -> String {
    let n = n.into();
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

fn list<T: ToString>(items: &[T]) -> String {
    let shown: Vec<String> = items.iter().take(16).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(shown.len());
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

pub(crate) fn range(c: Columns) -> String {
    match c.len() {
        0 => "nothing".to_owned(),
        1 => format!("column {}", c.from),
        _ => format!("columns {} to {}", c.from, c.to - 1),
    }
}

fn in_turn(ranges: &[Columns]) -> String {
    let ranges: Vec<String> = ranges.iter().map(|r| range(*r)).collect();
    if ranges.is_empty() { "nothing".to_owned() } else { ranges.join(", then ") }
}

/// Numbers in ascending order as runs: `0-3, 7`.
pub(crate) fn runs(numbers: &[i64]) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for &n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let name = |&(a, b): &(i64, i64)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    if runs.is_empty() { "nothing".to_owned() } else { runs.iter().map(name).collect::<Vec<_>>().join(", ") }
}

/// What a column operation does.
#[must_use]
pub fn column_op(op: &ColumnOp) -> String {
    match op {
        ColumnOp::Grow { columns } => format!("add {} on the right", count(*columns, "empty column")),
        ColumnOp::Write { at, columns } => {
            format!(
                "write {} into {}, in place",
                count(*columns, "new column"),
                range(Columns::new(at.0, at.0.saturating_add(*columns)))
            )
        }
        ColumnOp::Scatter { starts, columns } => {
            let starts: Vec<u32> = starts.iter().map(|c| c.0).collect();
            format!("write {} of each row where it ends: columns {}", count(*columns, "new column"), list(&starts))
        }
        ColumnOp::Pin { runs } => {
            format!("copy the first positions of {} into the pinned columns", count(runs.len() as u64, "row"))
        }
        ColumnOp::Concat { columns } => format!("put {} behind the last", count(*columns, "new column")),
        ColumnOp::Slice { ranges } if ranges.is_empty() => "drop every column".to_owned(),
        ColumnOp::Slice { ranges } => {
            let ranges: Vec<String> = ranges.iter().map(|r| range(*r)).collect();
            format!("keep {}", ranges.join(", then "))
        }
        ColumnOp::Roll { over, shifts } => format!("roll {} right, row by row: {}", range(*over), list(shifts)),
        ColumnOp::PadLeft { at, columns } => {
            format!("insert {} before column {}", count(*columns, "empty column"), at.0)
        }
        ColumnOp::TakeRows { rows } if rows.is_empty() => "drop every row".to_owned(),
        ColumnOp::TakeRows { rows } => format!("keep rows {}", list(&rows.iter().map(|r| r.0).collect::<Vec<_>>())),
        ColumnOp::Join { rows } => {
            let tokens = |pieces: &Vec<Piece>| {
                pieces.iter().filter(|p| matches!(p, Piece::Source(_))).map(Piece::len).sum::<u32>()
            };
            let widths: Vec<u32> = rows.iter().map(tokens).collect();
            format!("add {} below the others, with {} columns", count(rows.len() as u64, "row"), list(&widths))
        }
        ColumnOp::CopyRow { row, ranges } => format!("copy {} of row {} out", in_turn(ranges), row.0),
        ColumnOp::CopyColumns { ranges } => format!("copy {} of every row out", in_turn(ranges)),
    }
}

/// What a donor lends of a row: positions, and the columns of the copy that hold them.
pub(crate) fn lent(row: usize, positions: &[[u32; 2]], valid: &[Columns]) -> String {
    if valid.is_empty() {
        return format!("row {row} lends nothing");
    }
    let positions: Vec<i64> = positions.iter().flat_map(|&[from, to]| from..to).map(i64::from).collect();
    format!("row {row} lends positions {}, in {} of the copy", runs(&positions), in_turn(valid))
}

/// What an operation of a scenario asks for.
#[must_use]
pub fn op(op: &Op) -> String {
    let joining = |rows: &[JoinRow]| {
        let name = |row: &JoinRow| match row {
            JoinRow::Tokens(tokens) => count(tokens.len() as u64, "token"),
            JoinRow::Saved { from } => format!("the row saved as {from:?}"),
        };
        list(&rows.iter().map(name).collect::<Vec<_>>())
    };
    match op {
        Op::Merge { rows } => format!("a group of rows prefilled alone: {}", joining(rows)),
        Op::Empty { rows } => format!("a group of {}", count(*rows, "empty row")),
        Op::Prepare { lengths, left_padding, right_padding } => {
            let padded = |name: &str, pads: &[u32]| {
                if pads.iter().all(|&p| p == 0) { String::new() } else { format!(", {name} padding {}", list(pads)) }
            };
            let (left, right) = (padded("left", left_padding), padded("right", right_padding));
            format!("a padded prefill: lengths {}{left}{right}", list(lengths))
        }
        Op::Append { tokens } => {
            let n = tokens.first().map_or(0, Vec::len) as u64;
            format!("append {} to each of {}", count(n, "column"), count(tokens.len() as u64, "row"))
        }
        Op::Finalize {} => "the padded prefill ends".to_owned(),
        Op::Filter { keep } if keep.is_empty() => "keep no row".to_owned(),
        Op::Filter { keep } => format!("keep rows {}", list(keep)),
        Op::Extend { rows } => format!("rows join: {}", joining(rows)),
        Op::Extract { row, limit, name } => {
            let limit = limit.map_or(String::new(), |n| format!(", its newest {}", count(n, "token")));
            let name = name.as_ref().map_or(String::new(), |n| format!(", saved as {n:?}"));
            format!("copy row {row} out{limit}{name}")
        }
        Op::Trim { n } => format!("drop the newest {} of every row", count(*n, "token")),
        Op::RoundBegin {} => "a speculative round begins".to_owned(),
        Op::RoundCommit {} => "the round ends, everything stays".to_owned(),
        Op::RoundRollback { keep: Keep::All(n) } => format!("the round ends, each row keeps {}", count(*n, "token")),
        Op::RoundRollback { keep: Keep::Each(list_) } => {
            format!("the round ends, the rows keep {} tokens", list(list_))
        }
        Op::Donor {} => "a read-only copy for a reader that shares this cache".to_owned(),
        Op::Adopt { state, .. } => format!("a group that stands at positions {}", list(&state.offsets)),
        Op::Snapshot { name } => format!("remember the group as {name:?}"),
        Op::Restore { name } => format!("bring back the group remembered as {name:?}"),
    }
}

/// What a mask says.
#[must_use]
pub fn mask(mask: &Mask) -> String {
    match mask {
        Mask::None => "none: every query sees every fetched column".to_owned(),
        Mask::Causal => "causal: every query sees what is not newer than itself".to_owned(),
        Mask::Runs(runs) => {
            let turned = if runs.rotation == 0 { String::new() } else { format!(", turned by {}", runs.rotation) };
            let pinned = if runs.pinned == 0 { String::new() } else { format!(", {} pinned", runs.pinned) };
            let window = runs.window.map_or(String::new(), |w| format!(", a window of {w}"));
            format!("runs over {}{pinned}{turned}{window}", count(runs.columns(), "column"))
        }
    }
}
