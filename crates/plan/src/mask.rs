//! Masks as data: which fetched columns a query may see.

use crate::Error;
use crate::units::Columns;

/// The most columns that are spelled out for one query: 2^24.
pub const DENSE_LIMIT: u32 = 1 << 24;

/// What the queries of an append may see of the fetched columns.
///
/// A mask is never a matrix here. It is nothing at all, or the word *causal*, or one pair of integers a row from which the
/// visible columns of any query follow. The engine builds a dense mask on the device only when it must.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum Mask {
    /// Every query sees every fetched column.
    None,
    /// Of `S` fetched columns, query `i` of `N` sees the first `S - N + i + 1`.
    Causal,
    /// Visible runs, row by row.
    Runs(Runs),
}

/// The visible columns of every query of an append, described by two integers a row.
///
/// The fetched columns are `pinned` pinned ones, then `ring` others, which in *temporal* order (oldest first) are the physical
/// ones turned left by `rotation`: temporal column `t` lies at `pinned + (t + rotation) % ring`. Query `i` of a row sees the
/// temporal columns from `max(start, head + i + 1 - window)` to `head + i`, and those pinned columns whose positions are older
/// than the first of these.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Runs {
    /// How many queries each row has.
    pub queries: u32,
    /// How many of the fetched columns, on the left, are pinned.
    pub pinned: u32,
    /// How many columns follow the pinned ones.
    pub ring: u32,
    /// Where the oldest of them lies.
    pub rotation: u32,
    /// How many columns a query may see at most of them, itself included; absent on full attention.
    pub window: Option<u32>,
    /// One entry a row.
    pub rows: Vec<RowRun>,
}

/// The two integers of one row, in temporal columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RowRun {
    /// The first column that holds a token of the row.
    pub start: u32,
    /// The column of the first query's own key.
    pub head: u32,
    /// The position of temporal column 0: what decides how many pinned columns are older.
    pub origin: i32,
}

impl Runs {
    /// How many columns the mask describes: always as many as are fetched.
    #[must_use]
    pub fn columns(&self) -> u32 {
        self.pinned.saturating_add(self.ring)
    }

    /// What a query sees, in fetched columns, oldest first: at most three runs, some of them empty. A row or query that does
    /// not exist sees nothing.
    #[must_use]
    pub fn visible(&self, row: usize, query: u32) -> [Columns; 3] {
        let none = [Columns::default(); 3];
        let Some(run) = self.rows.get(row) else {
            return none;
        };
        if query >= self.queries || self.ring == 0 {
            return none;
        }
        let last = u64::from(run.head) + u64::from(query);
        let oldest = self.window.map_or(0, |w| (last + 1).saturating_sub(u64::from(w)));
        let first = oldest.max(u64::from(run.start));
        let end = (last + 1).min(u64::from(self.ring));
        let pins = (i64::from(run.origin) + first as i64).clamp(0, i64::from(self.pinned)) as u32;
        if first >= end {
            return [Columns::new(0, pins), Columns::default(), Columns::default()];
        }
        let [a, b] = turned(Columns::new(first as u32, end as u32), self.rotation, self.ring);
        [Columns::new(0, pins), a.shifted(self.pinned), b.shifted(self.pinned)]
    }
}

/// Where a range of temporal columns lies in a ring of `length` whose oldest column is `rotation`: one or two ranges.
pub(crate) fn turned(t: Columns, rotation: u32, length: u32) -> [Columns; 2] {
    if t.is_empty() || length == 0 {
        return [Columns::default(); 2];
    }
    let split = length.saturating_sub(rotation);
    if t.from >= split {
        [Columns::new(t.from - split, t.to - split), Columns::default()]
    } else if t.to <= split {
        [t.shifted(rotation), Columns::default()]
    } else {
        [Columns::new(t.from + rotation, length), Columns::new(0, t.to - split)]
    }
}

impl Mask {
    /// What a query sees of `columns` fetched columns when each row has `queries` queries: at most three runs, oldest first
    /// except that a mask of [`Mask::None`] knows no order.
    #[must_use]
    pub fn visible(&self, columns: u32, queries: u32, row: usize, query: u32) -> [Columns; 3] {
        let upto = |n: u32| [Columns::new(0, n.min(columns)), Columns::default(), Columns::default()];
        match self {
            Self::None => upto(columns),
            Self::Causal => upto(columns.saturating_sub(queries).saturating_add(query).saturating_add(1)),
            Self::Runs(runs) => runs.visible(row, query),
        }
    }

    /// One query's mask spelled out over the fetched columns.
    ///
    /// The answer is as long as the fetch: this is for people, tests and small grids, not for the engine. More than
    /// [`DENSE_LIMIT`] columns are refused.
    pub fn dense(&self, columns: u32, queries: u32, row: usize, query: u32) -> Result<Vec<bool>, Error> {
        if columns > DENSE_LIMIT {
            return Err(Error::TooLarge {
                op: "mask",
                field: "columns",
                got: columns.into(),
                limit: DENSE_LIMIT.into(),
            });
        }
        let mut line = vec![false; columns as usize];
        for run in self.visible(columns, queries, row, query) {
            if let Some(cells) = line.get_mut(run.from as usize..run.to.max(run.from) as usize) {
                cells.fill(true);
            }
        }
        Ok(line)
    }

    /// The shortest form of `runs` with these rows: [`Mask::None`] when every query sees everything, [`Mask::Causal`] when only
    /// the order of the queries limits them. The rows are stored only when they are needed.
    pub(crate) fn shortest(mut runs: Runs, rows: impl Iterator<Item = RowRun> + Clone) -> Self {
        let (n, ring) = (runs.queries, runs.ring);
        let tail = ring.saturating_sub(n);
        let windowed = runs.window.is_some_and(|w| ring > w);
        let plain = n <= ring && !windowed && rows.clone().all(|r| r.start == 0 && r.head == tail);
        let pinned = runs.pinned;
        let pins_shown = |r: RowRun| r.origin >= 0 && r.origin.unsigned_abs() >= pinned;
        if plain && n == 1 && rows.clone().all(pins_shown) {
            Self::None
        } else if plain && runs.rotation == 0 && runs.pinned == 0 {
            Self::Causal
        } else {
            runs.rows.extend(rows);
            Self::Runs(runs)
        }
    }
}
