//! Measures the products of a small model, SmolLM2-135M's: tokens a second on each path, beside dense float32 in the same
//! run, and the share of the memory's speed. Best of several rounds, since machines are shared.
//!
//!     cargo run --release --package annulus-kernels --example products [ROUNDS [PATH]]

use std::time::{Duration, Instant};

use annulus_kernels::dequantize::Affine;
use annulus_kernels::gemv::gemv;
use annulus_kernels::input::{Activations, Input};
use annulus_kernels::packed::Packed;
use annulus_kernels::pool;
use annulus_kernels::product::{Finish, product};
use annulus_kernels::sgemm::{Matrix, Shape, sgemm};
use annulus_kernels::simd::Path;

/// Outputs and inputs of a layer's matrices; there are thirty layers.
const MATRICES: [(usize, usize); 7] =
    [(576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536)];
const LAYERS: usize = 30;

fn packed(outputs: usize, inputs: usize, bits: usize) -> Packed {
    let words: Vec<u32> = (0..outputs * inputs * bits / 32).map(|i| (i as u32).wrapping_mul(2_654_435_761)).collect();
    let groups = outputs * inputs / 32;
    let source =
        Affine { words: &words, scales: &vec![0.5; groups], biases: &vec![-4.0; groups], group_size: 32, bits };
    Packed::new(source, outputs).expect("these shapes can be packed")
}

fn best(rounds: usize, mut f: impl FnMut()) -> Duration {
    let time = |f: &mut dyn FnMut()| {
        let started = Instant::now();
        f();
        started.elapsed()
    };
    (0..rounds).map(|_| time(&mut f)).min().unwrap_or_default()
}

/// Bytes a second at which all threads together read memory.
fn memory_speed() -> f64 {
    let memory = vec![1u64; 512 << 17];
    let pieces = 64;
    let time = best(5, || {
        pool::for_each(pieces, |piece| {
            let part = &memory[piece * memory.len() / pieces..(piece + 1) * memory.len() / pieces];
            std::hint::black_box(part.iter().fold(0, |sum, x| sum ^ x));
        });
    });
    size_of_val(memory.as_slice()) as f64 / time.as_secs_f64()
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let bandwidth = memory_speed();
    println!("{} threads, memory {:.1} GB/s", pool::threads(), bandwidth / 1e9);
    let layers: Vec<Packed> =
        (0..LAYERS).flat_map(|_| MATRICES.map(|(outputs, inputs)| packed(outputs, inputs, 4))).collect();
    let head = packed(49_152, 576, 8);
    let bytes: usize = layers.iter().map(Packed::bytes).sum::<usize>() + head.bytes();
    let only = std::env::args().nth(2);
    for path in Path::available() {
        if only.as_ref().is_some_and(|only| *only != path.to_string()) {
            continue;
        }
        for kind in [Activations::F32, Activations::Int16] {
            for rows in [1, 8, 256] {
                let x: Vec<f32> = (0..rows * 1536).map(|i| (i % 97) as f32 / 48.0 - 1.0).collect();
                let mut out = vec![0.0; rows * 49_152];
                let mut run = |w: &Packed, rows: usize| {
                    let x =
                        Input::new(path, &x[..rows * w.inputs()], w.inputs(), kind).expect("a whole number of groups");
                    product(path, &x, w, Finish::Store, &mut out[..rows * w.outputs()]);
                };
                let time = best(rounds, || {
                    layers.iter().for_each(|w| run(w, rows));
                    run(&head, if rows > 8 { 1 } else { rows });
                });
                let seconds = time.as_secs_f64();
                println!(
                    "{:12} {:5} {rows:4} rows: {:8.2} ms, {:8.1} tokens/s, {:5.1} % of memory",
                    path.to_string(),
                    format!("{kind:?}").to_lowercase(),
                    seconds * 1e3,
                    rows as f64 / seconds,
                    bytes as f64 / seconds / bandwidth * 100.0,
                );
            }
        }
    }
    dense(rounds);
}

/// The same layers (without the head) in dense float32.
fn dense(rounds: usize) {
    let layers: Vec<(usize, usize, Vec<f32>)> =
        (0..LAYERS).flat_map(|_| MATRICES.map(|(n, k)| (n, k, vec![0.5f32; n * k]))).collect();
    for rows in [1, 8, 256] {
        let x = vec![0.5f32; rows * 1536];
        let mut out = vec![0.0f32; rows * 1536];
        let time = best(rounds, || {
            for (n, k, w) in &layers {
                if rows == 1 {
                    gemv(1.0, &x[..*k], w, *k, 0.0, &mut out[..*n]);
                    continue;
                }
                let shape = Shape { m: rows, n: *n, k: *k };
                let a = Matrix { data: x.as_ptr(), row_stride: *k as isize, col_stride: 1 };
                let b = Matrix { data: w.as_ptr(), row_stride: 1, col_stride: *k as isize };
                let c = Matrix { data: out.as_mut_ptr(), row_stride: *n as isize, col_stride: 1 };
                // SAFETY: the sizes are those of the vectors.
                unsafe { sgemm(shape, 1.0, a, b, 0.0, c) };
            }
        });
        println!("dense float32      {rows:4} rows: {:8.2} ms", time.as_secs_f64() * 1e3);
    }
}
