//! What a step that fails leaves behind. A process of its own, since MLX's memory counters belong to the process.

use annulus_engine::cache::{Arrangement, Cache, Format};
use annulus_engine::error::Error;
use annulus_engine::rope::{Rope, Scaling};
use annulus_plan::{Growth, Kind, Row, Window};
use annulus_tests::definition::Random;
use annulus_tests::memory;
use mlx_rs::ops::zeros_dtype;
use mlx_rs::{Array, Dtype, transforms};

const DIM: i32 = 32;

fn cache() -> Cache {
    let kinds = vec![Kind::Full, Kind::Ring(Window::of(6)), Kind::Full];
    Cache::new(Arrangement { kinds, format: Format::Plain, growth: Growth::default() }, 2).unwrap()
}

struct Feed {
    random: Random,
    rope: Rope,
}

impl Feed {
    fn new() -> Self {
        Self { random: Random(9), rope: Rope::new(DIM, 10_000.0, false, Scaling::None).unwrap() }
    }

    fn numbers(&mut self, heads: i32, columns: i32) -> Array {
        let count = 2 * heads * columns * DIM;
        Array::from_slice(&self.random.floats(count as usize), &[2, heads, columns, DIM])
    }

    /// One step of three layers; `spoil` may exchange the values of the second.
    fn step(&mut self, cache: &mut Cache, columns: i32, spoil: impl Fn(Array) -> Array) -> Result<Array, Error> {
        let mut pass = cache.begin(columns as u32)?;
        let mut out = None;
        for layer in 0..3 {
            let (q, k, v) = (self.numbers(4, columns), self.numbers(2, columns), self.numbers(2, columns));
            let v = if layer == 1 { spoil(v) } else { v };
            out = Some(pass.attend(layer, &q, &k, v, &self.rope, 0.2)?);
        }
        let staged = pass.finish()?;
        cache.adopt(staged);
        cache.eval()?;
        Ok(out.unwrap())
    }
}

/// An array that can be described and not computed: MLX builds this transform of float64 and has no kernel for it.
fn impossible() -> Array {
    let numbers = zeros_dtype(&[1, DIM], Dtype::Float64).unwrap();
    numbers.hadamard_transform(None).unwrap().as_dtype(Dtype::Float32).unwrap().sum(false).unwrap()
}

#[test]
fn failures_stay_where_they_happen() {
    let (mut cache, mut control) = (cache(), cache());
    let (mut feed, mut same) = (Feed::new(), Feed::new());
    for columns in [5, 1, 1, 1] {
        feed.step(&mut cache, columns, |v| v).unwrap();
        same.step(&mut control, columns, |v| v).unwrap();
    }

    // While the graph is built: nothing has happened, and nothing of it stays.
    let before = (memory::settled(), cache.layouts().to_vec(), cache.bytes());
    let mut broken =
        Feed { random: feed.random.clone(), rope: Rope::new(DIM, 10_000.0, false, Scaling::None).unwrap() };
    let error = broken.step(&mut cache, 1, |v| v.reshape(&[2, 4, 1, DIM / 2]).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Mlx(_)), "{error}");
    assert_eq!((memory::settled(), cache.layouts().to_vec(), cache.bytes()), before);
    assert!(cache.begin(1).unwrap().finish().is_err(), "a pass whose layers were left out");
    assert_eq!(memory::settled(), before.0);
    let (got, want) = (feed.step(&mut cache, 1, |v| v).unwrap(), same.step(&mut control, 1, |v| v).unwrap());
    transforms::eval([&got, &want]).unwrap();
    assert_eq!(got.try_as_slice::<f32>().unwrap(), want.try_as_slice::<f32>().unwrap());
    drop((got, want));

    // While it is evaluated: this cache is lost, the other is not, and the memory comes back.
    let with_both = memory::settled();
    let planes = cache.bytes();
    let error = feed.step(&mut cache, 1, |v| v.add(impossible()).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Mlx(_)), "{error}");
    for error in [
        cache.begin(1).unwrap_err(),
        cache.filter(&[Row(0)]).unwrap_err(),
        cache.extract(Row(0), None).unwrap_err(),
        cache.extend(Vec::new()).unwrap_err(),
        cache.eval().unwrap_err(),
    ] {
        assert!(matches!(error, Error::Poisoned(_)), "{error}");
    }
    drop(error);
    assert_eq!(cache.bytes(), 0);
    let after = memory::settled();
    assert!(
        (control.bytes()..=with_both - planes).contains(&after),
        "{after} of {with_both} bytes, {planes} of them lost"
    );
    same.step(&mut control, 1, |v| v).unwrap();
    drop((cache, control));
    let rope_and_nothing_else = memory::settled();
    assert!(rope_and_nothing_else < 4096, "{rope_and_nothing_else} bytes are still held");
}
