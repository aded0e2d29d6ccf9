//! Where packed matrices lie: lines carved from blocks of large pages.
//!
//! A decode step reads every weight once. With pages of 4 KiB the memory's own look-ahead ends every 64 lines, and
//! addresses are translated as often; a matrix of a small model is less than one large page by itself. So matrices that
//! are made one after another share blocks. A block lives as long as the last of its matrices.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::memory::prefer_large_pages;
use crate::simd::LANES;

/// A cache line: a word for each output of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; LANES]);

/// Lines of a block, of which pages are taken as they are touched.
const BLOCK: usize = (64 << 20) / size_of::<Line>();

/// The size of a large page.
const PAGE: usize = 2 << 20;

/// Some lines of a block. They never change once they are built.
pub(crate) struct Lines {
    /// Keeps the lines in memory.
    _block: Arc<Block>,
    start: NonNull<Line>,
    count: usize,
}

// SAFETY: the lines are read only, and plain integers.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// So many lines, zero before `fill` has its turn.
    pub(crate) fn build(count: usize, fill: impl FnOnce(&mut [Line])) -> Self {
        let (block, start) = carve(count);
        // SAFETY: the lines lie in the block, belong to nobody else, and are initialised first.
        unsafe {
            start.write_bytes(0, count);
            fill(std::slice::from_raw_parts_mut(start.as_ptr(), count));
        }
        Self { _block: block, start, count }
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        // SAFETY: they were initialised when they were built, and the block lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl PartialEq for Lines {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Lines {}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines", self.count)
    }
}

/// Memory for several matrices.
struct Block {
    start: NonNull<Line>,
    layout: Layout,
}

// SAFETY: it is only kept and given back; what lies in it belongs to those who carved it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(lines: usize) -> Self {
        let layout = Layout::array::<Line>(lines.max(1)).and_then(|layout| layout.align_to(PAGE));
        let layout = layout.expect("a matrix that memory can hold");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) }.cast::<Line>();
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the memory is there, and nobody else's yet.
        let all = unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast::<MaybeUninit<Line>>(), lines) };
        prefer_large_pages(all);
        Self { start, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody holds a part of it any more.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

/// The block that matrices are being carved from, and how much of it is taken.
static CURRENT: Mutex<(Weak<Block>, usize)> = Mutex::new((Weak::new(), 0));

/// Lines of the current block, or of a new one.
fn carve(count: usize) -> (Arc<Block>, NonNull<Line>) {
    if count > BLOCK / 2 {
        let block = Arc::new(Block::new(count));
        let start = block.start;
        return (block, start);
    }
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let (block, taken) = match current.0.upgrade() {
        Some(block) if current.1 + count <= BLOCK => (block, current.1),
        _ => (Arc::new(Block::new(BLOCK)), 0),
    };
    *current = (Arc::downgrade(&block), taken + count);
    // SAFETY: within the block.
    let start = unsafe { block.start.add(taken) };
    (block, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize, salt: u32) -> Lines {
        Lines::build(count, |lines| {
            assert!(lines.iter().all(|line| line.0 == [0; LANES]));
            lines.iter_mut().zip(salt..).for_each(|(line, number)| line.0 = [number; LANES]);
        })
    }

    #[test]
    fn lines_stay_apart() {
        let counts = [0, 1, 1000, BLOCK / 2, BLOCK / 2 - 1, BLOCK, 17];
        let all: Vec<_> = counts.iter().zip([0u32, 1 << 8, 1 << 12, 1 << 22, 1 << 24, 1 << 26, 1 << 28]).collect();
        let built: Vec<Lines> = all.iter().map(|(count, salt)| numbered(**count, *salt)).collect();
        for (lines, (count, salt)) in built.iter().zip(&all) {
            assert_eq!(lines.len(), **count);
            assert!(lines.iter().zip(*salt..).all(|(line, number)| line.0 == [number; LANES]));
        }
    }

    #[test]
    fn lines_outlive_their_neighbours() {
        let mut kept = Vec::new();
        for round in 0..50 {
            let passing = numbered(4000, round);
            kept.push(numbered(10, 7 * round));
            drop(passing);
        }
        for (round, lines) in (0..).zip(kept) {
            assert_eq!((lines[0].0[0], lines[9].0[15]), (7 * round, 7 * round + 9));
        }
    }
}
