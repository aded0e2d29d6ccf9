//! What a key or a value is stored as: plain numbers, or small integers in groups.

use annulus_plan::{Format as PlanFormat, Heads, column_bytes};
use mlx_rs::ops::quantize;
use mlx_rs::{Array, Dtype};

use crate::error::{Error, Result};
use crate::mlx;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// In the type in which the model computes them: one array each.
    #[default]
    Plain,
    /// As MLX's affine quantization, along the head: three arrays each, of packed integers, scales and biases.
    Affine(Affine),
}

/// Groups of small integers, each group with a scale and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine {
    bits: i32,
    group: i32,
}

impl Affine {
    /// Widths that MLX packs.
    pub const BITS: [i32; 6] = [2, 3, 4, 5, 6, 8];
    /// Group sizes that MLX has kernels for.
    pub const GROUPS: [i32; 3] = [32, 64, 128];

    /// `group` numbers of `bits` bits share a scale and a bias.
    ///
    /// # Errors
    /// When MLX does not have this combination.
    pub fn new(bits: i32, group: i32) -> Result<Self> {
        if !Self::BITS.contains(&bits) {
            return Err(Error::Unsupported(format!("KV caches of {bits} bits: choose 2, 3, 4, 5, 6 or 8")));
        }
        if !Self::GROUPS.contains(&group) {
            return Err(Error::Unsupported(format!("KV groups of {group}: choose 32, 64 or 128")));
        }
        Ok(Self { bits, group })
    }

    /// Checks that groups of this size divide heads of `dim` numbers.
    ///
    /// # Errors
    /// In words for the user, when they do not.
    pub fn check(self, dim: u32) -> Result<()> {
        let fits = |group: i32| dim.is_multiple_of(group.unsigned_abs());
        if fits(self.group) {
            return Ok(());
        }
        let possible: Vec<_> = Self::GROUPS.into_iter().filter(|group| fits(*group)).map(|n| n.to_string()).collect();
        let way_out = if possible.is_empty() {
            "its cache can only be kept plain".to_owned()
        } else {
            format!("choose {}", possible.join(" or "))
        };
        Err(Error::Unsupported(format!(
            "KV groups of {} do not divide this model's heads of {dim} numbers: {way_out}",
            self.group
        )))
    }

    /// Bits of a number.
    #[must_use]
    pub fn bits(self) -> i32 {
        self.bits
    }

    /// Numbers that share a scale and a bias.
    #[must_use]
    pub fn group(self) -> i32 {
        self.group
    }
}

impl Format {
    /// Keys or values of some columns, `[B, heads, L, dim]`, as they are stored: arrays whose axis 2 is that of columns.
    ///
    /// Groups lie within one head of one column, so a stored column is the same bytes wherever it is moved to.
    ///
    /// # Errors
    /// When the head cannot be divided into groups.
    pub fn encode(self, numbers: &Array) -> Result<Vec<Array>> {
        let Self::Affine(affine) = self else { return Ok(vec![numbers.clone()]) };
        affine.check(numbers.dim(3).unsigned_abs())?;
        let (packed, scales, biases) = quantize(numbers, affine.group, affine.bits)?;
        Ok(vec![packed, scales, biases])
    }

    /// Bytes of one column of one row in one layer, keys and values, when the model computes in `dtype`.
    ///
    /// # Errors
    /// When the head cannot be divided into groups.
    pub fn column_bytes(self, heads: Heads, dtype: Dtype) -> Result<u64> {
        let bits = u32::try_from(mlx::item_size(dtype) * 8).unwrap_or(u32::MAX);
        let format = match self {
            Self::Plain => PlanFormat::Plain { bits },
            Self::Affine(Affine { bits: packed, group }) => {
                PlanFormat::Affine { bits: packed.unsigned_abs(), group: group.unsigned_abs(), scale_bits: bits }
            }
        };
        Ok(column_bytes(format, heads)?)
    }
}

/// The planes of one layer: the arrays of its keys, then as many of its values.
///
/// Each is `[rows, heads, columns, ..]`; all have the same rows and columns.
#[derive(Debug)]
pub(super) struct Planes(pub(super) Vec<Array>);

impl Planes {
    pub(super) fn keys(&self) -> &[Array] {
        &self.0[..self.0.len() / 2]
    }

    pub(super) fn values(&self) -> &[Array] {
        &self.0[self.0.len() / 2..]
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Array::nbytes).sum()
    }
}
