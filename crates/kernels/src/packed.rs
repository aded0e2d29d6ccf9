//! Matrices in the order in which the kernels read them.
//!
//! A *panel* is sixteen outputs, one a lane. Along the inputs a panel is a row of groups; a group holds the integers of
//! its sixteen outputs and then their scales and biases, so a product reads memory once, from front to back. All parts
//! are whole [`Line`]s of 64 bytes:
//!
//! - 8 bits: line `q` of a group has in its word `n` the inputs `4 q .. 4 q + 4` of output `n`, one a byte;
//! - 4 bits: line `q` has in its word `n` the inputs `8 q .. 8 q + 4` in the lower halves of its bytes and the inputs
//!   `8 q + 4 .. 8 q + 8` in the upper ones;
//! - scales and biases: sixteen and sixteen of them, halves in one line, float32 in two;
//! - halves, of matrices that are not quantized: line `q` has input `2 q` of the sixteen outputs and then input `2 q + 1`. They
//!   have no scales, and a group is 32 of them.
//!
//! That is what four-byte dot products take as it lies; for float32 a shift and a look-up bring out sixteen numbers.

use crate::dequantize::Affine;
use crate::input::GROUP;
use crate::lines::{Line, Lines};
use crate::pool::{self, Parts};
use crate::simd::LANES;

/// How scales and biases are stored, or the numbers of a matrix that is not quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatType {
    /// IEEE halves.
    F16,
    /// bfloat16.
    Bf16,
    /// Float32.
    F32,
}

impl FloatType {
    /// Lines that the scales and biases of a group take.
    fn lines(self) -> usize {
        if self == Self::F32 { 2 } else { 1 }
    }

    /// What the bits of a half stand for.
    fn number(self, bits: u16) -> f32 {
        match self {
            Self::F16 => half::f16::from_bits(bits).to_f32(),
            Self::Bf16 | Self::F32 => half::bf16::from_bits(bits).to_f32(),
        }
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

/// A matrix of integers with scales or of halves, one row an output, ready for products.
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
    /// 4 or 8 for integers, 16 for halves.
    pub(crate) bits: usize,
    pub(crate) floats: FloatType,
}

impl Shape {
    /// Whether numbers are what they are, without scales.
    pub(crate) fn is_dense(self) -> bool {
        self.bits == 16
    }

    /// Lines of a group's numbers.
    pub(crate) fn quants(self) -> usize {
        self.group_size * self.bits / 32
    }

    /// Lines of a group.
    pub(crate) fn group_lines(self) -> usize {
        self.quants() + if self.is_dense() { 0 } else { self.floats.lines() }
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
        let exact = [FloatType::F16, FloatType::Bf16].into_iter().find(|kind| all().all(|x| kind.exact(*x)));
        let shape = Shape {
            outputs,
            inputs: groups * group_size,
            group_size,
            bits: if bits <= 4 { 4 } else { 8 },
            floats: exact.unwrap_or(FloatType::F32),
        };
        Some(Self::build(shape, |panel, lines| fill_panel(shape, panel, source, lines)))
    }

    /// Packs a matrix of halves: `numbers` are little-endian, row after row.
    ///
    /// `None` when there is no product for it: for float32, and for rows that are no whole number of groups of 32.
    #[must_use]
    pub fn dense(numbers: &[u8], floats: FloatType, outputs: usize, inputs: usize) -> Option<Self> {
        let (halves, _) = numbers.as_chunks::<2>();
        let fits = floats != FloatType::F32 && inputs > 0 && inputs.is_multiple_of(GROUP);
        if !fits || outputs.checked_mul(inputs)? != halves.len() || !numbers.len().is_multiple_of(2) {
            return None;
        }
        let shape = Shape { outputs, inputs, group_size: GROUP, bits: 16, floats };
        Some(Self::build(shape, |panel, lines| fill_halves(shape, panel, halves, lines)))
    }

    /// A matrix of this shape, the lines of whose panels `fill_panel` fills.
    fn build(shape: Shape, fill_panel: impl Fn(usize, &mut [Line]) + Sync) -> Self {
        let panel_lines = shape.panel_lines();
        let lines = Lines::build(shape.panels() * panel_lines, |lines| {
            if panel_lines == 0 {
                return;
            }
            let lines = Parts::new(lines);
            // Several panels a piece, to be worth a thread's while.
            let step = (1024 / panel_lines).max(1);
            pool::for_each(shape.panels().div_ceil(step), |piece| {
                for panel in (piece * step..(piece + 1) * step).take_while(|panel| *panel < shape.panels()) {
                    // SAFETY: the panels' lines do not overlap, and each is in one piece.
                    fill_panel(panel, unsafe { lines.part(panel * panel_lines, panel_lines) });
                }
            });
        });
        Self { lines, shape }
    }

    /// Whether the numbers are halves, which meet activations in float32 only.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.shape.is_dense()
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
    pub fn float_type(&self) -> FloatType {
        self.shape.floats
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Writes row `row` to `out` in float32: of integers `scale * q + bias`.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not as long as one.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let Shape { outputs, inputs, group_size, bits, .. } = self.shape;
        assert!(row < outputs && out.len() == inputs, "row {row} of {outputs}, {} of {inputs}", out.len());
        let (panel, lane) = (row / LANES, row % LANES);
        let lines = &self.lines[panel * self.shape.panel_lines()..][..self.shape.panel_lines()];
        if self.is_dense() {
            for (line, out) in lines.iter().zip(out.as_chunks_mut::<2>().0) {
                *out = [lane, LANES + lane].map(|index| self.shape.floats.number(half_at(line, index)));
            }
            return;
        }
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
        let number = |index: usize| self.shape.floats.number(half_at(&lines[0], index));
        match self.shape.floats {
            FloatType::F32 => (f32::from_bits(lines[0].0[lane]), f32::from_bits(lines[1].0[lane])),
            FloatType::F16 | FloatType::Bf16 => (number(lane), number(LANES + lane)),
        }
    }
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
            store_scale(shape.floats, scales, lane, source.scales[index], source.biases[index]);
        }
    }
}

fn fill_halves(shape: Shape, panel: usize, halves: &[[u8; 2]], lines: &mut [Line]) {
    for lane in 0..LANES.min(shape.outputs - panel * LANES) {
        let row = &halves[(panel * LANES + lane) * shape.inputs..][..shape.inputs];
        for (pair, line) in row.as_chunks::<2>().0.iter().zip(lines.iter_mut()) {
            for (at, half) in pair.iter().enumerate() {
                put_half(line, at * LANES + lane, u16::from_le_bytes(*half));
            }
        }
    }
}

/// The half at place `index` of a line.
fn half_at(line: &Line, index: usize) -> u16 {
    (line.0[index / 2] >> (index % 2 * 16)) as u16
}

/// Stores the half at place `index` of a line where nothing was.
fn put_half(line: &mut Line, index: usize, half: u16) {
    line.0[index / 2] |= u32::from(half) << (index % 2 * 16);
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

fn store_scale(kind: FloatType, lines: &mut [Line], lane: usize, scale: f32, bias: f32) {
    let bits = |x: f32| match kind {
        FloatType::F16 => half::f16::from_f32(x).to_bits(),
        _ => half::bf16::from_f32(x).to_bits(),
    };
    if kind == FloatType::F32 {
        (lines[0].0[lane], lines[1].0[lane]) = (scale.to_bits(), bias.to_bits());
        return;
    }
    for (index, x) in [(lane, scale), (LANES + lane, bias)] {
        put_half(&mut lines[0], index, bits(x));
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
        pub(crate) fn new(outputs: usize, groups: usize, group_size: usize, bits: usize, kind: FloatType) -> Self {
            let mut state = (outputs * 31 + groups * 7 + bits) as u32;
            let mut random = move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state ^ (state >> 15)
            };
            let round = |x: f32| match kind {
                FloatType::F16 => half::f16::from_f32(x).to_f32(),
                FloatType::Bf16 => half::bf16::from_f32(x).to_f32(),
                FloatType::F32 => x,
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
        let kind = prop_oneof![Just(FloatType::F16), Just(FloatType::Bf16), Just(FloatType::F32)];
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

    /// Halves from bits, of every kind but those that are no numbers.
    pub(crate) fn halves(outputs: usize, inputs: usize, kind: FloatType) -> (Vec<u8>, Vec<f32>) {
        let numbers = (0..outputs * inputs).map(|i| ((i * 7919 % 4001) as f32 - 2000.0) / 900.0);
        let bits: Vec<u16> = match kind {
            FloatType::F16 => numbers.map(|x| half::f16::from_f32(x).to_bits()).collect(),
            _ => numbers.map(|x| half::bf16::from_f32(x).to_bits()).collect(),
        };
        (
            bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(),
            bits.iter().map(|bits| kind.number(*bits)).collect(),
        )
    }

    #[test]
    fn halves_come_back_as_they_went_in() {
        for (outputs, inputs) in [(1, 32), (16, 64), (37, 96), (0, 32)] {
            for kind in [FloatType::F16, FloatType::Bf16] {
                let (bytes, numbers) = halves(outputs, inputs, kind);
                let packed = Packed::dense(&bytes, kind, outputs, inputs).unwrap();
                assert_eq!(packed.bytes(), outputs.next_multiple_of(16) * inputs * 2);
                for (row, want) in numbers.chunks(inputs).enumerate() {
                    let mut found = vec![f32::NAN; inputs];
                    packed.row(row, &mut found);
                    assert_eq!(found, want);
                }
            }
        }
        let (bytes, _) = halves(4, 64, FloatType::F16);
        for (numbers, kind, outputs, inputs) in [
            (&bytes[..], FloatType::F32, 4, 64),
            (&bytes[1..], FloatType::F16, 4, 64),
            (&bytes[2..], FloatType::F16, 4, 64),
            (&bytes[..], FloatType::F16, 16, 16),
            (&bytes[..], FloatType::F16, usize::MAX, 64),
            (&[], FloatType::F16, 4, 0),
        ] {
            assert_eq!(Packed::dense(numbers, kind, outputs, inputs), None);
        }
    }

    #[test]
    fn scales_take_the_shortest_type_that_is_exact() {
        for kind in [FloatType::F16, FloatType::Bf16, FloatType::F32] {
            let mut source = Source::new(40, 3, 32, 4, kind);
            // Beyond what a half can hold.
            source.scales[7] = if kind == FloatType::F16 { 1.5 } else { 98_304.0 };
            let packed = source.packed();
            assert_eq!(packed.float_type(), kind);
            let a_group = 16 * 32 / 2 + if kind == FloatType::F32 { 128 } else { 64 };
            assert_eq!(packed.bytes(), 3 * 3 * a_group);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let source = Source::new(4, 2, 32, 4, FloatType::F32);
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
