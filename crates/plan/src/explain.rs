//! A scenario explained to a person: what was asked, what moved, where each token lies, what each query sees.

use core::fmt::Write;

use crate::inspect::{Cell, CellKind, Frame, Inspection, Options, RowView, inspect};
use crate::words::runs;

/// Explains every scenario of a file, and says whether all of them ran to their end.
#[must_use]
pub fn explain(text: &str) -> (String, bool) {
    let mut out = String::new();
    let mut ran = true;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let inspection = inspect(line, Options::default());
        ran &= inspection.error.is_none();
        // Writing to a string cannot fail.
        let _ = scenario(&mut out, &inspection);
    }
    (out, ran)
}

fn scenario(out: &mut String, inspection: &Inspection) -> core::fmt::Result {
    writeln!(out, "scenario {}", inspection.id)?;
    for (step, frame) in inspection.frames.iter().enumerate() {
        one(out, step, frame)?;
    }
    if let Some(error) = &inspection.error {
        let step = error.step.map_or(String::new(), |step| format!(" at step {step}"));
        writeln!(out, "\nrefused{step}: {}", error.message)?;
    }
    writeln!(out)
}

fn one(out: &mut String, step: usize, frame: &Frame) -> core::fmt::Result {
    writeln!(out, "\n{step:>3}. {}: {}", frame.op, frame.words)?;
    for action in &frame.ops {
        writeln!(out, "     - {}", action.words)?;
    }
    if frame.moved > 0 {
        writeln!(out, "     {} copied", crate::words::count(frame.moved, "stored column"))?;
    }
    if let Some(tokens) = &frame.entry.tokens {
        writeln!(out, "     tokens {tokens:?}, next position {}", frame.entry.offset.unwrap_or(0))?;
        return Ok(());
    }
    table(out, frame)?;
    for lent in frame.donor.iter().flat_map(|donor| &donor.rows) {
        writeln!(out, "     {}", lent.words)?;
    }
    if let Some(mask) = &frame.mask {
        writeln!(out, "     mask {}", mask.words)?;
    }
    for (row, queries) in frame.queries.iter().enumerate() {
        for query in queries.iter().filter(|q| q.position.is_some()) {
            let at = query.position.unwrap_or(0);
            let verdict =
                if query.holds { "as defined".to_owned() } else { format!("but must see {}", runs(&query.expected)) };
            writeln!(out, "     row {row} at {at} sees {}, {verdict}", runs(&query.seen))?;
        }
    }
    for broken in frame.invariants.iter().filter(|i| !i.holds) {
        let place = broken.broken.as_ref().map_or(String::new(), |place| format!(" ({place})"));
        writeln!(out, "     BROKEN {}: {}{place}", broken.name, broken.words)?;
    }
    Ok(())
}

/// The columns of each row: position and tag, or a sign for what holds no token. Spare columns at the end are counted.
fn table(out: &mut String, frame: &Frame) -> core::fmt::Result {
    let used = |row: &RowView| row.cells.iter().rposition(|c| c.kind != CellKind::Spare).map_or(0, |last| last + 1);
    let width = frame.rows.iter().map(used).max().unwrap_or(0);
    let shown = width.min(SHOWN);
    let cell = |c: &Cell| match (c.kind, c.position) {
        (_, Some(position)) => format!("{position}:{}", c.tag),
        (CellKind::TrailingPadding, _) => "_".to_owned(),
        (CellKind::Rejected, _) => format!("x{}", c.tag),
        _ => ".".to_owned(),
    };
    let rows: Vec<Vec<String>> = frame.rows.iter().map(|r| r.cells.iter().take(shown).map(cell).collect()).collect();
    let wide = rows.iter().flatten().map(String::len).max().unwrap_or(1).max(3);
    if shown > 0 {
        write!(out, "     column      ")?;
        (0..shown).try_for_each(|c| write!(out, " {c:>wide$}"))?;
        writeln!(out)?;
    }
    for (row, cells) in rows.iter().enumerate() {
        write!(out, "     row {row:<3}     ")?;
        cells.iter().try_for_each(|c| write!(out, " {c:>wide$}"))?;
        if let Some(view) = frame.rows.get(row) {
            write!(out, "   next position {}", view.offset)?;
        }
        writeln!(out)?;
    }
    let planes = &frame.planes;
    let spare = planes.capacity as usize - width.min(planes.capacity as usize);
    let hidden = width - shown;
    if hidden > 0 {
        writeln!(out, "     {hidden} more columns in use")?;
    }
    if let (Some(window), Some(head)) = (planes.window, planes.head) {
        writeln!(out, "     window {window}, next column {head}, turned by {}, {spare} spare", planes.rotation)?;
    } else if spare > 0 {
        writeln!(out, "     {spare} spare")?;
    }
    Ok(())
}

/// How many columns a table shows at most.
const SHOWN: usize = 40;
