//! Norm, rotation, attention and sampling by this project's kernels, in float32. Arrays of other types go MLX's way.

use annulus_kernels::attention::{self, Attention, Columns, Strided};
use annulus_kernels::norm::rms_norm;
use annulus_kernels::rope::Heads;
use annulus_kernels::sample::sample;
use annulus_kernels::simd::Path;
use mlx_rs::{Array, Dtype};

use super::{Mlx, Ops};
use crate::cache::{Fetched, Format, Visible};
use crate::error::Result;
use crate::mlx::{self, Element, Like, View, compute};
use crate::rope::{Rope, RopePositions};
use crate::sample::Sampler;

/// The kernels of `annulus-kernels`.
#[derive(Debug)]
pub struct Cpu;

impl Ops for Cpu {
    fn rms_norm(&self, x: &Array, weight: Option<&Array>, eps: f32) -> mlx::Result<Array> {
        let Some(weight) = weight.filter(|weight| is_f32(&[x, weight]) && x.size() > 0) else {
            return Mlx.rms_norm(x, weight, eps);
        };
        if weight.shape() != [x.dim(-1)] {
            return Mlx.rms_norm(x, Some(weight), eps);
        }
        one(compute(c"annulus rms norm", &[x, weight], &[Like::floats(x.shape())], move |inputs, outputs| {
            rms_norm(Path::best(), &inputs[0].elements(), &inputs[1].elements(), eps, outputs[0].elements());
        }))
    }

    fn rope(&self, rope: &Rope, xs: &[&Array], positions: &RopePositions) -> mlx::Result<Vec<Array>> {
        let Some(kernel) = rope.kernel().filter(|_| is_f32(xs) && xs.iter().all(|x| x.ndim() == 4)) else {
            return Mlx.rope(rope, xs, positions);
        };
        let mut inputs = xs.to_vec();
        let same = match positions {
            RopePositions::Same(position) => Some(*position),
            RopePositions::Each(each) => {
                inputs.push(each);
                None
            }
        };
        let likes: Vec<Like> = xs.iter().map(|x| Like::floats(x.shape())).collect();
        compute(c"annulus rope", &inputs, &likes, move |inputs, outputs| {
            for (x, out) in inputs.iter().zip(outputs) {
                let x = Spread::<f32>::new(*x);
                let first = match same {
                    Some(position) => vec![position; x.shape[0]],
                    None => inputs[inputs.len() - 1].elements::<i32>().into_owned(),
                };
                kernel.turn(x.heads(), &first, out.elements());
            }
        })
    }

    fn attend(
        &self,
        queries: &Array,
        columns: &Fetched,
        format: Format,
        scale: f32,
        visible: &Visible,
    ) -> Result<Array> {
        let planes: Vec<&Array> = columns.keys.iter().chain(&columns.values).collect();
        // Of an affine plane the integers are no floats, scales and biases are.
        let floats =
            planes.iter().enumerate().filter(|(at, _)| planes.len() == 2 || at % 3 != 0).map(|(_, plane)| *plane);
        let floats: Vec<&Array> = floats.chain([queries]).collect();
        let (&[rows, heads, length, dim], true) = (queries.shape(), is_f32(&floats)) else {
            return Mlx.attend(queries, columns, format, scale, visible);
        };
        let (mask, range) = (visible.mask(), columns.range);
        let inputs: Vec<&Array> = [queries].into_iter().chain(planes).collect();
        let like = Like::floats(&[rows, length, heads * dim]);
        Ok(one(compute(c"annulus attention", &inputs, &[like], move |inputs, outputs| {
            let queries = Spread::<f32>::new(inputs[0]);
            let (keys, values) = inputs[1..].split_at((inputs.len() - 1) / 2);
            let (keys, values) = (Plane::new(keys, format), Plane::new(values, format));
            let (from, to) = (range.from, range.to);
            let count = u32::try_from(queries.shape[2]).unwrap_or(u32::MAX);
            let see = |row: usize, query: usize| {
                let query = u32::try_from(query).unwrap_or(u32::MAX);
                mask.visible(to - from, count, row, query)
                    .map(|run| (run.from.min(run.to) + from) as usize..(run.to + from) as usize)
            };
            let asked = Attention {
                queries: queries.heads(),
                keys: keys.columns(),
                values: values.columns(),
                kv_heads: keys.heads(),
                scale,
                visible: &see,
            };
            attention::attend(Path::best(), asked, outputs[0].elements());
        }))?)
    }

    fn sample(&self, logits: &Array, sampler: &Sampler, step: u64) -> Result<Array> {
        let (&[rows, vocabulary], true) = (logits.shape(), is_f32(&[logits]) && logits.size() > 0) else {
            return Mlx.sample(logits, sampler, step);
        };
        let (choice, randoms) = (sampler.choice(), sampler.randoms(step, rows));
        let like = Like { shape: vec![rows], dtype: Dtype::Uint32 };
        let width = usize::try_from(vocabulary).unwrap_or(1);
        Ok(one(compute(c"annulus sample", &[logits], &[like], move |inputs, outputs| {
            let logits = inputs[0].elements::<f32>();
            let rows = logits.chunks_exact(width).zip(&randoms).zip(outputs[0].elements::<u32>());
            for ((logits, random), token) in rows {
                *token = sample(logits, choice, *random);
            }
        }))?)
    }
}

/// Whether the kernels, which compute in float32, take all of these.
fn is_f32(arrays: &[&Array]) -> bool {
    arrays.iter().all(|array| array.dtype() == Dtype::Float32)
}

/// The one result of a computation.
pub(crate) fn one(results: mlx::Result<Vec<Array>>) -> mlx::Result<Array> {
    results?.pop().ok_or_else(|| mlx_rs::error::Exception::custom("a computation without a result"))
}

/// An array of four axes, the numbers of the last side by side.
struct Spread<'a, T: Element> {
    data: std::borrow::Cow<'a, [T]>,
    shape: [usize; 4],
    strides: [usize; 3],
}

impl<'a, T: Element> Spread<'a, T> {
    fn new(view: View<'a>) -> Self {
        let axes = |of: Vec<usize>| -> [usize; 4] { of.try_into().expect("arrays of heads have four axes") };
        let (shape, strides) = (axes(view.shape()), axes(view.strides()));
        if strides[3] == 1 || shape[3] == 1 {
            return Self { data: view.memory::<T>().into(), shape, strides: [strides[0], strides[1], strides[2]] };
        }
        let [_, heads, length, dim] = shape;
        Self { data: view.elements(), shape, strides: [heads * length * dim, length * dim, dim] }
    }

    fn strided(&self) -> Strided<'_, T> {
        Strided { data: &self.data, strides: self.strides, width: self.shape[3] }
    }
}

impl Spread<'_, f32> {
    fn heads(&self) -> Heads<'_> {
        let [rows, heads, length, dim] = self.shape;
        Heads { data: &self.data, shape: [rows, heads, length], strides: self.strides, dim }
    }
}

/// Keys or values of a layer.
enum Plane<'a> {
    Plain(Spread<'a, f32>),
    Affine { packed: Spread<'a, u32>, scales: Spread<'a, f32>, biases: Spread<'a, f32>, group_size: usize, bits: usize },
}

impl<'a> Plane<'a> {
    fn new(arrays: &[View<'a>], format: Format) -> Self {
        let size = |n: i32| usize::try_from(n).unwrap_or(0);
        match format {
            Format::Plain => Self::Plain(Spread::new(arrays[0])),
            Format::Affine(affine) => Self::Affine {
                packed: Spread::new(arrays[0]),
                scales: Spread::new(arrays[1]),
                biases: Spread::new(arrays[2]),
                group_size: size(affine.group()),
                bits: size(affine.bits()),
            },
        }
    }

    fn heads(&self) -> usize {
        match self {
            Self::Plain(plane) => plane.shape[1],
            Self::Affine { packed, .. } => packed.shape[1],
        }
    }

    fn columns(&self) -> Columns<'_> {
        match self {
            Self::Plain(plane) => Columns::F32(plane.heads()),
            Self::Affine { packed, scales, biases, group_size, bits } => Columns::Affine {
                packed: packed.strided(),
                scales: scales.strided(),
                biases: biases.strided(),
                group_size: *group_size,
                bits: *bits,
            },
        }
    }
}
