//! What a column costs: bytes from integers alone.

use crate::Error;

/// How the numbers of a key or value are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Format {
    /// One number after another.
    Plain {
        /// Bits of each: 16 for half precision.
        bits: u32,
    },
    /// Groups of small integers, each group with a scale and a bias.
    Affine {
        /// Bits of each integer.
        bits: u32,
        /// Integers of a group.
        group: u32,
        /// Bits of a scale, and of a bias.
        scale_bits: u32,
    },
}

/// The size of one layer's keys (and its values) for one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Heads {
    /// Key-value heads.
    pub kv_heads: u32,
    /// Numbers of a head.
    pub head_dim: u32,
}

/// The bytes of one column of one row in one layer, keys and values together.
///
/// ```
/// use annulus_plan::{Format, Heads, column_bytes};
///
/// let heads = Heads { kv_heads: 8, head_dim: 128 };
/// assert_eq!(column_bytes(Format::Plain { bits: 16 }, heads)?, 4096);
/// // 4-bit groups of 64: half a byte a number, and 4 bytes a group.
/// assert_eq!(column_bytes(Format::Affine { bits: 4, group: 64, scale_bits: 16 }, heads)?, 1152);
/// # Ok::<(), annulus_plan::Error>(())
/// ```
pub fn column_bytes(format: Format, heads: Heads) -> Result<u64, Error> {
    let op = "bytes";
    let (count, dim) = (u128::from(heads.kv_heads), u128::from(heads.head_dim));
    let bits = match format {
        Format::Plain { bits } => dim * u128::from(bits),
        Format::Affine { bits, group, scale_bits } => {
            if group == 0 || !heads.head_dim.is_multiple_of(group) {
                return Err(Error::Misfit { op, field: "group", got: group.into(), want: heads.head_dim.into() });
            }
            dim * u128::from(bits) + dim / u128::from(group) * 2 * u128::from(scale_bits)
        }
    };
    // A head is packed into whole bytes.
    let bytes = bits.div_ceil(8) * count * 2;
    u64::try_from(bytes).map_err(|_| Error::TooLarge { op, field: "head_dim", got: i64::MAX, limit: i64::MAX })
}
