//! What both layouts do alike to lists with one entry a row.

use crate::Error;
use crate::column::ColumnOp;
use crate::phase::{Phase, Prefill};
use crate::step::Source;
use crate::units::{Col, Columns, MAX_COLUMNS, Pos, Row, columns, position, row_count};

/// Refuses rows that do not exist or are named twice.
pub(crate) fn check_keep(keep: &[Row], rows: usize) -> Result<(), Error> {
    let mut seen = vec![false; rows];
    for &row in keep {
        match seen.get_mut(row.index()) {
            None => {
                return Err(Error::NoSuchRow { op: "filter", field: "keep", row: row.0.into(), rows });
            }
            Some(true) => {
                return Err(Error::RowTwice { op: "filter", field: "keep", row: row.0 });
            }
            Some(seen) => *seen = true,
        }
    }
    Ok(())
}

pub(crate) fn check_row(op: &'static str, row: Row, rows: usize) -> Result<(), Error> {
    if row.index() >= rows {
        return Err(Error::NoSuchRow { op, field: "row", row: row.0.into(), rows });
    }
    Ok(())
}

/// Refuses a stored row whose integers contradict each other.
pub(crate) fn check_source(op: &'static str, row: usize, s: &Source) -> Result<(), Error> {
    let field = "rows";
    columns(op, field, s.capacity.into())?;
    position(op, field, s.offset.wide())?;
    let inside = |got: u32, high: u32| {
        let (low, high) = (0, i64::from(high));
        if i64::from(got) > high {
            Err(Error::OutOfRange { op, field, row: Some(row), got: got.into(), low, high })
        } else {
            Ok(())
        }
    };
    inside(s.columns, u32::try_from(s.offset.0).unwrap_or(0))?;
    inside(s.columns, s.capacity)?;
    inside(s.pinned, s.columns)
}

pub(crate) fn is_identity(keep: &[Row], rows: usize) -> bool {
    keep.len() == rows && keep.iter().enumerate().all(|(i, r)| r.index() == i)
}

/// The entries of the rows kept, in their order.
pub(crate) fn pick<T: Copy>(list: &[T], keep: &[Row]) -> Vec<T> {
    keep.iter().filter_map(|r| list.get(r.index()).copied()).collect()
}

/// Refuses an append to no rows or of no columns.
pub(crate) fn appendable(rows: usize, n: u32) -> Result<(), Error> {
    if rows == 0 || n == 0 || n > MAX_COLUMNS {
        let got = if rows == 0 { 0 } else { i64::from(n) };
        return Err(Error::OutOfRange {
            op: "append",
            field: "tokens",
            row: None,
            got,
            low: 1,
            high: MAX_COLUMNS.into(),
        });
    }
    Ok(())
}

/// Left padding with a prefill's added.
pub(crate) fn padded(op: &'static str, left_pad: &[u32], left: &[u32]) -> Result<Vec<u32>, Error> {
    let more = |row: usize| i64::from(left.get(row).copied().unwrap_or(0));
    left_pad.iter().enumerate().map(|(row, &pad)| columns(op, "left_padding", i64::from(pad) + more(row))).collect()
}

/// Ends left padding of which not every column was written: a row never starts at a negative position.
pub(crate) fn forget_unwritten(offsets: &mut [Pos], left_pad: &mut [u32]) {
    for (o, pad) in offsets.iter_mut().zip(left_pad).filter(|(o, _)| o.0 < 0) {
        *pad = pad.saturating_sub(o.0.unsigned_abs());
        *o = Pos(0);
    }
}

/// The integers of a roll: what leaves on the right becomes padding on the left.
pub(crate) fn roll(offsets: &mut [Pos], left_pad: &mut [u32], shifts: &[u32]) {
    for ((o, pad), &shift) in offsets.iter_mut().zip(left_pad).zip(shifts) {
        *o = Pos(o.0.saturating_sub_unsigned(shift));
        *pad = pad.saturating_add(shift);
    }
}

/// Offsets after `n` more columns.
pub(crate) fn advanced(offsets: &[Pos], n: u32) -> Result<Vec<Pos>, Error> {
    let furthest = offsets.iter().max().map_or(0, |o| o.wide());
    position("append", "tokens", furthest + i64::from(n))?;
    // One allocation of the right size: the longest row fits, so all do.
    Ok(offsets.iter().map(|o| Pos(o.0.saturating_add_unsigned(n))).collect())
}

/// Offsets after the newest `n` tokens of every row went.
pub(crate) fn trimmed(offsets: &[Pos], n: u32) -> Result<Vec<Pos>, Error> {
    let (op, field) = ("trim", "n");
    let drop = |(row, o): (usize, &Pos)| {
        if o.wide() < i64::from(n) {
            return Err(Error::OutOfRange { op, field, row: Some(row), got: n.into(), low: 0, high: o.wide() });
        }
        position(op, field, o.wide() - i64::from(n))
    };
    offsets.iter().enumerate().map(drop).collect()
}

/// Turns planes of `capacity` columns, `width` of them used after the first `pinned`, into planes of exactly `wider` used
/// columns, the new ones on the left.
pub(crate) fn widen(ops: &mut Vec<ColumnOp>, capacity: u32, width: u32, wider: u32, pinned: u32) {
    if capacity == 0 {
        ops.push(ColumnOp::Grow { columns: pinned + wider });
        return;
    }
    if capacity > pinned + width {
        ops.push(ColumnOp::Slice { ranges: vec![Columns::new(0, pinned + width)] });
    }
    if wider > width {
        // Slicing everything away drops the planes; then they are made anew.
        if pinned + width == 0 {
            ops.push(ColumnOp::Grow { columns: wider });
        } else {
            ops.push(ColumnOp::PadLeft { at: Col(pinned), columns: wider - width });
        }
    }
}

/// The left padding and the phase of a group that is adopted amid its life.
pub(crate) fn adopted(offsets: &[Pos], left_pad: &[i32], ends: Option<&[Pos]>) -> Result<(Vec<u32>, Phase), Error> {
    let op = "adopt";
    let rows = offsets.len();
    row_count(op, "offsets", rows)?;
    if left_pad.len() != rows {
        return Err(Error::Rows { op, field: "left_pad", got: left_pad.len(), rows });
    }
    for o in offsets.iter().chain(ends.unwrap_or_default()) {
        position(op, "offsets", o.wide())?;
    }
    let pads: Result<Vec<u32>, Error> = left_pad.iter().map(|&p| columns(op, "left_pad", p.max(0).into())).collect();
    let phase = match ends {
        Some(ends) if ends.len() != rows => {
            return Err(Error::Rows { op, field: "prefill_ends", got: ends.len(), rows });
        }
        Some(ends) => Phase::Prefill(Prefill { ends: ends.to_vec(), trailing: true, remaining: None }),
        // A row inside left padding can only be amid a prefill; without right padding its end does not matter.
        None if offsets.iter().any(|o| o.0 < 0) => {
            Phase::Prefill(Prefill { ends: vec![Pos(i32::MAX); rows], trailing: false, remaining: None })
        }
        None => Phase::Decode,
    };
    Ok((pads?, phase))
}
