//! A cache beside what it should hold: everything that can happen to a group of rows, and after each append every query compared
//! with the definition.

use std::sync::Arc;

use annulus_engine::cache::{Arrangement, Cache, DonorColumns, Format, StoredRow};
use annulus_engine::geometry::Geometry;
use annulus_engine::rope::{Rope, RopePositions, Scaling};
use annulus_plan::{Growth, Kind, Padding, Row};
use mlx_rs::Array;
use mlx_rs::ops::{dequantize, quantize};

use crate::definition::{History, Random, Sees, Shape, turn};

/// The shape of the attention layer.
pub const SHAPE: Shape = Shape { heads: 4, kv_heads: 2, dim: 32 };
/// What scores are multiplied by.
pub const SCALE: f32 = 0.2;
/// The base of the rotation.
pub const THETA: f32 = 10_000.0;

/// A cache of one layer beside what its rows should hold. Its methods panic when the two differ, or the planner refuses.
#[allow(missing_debug_implementations, reason = "for tests")]
pub struct Pair {
    /// The cache.
    pub cache: Cache,
    /// What its rows should hold.
    pub rows: Vec<History>,
    rope: Rope,
    random: Random,
    /// How many queries were compared.
    pub compared: usize,
    name: String,
    /// Who hears of the cache's moves.
    geometry: Arc<Geometry>,
}

/// One row's columns of an append: which of them are tokens.
#[derive(Debug, Clone, Copy)]
pub struct Real {
    /// The first.
    pub from: usize,
    /// The one behind the last.
    pub to: usize,
}

#[allow(clippy::missing_panics_doc, reason = "for tests")]
impl Pair {
    /// A group of empty rows; the seed chooses all numbers.
    pub fn new(kind: Kind, format: Format, rows: usize, seed: u64) -> Self {
        let arrangement = Arrangement { kinds: vec![kind], format, growth: Growth::default() };
        Self {
            cache: Cache::new(arrangement, rows).unwrap(),
            rows: vec![History::default(); rows],
            rope: Rope::new(SHAPE.dim as i32, THETA, false, Scaling::None).unwrap(),
            random: Random(seed),
            compared: 0,
            name: format!("{kind:?}, {format:?}, {rows} rows, seed {seed}"),
            geometry: Arc::default(),
        }
    }

    /// Tells `geometry` of every move from now on.
    pub fn record(&mut self, geometry: &Arc<Geometry>) {
        self.geometry = Arc::clone(geometry);
        self.cache.record(geometry);
    }

    /// How the columns lie.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.cache.arrangement().kinds[0]
    }

    /// What the definition lets a query of this layer see.
    #[must_use]
    pub fn sees(&self) -> Sees {
        match self.kind() {
            Kind::Full => Sees { window: None, sinks: 0 },
            Kind::Ring(window) => Sees { window: Some(window.size as usize), sinks: window.sinks as usize },
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.keys.len()).collect()
    }

    /// Appends `n` columns, of which only some are tokens, and compares what every token's query attends to.
    pub fn append(&mut self, n: usize, real: &[Real], ragged: bool) {
        let (rows, dim) = (self.rows.len(), SHAPE.dim);
        let mut numbers = |heads: usize| self.random.floats(rows * heads * n * dim);
        let (queries, shared) = (numbers(SHAPE.heads), numbers(SHAPE.heads));
        let (keys, values) = (numbers(SHAPE.kv_heads), numbers(SHAPE.kv_heads));
        let array = |numbers: &[f32], heads: usize| {
            Array::from_slice(numbers, &[rows as i32, heads as i32, n as i32, dim as i32])
        };
        let counts: Vec<u32> = real.iter().map(|real| real.to as u32).collect();
        let columns = n as u32;
        let mut pass =
            if ragged { self.cache.begin_ragged(columns, &counts) } else { self.cache.begin(columns) }.unwrap();
        let (k, v) = (array(&keys, SHAPE.kv_heads), array(&values, SHAPE.kv_heads));
        let attended = pass.attend(0, &array(&queries, SHAPE.heads), &k, v, &self.rope, SCALE).unwrap();
        let again = pass.share(0, &array(&shared, SHAPE.heads), &self.rope, SCALE).unwrap();
        let staged = pass.finish().unwrap();
        self.cache.adopt(staged);
        self.cache.eval().unwrap();
        let got = [attended, again].map(|array| array.contiguous().unwrap().try_as_slice::<f32>().unwrap().to_vec());
        for (row, real) in real.iter().enumerate() {
            for column in real.from..real.to {
                let take = |numbers: &[f32], heads: usize| token(numbers, row, heads, column, n);
                let (key, value) = (take(&keys, SHAPE.kv_heads), take(&values, SHAPE.kv_heads));
                let position = self.rows[row].keys.len();
                let key = self.stored_key(&key, position);
                let value = self.stored(&value);
                self.rows[row].keys.push(key);
                self.rows[row].values.push(value);
                for (queries, got) in [&queries, &shared].into_iter().zip(&got) {
                    let query = turn(&take(queries, SHAPE.heads), dim, position as i64, f64::from(THETA));
                    let want = self.rows[row].attend(position, &query, SHAPE, self.sees(), SCALE);
                    let width = SHAPE.heads * dim;
                    self.compare(row, position, &got[(row * n + column) * width..][..width], &want);
                }
            }
        }
    }

    fn compare(&mut self, row: usize, position: usize, got: &[f32], want: &[f32]) {
        let most = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let finite = got.iter().all(|number| number.is_finite());
        assert!(finite && most < 2e-5, "{}: row {row} at position {position} differs by {most}", self.name);
        self.compared += 1;
    }

    /// A key as the cache stores it. The rotation is that of the definition; where rounding to few bits follows, MLX's, since a
    /// last bit may decide it.
    fn stored_key(&self, key: &[f32], position: usize) -> Vec<f32> {
        match self.cache.arrangement().format {
            Format::Plain => turn(key, SHAPE.dim, position as i64, f64::from(THETA)),
            Format::Affine(_) => {
                let key = Array::from_slice(key, &[1, SHAPE.kv_heads as i32, 1, SHAPE.dim as i32]);
                let turned = self.rope.forward(&key, &RopePositions::Same(position as i32)).unwrap();
                self.stored(turned.contiguous().unwrap().try_as_slice().unwrap())
            }
        }
    }

    fn stored(&self, numbers: &[f32]) -> Vec<f32> {
        let Format::Affine(affine) = self.cache.arrangement().format else { return numbers.to_vec() };
        let array = Array::from_slice(numbers, &[SHAPE.kv_heads as i32, SHAPE.dim as i32]);
        let (packed, scales, biases) = quantize(&array, affine.group(), affine.bits()).unwrap();
        let back = dequantize(&packed, &scales, &biases, affine.group(), affine.bits()).unwrap();
        back.contiguous().unwrap().try_as_slice::<f32>().unwrap().to_vec()
    }

    /// Appends tokens to every row.
    pub fn plain_append(&mut self, n: usize) {
        let real = vec![Real { from: 0, to: n }; self.rows.len()];
        self.append(n, &real, false);
    }

    /// A prefill of rows of these lengths that is padded on one side, in chunks.
    pub fn padded_prefill(&mut self, lengths: &[usize], left: bool, chunks: usize) {
        let width = lengths.iter().copied().max().unwrap();
        let pads: Vec<u32> = lengths.iter().map(|length| (width - length) as u32).collect();
        let counts: Vec<u32> = lengths.iter().map(|length| *length as u32).collect();
        let (left_pads, right_pads) = if left { (&pads[..], &[][..]) } else { (&[][..], &pads[..]) };
        self.cache.prepare(Padding { lengths: &counts, left: left_pads, right: right_pads }).unwrap();
        let mut done = 0;
        while done < width {
            let n = (width / chunks).max(1).min(width - done);
            let real = lengths.iter().map(|length| {
                let (from, to) = if left { (width - length, width) } else { (0, *length) };
                Real { from: from.clamp(done, done + n) - done, to: to.clamp(done, done + n) - done }
            });
            let real: Vec<_> = real.collect();
            self.append(n, &real, false);
            done += n;
        }
        self.cache.finalize().unwrap();
    }

    /// A row that was prefilled alone, and its history.
    fn born(&mut self, length: usize) -> (StoredRow, History) {
        let format = self.cache.arrangement().format;
        let mut alone = Self::new(self.kind(), format, 1, self.random.bits());
        if length > 0 {
            alone.plain_append(length);
        }
        let stored = alone.cache.extract(Row(0), None).unwrap();
        self.compared += alone.compared;
        (stored, alone.rows.remove(0))
    }

    /// Rows that were prefilled alone join.
    pub fn extend(&mut self, lengths: &[usize]) {
        let (stored, histories): (Vec<_>, Vec<_>) = lengths.iter().map(|length| self.born(*length)).unzip();
        self.cache.extend(stored).unwrap();
        self.rows.extend(histories);
    }

    /// Keeps these rows.
    pub fn filter(&mut self, keep: &[usize]) {
        let rows: Vec<_> = keep.iter().map(|row| Row(*row as u32)).collect();
        self.cache.filter(&rows).unwrap();
        self.rows = keep.iter().map(|row| self.rows[*row].clone()).collect();
    }

    /// Takes every row out and builds the group anew from them, in reverse order.
    pub fn reborn(&mut self) {
        let count = self.rows.len() as u32;
        let stored = (0..count).rev().map(|row| self.cache.extract(Row(row), None).unwrap()).collect();
        self.cache = Cache::merge(self.cache.arrangement().clone(), stored).unwrap();
        self.cache.record(&self.geometry);
        self.rows.reverse();
    }

    /// A round of two appends, the second ragged, of which each row keeps some tokens.
    pub fn round(&mut self) {
        let real: Vec<_> = self.rows.iter().map(|_| self.random.below(4)).collect();
        let keep: Vec<_> = real.iter().map(|real| self.random.below(2 + real + 1)).collect();
        self.round_of(2, &real, &keep);
    }

    /// A round: `first` tokens for every row, then `second[r]` more for row `r`, of which it keeps `keep[r]` in all.
    pub fn round_of(&mut self, first: usize, second: &[usize], keep: &[usize]) {
        self.cache.round_begin().unwrap();
        let before = self.lengths();
        self.plain_append(first);
        let most = second.iter().copied().max().unwrap_or(0);
        if most > 0 {
            let real: Vec<_> = second.iter().map(|to| Real { from: 0, to: *to }).collect();
            self.append(most, &real, true);
        }
        self.cache.round_rollback(&keep.iter().map(|keep| *keep as u32).collect::<Vec<_>>()).unwrap();
        for ((row, keep), before) in self.rows.iter_mut().zip(keep).zip(before) {
            row.keys.truncate(before + keep);
            row.values.truncate(before + keep);
        }
    }

    /// Drops the newest tokens of every row, where the planner allows it.
    pub fn trim(&mut self, n: usize) {
        if self.cache.trim(n as u32).is_ok() {
            for row in &mut self.rows {
                row.keys.truncate(row.keys.len() - n);
                row.values.truncate(row.values.len() - n);
            }
        }
    }

    /// A donor of the cache now, and what a query of each row must see in it.
    pub fn donor(&mut self, window: Option<u32>) -> (DonorColumns, Vec<f32>, Vec<Vec<f32>>) {
        let donor = self.cache.donor(0).unwrap();
        let queries = self.random.floats(self.rows.len() * SHAPE.heads * SHAPE.dim);
        let own = self.sees();
        let sees = match window {
            None => own,
            Some(window) => Sees { window: Some(own.window.unwrap_or(usize::MAX).min(window as usize)), sinks: 0 },
        };
        let want = self
            .rows
            .iter()
            .zip(queries.chunks(SHAPE.heads * SHAPE.dim))
            .map(|(row, query)| row.attend(row.keys.len() - 1, query, SHAPE, sees, SCALE));
        let want = want.collect();
        (donor, queries, want)
    }

    /// Compares what a donor gives with what it must.
    pub fn check_donor(
        &mut self,
        (donor, queries, want): &(DonorColumns, Vec<f32>, Vec<Vec<f32>>),
        window: Option<u32>,
    ) {
        let shape = [want.len() as i32, SHAPE.heads as i32, 1, SHAPE.dim as i32];
        let attended = donor.attend(&Array::from_slice(queries, &shape), window, SCALE);
        let got = attended.unwrap_or_else(|error| panic!("{}: {error}: {:?}", self.name, donor.describe()));
        let got = got.contiguous().unwrap();
        let got = got.try_as_slice::<f32>().unwrap();
        for (row, (got, want)) in got.chunks(SHAPE.heads * SHAPE.dim).zip(want).enumerate() {
            self.compare(row, usize::MAX, got, want);
        }
    }

    /// A few things that can happen to a group, chosen by its numbers.
    pub fn live(&mut self, steps: usize) {
        for _ in 0..steps {
            let rows = self.rows.len();
            match self.random.below(14) {
                0 if rows > 1 => {
                    let gone = self.random.below(rows);
                    let keep: Vec<_> = (0..rows).rev().filter(|row| *row != gone).collect();
                    self.filter(&keep);
                }
                1 | 2 if rows < 5 => {
                    let length = self.random.below(20);
                    self.extend(&[length]);
                }
                3 => self.reborn(),
                4 | 5 => self.round(),
                6 => self.trim(1),
                7 | 8 => {
                    let n = 2 + self.random.below(6);
                    self.plain_append(n);
                }
                9 => {
                    let lengths: Vec<_> = (0..rows).map(|_| self.random.below(6)).collect();
                    if lengths.iter().any(|length| *length > 0) {
                        self.padded_prefill(&lengths, false, 2);
                    }
                }
                _ => self.plain_append(1),
            }
        }
    }
}

/// One token's heads, `[heads * dim]`, out of `[rows, heads, n, dim]`.
fn token(numbers: &[f32], row: usize, heads: usize, column: usize, n: usize) -> Vec<f32> {
    let dim = SHAPE.dim;
    (0..heads).flat_map(|head| numbers[((row * heads + head) * n + column) * dim..][..dim].to_vec()).collect()
}
