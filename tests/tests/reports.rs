//! Bugs that users of other engines reported about caches with tensors in them, as small cases that must be right here. The
//! planner's own are in `crates/plan/tests/reports.rs`.

use annulus_engine::cache::{Affine, Format};
use annulus_plan::{Kind, Window};
use annulus_tests::pair::Pair;

fn affine(bits: i32) -> Format {
    Format::Affine(Affine::new(bits, 32).unwrap())
}

fn rings_and_full() -> [Kind; 3] {
    [Kind::Full, Kind::Ring(Window::of(4)), Kind::Ring(Window { size: 6, sinks: 2 })]
}

/// Offsets that were captured before an append were changed by it, so that keys and queries turned by different positions.
///
/// See: mlx-lm #1097.
#[test]
fn br_14_offsets_are_those_before_the_write() {
    for kind in rings_and_full() {
        let mut pair = Pair::new(kind, Format::Plain, 2, 14);
        pair.padded_prefill(&[1, 2], true, 1);
        pair.plain_append(2);
        assert!(pair.compared >= 2 * 7);
    }
}

/// Once a window was full, taking drafts back did nothing, and they stayed as keys.
///
/// See: mlx-lm #1423.
#[test]
fn br_24_a_full_window_takes_drafts_back() {
    for kind in rings_and_full() {
        for format in [Format::Plain, affine(8)] {
            let mut pair = Pair::new(kind, format, 1, 24);
            pair.plain_append(9);
            for _ in 0..4 {
                pair.plain_append(1);
            }
            pair.round_of(3, &[0], &[0]);
            pair.plain_append(1);
            pair.round_of(3, &[0], &[2]);
            pair.plain_append(2);
        }
    }
}

/// Rows that accepted different numbers of drafts were taken back by the same.
///
/// See: mlx-lm #1446, Rapid-MLX #2854.
#[test]
fn br_25_each_row_is_taken_back_by_its_own_number() {
    for kind in rings_and_full() {
        let mut pair = Pair::new(kind, Format::Plain, 2, 25);
        pair.plain_append(5);
        pair.round_of(2, &[0, 0], &[2, 0]);
        pair.plain_append(1);
        pair.round_of(1, &[3, 1], &[0, 2]);
        pair.plain_append(1);
    }
}

/// After a cache was taken back, layers that share it read on past its end.
///
/// See: vllm-mlx #380, mlx-vlm #901.
#[test]
fn br_28_shared_layers_end_where_the_row_ends() {
    // Each append of a pair also asks a sharing layer.
    let mut pair = Pair::new(Kind::Full, Format::Plain, 2, 28);
    pair.plain_append(204);
    pair.trim(22);
    pair.plain_append(1);
    pair.round_of(4, &[0, 0], &[1, 3]);
    pair.plain_append(2);
}

/// A row that was nothing but padding in a chunk made numbers that are none, or was seen by others.
///
/// See: mlx-vlm #1558, mlx-lm #1906.
#[test]
fn br_33_a_chunk_of_padding_leaves_no_trace() {
    for kind in rings_and_full() {
        for left in [true, false] {
            let mut pair = Pair::new(kind, Format::Plain, 2, 33);
            pair.padded_prefill(&[4, 9], left, 3);
            pair.plain_append(1);
        }
    }
}

/// Rows of different lengths turned by one position; with as many rows as columns even broadcasting went wrong silently.
///
/// See: maclocal-api #92, mlx-vlm #1883.
#[test]
fn br_34_each_row_turns_by_its_own_position() {
    let mut pair = Pair::new(Kind::Full, Format::Plain, 0, 34);
    pair.extend(&[30, 25]);
    pair.plain_append(1);
    pair.plain_append(2);
}

/// Masks of padded rows did not fit grouped heads over a quantized cache.
///
/// See: mlx-lm #1322, mlx-vlm #1206.
#[test]
fn br_35_masks_fit_grouped_heads_over_quantized_columns() {
    for left in [true, false] {
        let mut pair = Pair::new(Kind::Full, affine(8), 2, 35);
        pair.padded_prefill(&[65, 60], left, 1);
        pair.plain_append(1);
    }
}

/// Quantized rings did not exist, nor batches of quantized rows.
///
/// See: mlx-lm #1583.
#[test]
fn br_39_quantized_rows_turn_and_join() {
    for kind in rings_and_full() {
        let mut pair = Pair::new(kind, affine(4), 0, 39);
        pair.extend(&[3, 11, 0]);
        for _ in 0..6 {
            pair.plain_append(1);
        }
        pair.filter(&[2, 0]);
        pair.extend(&[7]);
        pair.plain_append(3);
    }
}
