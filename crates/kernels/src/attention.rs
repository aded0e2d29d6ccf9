//! Attention over a cache: `softmax(q k^T * scale) v` over the columns that each query may see.
//!
//! Which these are comes as a function that yields up to three runs of columns a query, so a mask is never spelled out and
//! unseen columns cost nothing. Columns are taken 64 at a time with a running maximum (Milakov and Gimelshein, 2018; Dao et
//! al., 2022): the scores of a query never lie in memory as a whole. Query heads that share a key head are taken together,
//! and so are neighbouring queries. With few queries and many columns the columns are divided among threads, and the
//! parts are put together at the end.

use std::ops::Range;

use crate::pool::{self, Parts};
use crate::rope::Heads;
use crate::simd::{self, Kernel, LANES, Path, Simd};

/// Columns that are taken at a time.
const BLOCK: usize = 64;

/// Queries that are taken at a time; a piece of work has a few times as many.
const QUERIES: usize = 128;

/// Columns below which dividing them among threads costs more than it saves.
const SPLIT: usize = 128;

/// Vectors of a head that few queries have in registers at a time.
const SIDE_BY_SIDE: usize = 4;

/// Queries that share a block of columns in registers, where there are so many.
const MANY: usize = 8;

/// Keys or values as they are stored, `[rows, heads, columns, dim]`.
#[derive(Debug, Clone, Copy)]
pub enum Columns<'a> {
    /// Float32.
    F32(Heads<'a>),
    /// Affine groups along the head, in MLX's layout.
    Affine {
        /// Packed integers.
        packed: Strided<'a, u32>,
        /// One a group.
        scales: Strided<'a, f32>,
        /// One a group.
        biases: Strided<'a, f32>,
        /// Neighbours that share a scale.
        group_size: usize,
        /// Bits of an integer, up to 8.
        bits: usize,
    },
}

/// Entries in memory by row, head and column, those of a column side by side.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a, T> {
    /// The entries.
    pub data: &'a [T],
    /// Entries between neighbouring rows, heads and columns.
    pub strides: [usize; 3],
    /// Entries of a column.
    pub width: usize,
}

impl<'a, T> Strided<'a, T> {
    fn at(&self, row: usize, head: usize, column: usize) -> &'a [T] {
        let from = row * self.strides[0] + head * self.strides[1] + column * self.strides[2];
        &self.data[from..from + self.width]
    }
}

impl Columns<'_> {
    /// Spells a column out.
    fn spell(&self, row: usize, head: usize, column: usize, out: &mut [f32]) {
        match *self {
            Columns::F32(heads) => out[..heads.dim].copy_from_slice(heads.at(row, head, column)),
            Columns::Affine { packed, scales, biases, group_size, bits } => {
                let words = packed.at(row, head, column);
                let groups = scales.at(row, head, column).iter().zip(biases.at(row, head, column));
                for (group, ((scale, bias), out)) in groups.zip(out.chunks_mut(group_size)).enumerate() {
                    for (i, out) in out.iter_mut().enumerate() {
                        let bit = (group * group_size + i) * bits;
                        let (word, shift) = (bit / 32, bit % 32);
                        let next = if shift + bits > 32 { words[word + 1] } else { 0 };
                        let both = u64::from(words[word]) | (u64::from(next) << 32);
                        *out = scale * ((both >> shift) as u32 & ((1 << bits) - 1)) as f32 + bias;
                    }
                }
            }
        }
    }
}

/// What attention is asked for.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// `[rows, heads, queries, dim]`.
    pub queries: Heads<'a>,
    /// The keys, of `kv_heads` heads.
    pub keys: Columns<'a>,
    /// The values.
    pub values: Columns<'a>,
    /// Key heads, each of which serves as many neighbouring query heads.
    pub kv_heads: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// The columns that query `i` of row `r` sees, as up to three runs that do not overlap.
    pub visible: &'a (dyn Fn(usize, usize) -> [Range<usize>; 3] + Sync),
}

/// Computes the attention: `[rows, queries, heads, dim]`, which is how the product that follows takes it. A query that sees
/// nothing gets zeros.
///
/// # Panics
/// When the sizes do not fit, or a column is seen that is not there.
pub fn attend(path: Path, it: Attention<'_>, out: &mut [f32]) {
    let Heads { shape: [rows, heads, length], dim, .. } = it.queries;
    assert_eq!(out.len(), rows * heads * length * dim, "the result's length");
    assert!(it.kv_heads > 0 && heads.is_multiple_of(it.kv_heads), "{heads} heads over {}", it.kv_heads);
    if out.is_empty() {
        return;
    }
    let group = heads / it.kv_heads;
    let step = (QUERIES / group).clamp(1, length);
    let blocks = length.div_ceil(step);
    let tasks = rows * it.kv_heads * blocks;
    let longest = (0..rows).flat_map(|row| (it.visible)(row, length - 1)).map(|run| run.len()).sum::<usize>();
    // Enough pieces to keep all threads busy, none so small that it is not worth one.
    let splits = if tasks >= 4 * pool::threads() { 1 } else { (longest / SPLIT).clamp(1, 2 * pool::threads()) };
    let width = dim.next_multiple_of(LANES);
    let mut partial = vec![0.0; if splits > 1 { tasks * splits * step * group * (width + 2) } else { 0 }];
    let share = step * group * (width + 2);
    {
        let (out, partial) = (Parts::new(out), Parts::new(&mut partial));
        pool::for_each(tasks * splits, |piece| {
            let (task, split) = (piece / splits, piece % splits);
            let (block, pair) = (task % blocks, task / blocks);
            let piece = Piece {
                it: &it,
                row: pair / it.kv_heads,
                kv_head: pair % it.kv_heads,
                queries: block * step..length.min((block + 1) * step),
                split: (split, splits),
            };
            let done = simd::run(path, &piece);
            if splits == 1 {
                piece.store(&done, &out);
            } else {
                // SAFETY: each piece has a share of its own.
                unsafe { partial.part((task * splits + split) * share, done.len()) }.copy_from_slice(&done);
            }
        });
    }
    if splits > 1 {
        let out = Parts::new(out);
        for task in 0..tasks {
            let (block, pair) = (task % blocks, task / blocks);
            let queries = block * step..length.min((block + 1) * step);
            let piece = Piece { it: &it, row: pair / it.kv_heads, kv_head: pair % it.kv_heads, queries, split: (0, 1) };
            let length = piece.count() * (width + 2);
            let parts: Vec<&[f32]> =
                (0..splits).map(|split| &partial[(task * splits + split) * share..][..length]).collect();
            piece.store(&together(&parts, width + 2), &out);
        }
    }
}

/// Puts the results of several ranges of columns together.
fn together(parts: &[&[f32]], stride: usize) -> Vec<f32> {
    let mut all = vec![0.0; parts[0].len()];
    for (query, all) in all.chunks_exact_mut(stride).enumerate() {
        let greatest = parts.iter().map(|part| part[query * stride]).fold(f32::NEG_INFINITY, f32::max);
        all[0] = greatest;
        for part in parts {
            let part = &part[query * stride..][..stride];
            let factor = if part[0] == f32::NEG_INFINITY { 0.0 } else { (part[0] - greatest).exp() };
            all[1..].iter_mut().zip(&part[1..]).for_each(|(all, part)| *all += factor * part);
        }
    }
    all
}

/// Neighbouring queries of all heads over one key head, and a part of their columns.
struct Piece<'a> {
    it: &'a Attention<'a>,
    row: usize,
    kv_head: usize,
    queries: Range<usize>,
    /// Which of how many parts of the columns.
    split: (usize, usize),
}

impl Piece<'_> {
    fn group(&self) -> usize {
        self.it.queries.shape[1] / self.it.kv_heads
    }

    /// Queries, each head's counted.
    fn count(&self) -> usize {
        self.queries.len() * self.group()
    }

    /// The head and the position of a query: heads vary fastest, so that neighbours see alike.
    fn query(&self, index: usize) -> (usize, usize) {
        let group = self.group();
        (self.kv_head * group + index % group, self.queries.start + index / group)
    }

    /// Divides sums of weighted values by sums of weights, and stores them.
    fn store(&self, done: &[f32], out: &Parts<'_, f32>) {
        let Heads { shape: [_, heads, length], dim, .. } = self.it.queries;
        let stride = done.len() / self.count();
        for (index, done) in done.chunks_exact(stride).enumerate() {
            let (head, position) = self.query(index);
            // SAFETY: each query is in one task.
            let out = unsafe { out.part(((self.row * length + position) * heads + head) * dim, dim) };
            let factor = if done[1] > 0.0 { 1.0 / done[1] } else { 0.0 };
            out.iter_mut().zip(&done[2..]).for_each(|(out, sum)| *out = sum * factor);
        }
    }
}

impl Kernel for &Piece<'_> {
    /// For each query the greatest score, the sum of weights, and the sums of weighted values.
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        match self.count() {
            1 => rows::<S, 1>(s, self),
            2 => rows::<S, 2>(s, self),
            3 => rows::<S, 3>(s, self),
            4 => rows::<S, 4>(s, self),
            _ => rows::<S, MANY>(s, self),
        }
    }
}

/// The queries of a piece, `R` at a time.
struct Group<const R: usize> {
    /// Times the scale: one after another, `width` for each, or, when there are many, so that columns lie in the lanes, by
    /// number of the head.
    scaled: Vec<f32>,
    greatest: [f32; R],
    weight: [f32; R],
    /// Sums of weighted values, `width` for each.
    sums: Vec<f32>,
    runs: [[Range<usize>; 3]; R],
}

#[inline(always)]
fn rows<S: Simd, const R: usize>(s: S, piece: &Piece<'_>) -> Vec<f32> {
    let width = piece.it.queries.dim.next_multiple_of(LANES);
    let count = piece.count();
    let mut groups: Vec<Group<R>> = (0..count.div_ceil(R)).map(|at| group::<R>(piece, at * R, width)).collect();
    // Few queries go over the keys as they lie; for many it pays to turn a block's keys over.
    let turned = R == MANY;
    let mut spelled = [Vec::new(), Vec::new()];
    let mut over = vec![[0.0; BLOCK]; if turned { width } else { 0 }];
    for slot in 0..3 {
        let seen =
            groups.iter().flat_map(|group| &group.runs).map(|runs| runs[slot].clone()).filter(|run| !run.is_empty());
        let hull = seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        let (split, splits) = piece.split;
        let part = hull.len().div_ceil(splits).next_multiple_of(BLOCK);
        let end = hull.end.min(hull.start + part * (split + 1));
        let mut from = hull.start + part * split;
        while from < end {
            let columns = from..end.min(from + BLOCK);
            let [keys, values] = &mut spelled;
            let keys = lines(piece, &piece.it.keys, &columns, width, keys);
            let values = lines(piece, &piece.it.values, &columns, width, values);
            if turned {
                turn(keys, width, &mut over);
            }
            for group in &mut groups {
                let seen =
                    (0..R).any(|r| group.runs[r][slot].start < columns.end && columns.start < group.runs[r][slot].end);
                if seen {
                    let mut scores = [[f32::NEG_INFINITY; BLOCK]; R];
                    if turned {
                        score_turned(s, group, &over, &mut scores);
                    } else {
                        score(s, group, [keys, values], width, &mut scores);
                    }
                    weigh(s, group, slot, &columns, &mut scores, values, width);
                }
            }
            from = columns.end;
        }
    }
    let mut done = Vec::with_capacity(count * (width + 2));
    for (index, r) in (0..count).map(|query| (query / R, query % R)) {
        let group = &groups[index];
        done.extend([group.greatest[r], group.weight[r]]);
        done.extend_from_slice(&group.sums[r * width..][..width]);
    }
    done
}

fn group<const R: usize>(piece: &Piece<'_>, first: usize, width: usize) -> Group<R> {
    let mut group = Group {
        scaled: vec![0.0; R * width],
        greatest: [f32::NEG_INFINITY; R],
        weight: [0.0; R],
        sums: vec![0.0; R * width],
        runs: std::array::from_fn(|_| [0..0, 0..0, 0..0]),
    };
    for r in 0..R.min(piece.count() - first) {
        let (head, position) = piece.query(first + r);
        let query = piece.it.queries.at(piece.row, head, position);
        let (from, step) = if R == MANY { (r, R) } else { (r * width, 1) };
        for (scaled, x) in group.scaled[from..].iter_mut().step_by(step).zip(query) {
            *scaled = x * piece.it.scale;
        }
        group.runs[r] = (piece.it.visible)(piece.row, position);
    }
    group
}

/// The numbers of some columns, `width` for each: where they lie, or spelled out.
fn lines<'a>(
    piece: &Piece<'a>,
    of: &Columns<'a>,
    columns: &Range<usize>,
    width: usize,
    spelled: &'a mut Vec<f32>,
) -> &'a [f32] {
    if let Columns::F32(heads) = of
        && (heads.strides[2], heads.dim) == (width, width)
    {
        let from = piece.row * heads.strides[0] + piece.kv_head * heads.strides[1] + columns.start * width;
        return &heads.data[from..][..columns.len() * width];
    }
    spelled.resize(BLOCK * width, 0.0);
    for (column, to) in columns.clone().zip(spelled.chunks_exact_mut(width)) {
        of.spell(piece.row, piece.kv_head, column, to);
    }
    &spelled[..columns.len() * width]
}

/// From one column after another to one number of the head after another.
#[inline(always)]
fn turn(keys: &[f32], width: usize, over: &mut [[f32; BLOCK]]) {
    for (column, key) in keys.chunks_exact(width).enumerate() {
        for (over, x) in over.iter_mut().zip(key) {
            over[column] = *x;
        }
    }
}

/// Scores with columns in the lanes.
#[inline(always)]
fn score_turned<S: Simd, const R: usize>(
    s: S,
    group: &Group<R>,
    over: &[[f32; BLOCK]],
    scores: &mut [[f32; BLOCK]; R],
) {
    for lanes in 0..BLOCK / LANES {
        let mut sums = [s.splat(0.0); R];
        for (key, query) in over.iter().zip(group.scaled.as_chunks::<R>().0) {
            let key = s.load(&key.as_chunks::<LANES>().0[lanes]);
            for r in 0..R {
                sums[r] = s.mul_add(key, s.splat(query[r]), sums[r]);
            }
        }
        for r in 0..R {
            s.store(sums[r], &mut scores[r].as_chunks_mut::<LANES>().0[lanes]);
        }
    }
}

/// Scores with the numbers of a head in the lanes.
#[inline(always)]
fn score<S: Simd, const R: usize>(
    s: S,
    group: &Group<R>,
    [keys, values]: [&[f32]; 2],
    width: usize,
    scores: &mut [[f32; BLOCK]; R],
) {
    for (lanes, keys) in keys.chunks(LANES * width).enumerate() {
        let next = [keys.as_ptr().wrapping_add(BLOCK * width), values[lanes * LANES * width..].as_ptr()];
        let mut sums = [[s.splat(0.0); LANES]; R];
        let mut at = 0;
        while at + SIDE_BY_SIDE <= width / LANES {
            dots::<S, R, SIDE_BY_SIDE>(s, &group.scaled, keys, next, width, at, &mut sums);
            at += SIDE_BY_SIDE;
        }
        while at < width / LANES {
            dots::<S, R, 1>(s, &group.scaled, keys, next, width, at, &mut sums);
            at += 1;
        }
        for r in 0..R {
            s.store(s.sums(&sums[r]), &mut scores[r].as_chunks_mut::<LANES>().0[lanes]);
        }
    }
}

/// Adds to the sums of up to sixteen columns what `N` vectors of a head, from vector `at` on, come to. `next` is what will be
/// read after: keys of the next block, and the values of these columns.
#[inline(always)]
fn dots<S: Simd, const R: usize, const N: usize>(
    s: S,
    queries: &[f32],
    keys: &[f32],
    next: [*const f32; 2],
    width: usize,
    at: usize,
    sums: &mut [[S::F; LANES]; R],
) {
    let mut held = [[s.splat(0.0); N]; R];
    for r in 0..R {
        for n in 0..N {
            held[r][n] = s.load(vector(&queries[r * width..], at + n));
        }
    }
    for (column, key) in keys.chunks_exact(width).enumerate() {
        for n in 0..N {
            let key = s.load(vector(key, at + n));
            for next in next {
                s.prefetch(next.wrapping_add(column * width + (at + n) * LANES));
            }
            for r in 0..R {
                sums[r][column] = s.mul_add(key, held[r][n], sums[r][column]);
            }
        }
    }
}

#[inline(always)]
fn vector(of: &[f32], at: usize) -> &[f32; LANES] {
    &of.as_chunks::<LANES>().0[at]
}

/// Turns scores into weights and adds the weighted values.
#[inline(always)]
fn weigh<S: Simd, const R: usize>(
    s: S,
    group: &mut Group<R>,
    slot: usize,
    columns: &Range<usize>,
    scores: &mut [[f32; BLOCK]; R],
    values: &[f32],
    width: usize,
) {
    let mut shrink = [1.0f32; R];
    for r in 0..R {
        let run = &group.runs[r][slot];
        let from = run.start.clamp(columns.start, columns.end) - columns.start;
        let to = run.end.clamp(columns.start, columns.end) - columns.start;
        let scores = &mut scores[r];
        if from >= to {
            scores.fill(0.0);
            continue;
        }
        scores[..from].fill(f32::NEG_INFINITY);
        scores[to..].fill(f32::NEG_INFINITY);
        let (lanes, _) = scores.as_chunks_mut::<LANES>();
        let mut most = s.splat(f32::NEG_INFINITY);
        for lanes in lanes.iter() {
            most = s.max(most, s.load(lanes));
        }
        let greatest = s.greatest(most).max(group.greatest[r]);
        shrink[r] = if group.greatest[r] == f32::NEG_INFINITY { 0.0 } else { (group.greatest[r] - greatest).exp() };
        group.greatest[r] = greatest;
        let mut sum = s.splat(0.0);
        for lanes in lanes.iter_mut() {
            let weight = s.exp(s.sub(s.load(lanes), s.splat(greatest)));
            sum = s.add(sum, weight);
            s.store(weight, lanes);
        }
        group.weight[r] = group.weight[r] * shrink[r] + s.sum(sum);
    }
    let mut at = 0;
    // With few queries sums of one vector alone would wait for themselves.
    while R * SIDE_BY_SIDE < S::REGISTERS && at + SIDE_BY_SIDE <= width / LANES {
        add_values::<S, R, SIDE_BY_SIDE>(s, group, &shrink, scores, values, width, at);
        at += SIDE_BY_SIDE;
    }
    while at < width / LANES {
        add_values::<S, R, 1>(s, group, &shrink, scores, values, width, at);
        at += 1;
    }
}

/// Shrinks `N` vectors of the sums, from vector `at` on, and adds weighted values to them.
#[inline(always)]
fn add_values<S: Simd, const R: usize, const N: usize>(
    s: S,
    group: &mut Group<R>,
    shrink: &[f32; R],
    weights: &[[f32; BLOCK]; R],
    values: &[f32],
    width: usize,
    at: usize,
) {
    let mut sums = [[s.splat(0.0); N]; R];
    for r in 0..R {
        for n in 0..N {
            sums[r][n] = s.mul(s.load(vector(&group.sums[r * width..], at + n)), s.splat(shrink[r]));
        }
    }
    for (column, value) in values.chunks_exact(width).enumerate() {
        for n in 0..N {
            let value = s.load(vector(value, at + n));
            for r in 0..R {
                sums[r][n] = s.mul_add(value, s.splat(weights[r][column]), sums[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            s.store(sums[r][n], &mut group.sums[r * width..].as_chunks_mut::<LANES>().0[at + n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize, salt: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + salt) * 7919) % 2003) as f32 / 500.0 - 2.0).collect()
    }

    /// The definition in float64.
    fn reference(it: &Attention<'_>, row: usize, head: usize, position: usize) -> Vec<f64> {
        let dim = it.queries.dim;
        let kv_head = head / (it.queries.shape[1] / it.kv_heads);
        let query = it.queries.at(row, head, position);
        let spelled = |columns: &Columns<'_>, column| {
            let mut out = vec![0.0; dim];
            columns.spell(row, kv_head, column, &mut out);
            out
        };
        let columns: Vec<usize> = (it.visible)(row, position).into_iter().flatten().collect();
        let score = |column: &usize| -> f64 {
            let key = spelled(&it.keys, *column);
            query.iter().zip(&key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() * f64::from(it.scale)
        };
        let scores: Vec<f64> = columns.iter().map(score).collect();
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - greatest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut out = vec![0.0; dim];
        for (column, weight) in columns.iter().zip(&weights) {
            let value = spelled(&it.values, *column);
            out.iter_mut().zip(&value).for_each(|(out, v)| *out += weight / total * f64::from(*v));
        }
        out
    }

    fn check(it: Attention<'_>) {
        let Heads { shape: [rows, heads, length], dim, .. } = it.queries;
        for path in Path::available() {
            let mut out = vec![f32::NAN; rows * heads * length * dim];
            attend(path, it, &mut out);
            for row in 0..rows {
                for (head, position) in (0..heads).flat_map(|head| (0..length).map(move |position| (head, position))) {
                    let want = reference(&it, row, head, position);
                    let found = &out[((row * length + position) * heads + head) * dim..][..dim];
                    let largest = want.iter().fold(10.0, |largest: f64, x| largest.max(x.abs()));
                    for (found, want) in found.iter().zip(&want) {
                        let error = (f64::from(*found) - want).abs();
                        assert!(
                            error < 2e-6 * largest,
                            "{path}: row {row} head {head} query {position}: {found}, not {want}"
                        );
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_the_definition_in_float64(
            (rows, kv_heads, group) in (0usize..3, 1usize..3, 1usize..5),
            (length, before, spare) in (0usize..70, 0usize..150, 0usize..5),
            dim in prop_oneof![1usize..40, Just(64), Just(80)],
            window in prop_oneof![Just(None), (1usize..100).prop_map(Some)],
            rotation in 0usize..200,
        ) {
            let (heads, columns) = (kv_heads * group, before + length);
            let plane = (columns + spare) * dim;
            let keys = numbers(rows * kv_heads * plane, 1);
            let values = numbers(rows * kv_heads * plane, 2);
            let queries = numbers(rows * heads * length * dim, 3);
            let heads_of = |data, heads, columns| Heads {
                data, shape: [rows, heads, columns], strides: [heads * columns * dim, columns * dim, dim], dim,
            };
            let rotation = if columns == 0 { 0 } else { rotation % columns };
            // Query i sees the columns up to its own, turned left: two runs.
            let visible = |row: usize, query: usize| {
                let last = before + query;
                let first = window.map_or(row, |w| (last + 1).saturating_sub(w).max(row)).min(last + 1);
                let split = columns - rotation;
                let turn = |range: Range<usize>| if range.is_empty() { 0..0 } else { range };
                [turn(first.min(split) + rotation..(last + 1).min(split) + rotation),
                 turn(first.max(split) - split..(last + 1).max(split) - split), 0..0]
            };
            check(Attention {
                queries: heads_of(&queries, heads, length),
                keys: Columns::F32(heads_of(&keys, kv_heads, columns + spare)),
                values: Columns::F32(heads_of(&values, kv_heads, columns + spare)),
                kv_heads,
                scale: 0.3,
                visible: &visible,
            });
        }

        #[test]
        fn quantized_columns(
            bits in prop_oneof![Just(4usize), Just(8), Just(3), Just(6), Just(2), Just(5)],
            groups in 1usize..3, columns in 1usize..100, length in 1usize..12,
        ) {
            let dim = groups * 32;
            let width = dim * bits / 32;
            let words: Vec<u32> = (0..2 * columns * width).map(|i| (i as u32).wrapping_mul(2_654_435_761)).collect();
            let scales: Vec<f32> = numbers(2 * columns * groups, 5).iter().map(|x| x / (1 << bits) as f32).collect();
            let biases = numbers(2 * columns * groups, 6);
            let stored = |words, scales, biases| Columns::Affine {
                packed: Strided { data: words, strides: [0, columns * width, width], width },
                scales: Strided { data: scales, strides: [0, columns * groups, groups], width: groups },
                biases: Strided { data: biases, strides: [0, columns * groups, groups], width: groups },
                group_size: 32,
                bits,
            };
            let queries = numbers(4 * length * dim, 3);
            check(Attention {
                queries: Heads { data: &queries, shape: [1, 4, length], strides: [0, length * dim, dim], dim },
                keys: stored(&words, &scales, &biases),
                values: stored(&words, &biases, &scales),
                kv_heads: 2,
                scale: 0.1,
                visible: &|_, query| [0..columns.min(query + 1), 0..0, columns.min(query + 1)..columns],
            });
        }
    }

    #[test]
    fn many_columns_are_divided_among_threads() {
        let (columns, dim) = (5000, 16);
        let (keys, values, queries) = (numbers(columns * dim, 1), numbers(columns * dim, 2), numbers(3 * dim, 3));
        let heads = |data, columns| Heads { data, shape: [1, 1, columns], strides: [0, 0, dim], dim };
        check(Attention {
            queries: Heads { data: &queries, shape: [1, 3, 1], strides: [0, dim, dim], dim },
            keys: Columns::F32(heads(&keys, columns)),
            values: Columns::F32(heads(&values, columns)),
            kv_heads: 1,
            scale: 2.0,
            visible: &|_, _| [0..4, 10..4990, 4995..5000],
        });
    }

    #[test]
    fn a_query_that_sees_nothing_gets_zeros() {
        let numbers = numbers(32, 0);
        let heads = Heads { data: &numbers, shape: [1, 1, 2], strides: [0, 0, 16], dim: 16 };
        for path in Path::available() {
            let mut out = [f32::NAN; 32];
            let visible = |_: usize, query: usize| [0..query, 0..0, 0..0];
            let (keys, values) = (Columns::F32(heads), Columns::F32(heads));
            attend(
                path,
                Attention { queries: heads, keys, values, kv_heads: 1, scale: 1.0, visible: &visible },
                &mut out,
            );
            assert_eq!(out[..16], [0.0; 16]);
            for (found, value) in out[16..].iter().zip(&numbers) {
                assert!((found - value).abs() < 1e-6);
            }
        }
    }
}
