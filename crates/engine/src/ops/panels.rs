//! Products with matrices that are packed for this project's kernels.

use std::sync::Arc;

use annulus_kernels::dequantize::Affine;
use annulus_kernels::input::{Activations, Input};
use annulus_kernels::packed::{FloatType, Packed};
use annulus_kernels::product::{Finish, product};
use annulus_kernels::simd::Path;
use mlx_rs::{Array, Dtype};

use super::cpu::one;
use crate::mlx::{Like, Result, compute};

/// A matrix in the kernels' own layout. A handle: clones share it.
#[derive(Debug, Clone)]
pub struct Panels {
    packed: Arc<Packed>,
    /// What activations become.
    activations: Activations,
}

impl Panels {
    /// Packs a matrix, where the kernels have products for it.
    #[must_use]
    pub fn new(source: Affine<'_>, outputs: usize, activations: Activations) -> Option<Self> {
        Some(Self { packed: Arc::new(Packed::new(source, outputs)?), activations })
    }

    /// Packs a matrix of halves: `numbers` are little-endian, row after row. Its products take activations as they are.
    #[must_use]
    pub fn dense(numbers: &[u8], floats: FloatType, outputs: usize, inputs: usize) -> Option<Self> {
        let packed = Arc::new(Packed::dense(numbers, floats, outputs, inputs)?);
        Some(Self { packed, activations: Activations::F32 })
    }

    /// Whether products with both can share activations.
    pub(super) fn takes_what(&self, other: &Self) -> bool {
        self.packed.inputs() == other.packed.inputs() && self.activations == other.activations
    }

    pub(super) fn outputs(&self) -> i32 {
        i32::try_from(self.packed.outputs()).unwrap_or(i32::MAX)
    }

    pub(super) fn packed(&self) -> &Packed {
        &self.packed
    }

    /// Activations as products with this matrix take them.
    pub(super) fn input(&self, x: &[f32]) -> Input {
        Input::new(Path::best(), x, self.packed.inputs(), self.activations).expect("widths were checked before")
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
    pub(super) fn checked(&self, x: &Array) -> Result<Array> {
        let width = i32::try_from(self.packed.inputs()).unwrap_or(i32::MAX);
        if x.ndim() == 0 || x.dim(-1) != width {
            let problem = format!("an array of shape {:?} times a matrix of {width} inputs", x.shape());
            return Err(mlx_rs::error::Exception::custom(problem));
        }
        x.as_dtype(Dtype::Float32)
    }
}
