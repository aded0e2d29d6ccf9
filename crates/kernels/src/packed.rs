//! Quantized matrices in the order in which the kernels read them.
//!
//! A *panel* is sixteen outputs, one a lane. Along the inputs a panel is a row of groups; a group holds the integers of
//! its sixteen outputs and then their scales and biases, so a product reads memory once, from front to back. All parts
//! are whole [`Line`]s of 64 bytes:
//!
//! - 8 bits: line `q` of a group has in its word `n` the inputs `4 q .. 4 q + 4` of output `n`, one a byte;
//! - 4 bits: line `q` has in its word `n` the inputs `8 q .. 8 q + 4` in the lower halves of its bytes and the inputs
//!   `8 q + 4 .. 8 q + 8` in the upper ones;
//! - scales and biases: sixteen and sixteen of them, halves in one line, float32 in two.
//!
//! That is what four-byte dot products take as it lies; for float32 a shift and a look-up bring out sixteen numbers.

use crate::dequantize::Affine;
use crate::lines::{Line, Lines};
use crate::pool::{self, Parts};
use crate::simd::LANES;

/// How scales and biases are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleType {
    /// IEEE halves.
    F16,
    /// bfloat16.
    Bf16,
    /// Float32.
    F32,
}

impl ScaleType {
    /// Lines that the scales and biases of a group take.
    pub(crate) fn lines(self) -> usize {
        if self == Self::F32 { 2 } else { 1 }
    }

    fn exact(self, x: f32) -> bool {
        // Compared by their bits, since zeros have signs and some numbers are none.
        match self {
            Self::F16 => half::f16::from_f32(x).to_f32().to_bits() == x.to_bits(),
            Self::Bf16 => half::bf16::from_f32(x).to_f32().to_bits() == x.to_bits(),
            Self::F32 => true,
        }
    }
}

/// A quantized matrix, one row an output, ready for products.
#[derive(Debug, PartialEq, Eq)]
pub struct Packed {
    pub(crate) lines: Lines,
    pub(crate) shape: Shape,
}

/// The geometry of a packed matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) group_size: usize,
    /// 4 or 8.
    pub(crate) bits: usize,
    pub(crate) scales: ScaleType,
}

impl Shape {
    /// Lines of a group's integers.
    pub(crate) fn quants(self) -> usize {
        self.group_size * self.bits / 32
    }

    /// Lines of a group.
    pub(crate) fn group_lines(self) -> usize {
        self.quants() + self.scales.lines()
    }

    /// Lines of a panel.
    pub(crate) fn panel_lines(self) -> usize {
        self.inputs / self.group_size * self.group_lines()
    }

    pub(crate) fn panels(self) -> usize {
        self.outputs.div_ceil(LANES)
    }
}

impl Packed {
    /// Packs a matrix of `outputs` rows, each a whole number of groups. Integers of fewer than 4 or 8 bits are stored in
    /// so many; scales and biases in the shortest type that holds them all exactly.
    ///
    /// `None` when this crate has no product for it: for groups of other sizes than 32, 64 and 128, for more than 8 bits,
    /// and for lengths that do not fit each other.
    #[must_use]
    pub fn new(source: Affine<'_>, outputs: usize) -> Option<Self> {
        let Affine { words, scales, biases, group_size, bits } = source;
        let groups = scales.len().checked_div(outputs)?;
        let fits = matches!(group_size, 32 | 64 | 128)
            && (1..=8).contains(&bits)
            && groups * outputs == scales.len()
            && biases.len() == scales.len()
            && words.len() == scales.len() * group_size * bits / 32;
        if !fits {
            return None;
        }
        let all = || scales.iter().chain(biases);
        let exact = [ScaleType::F16, ScaleType::Bf16].into_iter().find(|kind| all().all(|x| kind.exact(*x)));
        let shape = Shape {
            outputs,
            inputs: groups * group_size,
            group_size,
            bits: if bits <= 4 { 4 } else { 8 },
            scales: exact.unwrap_or(ScaleType::F32),
        };
        let lines = Lines::build(shape.panels() * shape.panel_lines(), |lines| fill(shape, source, lines));
        Some(Self { lines, shape })
    }

    /// Rows.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.shape.outputs
    }

    /// Columns.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.shape.inputs
    }

    /// How scales and biases are stored.
    #[must_use]
    pub fn scale_type(&self) -> ScaleType {
        self.shape.scales
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Writes row `row` to `out` in float32: `scale * q + bias`.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not as long as one.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let Shape { outputs, inputs, group_size, bits, .. } = self.shape;
        assert!(row < outputs && out.len() == inputs, "row {row} of {outputs}, {} of {inputs}", out.len());
        let (panel, lane) = (row / LANES, row % LANES);
        let lines = &self.lines[panel * self.shape.panel_lines()..][..self.shape.panel_lines()];
        let groups = lines.chunks_exact(self.shape.group_lines());
        for (group, out) in groups.zip(out.chunks_exact_mut(group_size)) {
            let (quants, scales) = group.split_at(self.shape.quants());
            let (scale, bias) = self.scale(scales, lane);
            for (i, out) in out.iter_mut().enumerate() {
                let (line, shift) = place(bits, i);
                let q = (quants[line].0[lane] >> shift) & ((1 << bits) - 1);
                *out = scale * q as f32 + bias;
            }
        }
    }

    /// The scale and bias of one output in the lines behind a group's integers.
    fn scale(&self, lines: &[Line], lane: usize) -> (f32, f32) {
        let half = |index: usize| (lines[0].0[index / 2] >> (index % 2 * 16)) as u16;
        let (scale, bias) = (lane, LANES + lane);
        match self.shape.scales {
            ScaleType::F32 => (f32::from_bits(lines[0].0[lane]), f32::from_bits(lines[1].0[lane])),
            ScaleType::F16 => (half::f16::from_bits(half(scale)).to_f32(), half::f16::from_bits(half(bias)).to_f32()),
            ScaleType::Bf16 => {
                (half::bf16::from_bits(half(scale)).to_f32(), half::bf16::from_bits(half(bias)).to_f32())
            }
        }
    }
}

fn fill(shape: Shape, source: Affine<'_>, lines: &mut [Line]) {
    let panel_lines = shape.panel_lines();
    if panel_lines == 0 {
        return;
    }
    let lines = Parts::new(lines);
    // Several panels a piece, to be worth a thread's while.
    let step = (1024 / panel_lines).max(1);
    pool::for_each(shape.panels().div_ceil(step), |piece| {
        for panel in (piece * step..(piece + 1) * step).take_while(|panel| *panel < shape.panels()) {
            // SAFETY: the panels' lines do not overlap, and each is in one piece.
            let lines = unsafe { lines.part(panel * panel_lines, panel_lines) };
            fill_panel(shape, panel, source, lines);
        }
    });
}

/// The line of a group, and the bit in its words, at which input `i` of the group lies.
fn place(bits: usize, i: usize) -> (usize, usize) {
    if bits == 4 { (i / 8, i % 4 * 8 + i % 8 / 4 * 4) } else { (i / 4, i % 4 * 8) }
}

fn fill_panel(shape: Shape, panel: usize, source: Affine<'_>, lines: &mut [Line]) {
    let groups = shape.inputs / shape.group_size;
    let words_per_group = shape.group_size * source.bits / 32;
    for lane in 0..LANES.min(shape.outputs - panel * LANES) {
        let row = panel * LANES + lane;
        for (group, lines) in lines.chunks_exact_mut(shape.group_lines()).enumerate() {
            let index = row * groups + group;
            let words = &source.words[index * words_per_group..][..words_per_group];
            let (quants, scales) = lines.split_at_mut(shape.quants());
            match (source.bits, shape.bits) {
                (4, 4) => fill_nibbles(words, quants, lane),
                (8, 8) => quants.iter_mut().zip(words).for_each(|(line, word)| line.0[lane] = *word),
                (bits, _) => fill_any(words, bits, shape, quants, lane),
            }
            store_scale(shape.scales, scales, lane, source.scales[index], source.biases[index]);
        }
    }
}

/// Eight 4-bit integers in a word, from neighbours in neighbouring bits to halves of bytes that lie four apart.
fn fill_nibbles(words: &[u32], quants: &mut [Line], lane: usize) {
    /// Bits `0..16` spread to the lower halves of four bytes.
    fn spread(x: u32) -> u32 {
        let x = (x | (x << 8)) & 0x00ff_00ff;
        (x | (x << 4)) & 0x0f0f_0f0f
    }
    for (line, word) in quants.iter_mut().zip(words) {
        line.0[lane] = spread(word & 0xffff) | (spread(word >> 16) << 4);
    }
}

/// Integers of any width: element `i` in the bits from `i * bits` on.
fn fill_any(words: &[u32], bits: usize, shape: Shape, quants: &mut [Line], lane: usize) {
    for i in 0..shape.group_size {
        let (word, shift) = (i * bits / 32, i * bits % 32);
        let next = words.get(word + 1).copied().unwrap_or(0);
        let both = u64::from(words[word]) | (u64::from(next) << 32);
        let q = (both >> shift) as u32 & ((1 << bits) - 1);
        let (line, shift) = place(shape.bits, i);
        quants[line].0[lane] |= q << shift;
    }
}

fn store_scale(kind: ScaleType, lines: &mut [Line], lane: usize, scale: f32, bias: f32) {
    let bits = |x: f32| match kind {
        ScaleType::F16 => half::f16::from_f32(x).to_bits(),
        _ => half::bf16::from_f32(x).to_bits(),
    };
    if kind == ScaleType::F32 {
        (lines[0].0[lane], lines[1].0[lane]) = (scale.to_bits(), bias.to_bits());
        return;
    }
    for (index, x) in [(lane, scale), (LANES + lane, bias)] {
        lines[0].0[index / 2] |= u32::from(bits(x)) << (index % 2 * 16);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A quantized matrix in MLX's layout.
    #[derive(Debug, Clone)]
    pub(crate) struct Source {
        words: Vec<u32>,
        scales: Vec<f32>,
        biases: Vec<f32>,
        pub(crate) group_size: usize,
        pub(crate) bits: usize,
        pub(crate) outputs: usize,
        pub(crate) inputs: usize,
    }

    impl Source {
        pub(crate) fn new(outputs: usize, groups: usize, group_size: usize, bits: usize, kind: ScaleType) -> Self {
            let mut state = (outputs * 31 + groups * 7 + bits) as u32;
            let mut random = move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state ^ (state >> 15)
            };
            let round = |x: f32| match kind {
                ScaleType::F16 => half::f16::from_f32(x).to_f32(),
                ScaleType::Bf16 => half::bf16::from_f32(x).to_f32(),
                ScaleType::F32 => x,
            };
            let words = (0..outputs * groups * group_size * bits / 32).map(|_| random()).collect();
            let mut number = |width: f32| round((random() as f32 / u32::MAX as f32 - 0.5) * width);
            let scales: Vec<f32> = (0..outputs * groups).map(|_| number(0.03)).collect();
            let biases = (0..outputs * groups).map(|_| number(0.3)).collect();
            Self { words, scales, biases, group_size, bits, outputs, inputs: groups * group_size }
        }

        pub(crate) fn affine(&self) -> Affine<'_> {
            let Self { words, scales, biases, group_size, bits, .. } = self;
            Affine { words, scales, biases, group_size: *group_size, bits: *bits }
        }

        pub(crate) fn packed(&self) -> Packed {
            Packed::new(self.affine(), self.outputs).unwrap()
        }

        /// The definition, bit by bit.
        pub(crate) fn at(&self, row: usize, column: usize) -> f32 {
            let (i, bits) = (row * self.inputs + column, self.bits);
            let q: u32 = (0..bits).map(|b| (self.words[(i * bits + b) / 32] >> ((i * bits + b) % 32) & 1) << b).sum();
            self.scales[i / self.group_size] * q as f32 + self.biases[i / self.group_size]
        }
    }

    pub(crate) fn source() -> impl Strategy<Value = Source> {
        let group = prop_oneof![Just(32usize), Just(64), Just(128)];
        let kind = prop_oneof![Just(ScaleType::F16), Just(ScaleType::Bf16), Just(ScaleType::F32)];
        let bits = prop_oneof![4 => Just(4usize), 4 => Just(8), 1 => Just(2), 1 => Just(3), 1 => Just(5), 1 => Just(6)];
        (0usize..70, 1usize..6, group, bits, kind)
            .prop_map(|(n, k, group, bits, kind)| Source::new(n, k, group, bits, kind))
    }

    proptest! {
        #[test]
        fn rows_come_back_as_they_went_in(source in source().prop_filter("rows", |source| source.outputs > 0)) {
            let packed = source.packed();
            prop_assert_eq!((packed.outputs(), packed.inputs()), (source.outputs, source.inputs));
            let mut row = vec![f32::NAN; source.inputs];
            for index in 0..source.outputs {
                packed.row(index, &mut row);
                for (column, found) in row.iter().enumerate() {
                    prop_assert_eq!(*found, source.at(index, column));
                }
            }
        }
    }

    #[test]
    fn scales_take_the_shortest_type_that_is_exact() {
        for kind in [ScaleType::F16, ScaleType::Bf16, ScaleType::F32] {
            let mut source = Source::new(40, 3, 32, 4, kind);
            // Beyond what a half can hold.
            source.scales[7] = if kind == ScaleType::F16 { 1.5 } else { 98_304.0 };
            let packed = source.packed();
            assert_eq!(packed.scale_type(), kind);
            let a_group = 16 * 32 / 2 + if kind == ScaleType::F32 { 128 } else { 64 };
            assert_eq!(packed.bytes(), 3 * 3 * a_group);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let source = Source::new(4, 2, 32, 4, ScaleType::F32);
        let affine = source.affine();
        for wrong in [
            Affine { bits: 9, ..affine },
            Affine { bits: 0, ..affine },
            Affine { group_size: 16, ..affine },
            Affine { words: &affine.words[1..], ..affine },
            Affine { biases: &affine.biases[1..], ..affine },
        ] {
            assert_eq!(Packed::new(wrong, 4), None);
        }
        assert_eq!(Packed::new(affine, 3), None);
        assert_eq!(Packed::new(affine, 0), None);
        assert!(Packed::new(affine, 8).is_some());
    }
}
