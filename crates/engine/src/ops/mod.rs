//! The operations that are not MLX's own everywhere.
//!
//! [`Ops`] says what they mean, and its provided methods do them with MLX: [`Mlx`] overrides none, [`Cuda`] what MLX lacks there,
//! and [`Cpu`] those for which this project has kernels. Which of them is used is chosen once, when a model is loaded,
//! for the whole process, as MLX's default device is. Products are chosen by how a matrix is kept: one that was packed for
//! the kernels is multiplied by them ([`Panels`]), and where all matrices of neighbouring layers are, these layers are one
//! node (`fused`).

mod cpu;
mod fused;
mod panels;

use std::fmt;
use std::sync::RwLock;

use annulus_kernels::simd::Path;
use mlx_rs::{Array, fast};

pub use cpu::Cpu;
pub(crate) use cpu::one;
pub(crate) use fused::{feed_forward, gate, project};
pub use panels::Panels;

use crate::cache::{Fetched, Format, Visible};
use crate::error::Result;
use crate::mlx;
use crate::nn::join_heads;
use crate::rope::{Rope, RopePositions};
use crate::sample::Sampler;

/// See the module.
pub trait Ops: fmt::Debug + Send + Sync {
    /// `x / sqrt(mean(x^2) + eps) * weight` over the last axis.
    ///
    /// # Errors
    /// When the widths differ.
    fn rms_norm(&self, x: &Array, weight: Option<&Array>, eps: f32) -> mlx::Result<Array> {
        fast::rms_norm(x, weight, eps)
    }

    /// Turns each of some arrays, `[B, heads, L, dim]`, by the positions of its rows.
    ///
    /// # Errors
    /// When the shapes do not fit.
    fn rope(&self, rope: &Rope, xs: &[&Array], positions: &RopePositions) -> mlx::Result<Vec<Array>> {
        xs.iter().map(|x| rope.with_mlx(x, positions)).collect()
    }

    /// `softmax(queries keys^T scale) values` over what each query may see: `[B, heads, L, dim]` becomes
    /// `[B, L, heads * dim]`.
    ///
    /// # Errors
    /// When the shapes do not fit.
    fn attend(
        &self,
        queries: &Array,
        columns: &Fetched,
        format: Format,
        scale: f32,
        visible: &Visible,
    ) -> Result<Array> {
        Ok(join_heads(&crate::cache::attend_with_mlx(queries, columns, format, scale, visible.device()?)?)?)
    }

    /// Whether MLX's attention multiplies quantized columns as they are stored; if not, they are spelled out before.
    fn multiplies_quantized_columns(&self) -> bool {
        true
    }

    /// A token for each row of `logits`, `[B, vocabulary]`, above temperature 0: `[B]`, unsigned.
    ///
    /// # Errors
    /// When MLX refuses an operation.
    fn sample(&self, logits: &Array, sampler: &Sampler, step: u64) -> Result<Array> {
        sampler.with_mlx(logits, step)
    }
}

/// MLX's own operations.
#[derive(Debug)]
pub struct Mlx;

impl Ops for Mlx {}

/// MLX's own operations on an NVIDIA GPU: there its products of quantized matrices refuse slices and, as their source reads,
/// give every head the first one's keys where heads share them.
#[derive(Debug)]
pub struct Cuda;

impl Ops for Cuda {
    fn multiplies_quantized_columns(&self) -> bool {
        false
    }
}

static CHOSEN: RwLock<&'static dyn Ops> = RwLock::new(&Mlx);

/// Makes `ops` the ones that all models of this process use from now on.
pub fn choose(ops: &'static dyn Ops) {
    *CHOSEN.write().unwrap_or_else(std::sync::PoisonError::into_inner) = ops;
}

/// The chosen operations; MLX's own before a choice.
#[must_use]
pub fn chosen() -> &'static dyn Ops {
    *CHOSEN.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The instructions that the kernels use on this processor, as `annulus doctor` names them.
#[must_use]
pub fn path() -> String {
    Path::best().to_string()
}

/// Whether products of activations that are rounded to 16 bits are the fastest here.
#[must_use]
pub fn prefers_integers() -> bool {
    Path::best().has_byte_products()
}

/// Whether these are vector instructions.
#[must_use]
pub fn is_vectorised() -> bool {
    Path::best().is_vectorised()
}

/// The threads that the kernels use.
#[must_use]
pub fn threads() -> usize {
    annulus_kernels::pool::threads()
}
