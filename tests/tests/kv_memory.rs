//! What a cache costs is what the plan says. A process of its own, since MLX's memory counters belong to the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use annulus_engine::cache::{Affine, Arrangement, Cache, Format};
use annulus_engine::rope::{Rope, Scaling};
use annulus_plan::{Growth, Heads, Kind, Layout, Window};
use annulus_tests::definition::Random;
use annulus_tests::memory;
use mlx_rs::memory::{peak_memory, reset_peak_memory};
use mlx_rs::{Array, Dtype};

const HEADS: Heads = Heads { kv_heads: 4, head_dim: 128 };

/// The counters are one for all tests of this file: one runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static COUNTERS: Mutex<()> = Mutex::new(());
    COUNTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fill(kind: Kind, format: Format, dtype: Dtype) -> Cache {
    let growth = Growth::default();
    let mut cache = Cache::new(Arrangement { kinds: vec![kind; 3], format, growth }, 2).unwrap();
    let rope = Rope::new(128, 10_000.0, false, Scaling::None).unwrap();
    let mut random = Random(5);
    for columns in [1500, 900, 1, 1] {
        let mut pass = cache.begin(columns).unwrap();
        for layer in 0..3 {
            let mut numbers = |heads: u32| {
                let shape = [2, heads as i32, columns as i32, 128];
                let count = shape.iter().product::<i32>() as usize;
                Array::from_slice(&random.floats(count), &shape).as_dtype(dtype).unwrap()
            };
            let (q, k, v) = (numbers(HEADS.kv_heads), numbers(HEADS.kv_heads), numbers(HEADS.kv_heads));
            pass.attend(layer, &q, &k, v, &rope, 0.1).unwrap();
        }
        let staged = pass.finish().unwrap();
        cache.adopt(staged);
        cache.eval().unwrap();
    }
    cache
}

#[test]
fn memory_is_what_columns_and_representation_say() {
    let _alone = alone();
    let affine = |bits, group| Format::Affine(Affine::new(bits, group).unwrap());
    let formats = [Format::Plain, affine(8, 64), affine(4, 64), affine(4, 32), affine(5, 128), affine(2, 64)];
    for kind in [Kind::Full, Kind::Ring(Window::of(1200)), Kind::Ring(Window { size: 1024, sinks: 4 })] {
        for dtype in [Dtype::Float32, Dtype::Bfloat16] {
            for format in formats {
                let before = memory::settled();
                let cache = fill(kind, format, dtype);
                let columns: u64 = cache.layouts().iter().map(|layout: &Layout| u64::from(layout.capacity())).sum();
                assert_eq!(cache.layouts().len(), 1);
                let planned = 3 * 2 * columns * format.column_bytes(HEADS, dtype).unwrap();
                let held = (memory::settled() - before) as u64;
                let name = format!("{kind:?}, {format:?}, {dtype:?}: {planned} bytes planned, {held} held");
                assert_eq!(cache.bytes() as u64, planned, "{name}");
                assert!(held.abs_diff(planned) * 50 <= planned, "{name}");
            }
        }
    }
}

/// Steady decode writes into the planes where they lie: no step holds a second copy of any, however much room there is.
#[test]
fn decode_needs_no_second_plane() {
    let _alone = alone();
    let affine = Format::Affine(Affine::new(8, 64).unwrap());
    for kind in [Kind::Full, Kind::Ring(Window::of(4096))] {
        for format in [Format::Plain, affine] {
            let growth = Growth { reserve: 8192, ..Growth::default() };
            let mut cache = Cache::new(Arrangement { kinds: vec![kind], format, growth }, 1).unwrap();
            let rope = Rope::new(128, 10_000.0, false, Scaling::None).unwrap();
            let mut random = Random(6);
            let mut step = |cache: &mut Cache, columns: i32| {
                let shape = [1, 4, columns, 128];
                let mut numbers = || Array::from_slice(&random.floats((4 * columns * 128) as usize), &shape);
                let mut pass = cache.begin(columns as u32).unwrap();
                let (q, k, v) = (numbers(), numbers(), numbers());
                pass.attend(0, &q, &k, v, &rope, 0.1).unwrap();
                let staged = pass.finish().unwrap();
                cache.adopt(staged);
                cache.eval().unwrap();
            };
            step(&mut cache, 10);
            let active = memory::settled();
            reset_peak_memory().unwrap();
            for _ in 0..8 {
                step(&mut cache, 1);
            }
            let more = peak_memory().unwrap() - active;
            let plane = cache.bytes() / 2;
            assert!(more * 8 < plane, "{kind:?}, {format:?}: {more} bytes beyond the planes of {plane}");
        }
    }
}
