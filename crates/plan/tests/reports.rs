//! Reports from users of other systems, each reduced to its smallest scenario: what they saw there must not happen here.
//! Expected values are the reports' own or follow from the definition by hand.

#![allow(clippy::needless_pass_by_value, reason = "a case reads better without ampersands")]

use annulus_plan::Entry;
use annulus_plan::scenario::{Op, Scenario};
use annulus_plan::session::Session;
use annulus_plan::{ColumnOp, Faults, Full, Growth, Kind, Layout, Mask, Padding, Pos, Ring, Rope, Row, Source, Window};
use serde_json::{Value, json};

/// Runs a scenario to its end.
fn run(cache: Value, ops: Value) -> Vec<Entry> {
    run_with(Faults::NONE, cache, ops)
}

fn run_with(faults: Faults, cache: Value, ops: Value) -> Vec<Entry> {
    let scenario = Scenario::read(&json!({"cache": cache, "ops": ops})).expect("a scenario");
    let mut session = Session::new(scenario.kind).with_faults(faults);
    let step =
        |op: &Value| session.step(&Op::read(op).expect("an operation")).unwrap_or_else(|e| panic!("{op}: {e}")).entry;
    scenario.ops.iter().map(step).collect()
}

/// What the queries of an entry see, by row.
fn sees(entry: &Entry) -> Value {
    serde_json::to_value(entry.sees.as_ref().expect("an append")).expect("JSON")
}

fn ring(size: u32) -> Value {
    json!({"kind": "rotating", "max_size": size})
}

fn sources(lengths: &[u32]) -> Vec<Source> {
    lengths.iter().map(|&n| Source::whole(n)).collect()
}

fn merged_ring(size: u32, lengths: &[u32]) -> Ring {
    Ring::merge(Window::of(size), Growth::default(), &sources(lengths)).expect("rows").next
}

fn merged_full(lengths: &[u32]) -> Full {
    Full::merge(Growth::default(), &sources(lengths)).expect("rows").next
}

/// mlx-lm 0.32.2, `BatchRotatingKVCache.make_mask`: the trim is taken from the write head after the ring has turned.
#[test]
fn br_01_a_turned_ring_keeps_the_oldest_key_of_a_short_row() {
    let ops = json!([
        {"op": "empty", "rows": 2},
        {"op": "prepare", "lengths": [1, 3], "right_padding": [2, 0]},
        {"op": "append", "tokens": [[1000, 0, 0], [2000, 2001, 2002]]},
        {"op": "finalize"},
        {"op": "append", "tokens": [[1001], [2003]]},
        {"op": "prepare", "lengths": [1, 2], "right_padding": [1, 0]},
        {"op": "append", "tokens": [[1002, 0], [2004, 2005]]},
    ]);
    let right = json!([[[1000, 1001, 1002], null], [[2002, 2003, 2004], [2003, 2004, 2005]]]);
    assert_eq!(sees(&run(ring(3), ops.clone())[6]), right);
    let upstream = run_with(Faults { block_mask: true, ..Faults::NONE }, ring(3), ops);
    assert_eq!(sees(&upstream[6])[0][0], json!([1001, 1002]));

    // The speculative shape of the same fault: W and prompts of W and fewer, one decode, three drafts.
    for (size, lengths) in [(4u32, [4, 2]), (5, [5, 3]), (8, [8, 4])] {
        let tags = |row: u64, from: u64, n: u64| (from..from + n).map(|p| row * 1000 + p).collect::<Vec<_>>();
        let short = lengths[1];
        let ops = json!([
            {"op": "merge", "rows": [tags(1, 0, lengths[0]), tags(2, 0, short)]},
            {"op": "append", "tokens": [tags(1, lengths[0], 1), tags(2, short, 1)]},
            {"op": "round_begin"},
            {"op": "append", "tokens": [tags(1, lengths[0] + 1, 3), tags(2, short + 1, 3)]},
        ]);
        assert_eq!(sees(&run(ring(size), ops)[3])[1][0], json!(tags(2, 0, short + 2)), "W {size}");
    }
}

/// mlx-lm 0.32.2: a right-padded batch whose last chunk has one column dies of "finalize() should be called before decoding".
#[test]
fn br_02_the_last_chunk_of_a_padded_prefill_may_have_one_column() {
    let entries = run(
        ring(8),
        json!([
            {"op": "empty", "rows": 2},
            {"op": "prepare", "lengths": [5, 1], "right_padding": [0, 4]},
            {"op": "append", "tokens": [[1000, 1001, 1002, 1003], [2000, 0, 0, 0]]},
            {"op": "append", "tokens": [[1004], [0]]},
            {"op": "finalize"},
            {"op": "append", "tokens": [[1005], [2001]]},
        ]),
    );
    assert_eq!(sees(&entries[3]), json!([[[1000, 1001, 1002, 1003, 1004]], [null]]));
    assert_eq!(sees(&entries[5]), json!([[[1000, 1001, 1002, 1003, 1004, 1005]], [[2000, 2001]]]));
}

/// mlx-lm 0.32.2, `RotatingKVCache(keep > 0)`; related: https://github.com/ml-explore/mlx-lm/issues/1631
#[test]
fn br_03_sinks_are_visible_to_every_query_of_a_block() {
    let prompt: Vec<u64> = (1000..1010).collect();
    let cache = json!({"kind": "rotating", "max_size": 8, "sinks": 2});
    let ops = json!([
        {"op": "merge", "rows": [prompt]},
        {"op": "append", "tokens": [[1010, 1011, 1012, 1013]]},
        {"op": "append", "tokens": [[1014]]},
    ]);
    let entries = run(cache.clone(), ops.clone());
    let expected = |p: u64| [vec![1000, 1001], (p - 5..=p).collect::<Vec<u64>>()].concat();
    for (i, p) in (1010..1014).enumerate() {
        assert_eq!(sees(&entries[1])[0][i], json!(expected(p)));
    }
    assert_eq!(sees(&entries[2])[0][0], json!(expected(1014)));
    let upstream = run_with(Faults { sink_mask: true, ..Faults::NONE }, cache, ops);
    // There the second query loses the first sink, and the last two lose both.
    let lost: Vec<bool> = (0..4).map(|i| sees(&upstream[1])[0][i] != json!(expected(1010 + i as u64))).collect();
    assert_eq!(lost, [false, true, true, true]);
    assert!(!sees(&upstream[1])[0][3].as_array().expect("a list").contains(&json!(1001)));

    // A first prefill longer than the window hid them as well.
    let cache = json!({"kind": "rotating", "max_size": 4, "sinks": 1});
    let tokens: Vec<u64> = (1000..1007).collect();
    let entries = run(cache, json!([{"op": "empty", "rows": 1}, {"op": "append", "tokens": [tokens]}]));
    assert_eq!(sees(&entries[1])[0][6], json!([1000, 1004, 1005, 1006]));
}

/// Sinks survive leaving and coming back; upstream's merge and extract drop them (`keep` 2 becomes 0).
#[test]
fn br_03_sinks_survive_extract_and_merge() {
    let prompt: Vec<u64> = (1000..1010).collect();
    let entries = run(
        json!({"kind": "rotating", "max_size": 5, "sinks": 2}),
        json!([
            {"op": "merge", "rows": [prompt]},
            {"op": "extract", "row": 0, "as": "a"},
            {"op": "extend", "rows": [{"from": "a"}]},
            {"op": "append", "tokens": [[1010], [1010]]},
        ]),
    );
    let expected = json!([1000, 1001, 1008, 1009, 1010]);
    assert_eq!(sees(&entries[3]), json!([[expected], [expected]]));
}

/// mlx-lm: trim to 0, extract, merge, extract fails with "'NoneType' object is not subscriptable".
#[test]
fn br_04_an_empty_row_can_leave_and_come_back() {
    for cache in [ring(4), json!({"kind": "full"})] {
        let entries = run(
            cache,
            json!([
                {"op": "merge", "rows": [[1000, 1001]]},
                {"op": "trim", "n": 2},
                {"op": "extract", "row": 0, "as": "empty"},
                {"op": "extend", "rows": [{"from": "empty"}, []]},
                {"op": "extract", "row": 1},
                {"op": "append", "tokens": [[1000], [2000], [3000]]},
            ]),
        );
        assert_eq!((entries[2].tokens.as_deref(), entries[2].offset), (Some(&[][..]), Some(0)));
        assert_eq!(entries[4].tokens.as_deref(), Some(&[][..]));
        assert_eq!(sees(&entries[5]), json!([[[1000]], [[2000]], [[3000]]]));
    }
}

/// https://github.com/ml-explore/mlx-lm/pull/742, https://github.com/ml-explore/mlx-lm/issues/738, vllm-metal #117
#[test]
fn br_08_a_merged_row_is_as_wide_as_what_it_still_holds() {
    let group = merged_ring(128, &[311, 5]);
    assert_eq!((group.active(), group.offsets()), (128, &[Pos(311), Pos(5)][..]));
    assert_eq!(group.left_pad(), [0, 123]);
}

/// https://github.com/ml-explore/mlx-lm/issues/983, mlx-lm #1035 and #1116, oMLX #543
#[test]
fn br_09_a_turned_ring_merges_by_what_it_holds_not_by_its_head() {
    let mut ring = merged_ring(1024, &[1024]);
    ring = ring.append(1).expect("one token").next;
    assert_eq!((ring.head(), ring.rotated()), (1, true));
    let source = ring.extract(Row(0), None).expect("a row").source;
    assert_eq!(source.columns, 1024);
    let group = Ring::merge(Window::of(1024), Growth::default(), &[source, Source::whole(60)]).expect("rows").next;
    assert_eq!((group.active(), group.left_pad()), (1024, &[0, 964][..]));
}

/// https://github.com/Blaizzy/mlx-vlm/pull/1900: `[-0:]` takes everything.
#[test]
fn br_10_a_row_of_length_0_brings_nothing() {
    for size in [8, 40] {
        let entries = run(
            ring(size),
            json!([{"op": "merge", "rows": [[], (2000..2024).collect::<Vec<u64>>()]}, {"op": "append", "tokens": [[1000], [2024]]}]),
        );
        assert_eq!(sees(&entries[1])[0], json!([[1000]]));
        assert_eq!(entries[0].visible.as_ref().map(|v| v[0].len()), Some(0));
    }
}

/// https://github.com/ml-explore/mlx-lm/issues/1097, mlx-lm #1699, vllm-mlx #256: offsets captured before a call changed in it.
#[test]
fn br_14_positions_are_those_before_the_write() {
    let padding = Padding { lengths: &[1, 2], left: &[1, 0], right: &[] };
    for layout in [
        Layout::empty(Kind::Full, Growth::default(), 2).expect("rows"),
        Layout::empty(Kind::Ring(Window::of(4)), Growth::default(), 2).expect("rows"),
    ] {
        let layout = layout.prepare(padding).expect("a prefill").next;
        let before = layout.clone();
        let step = layout.append(2).expect("a chunk");
        assert_eq!(step.rope, Rope::Each(vec![Pos(-1), Pos(0)]));
        assert_eq!(layout, before);
        assert_eq!(step.next.offsets(), [Pos(1), Pos(2)]);
    }
}

/// https://github.com/ml-explore/mlx-lm/issues/1914: not a fault, every query of the block needs its full window.
#[test]
fn br_17_a_block_is_as_wide_as_the_windows_of_its_queries_together() {
    let ring = merged_ring(1024, &[5000]);
    let step = ring.append(4).expect("a block");
    assert_eq!(step.fetch.len(), 1027);
    assert_eq!(step.next.append(4).expect("a block").fetch.len(), 1027);
}

/// oMLX #2172 and #2201: the append point fell short by the padding that a departed row had caused.
#[test]
fn br_18_the_end_of_a_row_survives_the_longest_row() {
    let entries = run(
        json!({"kind": "full"}),
        json!([
            {"op": "merge", "rows": [[1000], [2000, 2001, 2002, 2003], [3000, 3001]]},
            {"op": "filter", "keep": [0, 2]},
            {"op": "append", "tokens": [[1001], [3002]]},
        ]),
    );
    assert_eq!(entries[1].state.as_ref().map(|s| (s.left_pad.clone(), s.width)), Some((vec![1, 0], Some(2))));
    assert_eq!(sees(&entries[2]), json!([[[1000, 1001]], [[3000, 3001, 3002]]]));
}

/// mlx-vlm #813, for these layouts: every list with an entry a row has as many entries as the group has rows.
#[test]
fn br_19_rows_that_leave_and_join_leave_no_list_behind() {
    let ring = merged_ring(4, &[6, 2, 3]).round_begin().expect("a round").next.append(2).expect("drafts").next;
    let kept = ring.filter(&[Row(2), Row(0)]).expect("rows").next;
    let next = kept.round_rollback(&[1, 2]).expect("one keep a row").next;
    assert_eq!(next.offsets(), [Pos(4), Pos(8)]);
    assert_eq!(next.extend(&sources(&[1])).expect("a row").next.left_pad().len(), 3);
}

/// https://github.com/ml-explore/mlx-lm/issues/1494, mlx-lm #1502: a trim that one layer refuses had already shortened another.
#[test]
fn br_20_layers_are_planned_together_before_any_changes() {
    let full = Layout::Full(merged_full(&[9, 9]));
    let ring = Layout::Ring(merged_ring(4, &[9, 9]));
    let layers = [full, ring];
    let plans: Result<Vec<_>, _> = layers.iter().map(|layer| layer.trim(2)).collect();
    let error = plans.expect_err("the ring has turned");
    assert_eq!((error.op(), error.field()), ("trim", "n"));
    assert_eq!(error.to_string(), "trim.n: 4 columns were appended to a window of 4, the oldest are gone");
    assert!(layers.iter().all(|layer| layer.offsets() == [Pos(9), Pos(9)]));
    // And no layer trims fewer than it was asked to.
    assert!(Layout::Full(merged_full(&[3, 1])).trim(2).is_err());
}

/// https://github.com/ml-explore/mlx-lm/issues/1215, mlx-lm #1581 and #1887: an exact hit leaves nothing to run.
#[test]
fn br_22_an_exact_hit_trims_one_token_and_replays_it() {
    for layout in [Layout::Full(merged_full(&[3])), Layout::Ring(merged_ring(4, &[3]))] {
        let step = layout.trim(1).expect("nothing is lost").next.append(1).expect("the last token again");
        assert_eq!((step.rope, step.fetch.len()), (Rope::Same(Pos(2)), 3));
    }
    // Where the window is full the plan says so, and the caller recomputes.
    assert!(Layout::Ring(merged_ring(3, &[3])).trim(1).is_err());
}

/// mlx-swift-lm #424, mlx-lm #1423 and #1427: `trim(3)` returned 0 once the window was full, and rejected drafts stayed.
#[test]
fn br_24_a_rollback_works_after_the_window_is_full() {
    let entries = run(
        ring(4),
        json!([
            {"op": "merge", "rows": [[1000, 1001, 1002, 1003, 1004, 1005]]},
            {"op": "append", "tokens": [[1006]]},
            {"op": "round_begin"},
            {"op": "append", "tokens": [[1007, 9001, 9002, 9003]]},
            {"op": "round_rollback", "keep": 1},
            {"op": "append", "tokens": [[1008]]},
        ]),
    );
    assert_eq!(entries[4].visible, Some(vec![vec![1004, 1005, 1006, 1007]]));
    assert_eq!(sees(&entries[5]), json!([[[1005, 1006, 1007, 1008]]]));
}

/// Rapid-MLX #2854, vLLM #39273, mlx-lm #1446, #1486 and #1740: rows that accept unequal drafts shared one scalar.
#[test]
fn br_25_each_row_keeps_what_it_accepted() {
    for cache in [ring(4), json!({"kind": "full"})] {
        let entries = run(
            cache,
            json!([
                {"op": "merge", "rows": [[1000, 1001], [2000]]},
                {"op": "round_begin"},
                {"op": "append", "tokens": [[1002, 1003], [9001, 9002]]},
                {"op": "round_rollback", "keep": [2, 0]},
                {"op": "append", "tokens": [[1004], [2001]]},
            ]),
        );
        assert_eq!(entries[3].state.as_ref().map(|s| s.offsets.clone()), Some(vec![4, 1]));
        assert_eq!(sees(&entries[4])[1], json!([[2000, 2001]]));
    }
}

/// https://github.com/ml-explore/mlx-lm/issues/118, mlx-lm #980, llama.cpp #13194 and others: a ring that has turned cannot be
/// trimmed, so a conversation goes on from a checkpoint; a checkpoint knows its position apart from its length.
#[test]
fn br_26_a_checkpoint_keeps_position_and_length_apart() {
    let ring = merged_ring(512, &[1950]);
    let checkpoint = ring.extract(Row(0), None).expect("a row").source;
    assert_eq!((checkpoint.columns, checkpoint.offset), (512, Pos(1950)));
    let again = Ring::merge(Window::of(512), Growth::default(), &[checkpoint]).expect("a row").next;
    let step = again.append(50).expect("the edited end");
    assert_eq!((step.rope, step.fetch.len(), step.next.offsets()), (Rope::Same(Pos(1950)), 561, &[Pos(2000)][..]));
}

/// vllm-mlx #380, #384, #385, #775; mlx-vlm #901: a shared view read past the valid end after a trim.
#[test]
fn br_28_nothing_is_read_past_the_end_of_a_row() {
    let full = merged_full(&[204]).append(1).expect("one token").next;
    let trimmed = full.trim(22).expect("a row").next;
    assert_eq!((trimmed.live(0).from, trimmed.live(0).to), (0, 183));
    assert!(trimmed.capacity() > 205);
    assert_eq!(trimmed.append(1).expect("one token").fetch.len(), 184);
    assert_eq!(trimmed.extract(Row(0), None).expect("a row").source.columns, 183);
}

/// mlx-swift-lm #39: a window of W columns, not of W+1.
#[test]
fn br_29_the_window_counts_the_query_itself() {
    let entries = run(
        ring(3),
        json!([{"op": "empty", "rows": 1}, {"op": "append", "tokens": [[1000, 1001, 1002, 1003]]}, {"op": "append", "tokens": [[1004]]}]),
    );
    assert_eq!(sees(&entries[1])[0][3], json!([1001, 1002, 1003]));
    assert_eq!(sees(&entries[2])[0][0], json!([1002, 1003, 1004]));
}

/// mlxcel #405, #408, #412, #413, #418, #1776: the mask was capped to the window, the keys were not.
#[test]
fn br_30_the_mask_has_as_many_columns_as_the_fetch() {
    let empty = Ring::empty(Window::of(1024), Growth::default(), 1).expect("a row");
    let step = empty.append(1377).expect("a prompt");
    let Mask::Runs(runs) = &step.mask else { panic!("a window limits these queries: {:?}", step.mask) };
    assert_eq!((runs.columns(), step.fetch.len()), (1377, 1377));
    assert_eq!(runs.visible(0, 1376)[1].len(), 1024);
}

/// mlxcel #885 and #891: a continuation's mask was built at offset 0 and, as it did not fit, dropped.
#[test]
fn br_31_a_continuation_is_masked_from_each_rows_own_offset() {
    let step = merged_ring(512, &[2048]).append(160).expect("a continuation");
    let Mask::Runs(runs) = &step.mask else { panic!("{:?}", step.mask) };
    assert_eq!((step.fetch.len(), runs.columns()), (671, 671));
    assert_eq!((runs.visible(0, 0)[1].from, runs.visible(0, 0)[1].to), (0, 512));
    assert_eq!(step.rope, Rope::Same(Pos(2048)));
}

/// executorch #20346 and #21857, litgpt #2182 and #2215, sglang #8649 and #22469: a chunk wrote over the window of its own queries.
#[test]
fn br_32_a_chunk_larger_than_the_ring_sees_its_windows() {
    let tags = |from: u64, n: u64| (from..from + n).collect::<Vec<_>>();
    let entries =
        run(ring(4), json!([{"op": "merge", "rows": [tags(1000, 6)]}, {"op": "append", "tokens": [tags(1006, 8)]}]));
    for i in 0..8 {
        assert_eq!(sees(&entries[1])[0][i as usize], json!(tags(1003 + i, 4)));
    }
}

/// mlx-vlm #1558, mlx-lm #1906, maxtext #5292: a row that is padding through a whole chunk.
#[test]
fn br_33_a_row_may_be_padding_through_a_whole_chunk() {
    for cache in [ring(4), json!({"kind": "full"})] {
        let entries = run(
            cache,
            json!([
                {"op": "empty", "rows": 2},
                {"op": "prepare", "lengths": [1, 6], "left_padding": [5, 0]},
                {"op": "append", "tokens": [[0, 0, 0], [2000, 2001, 2002]]},
                {"op": "append", "tokens": [[0, 0, 1000], [2003, 2004, 2005]]},
                {"op": "finalize"},
                {"op": "append", "tokens": [[1001], [2006]]},
            ]),
        );
        assert_eq!(sees(&entries[2])[0], json!([null, null, null]));
        assert_eq!(sees(&entries[3])[0], json!([null, null, [1000]]));
        assert_eq!(sees(&entries[5])[0], json!([[1000, 1001]]));
        assert_eq!(entries[3].rope_offsets, Some(vec![-2, 3]));
    }
}

/// maclocal-api #92, mlx-vlm #1883, Mac-MLX #65: one position for all rows.
#[test]
fn br_34_each_row_rotates_at_its_own_position() {
    assert_eq!(merged_full(&[30, 25]).append(1).expect("one token").rope, Rope::Each(vec![Pos(30), Pos(25)]));
    assert_eq!(merged_full(&[30, 30]).append(2).expect("two tokens").rope, Rope::Same(Pos(30)));
}

/// mlx-vlm #1206, #1208 and #1310, mlxcel #75 and #76, mlx-lm #1322 and #1467: a negative offset used as the mask's.
#[test]
fn br_35_left_padding_is_hidden_though_positions_are_negative() {
    let layout = Layout::empty(Kind::Full, Growth::default(), 2).expect("rows");
    let layout = layout.prepare(Padding { lengths: &[2, 4], left: &[2, 0], right: &[] }).expect("a prefill").next;
    let step = layout.append(4).expect("a chunk");
    let visible = |row, query| {
        step.mask.visible(4, 4, row, query).into_iter().flat_map(annulus_plan::Columns::iter).collect::<Vec<_>>()
    };
    assert_eq!((visible(0, 2), visible(0, 3)), (vec![2], vec![2, 3]));
    assert_eq!(visible(1, 2), [0, 1, 2]);
    assert_eq!(step.rope, Rope::Each(vec![Pos(-2), Pos(0)]));
}

/// candle `RotatingCache` (`candle-nn/src/kv_cache.rs`): an append overwrites what its own first query should see.
#[test]
fn br_37_an_append_overwrites_nothing_that_its_queries_see() {
    let entries = run(
        ring(6),
        json!([{"op": "merge", "rows": [[1000, 1001, 1002, 1003]]}, {"op": "append", "tokens": [[1004, 1005, 1006, 1007]]}]),
    );
    assert_eq!(sees(&entries[1])[0][0], json!([1000, 1001, 1002, 1003, 1004]));
    assert_eq!(sees(&entries[1])[0][3], json!([1002, 1003, 1004, 1005, 1006, 1007]));
}

/// Fault 5 of the reference: padding that survivors share changes the shape of attention, so a filter drops it.
#[test]
fn shared_padding_goes_with_the_row_that_caused_it() {
    let plan = merged_full(&[2, 5]).filter(&[Row(0)]).expect("a row");
    assert_eq!((plan.next.left_pad(), plan.next.width()), (&[0][..], 2));
    assert!(matches!(plan.ops.as_slice(), [ColumnOp::TakeRows { .. }, ColumnOp::Slice { .. }]));
    assert_eq!(plan.next.append(1).expect("one token").mask, Mask::None);
}
