//! Attention over caches that plans move, against the definition: rows that come and go, rings that wrap, padded prefills,
//! rounds that are taken back, plain and quantized.

use annulus_engine::cache::{Affine, Arrangement, Cache, Format, StoredRow};
use annulus_engine::rope::{Rope, Scaling};
use annulus_plan::{Growth, Kind, Row, Window};
use annulus_tests::definition::Random;
use annulus_tests::pair::{Pair, SCALE, SHAPE, THETA};
use mlx_rs::Array;

/// The operations whose laws these are, for the whole process: `choose` is the test program's.
fn begin() {
    super::choose();
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
    begin();
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

/// Rows that are longer than the blocks in which columns and queries are taken, and so long that a query's columns are
/// divided among threads.
#[test]
fn long_rows() {
    begin();
    let ring = |size, sinks| Kind::Ring(Window { size, sinks });
    for kind in [Kind::Full, ring(600, 0), ring(130, 4)] {
        for format in [Format::Plain, Format::Affine(Affine::new(4, 32).unwrap())] {
            let mut pair = Pair::new(kind, format, 2, 5);
            for n in [150, 1, 1, 61, 700, 1, 1, 130, 1] {
                pair.plain_append(n);
            }
            pair.filter(&[1]);
            pair.extend(&[400]);
            for n in [1, 70, 1] {
                pair.plain_append(n);
            }
        }
    }
}

/// A donor is what the rows held when it was made, whatever happens to them afterwards.
#[test]
fn donors_outlive_what_they_were_made_of() {
    everywhere(|pair| {
        let lengths: Vec<_> = (0..pair.rows.len()).map(|row| [9, 4, 13, 1][row]).collect();
        pair.padded_prefill(&lengths, false, 2);
        // Behind trailing padding a row may hold one token less than its window: the next one completes it.
        pair.plain_append(1);
        for n in [1, 1, 3, 1] {
            for window in [None, Some(1), Some(3), Some(100)] {
                // With sinks a window beyond the newest run would have to see what lies between them.
                let sinks = matches!(pair.kind(), Kind::Ring(Window { sinks, .. }) if sinks > 0);
                if sinks && window == Some(100) {
                    continue;
                }
                let donor = pair.donor(window);
                pair.check_donor(&donor, window);
                pair.plain_append(n);
                pair.check_donor(&donor, window);
            }
            pair.filter(&(0..pair.rows.len()).rev().collect::<Vec<_>>());
            pair.reborn();
        }
    });
}

/// What a batch stores of a row is to the byte what the row stores alone.
#[test]
fn a_quantized_row_in_a_batch_is_the_row_alone() {
    begin();
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
    begin();
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
