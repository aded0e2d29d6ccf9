//! How GGUF packs numbers into blocks, and the same numbers in MLX's affine quantization.
//!
//! A further format is a line in [`Encoding::from_ggml`] and in [`Encoding::layout`], and an arm in
//! [`groups::for_each`].

use half::bf16;

use super::groups::{self, first, half_at};
use crate::checkpoint::tensor::{Affine, Dtype, Plain};

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
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

/// The format's names by number, for errors about those that are not supported.
const NAMES: [&str; 42] = [
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
    "NVFP4",
    "Q1_0",
];

/// The measures of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Numbers in a block.
    pub elements: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// What the elements become.
    pub target: Target,
}

/// The representation that a tensor is handed out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// As stored.
    Plain(Dtype),
    /// Integers with a scale and a bias for each group.
    Affine {
        /// Bits of an integer.
        bits: usize,
        /// Elements that share a scale and a bias.
        group_size: usize,
    },
}

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
    /// Room for `elements` integers of `bits` bits in groups of `group_size`.
    #[must_use]
    pub fn with_capacity(elements: usize, bits: usize, group_size: usize) -> Self {
        let groups = elements / group_size;
        Self {
            words: Vec::with_capacity(elements / 8 * bits),
            scales: Vec::with_capacity(groups * 4),
            biases: Vec::with_capacity(groups * 4),
        }
    }

    /// One after the other.
    pub(crate) fn concat(parts: Vec<Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().unwrap_or_default();
        for part in parts {
            whole.words.extend_from_slice(&part.words);
            whole.scales.extend_from_slice(&part.scales);
            whole.biases.extend_from_slice(&part.biases);
        }
        whole
    }

    /// The tensor of this shape, whose rows have been appended in order.
    pub(crate) fn finish(self, bits: usize, group_size: usize, shape: Vec<usize>) -> Affine<'static> {
        let with_last = |last: usize| {
            let mut parts = shape.clone();
            if let Some(columns) = parts.last_mut() {
                *columns = last;
            }
            parts
        };
        let columns = shape.last().copied().unwrap_or(0);
        Affine {
            bits,
            group_size,
            packed: Plain::owned(Dtype::U32, with_last(columns * bits / 32), self.words),
            scales: Plain::owned(Dtype::F32, with_last(columns / group_size), self.scales),
            biases: Plain::owned(Dtype::F32, with_last(columns / group_size), self.biases),
            shape,
        }
    }

    /// Appends a group; the number of integers is a multiple of 8.
    #[inline]
    pub(crate) fn push(&mut self, scale: f32, bias: f32, integers: &[u8], bits: usize) {
        self.scales.extend_from_slice(&scale.to_le_bytes());
        self.biases.extend_from_slice(&bias.to_le_bytes());
        match bits {
            8 => self.words.extend_from_slice(integers),
            4 => self.words.extend(integers.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4)),
            // Eight integers of `bits` bits are `bits` bytes.
            _ => {
                for eight in integers.as_chunks::<8>().0 {
                    let stream = eight.iter().rev().fold(0_u64, |stream, &q| stream << bits | u64::from(q));
                    self.words.extend_from_slice(&stream.to_le_bytes()[..bits]);
                }
            }
        }
    }
}

impl Encoding {
    /// All that can be read, for errors.
    pub const SUPPORTED: &'static str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K";

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
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4_K,
            13 => Self::Q5_K,
            14 => Self::Q6_K,
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
        let affine = |bits, group_size| Target::Affine { bits, group_size };
        let (elements, bytes, target) = match self {
            Self::F32 => (1, 4, Target::Plain(Dtype::F32)),
            Self::F16 => (1, 2, Target::Plain(Dtype::F16)),
            Self::BF16 => (1, 2, Target::Plain(Dtype::BF16)),
            Self::Q4_0 => (32, 18, affine(4, 32)),
            Self::Q4_1 => (32, 20, affine(4, 32)),
            Self::Q5_0 => (32, 22, affine(5, 32)),
            Self::Q5_1 => (32, 24, affine(5, 32)),
            Self::Q8_0 => (32, 34, affine(8, 32)),
            Self::Q4_K => (256, 144, affine(4, 32)),
            Self::Q5_K => (256, 176, affine(5, 32)),
            Self::Q6_K => (256, 210, affine(6, 16)),
        };
        Layout { elements, bytes, target }
    }

    /// Appends the numbers of whole blocks, as the format defines them. Bytes that do not fill a block are ignored.
    pub fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        for block in bytes.chunks_exact(self.layout().bytes) {
            match self {
                Self::F32 => out.push(f32::from_le_bytes(first(block))),
                Self::F16 => out.push(half_at(block, 0)),
                Self::BF16 => out.push(bf16::from_le_bytes(first(block)).to_f32()),
                _ => groups::for_each(self, block, |scale, bias, integers| {
                    out.extend(integers.iter().map(|&q| scale * f32::from(q) + bias));
                }),
            }
        }
    }

    /// Appends whole blocks in affine form; blocks of plain encodings add nothing.
    pub fn pack(self, bytes: &[u8], out: &mut Packed) {
        let layout = self.layout();
        if let Target::Affine { bits, .. } = layout.target {
            for block in bytes.chunks_exact(layout.bytes) {
                groups::for_each(self, block, |scale, bias, integers| out.push(scale, bias, integers, bits));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCKS: [Encoding; 8] = [
        Encoding::Q4_0,
        Encoding::Q4_1,
        Encoding::Q5_0,
        Encoding::Q5_1,
        Encoding::Q8_0,
        Encoding::Q4_K,
        Encoding::Q5_K,
        Encoding::Q6_K,
    ];

    fn affine(encoding: Encoding, rows: usize, bytes: &[u8]) -> Affine<'static> {
        let layout = encoding.layout();
        let Target::Affine { bits, group_size } = layout.target else {
            panic!("{encoding:?} is plain");
        };
        let mut packed = Packed::default();
        encoding.pack(bytes, &mut packed);
        packed.finish(bits, group_size, vec![rows, bytes.len() / layout.bytes * layout.elements / rows])
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
        assert_eq!(Encoding::from_ggml(11).unwrap_err(), "Q3_K");
        assert_eq!(Encoding::from_ggml(39).unwrap_err(), "MXFP4");
        assert_eq!(Encoding::from_ggml(u32::MAX).unwrap_err(), "number 4294967295");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// What is packed is what is decoded, bit for bit, whatever the bytes: the integers come out of the stream where they belong.
        #[test]
        fn packed_blocks_hold_the_numbers(
            which in 0..BLOCKS.len(),
            rows in 1_usize..4,
            mut bytes in proptest::collection::vec(any::<u8>(), 210 * 3),
        ) {
            let encoding = BLOCKS[which];
            let size = encoding.layout().bytes;
            bytes.truncate(bytes.len() / size / rows * rows * size);
            let mut decoded = Vec::new();
            encoding.decode(&bytes, &mut decoded);
            let packed = affine(encoding, rows, &bytes).to_f32().unwrap();
            let bits = |number: &f32| (!number.is_nan()).then(|| number.to_bits());
            prop_assert!(packed.iter().map(bits).eq(decoded.iter().map(bits)));
        }
    }
}
