//! From a checkpoint's tensors to the arrays of a model.
//!
//! Tensors that are used as stored are mapped on the CPU backend; all others are converted one at a time, so loading
//! needs no more memory than the model and one tensor.

use std::borrow::Cow;
use std::cell::Cell;

use mlx_rs::{Array, Dtype};

use annulus_kernels::dequantize;
use annulus_kernels::input::Activations;
use annulus_kernels::packed::FloatType;

use crate::checkpoint::{self, Checkpoint, Config, LoadError, Loss, Plain, SMALLEST_GROUP, TensorData};
use crate::device::Backend;
use crate::mlx::{self, Floats};
use crate::nn::{Activation, Affine, Gated, Linear, Matrix, RmsNorm, Stack, Table};
use crate::ops::Panels;

/// Tensors of fewer bytes are copied: systems map up to a large page around a byte that is read, so a norm of each layer would
/// keep a third of the file in memory.
const LEAST_MAPPED: usize = 1 << 17;

/// In which form quantized matrices are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// As the checkpoint packs them.
    Packed,
    /// One number an element, in the compute type.
    Dense,
}

/// Hands out the tensors of a checkpoint as arrays and layers.
#[derive(Debug)]
pub struct Weights<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// What MLX computes with.
    pub backend: Backend,
    /// The type of activations, of scales, and of weights that are not packed.
    pub dtype: Dtype,
    /// What becomes of quantized matrices that are not kept in panels.
    pub representation: Representation,
    /// Whether matrices of integers and of halves are kept in the layout of this project's kernels, where those know them; and
    /// what activations become in products with integers.
    pub panels: Option<Activations>,
    /// The matrices that were requantized so far.
    pub requantized: Requantized,
}

/// Matrices whose groups MLX has no kernels for, and what bringing them into larger ones cost.
#[derive(Debug, Default)]
pub struct Requantized {
    total: Cell<(usize, Loss)>,
}

impl Requantized {
    fn add(&self, loss: Loss) {
        let (count, mut total) = self.total.get();
        total += loss;
        self.total.set((count + 1, total));
    }

    /// How many there were, and the loss over all of them; `None` when there were none.
    #[must_use]
    pub fn total(&self) -> Option<(usize, Loss)> {
        Some(self.total.get()).filter(|(count, _)| *count > 0)
    }
}

impl Weights<'_> {
    /// The model's `config.json`, or what stands for it.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.checkpoint.config()
    }

    /// `PATH.weight` as a matrix, `[outputs, inputs]`.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn matrix(&self, path: &str, outputs: usize, inputs: usize) -> Result<Matrix, LoadError> {
        let name = format!("{path}.weight");
        match self.checkpoint.tensor(&name, Some(&[outputs, inputs]))? {
            TensorData::Plain(plain) => match self.halves_in_panels(&plain, [outputs, inputs]) {
                Some(panels) => Ok(Matrix::Panels(panels)),
                None => Ok(Matrix::Dense { transposed: self.plain(&name, &plain)?.t() }),
            },
            TensorData::Affine(affine) => match self.representation {
                _ if let Some(panels) = self.in_panels(&name, &affine)? => Ok(Matrix::Panels(panels)),
                Representation::Packed => Ok(Matrix::Affine(self.packed(&name, &affine)?)),
                Representation::Dense => {
                    let array = self.dense(&name, &affine, &[int(outputs), int(inputs)])?;
                    Ok(Matrix::Dense { transposed: self.cast(&name, array)?.t() })
                }
            },
        }
    }

    /// `PATH.weight` as rows to be looked up, `[rows, columns]`: as stored, whatever becomes of matrices.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn table(&self, path: &str, rows: usize, columns: usize) -> Result<Table, LoadError> {
        let name = format!("{path}.weight");
        let rows = match self.checkpoint.tensor(&name, Some(&[rows, columns]))? {
            TensorData::Plain(plain) => Matrix::Dense { transposed: self.stored(&name, &plain)?.t() },
            TensorData::Affine(affine) => Matrix::Affine(self.packed(&name, &affine)?),
        };
        Ok(Table { rows, dtype: self.dtype })
    }

    /// `PATH.weight` as one matrix an expert, `[experts, outputs, inputs]`.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn stack(&self, path: &str, experts: usize, outputs: usize, inputs: usize) -> Result<Stack, LoadError> {
        let name = format!("{path}.weight");
        let shape = [experts, outputs, inputs];
        match self.checkpoint.tensor(&name, Some(&shape))? {
            TensorData::Plain(plain) => self.dense_stack(&name, &self.plain(&name, &plain)?),
            TensorData::Affine(affine) => match self.representation {
                Representation::Packed => Ok(Stack::Affine(self.packed(&name, &affine)?)),
                Representation::Dense => {
                    let array = self.dense(&name, &affine, &shape.map(int))?;
                    self.dense_stack(&name, &self.cast(&name, array)?)
                }
            },
        }
    }

    /// Part `part` of `parts` of the tensor `name`, `[experts, parts * outputs, inputs]`, as one matrix an expert: transformers
    /// keeps gate and up in one.
    ///
    /// # Errors
    /// When it is missing, of another shape, or quantized.
    pub fn fused_stack(&self, name: &str, [part, parts]: [usize; 2], shape: [usize; 3]) -> Result<Stack, LoadError> {
        let [experts, outputs, inputs] = shape;
        let whole = [experts, outputs.saturating_mul(parts), inputs];
        let TensorData::Plain(plain) = self.checkpoint.tensor(name, Some(&whole))? else {
            return Err(self.unusable(name));
        };
        let slice = mlx::slice(&self.stored(name, &plain)?, 1, int(part * outputs), int((part + 1) * outputs));
        // A copy of its own: products of slices would copy the slice each time.
        let own = slice.and_then(|slice| slice.as_dtype(self.dtype)?.contiguous());
        self.dense_stack(name, &self.computed(name, own)?)
    }

    fn dense_stack(&self, name: &str, stack: &Array) -> Result<Stack, LoadError> {
        if self.backend == Backend::Cpu && self.dtype != Dtype::Float32 {
            let what = format!("computing plain experts in {:?} on a CPU", self.dtype).to_lowercase();
            return Err(self.config().unsupported(&what, "--compute-dtype f32, or quantized experts"));
        }
        let transposed = stack.swap_axes(-1, -2).map_err(|error| self.failed(name, &error))?;
        Ok(Stack::Dense { transposed })
    }

    /// A linear layer; its bias is required where `bias` says so.
    ///
    /// # Errors
    /// When a tensor is missing or of another shape.
    pub fn linear(&self, path: &str, outputs: usize, inputs: usize, bias: bool) -> Result<Linear, LoadError> {
        let weights = self.matrix(path, outputs, inputs)?;
        let bias = bias.then(|| self.vector(&format!("{path}.bias"), outputs)).transpose()?;
        Ok(Linear { weights, bias })
    }

    /// An RMS norm.
    ///
    /// # Errors
    /// When its weight is missing or of another shape.
    pub fn rms_norm(&self, path: &str, width: usize, eps: f32) -> Result<RmsNorm, LoadError> {
        Ok(RmsNorm { weight: Some(self.vector(&format!("{path}.weight"), width)?), eps })
    }

    /// An RMS norm whose factor the checkpoint keeps less one.
    ///
    /// # Errors
    /// When its weight is missing or of another shape.
    pub fn rms_norm_less_one(&self, path: &str, width: usize, eps: f32) -> Result<RmsNorm, LoadError> {
        let name = format!("{path}.weight");
        let weight = self.vector(&name, width)?;
        let factor = self.computed(&name, mlx::scalar(1.0, self.dtype).add(weight))?;
        Ok(RmsNorm { weight: Some(factor), eps })
    }

    /// A gated unit: `PATH.gate_proj`, `PATH.up_proj` and `PATH.down_proj`.
    ///
    /// # Errors
    /// When a tensor is missing or of another shape.
    pub fn gated(
        &self,
        path: &str,
        inner: usize,
        width: usize,
        bias: bool,
        activation: Activation,
    ) -> Result<Gated, LoadError> {
        Ok(Gated {
            gate: self.linear(&format!("{path}.gate_proj"), inner, width, bias)?,
            up: self.linear(&format!("{path}.up_proj"), inner, width, bias)?,
            down: self.linear(&format!("{path}.down_proj"), width, inner, bias)?,
            activation,
        })
    }

    /// A tensor of one axis, in the compute type.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    pub fn vector(&self, name: &str, width: usize) -> Result<Array, LoadError> {
        match self.checkpoint.tensor(name, Some(&[width]))? {
            TensorData::Plain(plain) => self.plain(name, &plain),
            TensorData::Affine(_) => Err(self.unusable(name)),
        }
    }

    /// A quantized tensor as it is packed, with scales and biases in the compute type, in groups that MLX has kernels for.
    fn packed(&self, name: &str, affine: &checkpoint::Affine<'_>) -> Result<Affine, LoadError> {
        if affine.group_size < SMALLEST_GROUP {
            let (affine, loss) = affine.regrouped().ok_or_else(|| self.unusable(name))?;
            tracing::debug!(
                tensor = name,
                relative_rms_error = loss.relative(),
                "requantized to 8 bits in groups of 32"
            );
            self.requantized.add(loss);
            return self.packed(name, &affine);
        }
        Ok(Affine {
            packed: self.stored(name, &affine.packed)?,
            scales: self.plain(name, &affine.scales)?,
            biases: self.plain(name, &affine.biases)?,
            group_size: int(affine.group_size),
            bits: int(affine.bits),
        })
    }

    /// What `work` makes of a quantized matrix whose scales and biases are in float32.
    fn numbers<T>(
        &self,
        name: &str,
        affine: &checkpoint::Affine<'_>,
        work: impl FnOnce(dequantize::Affine<'_>) -> T,
    ) -> Result<T, LoadError> {
        let unusable = || self.unusable(name);
        let scales = affine.scales.to_f32().ok_or_else(unusable)?;
        let biases = affine.biases.to_f32().ok_or_else(unusable)?;
        let words = affine.packed.to_u32().ok_or_else(unusable)?;
        let (group_size, bits) = (affine.group_size, affine.bits);
        Ok(work(dequantize::Affine { words: &words, scales: &scales, biases: &biases, group_size, bits }))
    }

    /// A quantized matrix in the layout of the kernels, if they are used and know it.
    fn in_panels(&self, name: &str, affine: &checkpoint::Affine<'_>) -> Result<Option<Panels>, LoadError> {
        let (Some(activations), Some(outputs)) = (self.panels, affine.shape.first()) else { return Ok(None) };
        let panels = self.numbers(name, affine, |source| Panels::new(source, *outputs, activations))?;
        if panels.is_some() {
            [&affine.packed, &affine.scales, &affine.biases].into_iter().for_each(release);
        }
        Ok(panels)
    }

    /// A matrix of halves in the layout of the kernels, if they are used and know it: half the memory of float32, and half the
    /// time of reading it.
    fn halves_in_panels(&self, plain: &Plain<'_>, [outputs, inputs]: [usize; 2]) -> Option<Panels> {
        let floats = match plain.dtype {
            checkpoint::Dtype::F16 => FloatType::F16,
            checkpoint::Dtype::BF16 => FloatType::Bf16,
            _ => return None,
        };
        self.panels.filter(|_| self.dtype == Dtype::Float32)?;
        let panels = Panels::dense(&plain.bytes, floats, outputs, inputs)?;
        release(plain);
        Some(panels)
    }

    /// A quantized tensor spelled out in float32.
    fn dense(&self, name: &str, affine: &checkpoint::Affine<'_>, shape: &[i32]) -> Result<Array, LoadError> {
        let mut dense = Floats::zeros(affine.shape.iter().product());
        if !self.numbers(name, affine, |source| dequantize::dequantize(source, dense.numbers()))? {
            // Rarer widths take the plain way.
            dense.numbers().copy_from_slice(&affine.to_f32().ok_or_else(|| self.unusable(name))?);
        }
        let array = if self.backend == Backend::Cpu {
            dense.into_array(shape)
        } else {
            Ok(Array::from_slice(dense.numbers(), shape))
        };
        array.map_err(|error| self.failed(name, &error))
    }

    /// A tensor in the compute type.
    fn plain(&self, name: &str, plain: &Plain<'_>) -> Result<Array, LoadError> {
        let array = self.stored(name, plain)?;
        self.cast(name, array)
    }

    /// A tensor as the checkpoint stores it: mapped where the backend can read the file's memory and that is worth it.
    fn stored(&self, name: &str, plain: &Plain<'_>) -> Result<Array, LoadError> {
        let dtype = mlx_dtype(plain.dtype).ok_or_else(|| self.unusable(name))?;
        let shape: Vec<i32> = plain.shape.iter().map(|n| int(*n)).collect();
        if let (Some(place), Cow::Borrowed(bytes)) = (plain.place, &plain.bytes)
            && self.backend == Backend::Cpu
            && bytes.len() >= LEAST_MAPPED
            && place.offset >= 8
            && bytes.as_ptr().align_offset(mlx::item_size(dtype)) == 0
        {
            return mlx::array_over_file(place.file, bytes, &shape, dtype).map_err(|error| self.failed(name, &error));
        }
        Ok(mlx::array_from_bytes(&plain.bytes, &shape, dtype))
    }

    /// Converts to the compute type, at once, so that the source can be dropped.
    fn cast(&self, name: &str, array: Array) -> Result<Array, LoadError> {
        if array.dtype() == self.dtype {
            return Ok(array);
        }
        self.computed(name, array.as_dtype(self.dtype))
    }

    /// What was computed of the tensor `name`, evaluated once and for all.
    ///
    /// # Errors
    /// When MLX fails.
    pub fn computed(&self, name: &str, array: mlx::Result<Array>) -> Result<Array, LoadError> {
        let evaluated = array.and_then(|array| array.eval().map(|()| array));
        evaluated.map_err(|error| self.failed(name, &error))
    }

    fn unusable(&self, name: &str) -> LoadError {
        LoadError::tensor(
            self.checkpoint.path(),
            name,
            "is not of a type that weights can have (F32, F16, BF16, or affine groups)",
        )
    }

    fn failed(&self, name: &str, error: &mlx_rs::error::Exception) -> LoadError {
        LoadError::tensor(self.checkpoint.path(), name, format!("was refused by MLX: {error}"))
    }
}

/// Lets go of a mapped file's pages that nobody will read again.
fn release(plain: &Plain<'_>) {
    if let (Some(place), Cow::Borrowed(bytes)) = (plain.place, &plain.bytes) {
        place.file.release(bytes);
    }
}

/// A size as MLX takes it. Tensors have been checked against their files, so it fits.
pub(crate) fn int(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}

/// The MLX type for a type of checkpoints.
fn mlx_dtype(dtype: checkpoint::Dtype) -> Option<Dtype> {
    match dtype {
        checkpoint::Dtype::U32 => Some(Dtype::Uint32),
        checkpoint::Dtype::F16 => Some(Dtype::Float16),
        checkpoint::Dtype::BF16 => Some(Dtype::Bfloat16),
        checkpoint::Dtype::F32 => Some(Dtype::Float32),
        _ => None,
    }
}
