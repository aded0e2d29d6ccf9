//! Tensors as a checkpoint holds them, before any library makes arrays of them.

use std::borrow::Cow;
use std::ops::Range;
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
        let rows = self.rows()?;
        let mut out = Vec::new();
        rows.for_each(0..rows.count, |row, _, _| out.extend_from_slice(row));
        Some(out)
    }

    /// The rows, to be spelled out one by one; `None` as for [`Affine::to_f32`].
    pub(super) fn rows(&self) -> Option<AffineRows> {
        let columns = *self.shape.last()?;
        let rows = AffineRows {
            words: self.packed.to_u32()?,
            scales: self.scales.to_f32()?,
            biases: self.biases.to_f32()?,
            bits: self.bits,
            group_size: self.group_size,
            columns,
            count: self.shape.iter().rev().skip(1).try_fold(1_usize, |product, &dim| product.checked_mul(dim))?,
        };
        let elements = rows.count.checked_mul(columns)?;
        let fits = elements.checked_div(self.group_size) == Some(rows.scales.len())
            && rows.scales.len() == rows.biases.len()
            && columns > 0
            && columns.is_multiple_of(self.group_size)
            && elements.checked_mul(self.bits) == rows.words.len().checked_mul(32)
            && (columns * self.bits).is_multiple_of(32);
        fits.then_some(rows)
    }
}

/// An affine tensor whose parts are known to fit each other.
#[derive(Debug)]
pub(super) struct AffineRows {
    words: Vec<u32>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    bits: usize,
    group_size: usize,
    columns: usize,
    /// How many rows there are.
    pub(super) count: usize,
}

impl AffineRows {
    /// Calls `each` with the numbers of these rows, one after the other, and their scales and biases.
    pub(super) fn for_each(&self, rows: Range<usize>, mut each: impl FnMut(&[f32], &[f32], &[f32])) {
        let (words_in_row, groups) = (self.columns * self.bits / 32, self.columns / self.group_size);
        let mut numbers = vec![0.0; self.columns];
        for row in rows {
            let words = &self.words[row * words_in_row..(row + 1) * words_in_row];
            let (scales, biases) =
                (&self.scales[row * groups..(row + 1) * groups], &self.biases[row * groups..(row + 1) * groups]);
            let mut integers = Integers { words, bits: self.bits, read: 0, loaded: 0 };
            for ((numbers, scale), bias) in numbers.chunks_exact_mut(self.group_size).zip(scales).zip(biases) {
                for number in numbers {
                    #[allow(clippy::cast_precision_loss, reason = "at most 8 bits")]
                    let integer = integers.next() as f32;
                    *number = scale * integer + bias;
                }
            }
            each(&numbers, scales, biases);
        }
    }
}

/// The integers in a little-endian stream of words, lowest bits first; they may straddle two words.
struct Integers<'a> {
    words: &'a [u32],
    bits: usize,
    /// Bits that were read from the words and not handed out, and how many they are.
    read: u64,
    loaded: usize,
}

impl Integers<'_> {
    fn next(&mut self) -> u32 {
        if self.loaded < self.bits
            && let Some((word, rest)) = self.words.split_first()
        {
            self.read |= u64::from(*word) << self.loaded;
            self.loaded += 32;
            self.words = rest;
        }
        #[allow(clippy::cast_possible_truncation, reason = "masked to at most 8 bits")]
        let integer = (self.read & ((1 << self.bits) - 1)) as u32;
        self.read >>= self.bits;
        self.loaded = self.loaded.saturating_sub(self.bits);
        integer
    }
}
