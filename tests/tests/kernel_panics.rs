//! A kernel that panics on MLX's thread: whoever evaluates its result gets an error, and nothing else is harmed.

use annulus_engine::cache::{Arrangement, Cache, Format};
use annulus_engine::error::Error;
use annulus_engine::mlx::{Like, compute};
use annulus_engine::rope::{Rope, Scaling};
use annulus_plan::{Growth, Kind};
use mlx_rs::{Array, transforms};

const SHAPE: [i32; 4] = [1, 2, 3, 32];

/// The same numbers, by a computation that panics instead of copying them when it is told to.
fn copied(x: &Array, panics: bool) -> Array {
    let run = compute(c"a copy for tests", &[x], &[Like::floats(x.shape())], move |inputs, outputs| {
        assert!(!panics, "as the test asked");
        outputs[0].elements::<f32>().copy_from_slice(&inputs[0].elements::<f32>());
    });
    run.unwrap().pop().unwrap()
}

fn numbers() -> Array {
    Array::from_slice(&(0..192).map(|i| i as f32 / 100.0).collect::<Vec<_>>(), &SHAPE)
}

/// What is evaluated next, and has nothing to do with it, is right.
fn check_others() {
    for _ in 0..3 {
        let sum = copied(&numbers(), false).sum(None).unwrap();
        assert!((sum.try_as_slice::<f32>().unwrap()[0] - 183.36).abs() < 1e-3);
    }
}

fn check_words(error: &impl ToString) {
    let words = error.to_string();
    assert!(words.contains("a copy for tests: a kernel panicked: as the test asked"), "{words}");
}

#[test]
fn an_evaluation_fails_with_what_the_kernel_said() {
    for _ in 0..3 {
        check_words(&copied(&numbers(), true).eval().unwrap_err());
        check_others();
        // And where the panic lies behind other operations, or several panic.
        let behind = copied(&copied(&numbers(), true).add(numbers()).unwrap(), false).sum(None).unwrap();
        check_words(&behind.try_as_slice::<f32>().unwrap_err());
        check_others();
        let two = copied(&copied(&numbers(), true), true);
        check_words(&transforms::eval([&two, &numbers()]).unwrap_err());
        check_others();
    }
}

/// As the server decodes: a step is started before the one before it is read.
#[test]
fn steps_that_were_started_ahead_fail_too() {
    for _ in 0..3 {
        let step = copied(&numbers(), true);
        // MLX says it once: when a step is started, if it knows by then, or else when one is read.
        let first = transforms::async_eval([&step]).map_err(|error| error.to_string());
        let next = copied(&step, false);
        let second = transforms::async_eval([&next]).map_err(|error| error.to_string());
        let read = step.try_as_slice::<f32>().map(|_| ()).map_err(|error| error.to_string());
        let said: Vec<String> = [first, second, read].into_iter().filter_map(Result::err).collect();
        assert!(!said.is_empty());
        said.iter().for_each(check_words);
        drop((next, step));
        check_others();
    }
}

#[test]
fn a_cache_whose_step_panicked_is_lost_and_another_is_not() {
    let arrangement = || Arrangement { kinds: vec![Kind::Full], format: Format::Plain, growth: Growth::default() };
    let rope = Rope::new(32, 10_000.0, false, Scaling::None).unwrap();
    let step = |cache: &mut Cache, panics| {
        let x = numbers();
        let mut pass = cache.begin(3)?;
        pass.attend(0, &x, &x, copied(&x, panics), &rope, 0.2)?;
        let staged = pass.finish()?;
        cache.adopt(staged);
        cache.eval()
    };
    let [mut cache, mut other] = [0, 1].map(|_| Cache::new(arrangement(), 1).unwrap());
    step(&mut cache, false).unwrap();
    step(&mut other, false).unwrap();
    check_words(&step(&mut cache, true).unwrap_err());
    assert!(matches!(step(&mut cache, false).unwrap_err(), Error::Poisoned(_)));
    step(&mut other, false).unwrap();
    check_others();
}
