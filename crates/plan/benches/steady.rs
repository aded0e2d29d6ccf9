//! What a plan costs: the median of 10,000 runs, beside a clone of the state's vectors in the same run, and what it allocates.
//!
//! `make bench-plan`. Each run times 16 plans and divides, because one is shorter than a clock can tell.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use annulus_plan::{Full, Growth, Kind, Layout, Mask, Ring, Row, Source, Window};

/// Counts allocations: the plan may make none but those that the step it returns still holds.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; the counters do not touch memory it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        FREED.fetch_add(1, Relaxed);
        // SAFETY: `at` came from `System.alloc` with this layout.
        unsafe { System.dealloc(at, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RUNS: usize = 10_000;
const BATCH: u32 = 16;

/// The median nanoseconds of one call.
fn median<T>(mut call: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(call());
        }
        times.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

/// Allocations of one call, and how many of them it freed again before it returned.
fn allocations<T>(call: impl Fn() -> T) -> (u64, u64) {
    let (made, freed) = (ALLOCATIONS.load(Relaxed), FREED.load(Relaxed));
    let kept = call();
    let counts = (ALLOCATIONS.load(Relaxed) - made, FREED.load(Relaxed) - freed);
    drop(kept);
    counts
}

/// Rows that stand at different positions.
fn sources(rows: u32, context: u32) -> Vec<Source> {
    (0..rows).map(|row| Source::whole(context + row % 7)).collect()
}

/// A ring that has turned, every row past its window.
fn turned(rows: u32, window: u32, sinks: u32, context: u32) -> Layout {
    let kind = Kind::Ring(Window { size: window, sinks });
    let mut group = Layout::merge(kind, Growth::default(), &sources(rows, context)).expect("rows").next;
    for _ in 0..3 {
        group = group.append(1).expect("an append").next;
    }
    group
}

/// A full group with spare columns.
fn full(rows: u32, context: u32) -> Layout {
    let growth = Growth { step: 256, reserve: context + 4096 };
    let group = Full::merge(growth, &sources(rows, context)).expect("rows").next;
    Layout::Full(group.append(1).expect("an append").next)
}

fn report(name: &str, group: &Layout) {
    let pads: Vec<u32> = vec![0; group.rows()];
    let clone = median(|| (group.offsets().to_vec(), pads.clone()));
    let step = median(|| group.append(1).expect("an append"));
    let plan = group.append(1).expect("an append");
    let (made, freed) = allocations(|| group.append(1).expect("an append"));
    println!(
        "{name:<44} {step:>8.0} ns  {:>5.1} x clone ({clone:.0} ns)  {made} allocations, {freed} beyond the step, {} moved",
        step / clone,
        plan.moved
    );
    assert_eq!((freed, plan.moved), (0, 0), "a steady step allocates only what it returns, and moves nothing");
}

fn main() {
    println!("steady decode, one column for each row; median of {RUNS} runs of {BATCH}");
    for rows in [1, 8, 64, 128, 256] {
        report(&format!("ring W 1024, {rows} rows"), &turned(rows, 1024, 0, 4096));
    }
    for (window, context) in
        [(16, 4096), (512, 4096), (4096, 8192), (65_536, 131_072), (1024, 1 << 20), (1024, 1 << 28)]
    {
        report(&format!("ring W {window}, 64 rows at {context}"), &turned(64, window, 0, context));
    }
    report("ring W 1024, 4 sinks, 64 rows", &turned(64, 1024, 4, 4096));
    for (rows, context) in [(64, 100), (64, 4096), (64, 1 << 20), (8, 4096), (256, 4096)] {
        report(&format!("full, {rows} rows at {context}"), &full(rows, context));
    }

    println!("\na mask description of 256 rows, and the runs of every row of it");
    let ring = {
        let sources: Vec<Source> = (0..256).map(|row| Source::whole(1 + row * 3)).collect();
        Ring::merge(Window::of(1024), Growth::default(), &sources).expect("rows").next
    };
    let padded = ring.append(4).expect("a block");
    let Mask::Runs(runs) = &padded.mask else { panic!("short rows have padding to hide") };
    let describe = median(|| runs.clone());
    let walk = median(|| (0..256).map(|row| runs.visible(row, 3)[1].len()).sum::<u32>());
    let whole = median(|| ring.append(4).expect("a block"));
    println!("the whole plan of a block of 4, mask included  {whole:>8.0} ns");
    println!("the description alone, copied                   {describe:>8.0} ns");
    println!("the visible runs of one query of every row      {walk:>8.0} ns");

    println!("\nother operations, 64 rows");
    let group = turned(64, 1024, 0, 4096);
    let keep: Vec<Row> = (0..63).map(Row).collect();
    println!("filter to 63 rows  {:>8.0} ns", median(|| group.filter(&keep).expect("rows")));
    println!("a row joins        {:>8.0} ns", median(|| group.extend(&[Source::whole(100)]).expect("a row")));
    let round = group.round_begin().expect("a round").next.append(4).expect("drafts").next;
    let kept = vec![2; 64];
    println!("a round rolls back {:>8.0} ns", median(|| round.round_rollback(&kept).expect("a rollback")));
}
