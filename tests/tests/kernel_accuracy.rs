//! How far the CPU kernels with float32 activations are from float64, beside MLX's own operations on the same numbers: over many
//! random shapes the root mean square of their errors is at most twice MLX's.

use annulus_engine::ops::{Cpu, Mlx, Ops, Panels};
use annulus_engine::rope::{Rope, RopePositions, Scaling};
use annulus_kernels::dequantize::Affine;
use annulus_kernels::input::Activations;
use annulus_tests::definition::Random;
use mlx_rs::Array;
use mlx_rs::ops::{quantize, quantized_matmul};

/// Squares of errors, summed over everything that was compared.
#[derive(Debug, Default)]
struct Errors {
    ours: f64,
    theirs: f64,
    compared: usize,
}

impl Errors {
    fn add(&mut self, ours: &Array, theirs: &Array, exact: &[f64]) {
        let [ours, theirs] = [ours, theirs].map(numbers);
        assert_eq!((ours.len(), theirs.len()), (exact.len(), exact.len()));
        let squares = |found: &[f32]| found.iter().zip(exact).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>();
        self.ours += squares(&ours);
        self.theirs += squares(&theirs);
        self.compared += exact.len();
    }

    fn check(&self, what: &str) {
        let [ours, theirs] = [self.ours, self.theirs].map(|sum| (sum / self.compared as f64).sqrt());
        println!("{what}: {ours:.3e}, MLX {theirs:.3e}, over {} numbers", self.compared);
        assert!(self.compared > 1000 && theirs > 0.0, "{what}: nothing was compared");
        assert!(ours <= 2.0 * theirs, "{what}: {ours:.3e} where MLX has {theirs:.3e}");
    }
}

fn numbers(array: &Array) -> Vec<f32> {
    array.contiguous().unwrap().try_as_slice::<f32>().unwrap().to_vec()
}

fn array(numbers: &[f32], shape: &[usize]) -> Array {
    let shape: Vec<i32> = shape.iter().map(|n| i32::try_from(*n).unwrap()).collect();
    Array::from_slice(numbers, &shape)
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|x| f64::from(*x)).collect()
}

/// A quantized matrix as MLX stores it.
struct Matrix {
    arrays: [Array; 3],
    group: usize,
    bits: usize,
    outputs: usize,
    inputs: usize,
}

impl Matrix {
    fn random(random: &mut Random, outputs: usize, groups: usize, group: usize, bits: usize) -> Self {
        let inputs = groups * group;
        let dense = array(&random.floats(outputs * inputs), &[outputs, inputs]);
        let (words, scales, biases) = quantize(&dense, group as i32, bits as i32).unwrap();
        Self { arrays: [words, scales, biases], group, bits, outputs, inputs }
    }

    fn parts(&self) -> (Vec<u32>, Vec<f32>, Vec<f32>) {
        let [words, scales, biases] = &self.arrays;
        (words.contiguous().unwrap().try_as_slice::<u32>().unwrap().to_vec(), numbers(scales), numbers(biases))
    }

    /// `x` times the transposed matrix, bit by bit and in float64.
    fn exact(&self, x: &[f32]) -> Vec<f64> {
        let (words, scales, biases) = self.parts();
        let number = |index: usize| {
            let per_word = 32 / self.bits;
            let q = words[index / per_word] >> (index % per_word * self.bits) & ((1 << self.bits) - 1);
            f64::from(scales[index / self.group]) * f64::from(q) + f64::from(biases[index / self.group])
        };
        let dense: Vec<f64> = (0..self.outputs * self.inputs).map(number).collect();
        let dot = |x: &[f32], w: &[f64]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum();
        x.chunks(self.inputs).flat_map(|x| dense.chunks(self.inputs).map(move |w| dot(x, w))).collect()
    }

    fn ours(&self, x: &Array) -> Array {
        let (words, scales, biases) = self.parts();
        let source =
            Affine { words: &words, scales: &scales, biases: &biases, group_size: self.group, bits: self.bits };
        let panels = Panels::new(source, self.outputs, Activations::F32).unwrap();
        panels.apply(x, None, None).unwrap()
    }

    fn theirs(&self, x: &Array) -> Array {
        let [words, scales, biases] = &self.arrays;
        quantized_matmul(x, words, scales, biases, true, self.group as i32, self.bits as i32).unwrap()
    }
}

#[test]
fn products() {
    let mut random = Random(11);
    for bits in [4, 8] {
        for group in [32, 64, 128] {
            let mut errors = Errors::default();
            for rows in [1, 2, 3, 5, 8, 13, 17] {
                let (outputs, groups) = (1 + random.below(70), 1 + random.below(12));
                let matrix = Matrix::random(&mut random, outputs, groups, group, bits);
                let x = random.floats(rows * matrix.inputs);
                let given = array(&x, &[rows, matrix.inputs]);
                errors.add(&matrix.ours(&given), &matrix.theirs(&given), &matrix.exact(&x));
            }
            errors.check(&format!("{bits} bits in groups of {group}"));
        }
    }
}

#[test]
fn products_of_no_rows() {
    let matrix = Matrix::random(&mut Random(3), 7, 2, 32, 4);
    let nothing = array(&[], &[0, matrix.inputs]);
    assert_eq!(matrix.ours(&nothing).shape(), [0, 7]);
}

#[test]
fn norms() {
    const EPS: f32 = 1e-5;
    let (mut random, mut errors) = (Random(5), Errors::default());
    for rows in [1, 2, 7, 30] {
        for width in [1, 3, 16, 31, 64, 257, 576] {
            let (x, weight) = (random.floats(rows * width), random.floats(width));
            let exact = x.chunks(width).flat_map(|x| {
                let x = wide(x);
                let mean = x.iter().map(|x| x * x).sum::<f64>() / width as f64;
                let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
                x.into_iter().zip(&weight).map(move |(x, w)| x * scale * f64::from(*w)).collect::<Vec<_>>()
            });
            let exact: Vec<f64> = exact.collect();
            let (x, weight) = (array(&x, &[rows, width]), array(&weight, &[width]));
            let [ours, theirs] = [&Cpu as &dyn Ops, &Mlx].map(|ops| ops.rms_norm(&x, Some(&weight), EPS).unwrap());
            errors.add(&ours, &theirs, &exact);
        }
    }
    errors.check("RMS norm");
}

#[test]
fn rotations() {
    const THETA: f64 = 10_000.0;
    let (mut random, mut errors) = (Random(7), Errors::default());
    for dim in [2, 8, 34, 64, 128] {
        let rope = Rope::new(i32::try_from(dim).unwrap(), THETA as f32, false, Scaling::None).unwrap();
        for (length, first) in [(1, 0), (1, 1000), (5, 3), (40, 200)] {
            let x = random.floats(2 * length * dim);
            let exact = x.chunks(dim).enumerate().flat_map(|(at, head)| {
                let (head, position) = (wide(head), (first + at % length) as f64);
                let half = dim / 2;
                let turned = move |i: usize| {
                    let angle = position / THETA.powf(2.0 * (i % half) as f64 / dim as f64);
                    let (a, b) = (head[i % half], head[i % half + half]);
                    if i < half { a * angle.cos() - b * angle.sin() } else { a * angle.sin() + b * angle.cos() }
                };
                (0..dim).map(turned).collect::<Vec<_>>()
            });
            let exact: Vec<f64> = exact.collect();
            let x = array(&x, &[1, 2, length, dim]);
            let at = RopePositions::Same(first as i32);
            let [ours, theirs] =
                [&Cpu as &dyn Ops, &Mlx].map(|ops| ops.rope(&rope, &[&x], &at).unwrap().pop().unwrap());
            errors.add(&ours, &theirs, &exact);
        }
    }
    errors.check("rotation");
}
