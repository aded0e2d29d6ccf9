//! How far the CPU kernels with float32 activations are from float64, beside MLX's own operations on the same numbers: over many
//! random shapes the root mean square of their errors is at most twice MLX's.

use annulus_engine::ops::{Cpu, Mlx, Ops, Panels};
use annulus_engine::rope::{Rope, RopePositions, Scaling};
use annulus_kernels::attention::{Attention, Columns, attend};
use annulus_kernels::dequantize::Affine;
use annulus_kernels::input::Activations;
use annulus_kernels::packed::FloatType;
use annulus_kernels::rope::Heads;
use annulus_kernels::simd::Path;
use annulus_tests::definition::Random;
use mlx_rs::fast::{ScaledDotProductAttentionMask, scaled_dot_product_attention};
use mlx_rs::ops::{quantize, quantized_matmul};
use mlx_rs::{Array, Dtype};

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

/// Matrices of halves beside MLX's product with the same numbers in float32.
#[test]
fn products_with_halves() {
    for (floats, dtype) in [(FloatType::F16, Dtype::Float16), (FloatType::Bf16, Dtype::Bfloat16)] {
        let (mut random, mut errors) = (Random(13), Errors::default());
        for rows in [1, 2, 3, 5, 8, 13, 17] {
            let (outputs, inputs) = (1 + random.below(70), 32 * (1 + random.below(12)));
            let halves = array(&random.floats(outputs * inputs), &[outputs, inputs]).as_dtype(dtype).unwrap();
            let spelled = halves.as_dtype(Dtype::Float32).unwrap();
            let words = halves.view_dtype(Dtype::Uint16).unwrap().contiguous().unwrap();
            let bytes: Vec<u8> = words.try_as_slice::<u16>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
            let x = random.floats(rows * inputs);
            let w = wide(&numbers(&spelled));
            let dot = |x: &[f32], w: &[f64]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum();
            let exact: Vec<f64> = x.chunks(inputs).flat_map(|x| w.chunks(inputs).map(move |w| dot(x, w))).collect();
            let given = array(&x, &[rows, inputs]);
            let panels = Panels::dense(&bytes, floats, outputs, inputs).unwrap();
            let ours = panels.apply(&given, None, None).unwrap();
            errors.add(&ours, &given.matmul(spelled.t()).unwrap(), &exact);
        }
        errors.check(&format!("{floats:?}"));
    }
}

/// Queries at the end of their columns, each of which sees those before it and its own.
struct Causal {
    heads: usize,
    kv_heads: usize,
    length: usize,
    columns: usize,
    dim: usize,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

const SCALE: f32 = 0.3;

impl Causal {
    fn random(random: &mut Random, [heads, kv_heads]: [usize; 2], length: usize, columns: usize, dim: usize) -> Self {
        let mut numbers = |heads: usize, length: usize| random.floats(heads * length * dim);
        let [queries, keys, values] = [numbers(heads, length), numbers(kv_heads, columns), numbers(kv_heads, columns)];
        Self { heads, kv_heads, length, columns, dim, queries, keys, values }
    }

    fn seen(&self, query: usize) -> usize {
        self.columns - self.length + query + 1
    }

    /// `[length, heads * dim]`, in float64.
    fn exact(&self) -> Vec<f64> {
        let Self { heads, length, columns, dim, .. } = *self;
        let mut out = Vec::new();
        for (query, head) in (0..length).flat_map(|query| (0..heads).map(move |head| (query, head))) {
            let kv = head / (heads / self.kv_heads);
            let q = &self.queries[(head * length + query) * dim..][..dim];
            let key = |column: usize| &self.keys[(kv * columns + column) * dim..][..dim];
            let value = |column: usize| &self.values[(kv * columns + column) * dim..][..dim];
            let dot = |k: &[f32]| q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
            let scores: Vec<f64> = (0..self.seen(query)).map(|column| f64::from(SCALE) * dot(key(column))).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            let of =
                |i: usize| weights.iter().enumerate().map(|(c, w)| w / total * f64::from(value(c)[i])).sum::<f64>();
            out.extend((0..dim).map(of));
        }
        out
    }

    fn ours(&self) -> Array {
        let Self { heads, kv_heads, length, columns, dim, .. } = *self;
        let of = |data, heads: usize, length: usize| Heads {
            data,
            shape: [1, heads, length],
            strides: [heads * length * dim, length * dim, dim],
            dim,
        };
        let asked = Attention {
            queries: of(&self.queries, heads, length),
            keys: Columns::F32(of(&self.keys, kv_heads, columns)),
            values: Columns::F32(of(&self.values, kv_heads, columns)),
            kv_heads,
            scale: SCALE,
            visible: &|_, query| [0..self.seen(query), 0..0, 0..0],
        };
        let mut out = vec![f32::NAN; length * heads * dim];
        attend(Path::best(), asked, &mut out);
        array(&out, &[length, heads * dim])
    }

    fn theirs(&self) -> Array {
        let Self { heads, kv_heads, length, columns, dim, .. } = *self;
        let [queries, keys, values] =
            [(&self.queries, heads, length), (&self.keys, kv_heads, columns), (&self.values, kv_heads, columns)]
                .map(|(numbers, heads, length)| array(numbers, &[1, heads, length, dim]));
        let mask = Some(ScaledDotProductAttentionMask::Causal);
        let out = scaled_dot_product_attention(queries, keys, values, SCALE, mask, None).unwrap();
        out.transpose_axes(&[0, 2, 1, 3]).unwrap()
    }
}

#[test]
fn attention() {
    let (mut random, mut errors) = (Random(17), Errors::default());
    for heads in [[9, 3], [4, 4], [8, 1], [2, 1]] {
        for dim in [16, 40, 64, 128] {
            for (length, columns) in [(1, 1), (1, 7), (1, 300), (3, 130), (17, 17), (70, 200)] {
                let causal = Causal::random(&mut random, heads, length, columns, dim);
                errors.add(&causal.ours(), &causal.theirs(), &causal.exact());
            }
        }
    }
    errors.check("attention");
}
