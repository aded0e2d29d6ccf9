//! Attention over caches that plans move, against the definition: rows that come and go, rings that wrap, padded prefills,
//! rounds that are taken back, plain and quantized.

use annulus_engine::cache::{Affine, Arrangement, Cache, Format, StoredRow};
use annulus_engine::rope::{Rope, RopePositions, Scaling};
use annulus_plan::{Growth, Kind, Padding, Row, Window};
use annulus_tests::definition::{History, Random, Sees, Shape, turn};
use mlx_rs::Array;
use mlx_rs::ops::{dequantize, quantize};

const SHAPE: Shape = Shape { heads: 4, kv_heads: 2, dim: 32 };
const SCALE: f32 = 0.2;
const THETA: f32 = 10_000.0;

/// A cache of one layer beside what its rows should hold.
struct Pair {
    cache: Cache,
    rows: Vec<History>,
    rope: Rope,
    random: Random,
    compared: usize,
    name: String,
}

/// One row's columns of an append: which of them are tokens.
#[derive(Clone, Copy)]
struct Real {
    from: usize,
    to: usize,
}

impl Pair {
    fn new(kind: Kind, format: Format, rows: usize, seed: u64) -> Self {
        let arrangement = Arrangement { kinds: vec![kind], format, growth: Growth::default() };
        Self {
            cache: Cache::new(arrangement, rows).unwrap(),
            rows: vec![History::default(); rows],
            rope: Rope::new(SHAPE.dim as i32, THETA, false, Scaling::None).unwrap(),
            random: Random(seed),
            compared: 0,
            name: format!("{kind:?}, {format:?}, {rows} rows, seed {seed}"),
        }
    }

    fn kind(&self) -> Kind {
        self.cache.arrangement().kinds[0]
    }

    fn sees(&self) -> Sees {
        match self.kind() {
            Kind::Full => Sees { window: None, sinks: 0 },
            Kind::Ring(window) => Sees { window: Some(window.size as usize), sinks: window.sinks as usize },
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.keys.len()).collect()
    }

    /// Appends `n` columns, of which only some are tokens, and compares what every token's query attends to.
    fn append(&mut self, n: usize, real: &[Real], ragged: bool) {
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
                    self.compare(row, position, &take(got, SHAPE.heads), &want);
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

    fn plain_append(&mut self, n: usize) {
        let real = vec![Real { from: 0, to: n }; self.rows.len()];
        self.append(n, &real, false);
    }

    /// A prefill of rows of these lengths that is padded on one side, in chunks.
    fn padded_prefill(&mut self, lengths: &[usize], left: bool, chunks: usize) {
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

    fn extend(&mut self, lengths: &[usize]) {
        let (stored, histories): (Vec<_>, Vec<_>) = lengths.iter().map(|length| self.born(*length)).unzip();
        self.cache.extend(stored).unwrap();
        self.rows.extend(histories);
    }

    fn filter(&mut self, keep: &[usize]) {
        let rows: Vec<_> = keep.iter().map(|row| Row(*row as u32)).collect();
        self.cache.filter(&rows).unwrap();
        self.rows = keep.iter().map(|row| self.rows[*row].clone()).collect();
    }

    /// Takes every row out and builds the group anew from them, in reverse order.
    fn reborn(&mut self) {
        let count = self.rows.len() as u32;
        let stored = (0..count).rev().map(|row| self.cache.extract(Row(row), None).unwrap()).collect();
        self.cache = Cache::merge(self.cache.arrangement().clone(), stored).unwrap();
        self.rows.reverse();
    }

    /// A round of two appends, the second ragged, of which each row keeps some tokens.
    fn round(&mut self) {
        self.cache.round_begin().unwrap();
        let before = self.lengths();
        self.plain_append(2);
        let real: Vec<_> = self.rows.iter().map(|_| Real { from: 0, to: self.random.below(4) }).collect();
        self.append(3, &real, true);
        let keep: Vec<_> = real.iter().map(|real| self.random.below(2 + real.to + 1)).collect();
        self.cache.round_rollback(&keep.iter().map(|keep| *keep as u32).collect::<Vec<_>>()).unwrap();
        for ((row, keep), before) in self.rows.iter_mut().zip(keep).zip(before) {
            row.keys.truncate(before + keep);
            row.values.truncate(before + keep);
        }
    }

    fn trim(&mut self, n: usize) {
        if self.cache.trim(n as u32).is_ok() {
            for row in &mut self.rows {
                row.keys.truncate(row.keys.len() - n);
                row.values.truncate(row.values.len() - n);
            }
        }
    }

    /// A few things that can happen to a group, chosen by its numbers.
    fn live(&mut self, steps: usize) {
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

fn kinds() -> [Kind; 6] {
    let ring = |size, sinks| Kind::Ring(Window { size, sinks });
    [Kind::Full, ring(1, 0), ring(3, 0), ring(8, 0), ring(6, 2), ring(16, 4)]
}

fn formats() -> Vec<Format> {
    let affine = |bits| Format::Affine(Affine::new(bits, 32).unwrap());
    std::iter::once(Format::Plain).chain([8, 4, 3].map(affine)).collect()
}

/// Runs a life for every kind and format, at 1, 2 and 4 rows.
fn everywhere(life: impl Fn(&mut Pair)) {
    let mut compared = 0;
    for kind in kinds() {
        for format in formats() {
            for rows in [1, 2, 4] {
                let mut pair = Pair::new(kind, format, rows, 7 + rows as u64);
                life(&mut pair);
                compared += pair.compared;
            }
        }
    }
    assert!(compared > 1000, "only {compared} queries were compared");
}

#[test]
fn decode_past_several_wraps() {
    everywhere(|pair| {
        pair.plain_append(5);
        for _ in 0..40 {
            pair.plain_append(1);
        }
    });
}

#[test]
fn chunks_behind_wraps() {
    everywhere(|pair| {
        for n in [3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 1, 2, 1, 1, 20, 1, 1] {
            pair.plain_append(n);
        }
    });
}

#[test]
fn prefills_padded_on_either_side() {
    for left in [true, false] {
        everywhere(|pair| {
            let lengths: Vec<_> = (0..pair.rows.len()).map(|row| [9, 4, 13, 1][row]).collect();
            pair.padded_prefill(&lengths, left, 3);
            for n in [1, 1, 1, 4, 1] {
                pair.plain_append(n);
            }
        });
    }
}

#[test]
fn rows_of_all_lengths_join_leave_and_are_copied() {
    everywhere(|pair| {
        pair.plain_append(6);
        pair.extend(&[11, 0, 2]);
        for n in [1, 1, 1, 5, 1] {
            pair.plain_append(n);
        }
        pair.reborn();
        pair.plain_append(1);
        pair.filter(&[pair.rows.len() - 1, 0]);
        for n in [1, 3, 1, 1] {
            pair.plain_append(n);
        }
        pair.extend(&[30]);
        pair.plain_append(1);
    });
}

#[test]
fn rounds_are_taken_back_row_by_row() {
    everywhere(|pair| {
        pair.plain_append(4);
        for _ in 0..8 {
            pair.round();
            pair.plain_append(1);
        }
    });
}

#[test]
fn lives_of_all_kinds() {
    everywhere(|pair| {
        pair.plain_append(3);
        pair.live(30);
    });
}

/// What a batch stores of a row is to the byte what the row stores alone.
#[test]
fn a_quantized_row_in_a_batch_is_the_row_alone() {
    for kind in kinds() {
        for bits in [2, 3, 4, 5, 6, 8] {
            let arrangement = Arrangement {
                kinds: vec![kind],
                format: Format::Affine(Affine::new(bits, 32).unwrap()),
                growth: Growth::default(),
            };
            let rope = Rope::new(SHAPE.dim as i32, THETA, false, Scaling::None).unwrap();
            let mut random = Random(3);
            let mut group = Cache::new(arrangement.clone(), 2).unwrap();
            let mut alone = Cache::new(arrangement, 1).unwrap();
            for n in [5, 1, 1, 1, 4, 1, 1, 1, 1, 1, 1] {
                let mut both = |heads: usize| {
                    random
                        .floats(2 * heads * n * SHAPE.dim)
                        .chunks(heads * n * SHAPE.dim)
                        .map(<[f32]>::to_vec)
                        .collect::<Vec<_>>()
                };
                let (q, k, v) = (both(SHAPE.heads), both(SHAPE.kv_heads), both(SHAPE.kv_heads));
                let array = |rows: &[Vec<f32>], heads: usize| {
                    Array::from_slice(&rows.concat(), &[rows.len() as i32, heads as i32, n as i32, SHAPE.dim as i32])
                };
                for (cache, rows) in [(&mut group, 0..2), (&mut alone, 1..2)] {
                    let [q, k, v] = [(&q, SHAPE.heads), (&k, SHAPE.kv_heads), (&v, SHAPE.kv_heads)]
                        .map(|(x, heads)| array(&x[rows.clone()], heads));
                    let mut pass = cache.begin(n as u32).unwrap();
                    pass.attend(0, &q, &k, v, &rope, SCALE).unwrap();
                    let staged = pass.finish().unwrap();
                    cache.adopt(staged);
                    cache.eval().unwrap();
                }
            }
            let (theirs, own) = (group.extract(Row(1), None).unwrap(), alone.extract(Row(0), None).unwrap());
            assert_eq!(theirs.sources(), own.sources());
            let bytes = |row: &StoredRow| -> Vec<Vec<u8>> { row.layer(0).iter().map(bytes_of).collect() };
            assert_eq!(bytes(&theirs).len(), 6);
            assert!(bytes(&theirs) == bytes(&own), "{kind:?}, {bits} bits");
        }
    }
}

fn bytes_of(array: &Array) -> Vec<u8> {
    let bytes = array.view_dtype(mlx_rs::Dtype::Uint8).unwrap().contiguous().unwrap();
    bytes.try_as_slice::<u8>().unwrap().to_vec()
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut pair = Pair::new(Kind::Ring(Window::of(4)), Format::Plain, 2, 1);
    pair.plain_append(3);
    assert!(pair.cache.filter(&[Row(2)]).is_err());
    assert!(pair.cache.trim(4).is_err());
    assert!(pair.cache.round_commit().is_err());
    assert!(pair.cache.begin(0).is_err());
    assert!(pair.cache.extract(Row(5), None).is_err());
    let other = Pair::new(Kind::Full, Format::Plain, 1, 1).cache.extract(Row(0), None).unwrap();
    assert!(pair.cache.extend(vec![other]).unwrap_err().to_string().contains("arranged"));
    assert!(Affine::new(7, 32).unwrap_err().to_string().contains("2, 3, 4, 5, 6 or 8"));
    assert!(Affine::new(8, 48).unwrap_err().to_string().contains("32, 64 or 128"));
    pair.plain_append(2);
}
