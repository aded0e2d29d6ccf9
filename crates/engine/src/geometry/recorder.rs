//! Follows one cache.

use std::mem;
use std::sync::Arc;

use annulus_plan::scenario::Op;
use annulus_plan::{Layout, Row};

use super::Geometry;
use super::account::Account;

/// What a cache did.
pub(crate) enum Told {
    /// It came to be.
    Begin,
    /// It took so many columns for every row.
    Append(u32),
    /// It took stored rows over.
    Join,
    /// It kept these rows.
    Filter(Vec<Row>),
    /// Anything else that the scenario format has a word for.
    Op(Op),
}

/// Follows one cache, and numbers its tokens.
#[derive(Debug)]
pub(crate) struct Recorder {
    geometry: Arc<Geometry>,
    group: u64,
    seq: u64,
    /// By row and position, the serial numbers of the tokens; empty while nobody listens.
    rows: Vec<Vec<u64>>,
    numbered: u64,
}

impl Recorder {
    pub(crate) fn new(geometry: &Arc<Geometry>) -> Self {
        let group = geometry.new_group();
        Self { geometry: Arc::clone(geometry), group, seq: 0, rows: Vec::new(), numbered: 0 }
    }

    /// Tells of a move that led from `before` to `after`, one entry a layout.
    pub(crate) fn moved(&mut self, told: Told, before: &[Layout], after: &[Layout]) {
        let (Some(was), Some(is)) = (before.first(), after.first()) else { return };
        if !self.geometry.is_followed() {
            self.rows.clear();
            return;
        }
        self.number(was);
        if let Told::Filter(keep) = &told {
            self.rows =
                keep.iter().map(|row| self.rows.get_mut(row.index()).map(mem::take).unwrap_or_default()).collect();
        }
        self.number(is);
        let begins = matches!(told, Told::Begin);
        let op = self.op(told, was, is);
        self.seq += 1;
        let account = Account { group: self.group, seq: self.seq, begins, op, after, rows: &self.rows };
        self.geometry.tell(&account);
    }

    /// Numbers the tokens that are new and forgets those that were taken back.
    fn number(&mut self, layout: &Layout) {
        self.rows.resize(layout.rows(), Vec::new());
        for (row, tags) in self.rows.iter_mut().enumerate() {
            tags.truncate(tokens(layout, row));
            while tags.len() < tokens(layout, row) {
                self.numbered += 1;
                tags.push(self.numbered);
            }
        }
    }

    fn op(&self, told: Told, was: &Layout, is: &Layout) -> Option<Op> {
        match told {
            Told::Begin if is.capacity() == 0 => Some(Op::Empty { rows: u32::try_from(is.rows()).ok()? }),
            Told::Begin | Told::Join => None,
            Told::Append(columns) => Some(Op::Append { tokens: self.appended(columns as usize, was) }),
            Told::Filter(keep) => Some(Op::Filter { keep: keep.iter().map(|row| row.0).collect() }),
            Told::Op(op) => Some(op),
        }
    }

    /// The columns that an append wrote: a row's padding on the left, its tokens, its padding on the right.
    fn appended(&self, columns: usize, was: &Layout) -> Vec<Vec<u64>> {
        let rows = was.offsets().iter().zip(&self.rows).enumerate().map(|(row, (offset, tags))| {
            let left = usize::try_from(-offset.wide()).unwrap_or(0).min(columns);
            let mut all = vec![0; left];
            all.extend_from_slice(tags.get(tokens(was, row)..).unwrap_or_default());
            all.resize(columns, 0);
            all
        });
        rows.collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.geometry.forget(self.group);
    }
}

/// How many tokens a row has had, those that it has lost to a window included.
fn tokens(layout: &Layout, row: usize) -> usize {
    let at = layout.offsets().get(row).map_or(0, |offset| layout.phase().valid(row, *offset).0);
    usize::try_from(at).unwrap_or(0)
}
