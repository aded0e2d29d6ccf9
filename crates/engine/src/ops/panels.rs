//! Products with matrices that are packed for this project's kernels.

use std::borrow::Cow;
use std::sync::Arc;

use annulus_kernels::dequantize::Affine;
use annulus_kernels::input::{Activations, Input};
use annulus_kernels::packed::Packed;
use annulus_kernels::product::{Finish, Gate, gated, product};
use annulus_kernels::simd::Path;
use mlx_rs::{Array, Dtype};

use super::cpu::one;
use crate::mlx::{Like, Result, View, compute};
use crate::nn::{Activation, Linear, Matrix};

/// From this many rows on, products may round activations to bytes: a prompt, not a step of decoding.
const MANY: usize = 16;

/// A matrix in the kernels' own layout. A handle: clones share it.
#[derive(Debug, Clone)]
pub struct Panels {
    packed: Arc<Packed>,
    /// What activations become when there are many rows of them.
    many: Activations,
}

/// A linear layer's matrix and its bias.
struct Layer {
    panels: Panels,
    /// Which of the inputs its bias is.
    bias: Option<usize>,
}

impl Panels {
    /// Packs a matrix, where the kernels have products for it.
    #[must_use]
    pub fn new(source: Affine<'_>, outputs: usize, many: Activations) -> Option<Self> {
        Some(Self { packed: Arc::new(Packed::new(source, outputs)?), many })
    }

    fn outputs(&self) -> i32 {
        i32::try_from(self.packed.outputs()).unwrap_or(i32::MAX)
    }

    fn activations(&self, rows: usize) -> Activations {
        if rows >= MANY { self.many } else { Activations::F32 }
    }

    fn input(&self, x: &[f32]) -> Input {
        let width = self.packed.inputs();
        Input::new(Path::best(), x, width, self.activations(x.len() / width)).expect("widths were checked before")
    }

    /// The rows with these indices: `[..]` becomes `[.., inputs]`.
    ///
    /// # Errors
    /// When MLX refuses the shape.
    pub fn rows(&self, indices: &Array) -> Result<Array> {
        let mut shape = indices.shape().to_vec();
        shape.push(i32::try_from(self.packed.inputs()).unwrap_or(i32::MAX));
        let packed = Arc::clone(&self.packed);
        let indices = indices.as_dtype(Dtype::Uint32)?;
        one(compute(c"annulus rows", &[&indices], &[Like::floats(&shape)], move |inputs, outputs| {
            let rows = outputs[0].elements::<f32>().chunks_exact_mut(packed.inputs());
            for (index, row) in inputs[0].elements::<u32>().iter().zip(rows) {
                // As MLX's own look-up on the CPU, an index beyond the rows is the caller's fault.
                packed.row((*index as usize).min(packed.outputs() - 1), row);
            }
        }))
    }

    /// `x * transpose(weights) + bias`, and `residual` added to it: `[.., inputs]` becomes `[.., outputs]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    pub fn apply(&self, x: &Array, bias: Option<&Array>, residual: Option<&Array>) -> Result<Array> {
        let dtype = x.dtype();
        let x = self.checked(x)?;
        let mut shape = x.shape().to_vec();
        *shape.last_mut().expect("checked") = self.outputs();
        let floats = |array: Option<&Array>| array.map(|array| array.as_dtype(Dtype::Float32)).transpose();
        let (bias, residual) = (floats(bias)?, floats(residual)?);
        let inputs: Vec<&Array> = [&x].into_iter().chain(&bias).chain(&residual).collect();
        let (panels, has_bias, has_residual) = (self.clone(), bias.is_some(), residual.is_some());
        let like = Like::floats(&shape);
        let out = one(compute(c"annulus product", &inputs, &[like], move |inputs, outputs| {
            let x = panels.input(&inputs[0].elements());
            let [first, last] = [inputs.get(1), inputs.last()].map(|view| view.map(|view| view.elements::<f32>()));
            let finish = match (has_bias, has_residual, &first, &last) {
                (true, true, Some(bias), Some(residual)) => Finish::AddBoth { bias, residual },
                (true, false, Some(bias), _) => Finish::AddBias(bias),
                (false, true, _, Some(residual)) => Finish::AddTo(residual),
                _ => Finish::Store,
            };
            product(Path::best(), &x, &panels.packed, finish, outputs[0].elements());
        }))?;
        out.as_dtype(dtype)
    }

    /// `x` in float32, if it has as many columns as this matrix.
    fn checked(&self, x: &Array) -> Result<Array> {
        let width = i32::try_from(self.packed.inputs()).unwrap_or(i32::MAX);
        if x.ndim() == 0 || x.dim(-1) != width {
            let problem = format!("an array of shape {:?} times a matrix of {width} inputs", x.shape());
            return Err(mlx_rs::error::Exception::custom(problem));
        }
        x.as_dtype(Dtype::Float32)
    }
}

/// Several linear layers over the same `x`, `[B, L, inputs]`, each split into as many heads as stand beside it:
/// `[B, heads, L, dim]`. `None` when a layer is not packed for the kernels, or MLX must compute in another type.
pub(crate) fn project(x: &Array, layers: &[(&Linear, i32)]) -> Option<Result<Vec<Array>>> {
    if x.dtype() != Dtype::Float32 || x.ndim() != 3 {
        return None;
    }
    let mut inputs = vec![x];
    let all: Vec<Layer> = layers.iter().map(|(linear, _)| layer(linear, &mut inputs)).collect::<Option<_>>()?;
    if all.windows(2).any(|pair| pair[0].panels.packed.inputs() != pair[1].panels.packed.inputs()) {
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
        let x = all[0].panels.input(&inputs[0].elements());
        for ((layer, heads), out) in all.iter().zip(&heads).zip(outputs) {
            let bias = layer.bias(inputs);
            let finish = bias.as_deref().map_or(Finish::Store, Finish::AddBias);
            let (packed, out) = (&layer.panels.packed, out.elements());
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

/// The first half of a gated unit: `activation(gate(x)) * up(x)`. `None` as for [`project`].
pub(crate) fn gate(x: &Array, gate: &Linear, up: &Linear, activation: Activation) -> Option<Result<Array>> {
    if x.dtype() != Dtype::Float32 {
        return None;
    }
    let mut inputs = vec![x];
    let both = [layer(gate, &mut inputs)?, layer(up, &mut inputs)?];
    let [first, second] = both.each_ref().map(|layer| &layer.panels.packed);
    if first.inputs() != second.inputs() || first.outputs() != second.outputs() {
        return None;
    }
    if let Err(error) = both[0].panels.checked(x) {
        return Some(Err(error));
    }
    let mut shape = x.shape().to_vec();
    *shape.last_mut()? = both[0].panels.outputs();
    let bend = match activation {
        Activation::Silu => Gate::Silu,
        Activation::GeluTanh => Gate::GeluTanh,
    };
    Some(one(compute(c"annulus gate", &inputs, &[Like::floats(&shape)], move |inputs, outputs| {
        let x = both[0].panels.input(&inputs[0].elements());
        let bias = both.each_ref().map(|layer| layer.bias(inputs));
        let bias = bias.each_ref().map(Option::as_deref);
        let packed = both.each_ref().map(|layer| &*layer.panels.packed);
        gated(Path::best(), &x, packed, bias, bend, outputs[0].elements());
    })))
}

/// A layer whose matrix is packed and whose bias, if it has one, is in float32; the bias joins the inputs.
fn layer<'a>(linear: &'a Linear, inputs: &mut Vec<&'a Array>) -> Option<Layer> {
    let Matrix::Panels(panels) = &linear.weights else { return None };
    let bias = match &linear.bias {
        None => None,
        Some(bias) if bias.dtype() == Dtype::Float32 => {
            inputs.push(bias);
            Some(inputs.len() - 1)
        }
        Some(_) => return None,
    };
    Some(Layer { panels: panels.clone(), bias })
}

impl Layer {
    fn bias<'v>(&self, inputs: &[View<'v>]) -> Option<Cow<'v, [f32]>> {
        self.bias.map(|index| inputs[index].elements())
    }
}
