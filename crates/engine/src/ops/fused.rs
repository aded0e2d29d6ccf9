//! Several layers in one node of MLX's graph, where all their matrices are packed for this project's kernels. What a node
//! costs beside its arithmetic, a small model's decode step pays a few hundred times.

use std::borrow::Cow;

use annulus_kernels::input::Input;
use annulus_kernels::norm::rms_norm;
use annulus_kernels::product::{Finish, Gate, gated, product};
use annulus_kernels::simd::Path;
use mlx_rs::{Array, Dtype};

use super::Panels;
use super::cpu::one;
use crate::mlx::{Like, Result, View, compute};
use crate::nn::{Activation, Gated, Linear, Matrix, RmsNorm};

/// A linear layer's matrix and its bias.
struct Layer {
    panels: Panels,
    /// Which of the inputs its bias is.
    bias: Option<usize>,
}

/// A norm before the layers.
#[derive(Clone, Copy)]
struct Before {
    /// Which of the inputs its factor is.
    weight: usize,
    eps: f32,
}

/// A layer whose matrix is packed and whose bias, if it has one, is in float32; the bias joins the inputs.
fn layer<'a>(linear: &'a Linear, inputs: &mut Vec<&'a Array>) -> Option<Layer> {
    let Matrix::Panels(panels) = &linear.weights else { return None };
    let bias = linear.bias.as_ref().map(|bias| join(bias, inputs)).transpose().ok()?;
    Some(Layer { panels: panels.clone(), bias })
}

/// A norm with a factor in float32, as wide as `x`; the factor joins the inputs.
fn before<'a>(norm: &'a RmsNorm, x: &Array, inputs: &mut Vec<&'a Array>) -> Option<Before> {
    let weight = norm.weight.as_ref().filter(|weight| x.ndim() > 0 && weight.shape() == [x.dim(-1)])?;
    Some(Before { weight: join(weight, inputs).ok()?, eps: norm.eps })
}

/// Makes an array in float32 one of the inputs: which of them. Others are no error, but nothing for the kernels.
fn join<'a>(array: &'a Array, inputs: &mut Vec<&'a Array>) -> std::result::Result<usize, ()> {
    if array.dtype() != Dtype::Float32 {
        return Err(());
    }
    inputs.push(array);
    Ok(inputs.len() - 1)
}

impl Layer {
    fn bias<'v>(&self, inputs: &[View<'v>]) -> Option<Cow<'v, [f32]>> {
        self.bias.map(|index| inputs[index].elements())
    }

    /// `residual` plus what the layer makes of `x`.
    fn add(&self, x: &[f32], residual: &[f32], inputs: &[View<'_>], out: &mut [f32]) {
        let bias = self.bias(inputs);
        let finish = match &bias {
            Some(bias) => Finish::AddBoth { bias, residual },
            None => Finish::AddTo(residual),
        };
        product(Path::best(), &self.panels.input(x), self.panels.packed(), finish, out);
    }
}

/// `x`, normalised where a norm comes before.
fn normalised<'v>(x: &'v [f32], before: Option<Before>, inputs: &[View<'_>]) -> Cow<'v, [f32]> {
    let Some(Before { weight, eps }) = before else { return x.into() };
    let mut out = vec![0.0; x.len()];
    if !x.is_empty() {
        rms_norm(Path::best(), x, &inputs[weight].elements(), eps, &mut out);
    }
    out.into()
}

/// Several linear layers over the same `x`, `[B, L, inputs]`, which `norm` normalises before, each split into as many heads
/// as stand beside it: `[B, heads, L, dim]`. `None` when a layer is not packed for the kernels, or MLX must compute in
/// another type.
pub(crate) fn project(x: &Array, norm: Option<&RmsNorm>, layers: &[(&Linear, i32)]) -> Option<Result<Vec<Array>>> {
    if x.dtype() != Dtype::Float32 || x.ndim() != 3 {
        return None;
    }
    let mut inputs = vec![x];
    let all: Vec<Layer> = layers.iter().map(|(linear, _)| layer(linear, &mut inputs)).collect::<Option<_>>()?;
    let before = match norm {
        Some(norm) => Some(before(norm, x, &mut inputs)?),
        None => None,
    };
    if all.windows(2).any(|pair| !pair[0].panels.takes_what(&pair[1].panels)) {
        return None;
    }
    if let Err(error) = all[0].panels.checked(x) {
        return Some(Err(error));
    }
    let (rows, length) = (x.dim(0), x.dim(1));
    let shape = |(layer, (_, heads)): (&Layer, &(_, i32))| {
        Like::floats(&[rows, *heads, length, layer.panels.outputs() / heads])
    };
    let likes: Vec<Like> = all.iter().zip(layers).map(shape).collect();
    let heads: Vec<usize> = layers.iter().map(|(_, heads)| usize::try_from(*heads).unwrap_or(1)).collect();
    let length = usize::try_from(length).unwrap_or(0);
    Some(compute(c"annulus projections", &inputs, &likes, move |inputs, outputs| {
        let x = all[0].panels.input(&normalised(&inputs[0].elements(), before, inputs));
        for ((layer, heads), out) in all.iter().zip(&heads).zip(outputs) {
            let bias = layer.bias(inputs);
            let finish = bias.as_deref().map_or(Finish::Store, Finish::AddBias);
            let (packed, out) = (layer.panels.packed(), out.elements());
            if length == 1 {
                product(Path::best(), &x, packed, finish, out);
                continue;
            }
            let mut whole = vec![0.0; out.len()];
            product(Path::best(), &x, packed, finish, &mut whole);
            heads_first(&whole, [length, *heads, packed.outputs() / heads], out);
        }
    }))
}

/// `[B, L, heads, dim]` to `[B, heads, L, dim]`.
fn heads_first(x: &[f32], [length, heads, dim]: [usize; 3], out: &mut [f32]) {
    let row = (length * heads * dim).max(1);
    for (x, out) in x.chunks_exact(row).zip(out.chunks_exact_mut(row)) {
        for (head, out) in out.chunks_exact_mut(length * dim).enumerate() {
            for (position, out) in out.chunks_exact_mut(dim).enumerate() {
                out.copy_from_slice(&x[(position * heads + head) * dim..][..dim]);
            }
        }
    }
}

/// The two layers of a gated unit that read its input.
struct Halves {
    both: [Layer; 2],
    bend: Gate,
}

impl Halves {
    fn new<'a>(unit: &'a Gated, inputs: &mut Vec<&'a Array>) -> Option<Self> {
        let both = [layer(&unit.gate, inputs)?, layer(&unit.up, inputs)?];
        let [first, second] = both.each_ref().map(|layer| &layer.panels);
        if !first.takes_what(second) || first.outputs() != second.outputs() {
            return None;
        }
        let bend = match unit.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        Some(Self { both, bend })
    }

    /// `activation(gate(x)) * up(x)`.
    fn apply(&self, x: &Input, inputs: &[View<'_>], out: &mut [f32]) {
        let bias = self.both.each_ref().map(|layer| layer.bias(inputs));
        let bias = bias.each_ref().map(Option::as_deref);
        let packed = self.both.each_ref().map(|layer| layer.panels.packed());
        gated(Path::best(), x, packed, bias, self.bend, out);
    }
}

/// The first half of a gated unit: `activation(gate(x)) * up(x)`. `None` as for [`project`].
pub(crate) fn gate(x: &Array, unit: &Gated) -> Option<Result<Array>> {
    if x.dtype() != Dtype::Float32 {
        return None;
    }
    let mut inputs = vec![x];
    let halves = Halves::new(unit, &mut inputs)?;
    let first = &halves.both[0].panels;
    if let Err(error) = first.checked(x) {
        return Some(Err(error));
    }
    let mut shape = x.shape().to_vec();
    *shape.last_mut()? = first.outputs();
    Some(one(compute(c"annulus gate", &inputs, &[Like::floats(&shape)], move |inputs, outputs| {
        let x = halves.both[0].panels.input(&inputs[0].elements());
        halves.apply(&x, inputs, outputs[0].elements());
    })))
}

/// `h` plus what a gated unit makes of `h` normalised, where `h` is `x` plus what `output` makes of `attended`. `None` as for
/// [`project`].
pub(crate) fn feed_forward(
    x: &Array,
    output: &Linear,
    attended: &Array,
    norm: &RmsNorm,
    unit: &Gated,
) -> Option<Result<Array>> {
    if x.dtype() != Dtype::Float32 || attended.dtype() != Dtype::Float32 {
        return None;
    }
    let mut inputs = vec![x, attended];
    let output = layer(output, &mut inputs)?;
    let halves = Halves::new(unit, &mut inputs)?;
    let down = layer(&unit.down, &mut inputs)?;
    let before = before(norm, x, &mut inputs)?;
    let (first, last) = (halves.both[0].panels.packed(), down.panels.packed());
    let residual = output.panels.packed();
    if first.outputs() != last.inputs() || [first.inputs(), residual.outputs()] != [last.outputs(); 2] {
        return None;
    }
    let fits = halves.both[0].panels.checked(x).and_then(|_| output.panels.checked(attended));
    if let Err(error) = fits {
        return Some(Err(error));
    }
    Some(one(compute(c"annulus feed-forward", &inputs, &[Like::floats(x.shape())], move |inputs, outputs| {
        let mut h = vec![0.0; outputs[0].elements::<f32>().len()];
        output.add(&inputs[1].elements(), &inputs[0].elements(), inputs, &mut h);
        let x = halves.both[0].panels.input(&normalised(&h, Some(before), inputs));
        let mut inner = vec![0.0; x.rows() * down.panels.packed().inputs()];
        halves.apply(&x, inputs, &mut inner);
        down.add(&inner, &h, inputs, outputs[0].elements());
    })))
}
