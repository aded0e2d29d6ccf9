//! Tensors as a checkpoint holds them, before any library makes arrays of them.

use std::borrow::Cow;
use std::sync::Arc;

use super::MappedFile;

/// The type of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Dtype {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// A tensor in the representation that the checkpoint stores, or that it maps onto exactly.
#[derive(Debug, Clone)]
pub enum TensorData<'a> {
    /// One number for each element.
    Plain(Plain<'a>),
    /// Small integers with a scale and a bias for each group.
    Affine(Affine<'a>),
}

impl TensorData<'_> {
    /// The shape of the numbers it stands for, whatever their representation.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Plain(plain) => &plain.shape,
            Self::Affine(affine) => &affine.shape,
        }
    }

    /// Bytes that it occupies.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.bytes.len(),
            Self::Affine(affine) => affine.packed.bytes.len() + affine.scales.bytes.len() + affine.biases.bytes.len(),
        }
    }

    /// The numbers in float32, row after row; `None` when they are not of a type for weights (F32, F16, BF16).
    ///
    /// This is the reference that faster code is tested against.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        match self {
            Self::Plain(plain) => plain.to_f32(),
            Self::Affine(affine) => affine.to_f32(),
        }
    }
}

/// A tensor with one number for each element.
#[derive(Debug, Clone)]
pub struct Plain<'a> {
    /// The type of the elements.
    pub dtype: Dtype,
    /// The shape, slowest axis first.
    pub shape: Vec<usize>,
    /// The elements, little-endian, row after row. Their address need not be a multiple of their size.
    pub bytes: Cow<'a, [u8]>,
    /// Where the bytes lie in a file, when they are used as stored: then they can be aliased instead of copied.
    pub place: Option<Place<'a>>,
}

/// The place of a tensor's bytes in a mapped file.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The file; a clone of this handle keeps the bytes mapped.
    pub file: &'a Arc<MappedFile>,
    /// Where the bytes begin in it.
    pub offset: usize,
}

impl Plain<'_> {
    pub(crate) fn owned(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>() * dtype.size(), bytes.len());
        Self { dtype, shape, bytes: Cow::Owned(bytes), place: None }
    }

    /// The elements as float32; `None` when they are not F32, F16 or BF16.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let (words, _) = self.bytes.as_chunks::<4>();
        let (halves, _) = self.bytes.as_chunks::<2>();
        match self.dtype {
            Dtype::F32 => Some(words.iter().map(|&b| f32::from_le_bytes(b)).collect()),
            Dtype::F16 => Some(halves.iter().map(|&b| half::f16::from_le_bytes(b).to_f32()).collect()),
            Dtype::BF16 => Some(halves.iter().map(|&b| half::bf16::from_le_bytes(b).to_f32()).collect()),
            _ => None,
        }
    }

    /// The elements as 32-bit words; `None` when they are not U32.
    #[must_use]
    pub fn to_u32(&self) -> Option<Vec<u32>> {
        let (words, _) = self.bytes.as_chunks::<4>();
        (self.dtype == Dtype::U32).then(|| words.iter().map(|&b| u32::from_le_bytes(b)).collect())
    }
}

/// A tensor in MLX's affine quantization: element `i` of a row stands for `scale * q[i] + bias`, with one scale and one
/// bias for each group of neighbours on the last axis.
///
/// The integers of a row are a stream of `bits` each, lowest bits first, in little-endian words: for 4 bits, element `i`
/// is in word `i / 8` at bits `4 * (i % 8)`; for 8 bits in word `i / 4` at bits `8 * (i % 4)`.
#[derive(Debug, Clone)]
pub struct Affine<'a> {
    /// Bits of one integer.
    pub bits: usize,
    /// Elements that share a scale and a bias.
    pub group_size: usize,
    /// The shape of the numbers that it stands for.
    pub shape: Vec<usize>,
    /// The integers: U32, with the last axis `bits / 32` times as long as that of `shape`.
    pub packed: Plain<'a>,
    /// The scales: F32, F16 or BF16, with the last axis `group_size` times shorter than that of `shape`.
    pub scales: Plain<'a>,
    /// The biases, like the scales.
    pub biases: Plain<'a>,
}

impl Affine<'_> {
    /// The numbers in float32, computed in float32; `None` when a part is of a wrong type, or the parts do not fit each
    /// other, which those of a [`Checkpoint`](super::Checkpoint) do.
    #[must_use]
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        let mut out = Vec::new();
        self.for_each_row(|row, _, _| out.extend_from_slice(row))?;
        Some(out)
    }

    /// Calls `each` with the numbers of every row, and its scales and biases; `None`, and no call, as [`Affine::to_f32`].
    pub(super) fn for_each_row(&self, mut each: impl FnMut(&[f32], &[f32], &[f32])) -> Option<()> {
        let words = self.packed.to_u32()?;
        let (scales, biases) = (self.scales.to_f32()?, self.biases.to_f32()?);
        let columns = *self.shape.last()?;
        let elements = self.shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))?;
        let fits = elements.checked_div(self.group_size) == Some(scales.len())
            && scales.len() == biases.len()
            && columns.is_multiple_of(self.group_size)
            && elements.checked_mul(self.bits) == words.len().checked_mul(32)
            && (columns * self.bits).is_multiple_of(32);
        if !fits {
            return None;
        }
        let groups = (columns / self.group_size).max(1);
        let words = words.chunks_exact((columns * self.bits / 32).max(1));
        let mut row = Vec::with_capacity(columns);
        for ((words, scales), biases) in words.zip(scales.chunks_exact(groups)).zip(biases.chunks_exact(groups)) {
            row.clear();
            for column in 0..columns {
                let group = column / self.group_size;
                let q = unpack(words, column * self.bits, self.bits);
                #[allow(clippy::cast_precision_loss, reason = "at most 8 bits")]
                row.push(scales[group] * q as f32 + biases[group]);
            }
            each(&row, scales, biases);
        }
        Some(())
    }
}

/// `bits` bits of a little-endian stream of words, from bit `at` on; they may straddle two words.
fn unpack(words: &[u32], at: usize, bits: usize) -> u32 {
    let low = u64::from(words[at / 32]);
    let high = words.get(at / 32 + 1).map_or(0, |&word| u64::from(word));
    let shifted = ((high << 32) | low) >> (at % 32);
    #[allow(clippy::cast_possible_truncation, reason = "masked to at most 8 bits")]
    let value = (shifted & ((1 << bits) - 1)) as u32;
    value
}
