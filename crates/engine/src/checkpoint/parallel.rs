//! Long conversions on all cores.

use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

/// Elements that are worth a thread of their own: some milliseconds of work.
const LEAST: usize = 1 << 20;

/// Cuts `rows` rows of `columns` elements into ranges, calls `part` for all of them at the same time, and hands out the
/// results in order.
pub(super) fn in_parts<T: Send>(rows: usize, columns: usize, part: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let parts = cores.min(rows.saturating_mul(columns) / LEAST).min(rows);
    if parts <= 1 {
        return vec![part(0..rows)];
    }
    let part = &part;
    let bound = |index| rows * index / parts;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..parts).map(|index| scope.spawn(move || part(bound(index)..bound(index + 1)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_rows_in_order() {
        for (rows, columns) in [(0, 5), (1, LEAST * 9), (7, LEAST), (LEAST, 3), (1000, 1000)] {
            let ranges = in_parts(rows, columns, |range| range);
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, rows));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
