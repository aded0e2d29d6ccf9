//! Products of activations with packed matrices: `y = x * transpose(w)`.
//!
//! One kernel serves one row and many: sixteen outputs at a time, it brings out the integers of a panel and multiplies
//! them with up to eight rows. With one row that is as fast as memory gives the matrix; with eight the work of bringing
//! out is shared. Integers of a group are summed before their scale is applied, and the bias meets the sum of the
//! activations, so no weight is ever spelled out.

use crate::input::{Eight, GROUP, Input, Numbers, blocks};
use crate::lines::Line;
use crate::packed::{FloatType, Packed, Shape};
use crate::pool::{self, Parts};
use crate::simd::{self, Kernel, LANES, Path, Simd};

/// What happens to a product before it is stored.
#[derive(Debug, Clone, Copy)]
pub enum Finish<'a> {
    /// Nothing.
    Store,
    /// `bias[n]` is added to output `n` of every row.
    AddBias(&'a [f32]),
    /// Numbers in the shape of the result are added: a residual.
    AddTo(&'a [f32]),
    /// Both.
    AddBoth {
        /// One number an output.
        bias: &'a [f32],
        /// In the shape of the result.
        residual: &'a [f32],
    },
}

impl Finish<'_> {
    fn bias(&self) -> Option<&[f32]> {
        match self {
            Self::AddBias(bias) | Self::AddBoth { bias, .. } => Some(bias),
            Self::Store | Self::AddTo(_) => None,
        }
    }

    fn residual(&self) -> Option<&[f32]> {
        match self {
            Self::AddTo(residual) | Self::AddBoth { residual, .. } => Some(residual),
            Self::Store | Self::AddBias(_) => None,
        }
    }
}

/// The gate of a gated unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (Hendrycks and Gimpel, 2016).
    GeluTanh,
}

impl Gate {
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        // Both are x times a logistic function: (1 + tanh(u)) / 2 = 1 / (1 + e^(-2 u)).
        let exponent = match self {
            Self::Silu => s.sub(s.splat(0.0), x),
            Self::GeluTanh => {
                let cubed = s.mul(s.mul(x, x), x);
                s.mul(s.splat(-2.0 * 0.797_884_6), s.mul_add(s.splat(0.044_715), cubed, x))
            }
        };
        s.div(x, s.add(s.splat(1.0), s.exp(exponent)))
    }
}

/// `out = finish(x * transpose(w))`: `[rows, inputs]` with `[outputs, inputs]` makes `[rows, outputs]`.
///
/// # Panics
/// When the sizes do not fit.
pub fn product(path: Path, x: &Input, w: &Packed, finish: Finish<'_>, out: &mut [f32]) {
    check(x, w, out);
    assert!(finish.bias().is_none_or(|bias| bias.len() == w.outputs()), "one bias an output");
    assert!(finish.residual().is_none_or(|residual| residual.len() == out.len()), "a residual has the result's shape");
    let out = Parts::new(out);
    each_piece(w.shape, |first, end| simd::run(path, Plain { x, w, finish, out: &out, first, end }));
}

/// `out = gate(x * transpose(g) + g_bias) * (x * transpose(u) + u_bias)`: the first half of a gated unit.
///
/// # Panics
/// When the sizes do not fit.
pub fn gated(path: Path, x: &Input, w: [&Packed; 2], bias: [Option<&[f32]>; 2], gate: Gate, out: &mut [f32]) {
    w.iter().for_each(|w| check(x, w, out));
    assert!(bias.iter().flatten().all(|bias| bias.len() == w[0].outputs()), "one bias an output");
    let out = Parts::new(out);
    each_piece(w[0].shape, |first, end| simd::run(path, Gated { x, w, bias, gate, out: &out, first, end }));
}

fn check(x: &Input, w: &Packed, out: &[f32]) {
    assert_eq!(x.width, w.inputs(), "the activations' width and the matrix's inputs");
    assert_eq!(out.len(), x.rows * w.outputs(), "the result's length");
    assert!(!w.is_dense() || matches!(x.numbers, Numbers::F32(_)), "halves meet activations in float32");
}

/// Divides a matrix's panels into pieces of work, of which a thread does several, so that all end at about the same time.
fn each_piece(shape: Shape, work: impl Fn(usize, usize) + Sync) {
    /// A piece's lines stay in the second-level cache while all rows pass over them.
    const MOST: usize = (256 << 10) / size_of::<Line>();
    let panels = shape.panels();
    let fair = panels.div_ceil(pool::threads() * 4);
    let step = fair.min(MOST / shape.panel_lines().max(1)).max(2).next_multiple_of(2);
    pool::for_each(panels.div_ceil(step), |piece| work(piece * step, panels.min((piece + 1) * step)));
}

/// Sixteen outputs of a matrix.
#[derive(Clone, Copy)]
struct Panel<'a> {
    lines: &'a [Line],
    shape: Shape,
    /// Whether this is the first time that its lines are read, from memory.
    cold: bool,
}

impl<'a> Panel<'a> {
    #[inline(always)]
    fn new(w: &'a Packed, panel: usize, cold: bool) -> Self {
        let lines = w.shape.panel_lines();
        Self { lines: &w.lines[panel * lines..][..lines], shape: w.shape, cold }
    }

    /// The numbers of a group.
    #[inline(always)]
    fn quants(&self, group: usize) -> &'a [Line] {
        &self.lines[group * self.shape.group_lines()..][..self.shape.quants()]
    }

    /// The integers of a group, and its scales and biases.
    #[inline(always)]
    fn group<S: Simd>(&self, s: S, group: usize) -> (&'a [Line], S::F, S::F) {
        let lines = &self.lines[group * self.shape.group_lines()..][..self.shape.group_lines()];
        let (quants, scales) = lines.split_at(self.shape.quants());
        let [scale, bias] = match self.shape.floats {
            FloatType::F32 => [s.load(as_floats(&scales[0])), s.load(as_floats(&scales[1]))],
            halves => load_halves(s, halves, &scales[0]),
        };
        (quants, scale, bias)
    }
}

impl Panel<'_> {
    /// Asks for what a product reads some groups later; where a panel ends the next begins. The memory's own look-ahead ends
    /// with each page.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, group: usize) {
        const AHEAD: usize = 64;
        if !self.cold {
            return;
        }
        let lines = self.shape.group_lines();
        for line in 0..lines {
            s.prefetch(self.lines.as_ptr().wrapping_add(group * lines + AHEAD + line));
        }
    }
}

#[inline(always)]
fn as_halves(line: &Line) -> &[[u16; LANES]; 2] {
    // SAFETY: the same 64 bytes, of which all patterns are valid, less strictly aligned.
    unsafe { &*std::ptr::from_ref(line).cast() }
}

/// Twice sixteen halves.
#[inline(always)]
fn load_halves<S: Simd>(s: S, kind: FloatType, line: &Line) -> [S::F; 2] {
    let halves = as_halves(line);
    match kind {
        FloatType::F16 => [s.load_f16(&halves[0]), s.load_f16(&halves[1])],
        FloatType::Bf16 | FloatType::F32 => [s.load_bf16(&halves[0]), s.load_bf16(&halves[1])],
    }
}

#[inline(always)]
fn as_floats(line: &Line) -> &[f32; LANES] {
    // SAFETY: the same 64 bytes, of which all patterns are valid, less strictly aligned.
    unsafe { &*std::ptr::from_ref(line).cast() }
}

/// The activations of a block of `R` rows.
#[derive(Clone, Copy)]
enum Block<'a, const R: usize> {
    F32 { numbers: &'a [[f32; R]], sums: &'a [[f32; R]] },
    Int16 { bytes: &'a [[[Eight; R]; 2]], scales: &'a [[f32; R]], sums: &'a [[f32; R]] },
}

impl<'a, const R: usize> Block<'a, R> {
    #[inline(always)]
    fn new(x: &'a Input, first: usize) -> Self {
        let groups = x.width / GROUP;
        let of_groups = |all: &'a [f32]| all[first * groups..][..R * groups].as_chunks().0;
        let sums = of_groups(&x.sums);
        match &x.numbers {
            Numbers::F32(numbers) => {
                Self::F32 { numbers: numbers[first * x.width..][..R * x.width].as_chunks().0, sums }
            }
            Numbers::Int16 { bytes, scales } => {
                let bytes = bytes[2 * first * groups..][..2 * R * groups].as_chunks().0.as_chunks().0;
                Self::Int16 { bytes, scales: of_groups(scales), sums }
            }
        }
    }
}

/// Each of `P` panels times each of `R` rows.
#[inline(always)]
fn panels<S: Simd, const P: usize, const R: usize>(s: S, w: [Panel<'_>; P], x: Block<'_, R>) -> [[S::F; R]; P] {
    match x {
        Block::F32 { numbers, sums } => match w[0].shape.bits {
            4 => floats::<S, P, R, 4>(s, w, numbers, sums),
            8 => floats::<S, P, R, 8>(s, w, numbers, sums),
            _ => floats::<S, P, R, 16>(s, w, numbers, sums),
        },
        Block::Int16 { bytes, scales, sums } => {
            // No closures around vectors: they would be compiled without the path's features.
            let mut y = [[s.splat(0.0); R]; P];
            for p in 0..P {
                y[p] = if w[p].shape.bits == 4 {
                    integers::<S, R, true>(s, w[p], bytes, scales, sums)
                } else {
                    integers::<S, R, false>(s, w[p], bytes, scales, sums)
                };
            }
            y
        }
    }
}

/// Adds what a group's sums come to: `scale * sum(q x) + bias * sum(x)`.
#[inline(always)]
fn add_group<S: Simd, const R: usize>(
    s: S,
    total: &mut [S::F; R],
    partial: &[[S::F; R]; 2],
    scale: S::F,
    bias: S::F,
    sums: &[[f32; R]],
) {
    for r in 0..R {
        total[r] = s.mul_add(s.add(partial[0][r], partial[1][r]), scale, total[r]);
        for sums in sums {
            total[r] = s.mul_add(bias, s.splat(sums[r]), total[r]);
        }
    }
}

/// Numbers of `BITS` bits times float32.
#[inline(always)]
fn floats<S: Simd, const P: usize, const R: usize, const BITS: usize>(
    s: S,
    w: [Panel<'_>; P],
    x: &[[f32; R]],
    sums: &[[f32; R]],
) -> [[S::F; R]; P] {
    let size = w[0].shape.group_size;
    let mut total = [[s.splat(0.0); R]; P];
    for (group, (x, sums)) in x.chunks_exact(size).zip(sums.chunks_exact(size / GROUP)).enumerate() {
        for p in 0..P {
            w[p].prefetch(s, group);
            if BITS == 16 {
                let partial = group_sums::<S, R, BITS>(s, w[p].quants(group), w[p].shape.floats, x);
                for r in 0..R {
                    total[p][r] = s.add(total[p][r], s.add(partial[0][r], partial[1][r]));
                }
            } else {
                let (quants, scale, bias) = w[p].group(s, group);
                let partial = group_sums::<S, R, BITS>(s, quants, w[p].shape.floats, x);
                add_group(s, &mut total[p], &partial, scale, bias, sums);
            }
        }
    }
    total
}

/// A group's numbers times activations: two sums a row, so that no addition waits for the one before.
#[inline(always)]
fn group_sums<S: Simd, const R: usize, const BITS: usize>(
    s: S,
    lines: &[Line],
    halves: FloatType,
    x: &[[f32; R]],
) -> [[S::F; R]; 2] {
    let mut sums = [[s.splat(0.0); R]; 2];
    // Lines and activations in step, in chunks whose length is known.
    match BITS {
        4 => {
            for (line, x) in lines.iter().zip(x.as_chunks::<8>().0) {
                let word = s.words(&line.0);
                let q = [s.nibble::<0>(word), s.nibble::<8>(word), s.nibble::<16>(word), s.nibble::<24>(word)];
                let r = [s.nibble::<4>(word), s.nibble::<12>(word), s.nibble::<20>(word), s.nibble::<28>(word)];
                for i in 0..4 {
                    for row in 0..R {
                        sums[0][row] = s.mul_add(q[i], s.splat(x[i][row]), sums[0][row]);
                        sums[1][row] = s.mul_add(r[i], s.splat(x[4 + i][row]), sums[1][row]);
                    }
                }
            }
        }
        8 => {
            for (line, x) in lines.iter().zip(x.as_chunks::<4>().0) {
                let word = s.words(&line.0);
                let q = [s.byte::<0>(word), s.byte::<8>(word), s.byte::<16>(word), s.byte::<24>(word)];
                for i in 0..4 {
                    for row in 0..R {
                        sums[i % 2][row] = s.mul_add(q[i], s.splat(x[i][row]), sums[i % 2][row]);
                    }
                }
            }
        }
        _ => {
            for (line, x) in lines.iter().zip(x.as_chunks::<2>().0) {
                let q = load_halves(s, halves, line);
                for i in 0..2 {
                    for row in 0..R {
                        sums[i][row] = s.mul_add(q[i], s.splat(x[i][row]), sums[i][row]);
                    }
                }
            }
        }
    }
    sums
}

/// Integers times integers of two signed bytes.
#[inline(always)]
fn integers<S: Simd, const R: usize, const NIBBLES: bool>(
    s: S,
    w: Panel<'_>,
    bytes: &[[[Eight; R]; 2]],
    scales: &[[f32; R]],
    sums: &[[f32; R]],
) -> [S::F; R] {
    const QUADS: usize = GROUP / 4;
    let size = w.shape.group_size / GROUP;
    let lines = if NIBBLES { QUADS / 2 } else { QUADS };
    let mut total = [s.splat(0.0); R];
    let groups = bytes.chunks_exact(size).zip(scales.chunks_exact(size)).zip(sums.chunks_exact(size));
    for (group, ((bytes, scales), sums)) in groups.enumerate() {
        w.prefetch(s, group);
        let (quants, scale, bias) = w.group(s, group);
        for (((lines, [x, y]), scales), sums) in quants.chunks_exact(lines).zip(bytes).zip(scales).zip(sums) {
            let (mut upper, mut lower) = ([s.zero(); R], [s.zero(); R]);
            for (at, line) in lines.iter().enumerate() {
                let word = s.words(&line.0);
                if NIBBLES {
                    let halves = [s.low_nibbles(word), s.high_nibbles(word)];
                    for half in 0..2 {
                        for row in 0..R {
                            upper[row] = s.dot_nibbles(upper[row], halves[half], x[row].0[2 * at + half]);
                            lower[row] = s.dot_nibbles(lower[row], halves[half], y[row].0[2 * at + half]);
                        }
                    }
                } else {
                    for row in 0..R {
                        upper[row] = s.dot_bytes(upper[row], word, x[row].0[at]);
                        lower[row] = s.dot_bytes(lower[row], word, y[row].0[at]);
                    }
                }
            }
            for row in 0..R {
                add_integers(s, &mut total[row], [upper[row], lower[row]], [scale, bias], [scales[row], sums[row]]);
            }
        }
    }
    total
}

/// Adds what a group's integers come to. They are at most 32 * 255 * 32,639, which 32 bits hold.
#[inline(always)]
fn add_integers<S: Simd>(
    s: S,
    total: &mut S::F,
    [upper, lower]: [S::I; 2],
    [scale, bias]: [S::F; 2],
    [x_scale, x_sum]: [f32; 2],
) {
    let dot = s.to_float(s.join(upper, lower));
    *total = s.mul_add(dot, s.mul(scale, s.splat(x_scale)), *total);
    *total = s.mul_add(bias, s.splat(x_sum), *total);
}

/// A block's rows times some panels of one matrix.
struct Plain<'a> {
    x: &'a Input,
    w: &'a Packed,
    finish: Finish<'a>,
    out: &'a Parts<'a, f32>,
    first: usize,
    end: usize,
}

impl Kernel for Plain<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, count) in blocks(self.x.rows) {
            match count {
                1 => self.pairs::<S, 1>(s, row),
                2 => self.pairs::<S, 2>(s, row),
                4 => self.singly::<S, 4>(s, row),
                _ => self.singly::<S, 8>(s, row),
            }
        }
    }
}

impl Plain<'_> {
    #[inline(always)]
    fn singly<S: Simd, const R: usize>(&self, s: S, row: usize) {
        let x = Block::<R>::new(self.x, row);
        for panel in self.first..self.end {
            let [y] = panels(s, [Panel::new(self.w, panel, row == 0)], x);
            self.store(s, row, panel, y);
        }
    }

    /// Two panels at a time: with few rows one alone would wait for its own sums.
    #[inline(always)]
    fn pairs<S: Simd, const R: usize>(&self, s: S, row: usize) {
        let x = Block::<R>::new(self.x, row);
        let mut panel = self.first;
        while panel + 1 < self.end {
            let [a, b] = panels(s, [Panel::new(self.w, panel, row == 0), Panel::new(self.w, panel + 1, row == 0)], x);
            self.store(s, row, panel, a);
            self.store(s, row, panel + 1, b);
            panel += 2;
        }
        if panel < self.end {
            let [y] = panels(s, [Panel::new(self.w, panel, row == 0)], x);
            self.store(s, row, panel, y);
        }
    }

    #[inline(always)]
    fn store<S: Simd, const R: usize>(&self, s: S, row: usize, panel: usize, y: [S::F; R]) {
        let outputs = self.w.shape.outputs;
        for r in 0..R {
            let mut y = y[r];
            if let Some(bias) = self.finish.bias() {
                y = s.add(y, load_lanes(s, &bias[panel * LANES..]));
            }
            if let Some(residual) = self.finish.residual() {
                let row = &residual[(row + r) * outputs..][..outputs];
                y = s.add(y, load_lanes(s, &row[panel * LANES..]));
            }
            store_lanes(s, y, self.out, outputs, row + r, panel);
        }
    }
}

/// A block's rows times some panels of two matrices, one of which gates the other.
struct Gated<'a> {
    x: &'a Input,
    w: [&'a Packed; 2],
    bias: [Option<&'a [f32]>; 2],
    gate: Gate,
    out: &'a Parts<'a, f32>,
    first: usize,
    end: usize,
}

impl Kernel for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, count) in blocks(self.x.rows) {
            match count {
                1 => self.rows::<S, 1>(s, row),
                2 => self.rows::<S, 2>(s, row),
                4 => self.rows::<S, 4>(s, row),
                _ => self.rows::<S, 8>(s, row),
            }
        }
    }
}

impl Gated<'_> {
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(&self, s: S, row: usize) {
        let x = Block::<R>::new(self.x, row);
        let alike =
            self.w[0].shape.bits == self.w[1].shape.bits && self.w[0].shape.group_size == self.w[1].shape.group_size;
        for panel in self.first..self.end {
            let w = [Panel::new(self.w[0], panel, row == 0), Panel::new(self.w[1], panel, row == 0)];
            let both =
                if alike && R < 4 { panels(s, w, x) } else { [panels(s, [w[0]], x)[0], panels(s, [w[1]], x)[0]] };
            self.store(s, row, panel, both);
        }
    }

    #[inline(always)]
    fn store<S: Simd, const R: usize>(&self, s: S, row: usize, panel: usize, mut both: [[S::F; R]; 2]) {
        for i in 0..2 {
            if let Some(bias) = self.bias[i] {
                let bias = load_lanes(s, &bias[panel * LANES..]);
                for r in 0..R {
                    both[i][r] = s.add(both[i][r], bias);
                }
            }
        }
        for r in 0..R {
            let y = s.mul(self.gate.apply(s, both[0][r]), both[1][r]);
            store_lanes(s, y, self.out, self.w[0].shape.outputs, row + r, panel);
        }
    }
}

/// The first sixteen of `from`, or as many as there are, and zeros.
#[inline(always)]
fn load_lanes<S: Simd>(s: S, from: &[f32]) -> S::F {
    match from.first_chunk::<LANES>() {
        Some(lanes) => s.load(lanes),
        None => {
            let mut lanes = [0.0; LANES];
            lanes[..from.len()].copy_from_slice(from);
            s.load(&lanes)
        }
    }
}

/// Stores a panel's outputs of a row, as many as there are.
#[inline(always)]
fn store_lanes<S: Simd>(s: S, y: S::F, out: &Parts<'_, f32>, outputs: usize, row: usize, panel: usize) {
    let from = panel * LANES;
    let count = LANES.min(outputs - from);
    // SAFETY: a panel is in one piece of work, and only that writes its outputs.
    let out = unsafe { out.part(row * outputs + from, count) };
    match out.first_chunk_mut::<LANES>() {
        Some(out) => s.store(y, out),
        None => {
            let mut lanes = [0.0; LANES];
            s.store(y, &mut lanes);
            out.copy_from_slice(&lanes[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::input::Activations;
    use crate::packed::tests::{Source, halves, source};

    fn activations(rows: usize, width: usize) -> Vec<f32> {
        (0..rows * width).map(|i| (((i * 7919) % 2003) as f32 - 1001.0) / 400.0).collect()
    }

    /// The product in float64, and what bounds its error: the sum of the magnitudes.
    fn reference(source: &Source, x: &[f32], row: usize, output: usize) -> (f64, f64) {
        let x = &x[row * source.inputs..][..source.inputs];
        let terms = x.iter().enumerate().map(|(i, x)| f64::from(*x) * f64::from(source.at(output, i)));
        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
    }

    /// Magnitudes as the kernel sees them: integers and bias apart.
    fn magnitude(source: &Source, x: &[f32], row: usize) -> f64 {
        x[row * source.inputs..][..source.inputs].iter().map(|x| f64::from(x.abs())).sum()
    }

    proptest! {
        #[test]
        fn every_path_agrees_with_float64(source in source().prop_filter("outputs", |s| s.outputs > 0), rows in 0usize..20) {
            let x = activations(rows, source.inputs);
            let packed = source.packed();
            let bias: Vec<f32> = (0..source.outputs).map(|n| n as f32 / 3.0).collect();
            let residual: Vec<f32> = (0..rows * source.outputs).map(|n| (n % 11) as f32 - 5.0).collect();
            // The largest weight is below 0.015 * 255 + 0.15.
            let top = 0.015 * f64::from((1u32 << source.bits) - 1) + 0.15;
            for path in Path::available() {
                for kind in [Activations::F32, Activations::Int16] {
                    let input = Input::new(path, &x, source.inputs, kind).unwrap();
                    for finish in [Finish::Store, Finish::AddBias(&bias), Finish::AddTo(&residual),
                                   Finish::AddBoth { bias: &bias, residual: &residual }] {
                        let mut out = vec![f32::NAN; rows * source.outputs];
                        product(path, &input, &packed, finish, &mut out);
                        for (index, found) in out.iter().enumerate() {
                            let (row, output) = (index / source.outputs, index % source.outputs);
                            let (mut want, _) = reference(&source, &x, row, output);
                            want += finish.bias().map_or(0.0, |b| f64::from(b[output]));
                            want += finish.residual().map_or(0.0, |r| f64::from(r[index]));
                            let error = (f64::from(*found) - want).abs();
                            let size = magnitude(&source, &x, row) * top + 40.0;
                            // Half a step of 32,639 at the largest activation, 2.51, for each input; and float32's own error.
                            let steps = if kind == Activations::Int16 { 2.51 / 65_278.0 * top * source.inputs as f64 } else { 0.0 };
                            prop_assert!(error <= size * 1e-6 + steps, "{path} {kind:?}: {found} {want}");
                        }
                    }
                }
            }
        }

        #[test]
        fn halves_agree_with_float64(outputs in 1usize..70, groups in 1usize..6, rows in 0usize..20, brain in any::<bool>()) {
            let kind = if brain { FloatType::Bf16 } else { FloatType::F16 };
            let inputs = groups * GROUP;
            let (bytes, numbers) = halves(outputs, inputs, kind);
            let packed = Packed::dense(&bytes, kind, outputs, inputs).unwrap();
            let x = activations(rows, inputs);
            for path in Path::available() {
                let product_of = |x: &[f32]| {
                    let input = Input::new(path, x, inputs, Activations::F32).unwrap();
                    let mut out = vec![f32::NAN; input.rows() * outputs];
                    product(path, &input, &packed, Finish::Store, &mut out);
                    out
                };
                let out = product_of(&x);
                let alone: Vec<f32> = x.chunks(inputs).flat_map(product_of).collect();
                prop_assert!(out == alone, "{path}: a row does not depend on its neighbours");
                for (index, found) in out.iter().enumerate() {
                    let (x, w) = (&x[index / outputs * inputs..], &numbers[index % outputs * inputs..]);
                    let terms = x.iter().zip(w).take(inputs).map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let (want, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    prop_assert!((f64::from(*found) - want).abs() <= size * 1e-6, "{path}: {found} {want}");
                }
            }
        }

        #[test]
        fn a_row_does_not_depend_on_its_neighbours(source in source().prop_filter("outputs", |s| s.outputs > 0), rows in 1usize..20) {
            let x = activations(rows, source.inputs);
            let packed = source.packed();
            for path in Path::available() {
                for kind in [Activations::F32, Activations::Int16] {
                    let run = |x: &[f32]| {
                        let input = Input::new(path, x, source.inputs, kind).unwrap();
                        let mut out = vec![f32::NAN; input.rows() * source.outputs];
                        product(path, &input, &packed, Finish::Store, &mut out);
                        out
                    };
                    let alone: Vec<f32> = x.chunks(source.inputs).flat_map(run).collect();
                    prop_assert!(run(&x) == alone, "{path} {kind:?}");
                }
            }
        }

        #[test]
        fn gates(groups in 1usize..4, outputs in 1usize..50, rows in 0usize..11, bits in prop_oneof![Just([4usize, 4]), Just([8, 4])]) {
            use crate::packed::FloatType::{F16, F32};
            let sources = [Source::new(outputs, groups, 32, bits[0], F16), Source::new(outputs, groups, 32, bits[1], F32)];
            let packed = sources.each_ref().map(Source::packed);
            let x = activations(rows, sources[0].inputs);
            let bias: Vec<f32> = (0..outputs).map(|n| n as f32 / 30.0 - 0.5).collect();
            for path in Path::available() {
                for gate in [Gate::Silu, Gate::GeluTanh] {
                    let input = Input::new(path, &x, sources[0].inputs, Activations::F32).unwrap();
                    let mut out = vec![f32::NAN; rows * outputs];
                    gated(path, &input, packed.each_ref(), [Some(&bias), None], gate, &mut out);
                    for (index, found) in out.iter().enumerate() {
                        let (row, output) = (index / outputs, index % outputs);
                        let g = reference(&sources[0], &x, row, output).0 + f64::from(bias[output]);
                        let (u, size) = reference(&sources[1], &x, row, output);
                        let gate = match gate {
                            Gate::Silu => g / (1.0 + (-g).exp()),
                            Gate::GeluTanh => {
                                let t = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3));
                                g / 2.0 * (1.0 + t.tanh())
                            }
                        };
                        let error = (f64::from(*found) - gate * u).abs();
                        prop_assert!(error <= 1e-4 * (gate.abs() + 1.0) * (size + 1.0), "{path}: {found} {}", gate * u);
                    }
                }
            }
        }
    }

    /// Sums of many terms, whose errors average out: a twenty-thousandth of their size at most.
    #[test]
    fn integers_are_close_in_a_layer_of_ordinary_size() {
        let (rows, source) = (37, Source::new(400, 18, 32, 4, FloatType::F16));
        let x = activations(rows, source.inputs);
        for path in Path::available() {
            let run = |kind| {
                let input = Input::new(path, &x, source.inputs, kind).unwrap();
                let mut out = vec![f32::NAN; rows * source.outputs];
                product(path, &input, &source.packed(), Finish::Store, &mut out);
                out
            };
            let (exact, rounded) = (run(Activations::F32), run(Activations::Int16));
            let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
            let error = squares(&mut exact.iter().zip(&rounded).map(|(a, b)| a - b));
            let size = squares(&mut exact.iter().copied());
            assert!(error.sqrt() <= 5e-5 * size.sqrt(), "{path}: {}", (error / size).sqrt());
        }
    }
}
