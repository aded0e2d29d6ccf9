//! How GGUF packs numbers into blocks, and the same numbers in MLX's affine quantization.
//!
//! Every block format here maps onto affine groups of 32 exactly: the same integers, a float16 scale widened to float32,
//! and a bias that float32 holds without rounding. A further format is a line in [`Encoding::from_ggml`] and an arm in
//! [`Encoding::layout`], [`Encoding::decode`] and [`Encoding::pack`]; a super-block pushes several groups.

use half::{bf16, f16};

use crate::checkpoint::tensor::Dtype;

/// How a tensor's numbers are stored in a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the format's own")]
#[allow(non_camel_case_types, reason = "the names are the format's own")]
pub enum Encoding {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q8_0,
}

/// The format's names by number, for errors about those that are not supported.
const NAMES: [&str; 40] = [
    "F32",
    "F16",
    "Q4_0",
    "Q4_1",
    "Q4_2",
    "Q4_3",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q8_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q8_K",
    "IQ2_XXS",
    "IQ2_XS",
    "IQ3_XXS",
    "IQ1_S",
    "IQ4_NL",
    "IQ3_S",
    "IQ2_S",
    "IQ4_XS",
    "I8",
    "I16",
    "I32",
    "I64",
    "F64",
    "IQ1_M",
    "BF16",
    "Q4_0_4_4",
    "Q4_0_4_8",
    "Q4_0_8_8",
    "TQ1_0",
    "TQ2_0",
    "IQ4_NL_4_4",
    "IQ4_NL_4_8",
    "IQ4_NL_8_8",
    "MXFP4",
];

/// The measures of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Numbers in a block.
    pub elements: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// What the elements become: plain ones of a type, or integers of so many bits in groups of 32.
    pub target: Target,
}

/// The representation that a tensor is handed out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// As stored.
    Plain(Dtype),
    /// Affine with this many bits and [`GROUP`] elements in a group.
    Affine(usize),
}

/// Elements that share a scale and a bias in everything that this module packs.
pub const GROUP: usize = 32;

/// The parts of an affine tensor as they grow, little-endian.
#[derive(Debug, Default)]
pub struct Packed {
    /// The integers.
    pub words: Vec<u8>,
    /// The scales, float32.
    pub scales: Vec<u8>,
    /// The biases, float32.
    pub biases: Vec<u8>,
}

impl Packed {
    /// Room for `groups` groups of integers of `bits` bits.
    #[must_use]
    pub fn with_capacity(groups: usize, bits: usize) -> Self {
        Self {
            words: Vec::with_capacity(groups * GROUP * bits / 8),
            scales: Vec::with_capacity(groups * 4),
            biases: Vec::with_capacity(groups * 4),
        }
    }

    fn group(&mut self, scale: f32, bias: f32) {
        self.scales.extend_from_slice(&scale.to_le_bytes());
        self.biases.extend_from_slice(&bias.to_le_bytes());
    }
}

impl Encoding {
    /// All that can be read, for errors.
    pub const SUPPORTED: &'static str = "F32, F16, BF16, Q4_0, Q4_1, Q8_0";

    /// The encoding with this number in the file.
    ///
    /// # Errors
    /// The name of an encoding that is not supported, or the number of one that is not known.
    pub fn from_ggml(number: u32) -> Result<Self, String> {
        Ok(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::BF16,
            other => {
                let name = usize::try_from(other).ok().and_then(|other| NAMES.get(other));
                return Err(name.map_or_else(|| format!("number {other}"), |name| (*name).to_owned()));
            }
        })
    }

    /// The measures of its blocks.
    #[must_use]
    pub fn layout(self) -> Layout {
        let (elements, bytes, target) = match self {
            Self::F32 => (1, 4, Target::Plain(Dtype::F32)),
            Self::F16 => (1, 2, Target::Plain(Dtype::F16)),
            Self::BF16 => (1, 2, Target::Plain(Dtype::BF16)),
            Self::Q4_0 => (32, 18, Target::Affine(4)),
            Self::Q4_1 => (32, 20, Target::Affine(4)),
            Self::Q8_0 => (32, 34, Target::Affine(8)),
        };
        Layout { elements, bytes, target }
    }

    /// Appends the numbers of whole blocks, as the format defines them. Bytes that do not fill a block are ignored.
    ///
    /// This is the reference for [`Encoding::pack`] and shares nothing with it but the reading of float16.
    pub fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        for block in bytes.chunks_exact(self.layout().bytes) {
            match self {
                Self::F32 => out.push(f32::from_le_bytes(first(block))),
                Self::F16 => out.push(half_at(block, 0)),
                Self::BF16 => out.push(bf16::from_le_bytes(first(block)).to_f32()),
                Self::Q4_0 => {
                    let d = half_at(block, 0);
                    out.extend(nibbles(&block[2..]).map(|q| d * (q - 8.0)));
                }
                Self::Q4_1 => {
                    let (d, m) = (half_at(block, 0), half_at(block, 2));
                    out.extend(nibbles(&block[4..]).map(|q| d * q + m));
                }
                Self::Q8_0 => {
                    let d = half_at(block, 0);
                    out.extend(block[2..].iter().map(|&q| d * f32::from(q.cast_signed())));
                }
            }
        }
    }

    /// Appends whole blocks in affine form; blocks of plain encodings add nothing.
    pub fn pack(self, bytes: &[u8], out: &mut Packed) {
        for block in bytes.chunks_exact(self.layout().bytes) {
            match self {
                Self::F32 | Self::F16 | Self::BF16 => {}
                Self::Q4_0 => {
                    let d = half_at(block, 0);
                    out.group(d, -8.0 * d);
                    pack_nibbles(&block[2..], &mut out.words);
                }
                Self::Q4_1 => {
                    out.group(half_at(block, 0), half_at(block, 2));
                    pack_nibbles(&block[4..], &mut out.words);
                }
                Self::Q8_0 => {
                    let d = half_at(block, 0);
                    out.group(d, -128.0 * d);
                    // Adding 128 to a signed byte makes an unsigned one, and is a flip of the highest bit.
                    out.words.extend(block[2..].iter().map(|q| q ^ 0x80));
                }
            }
        }
    }
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes(first(&block[at..])).to_f32()
}

/// The 32 integers of a 4-bit block: the low halves of its 16 bytes, then the high halves.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let low = bytes.iter().map(|byte| f32::from(byte & 15));
    let high = bytes.iter().map(|byte| f32::from(byte >> 4));
    low.chain(high)
}

/// The same 32 integers, in order: two in a byte, the earlier one in the low half.
fn pack_nibbles(bytes: &[u8], words: &mut Vec<u8>) {
    let (pairs, _) = bytes.as_chunks::<2>();
    words.extend(pairs.iter().map(|[a, b]| (a & 15) | (b << 4)));
    words.extend(pairs.iter().map(|[a, b]| (a >> 4) | (b & 0xf0)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::tensor::{Affine, Plain};

    const BLOCKS: [Encoding; 3] = [Encoding::Q4_0, Encoding::Q4_1, Encoding::Q8_0];

    fn affine(encoding: Encoding, rows: usize, bytes: &[u8]) -> Affine<'static> {
        let layout = encoding.layout();
        let Target::Affine(bits) = layout.target else {
            panic!("{encoding:?} is plain");
        };
        let mut packed = Packed::default();
        encoding.pack(bytes, &mut packed);
        let columns = bytes.len() / layout.bytes * GROUP / rows;
        let groups = vec![rows, columns / GROUP];
        Affine {
            bits,
            group_size: GROUP,
            shape: vec![rows, columns],
            packed: Plain::owned(Dtype::U32, vec![rows, columns * bits / 32], packed.words),
            scales: Plain::owned(Dtype::F32, groups.clone(), packed.scales),
            biases: Plain::owned(Dtype::F32, groups, packed.biases),
        }
    }

    /// A block by hand: Q4_1 with d = 0.5, m = -1, and the integers 0..16 twice.
    #[test]
    fn a_block_written_by_hand() {
        let mut block = vec![0x00, 0x38, 0x00, 0xbc];
        block.extend((0..16).map(|q: u8| q | (q << 4)));
        let expected: Vec<f32> = (0..32).map(|i: u8| f32::from(i % 16) / 2.0 - 1.0).collect();
        let mut decoded = Vec::new();
        Encoding::Q4_1.decode(&block, &mut decoded);
        assert_eq!(decoded, expected);
        let packed = affine(Encoding::Q4_1, 1, &block).packed.to_u32().unwrap();
        assert_eq!(packed, [0x7654_3210, 0xfedc_ba98, 0x7654_3210, 0xfedc_ba98]);
    }

    #[test]
    fn unsupported_encodings_have_names() {
        assert_eq!(Encoding::from_ggml(14).unwrap_err(), "Q6_K");
        assert_eq!(Encoding::from_ggml(39).unwrap_err(), "MXFP4");
        assert_eq!(Encoding::from_ggml(u32::MAX).unwrap_err(), "number 4294967295");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Affine form and reference decoding are equal to the last bit, zero's sign aside.
        #[test]
        fn packing_is_exact(
            which in 0..BLOCKS.len(),
            rows in 1_usize..4,
            mut bytes in proptest::collection::vec(any::<u8>(), 34 * 12),
        ) {
            let encoding = BLOCKS[which];
            let size = encoding.layout().bytes;
            bytes.truncate(size * rows * 3);
            for block in bytes.chunks_exact_mut(size) {
                // Scales that are infinite or no number have no meaning; all finite ones are tried, subnormal ones too.
                for high in [1, 3] {
                    if block[high] & 0x7c == 0x7c {
                        block[high] &= !0x40;
                    }
                }
            }
            let mut reference = Vec::new();
            encoding.decode(&bytes, &mut reference);
            let packed = affine(encoding, rows, &bytes).to_f32().unwrap();
            prop_assert_eq!(packed, reference);
        }
    }
}
