//! The replay's output, line by line: states, saved rows, snapshots, adopted groups, and the log of a server.

use annulus_plan::inspect::{CellKind, Inspection, Options, inspect};
use annulus_plan::{Faults, replay, replay_each};
use serde_json::{Value, json};

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Replays one scenario.
fn one(cache: &Value, ops: &Value) -> Value {
    let line = json!({"id": "x", "scenario": {"cache": cache, "ops": ops}, "expect": "ignored"});
    lines(&replay(&line.to_string())).remove(0)
}

fn ring4() -> Value {
    json!({"kind": "rotating", "max_size": 4})
}

#[test]
fn an_entry_has_the_fields_of_the_format() {
    let got = one(
        &ring4(),
        &json!([
            {"op": "merge", "rows": [[1000, 1001, 1002, 1003, 1004], [2000]]},
            {"op": "append", "tokens": [[1005], [2001]]},
            {"op": "extract", "row": 1},
        ]),
    );
    let merged = json!({"offsets": [5, 1], "left_pad": [0, 3], "ring_index": 4, "total_offset": 4, "rotated": false});
    assert_eq!(got["steps"][0]["state"], merged);
    assert_eq!(got["steps"][0]["visible"], json!([[1001, 1002, 1003, 1004], [2000]]));
    let append = &got["steps"][1];
    assert_eq!(append["rope_offsets"], json!([5, 1]));
    assert_eq!(append["fetched"], json!([[1005, 1002, 1003, 1004], [2001, 0, 0, 2000]]));
    assert_eq!(append["mask"], json!([["1111"], ["1001"]]));
    assert_eq!(append["sees"], json!([[[1002, 1003, 1004, 1005]], [[2000, 2001]]]));
    let ops = json!([{"do": "write", "at": 0, "columns": 1}, {"do": "fetch", "columns": [0, 4]}]);
    assert_eq!(append["ops"], ops);
    assert_eq!(append.get("visible"), None);
    let ops = json!([{"do": "copy_row", "row": 1, "ranges": [[3, 4], [0, 1]]}]);
    assert_eq!(got["steps"][2], json!({"tokens": [2000, 2001], "offset": 2, "ops": ops}));
}

#[test]
fn while_a_prefill_is_pending_only_tokens_are_visible() {
    let got = one(
        &ring4(),
        &json!([
            {"op": "empty", "rows": 2},
            {"op": "prepare", "lengths": [1, 3], "right_padding": [2, 0]},
            {"op": "append", "tokens": [[1000, 0], [2000, 2001]]},
            {"op": "filter", "keep": [1, 0]},
            {"op": "extract", "row": 1},
            {"op": "finalize"},
        ]),
    );
    assert_eq!(got["steps"][2]["state"]["prefill_ends"], json!([1, 3]));
    assert_eq!(got["steps"][3]["state"]["prefill_ends"], json!([3, 1]));
    assert_eq!(got["steps"][3]["visible"], json!([[2000, 2001], [1000]]));
    assert_eq!((&got["steps"][4]["tokens"], &got["steps"][4]["offset"]), (&json!([1000]), &json!(1)));
    assert_eq!(got["steps"][5]["state"]["offsets"], json!([2, 1]));
    assert_eq!(got["steps"][5]["state"].get("prefill_ends"), None);
}

/// A group may be remembered anywhere, also amid a round, and brought back again and again.
#[test]
fn snapshots_are_whole_groups() {
    let got = one(
        &ring4(),
        &json!([
            {"op": "merge", "rows": [[1000, 1001, 1002, 1003], [2000]]},
            {"op": "round_begin"},
            {"op": "append", "tokens": [[1004, 1005], [2001, 2002]]},
            {"op": "snapshot", "name": "s"},
            {"op": "round_rollback", "keep": 0},
            {"op": "restore", "name": "s"},
            {"op": "round_rollback", "keep": [2, 1]},
            {"op": "append", "tokens": [[1006], [2003]]},
            {"op": "restore", "name": "s"},
            {"op": "round_commit"},
        ]),
    );
    assert_eq!(got.get("error"), None);
    assert_eq!(got["steps"][4]["state"]["offsets"], json!([4, 1]));
    assert_eq!(got["steps"][7]["sees"], json!([[[1003, 1004, 1005, 1006]], [[2000, 2001, 2003]]]));
    assert_eq!(got["steps"][9]["state"]["offsets"], json!([6, 3]));
}

/// A group adopted from an entry's state and cells goes on as the one it was taken from.
#[test]
fn an_adopted_group_goes_on() {
    let first = json!([
        {"op": "merge", "rows": [[1000, 1001, 1002, 1003, 1004], [2000]]},
        {"op": "append", "tokens": [[1005], [2001]]},
    ]);
    let then = [json!({"op": "append", "tokens": [[1006, 1007], [2002, 2003]]}), json!({"op": "extract", "row": 1})];
    let before = one(&ring4(), &first);
    let (state, cells) = (&before["steps"][1]["state"], &before["steps"][1]["fetched"]);
    let mut ops = first.as_array().cloned().unwrap_or_default();
    ops.extend(then.clone());
    let whole = one(&ring4(), &Value::Array(ops));
    let adopted = one(&ring4(), &json!([{"op": "adopt", "state": state, "cells": cells}, then[0], then[1]]));
    assert_eq!(adopted["steps"][0]["visible"], json!([[1002, 1003, 1004, 1005], [2000, 2001]]));
    assert_eq!(
        adopted["steps"].as_array().map(|s| s[1..].to_vec()),
        whole["steps"].as_array().map(|s| s[2..].to_vec())
    );
}

#[test]
fn a_refused_scenario_keeps_what_came_before() {
    let got = one(&ring4(), &json!([{"op": "merge", "rows": [[1000], [2000]]}, {"op": "filter", "keep": [0, 5]}]));
    assert_eq!(
        got["error"],
        json!({"step": 1, "op": "filter", "field": "keep", "message": "filter.keep: row 5 of a group of 2"})
    );
    assert_eq!(got["steps"].as_array().map(Vec::len), Some(1));
}

/// A window of 4: amid a padded prefill, in a ring that has turned, and inside a round that one row did not fill.
#[test]
fn a_donor_says_where_each_row_may_be_read() {
    let got = one(
        &ring4(),
        &json!([
            {"op": "empty", "rows": 2},
            {"op": "donor"},
            {"op": "prepare", "lengths": [3, 5], "right_padding": [2, 0]},
            {"op": "append", "tokens": [[1000, 1001, 1002, 0, 0], [2000, 2001, 2002, 2003, 2004]]},
            {"op": "donor"},
            {"op": "finalize"},
            {"op": "append", "tokens": [[1003], [2005]]},
            {"op": "donor"},
            {"op": "round_begin"},
            {"op": "append", "tokens": [[1004, 0], [2006, 2007]]},
            {"op": "donor"},
            {"op": "round_rollback", "keep": [0, 1]},
            {"op": "donor"},
        ]),
    );
    assert_eq!(got.get("error"), None);
    let steps = &got["steps"];
    assert_eq!(steps[1], json!({"offsets": [0, 0], "starts": [0, 0], "ends": [0, 0], "width": 0}));
    let copied = |ranges: Value| json!([{"do": "copy_columns", "ranges": ranges}]);
    let pending =
        json!({"offsets": [3, 5], "starts": [0, 1], "ends": [3, 5], "width": 5, "ops": copied(json!([[0, 5]]))});
    assert_eq!(steps[4], pending);
    // The decode step dropped a column and wrote over the oldest: column 0 is the newest, and both rows fill the window.
    let turned = json!({"offsets": [4, 6], "starts": [0, 0], "ends": [4, 4], "width": 4, "ops": copied(json!([[1, 4], [0, 1]]))});
    assert_eq!(steps[7], turned);
    // The block stands behind the newest 3 columns; the first row's last column is padding, so its window begins one earlier.
    let ragged =
        json!({"offsets": [5, 8], "starts": [0, 1], "ends": [4, 5], "width": 5, "ops": copied(json!([[0, 5]]))});
    assert_eq!(steps[10], ragged);
    // Rolled right by 2 and 1: what they rejected lies on the left, and the newest 4 columns are enough.
    let rolled =
        json!({"offsets": [4, 7], "starts": [1, 0], "ends": [4, 4], "width": 4, "ops": copied(json!([[1, 5]]))});
    assert_eq!(steps[12], rolled);
}

/// A window of 5 with two sinks: a row that is no longer than its ring needs no pinned column, a longer one reads those that are
/// older than its newest three.
#[test]
fn a_donor_lends_sinks() {
    let cache = json!({"kind": "rotating", "max_size": 5, "sinks": 2});
    let short = one(&cache, &json!([{"op": "merge", "rows": [[1000, 1001, 1002]]}, {"op": "donor"}]));
    let ops = json!([{"do": "copy_columns", "ranges": [[2, 5]]}]);
    assert_eq!(short["steps"][1], json!({"offsets": [3], "starts": [0], "ends": [3], "width": 3, "ops": ops}));
    let ops = json!([
        {"op": "merge", "rows": [[1000, 1001, 1002, 1003, 1004, 1005], [2000, 2001, 2002, 2003]]},
        {"op": "donor"},
    ]);
    let long = one(&cache, &ops);
    let copied = json!([{"do": "copy_columns", "ranges": [[0, 5]]}]);
    let want = json!({"offsets": [6, 4], "starts": [2, 2], "ends": [5, 5], "width": 5, "ops": copied});
    assert_eq!(long["steps"][1], want);

    let line = json!({"id": "s", "scenario": {"cache": cache, "ops": ops}}).to_string();
    let frames = inspect(&line, Options::default()).frames;
    let words: Vec<&str> = frames[1].donor.iter().flat_map(|d| &d.rows).map(|row| row.words.as_str()).collect();
    assert_eq!(
        words,
        [
            "row 0 lends positions 0-1, 3-5, in columns 0 to 1, then columns 2 to 4 of the copy",
            "row 1 lends positions 0-3, in column 0, then columns 2 to 4 of the copy",
        ]
    );
    let (text, ran) = annulus_plan::explain(&line);
    assert!(ran && words.iter().all(|words| text.contains(words)), "{text}");
}

/// What a log records of a donor is an operation like any other: it has no state to compare, and the group goes on.
#[test]
fn a_donor_in_a_log_changes_nothing() {
    let mut log = log();
    log.insert(5, json!({"group": 3, "layout": 0, "seq": 11, "op": {"op": "donor"}}));
    let got = lines(&replay(&text(&log)));
    assert_eq!(got[0].get("error"), None);
    assert_eq!(got[0]["steps"][2]["starts"], json!([0, 1]));
}

/// Every line gives a line, in order, and the answer says whether all of them ran.
#[test]
fn the_answer_says_whether_every_scenario_ran() {
    let good = r#"{"id": "a", "scenario": {"cache": {"kind": "full"}, "ops": []}}"#;
    let mut ids = Vec::new();
    assert!(replay_each(&format!("{good}\n\n{good}\n"), |o| ids.push(o.id.clone())));
    assert_eq!(ids, ["a", "a"]);
    assert!(!replay_each(&format!("{good}\n{{}}"), |_| {}));
    assert!(replay_each("", |_| {}));
}

/// A log: two layouts of one group, interleaved, with a gap in the second.
fn log() -> Vec<Value> {
    let full = |offsets: [i64; 2], width: i64| json!({"offsets": offsets, "left_pad": [0, 1], "width": width});
    vec![
        json!({"group": 3, "layouts": [{"kind": "full"}, {"kind": "rotating", "max_size": 4}]}),
        json!({"group": 3, "layout": 0, "seq": 1, "op": {"op": "merge", "rows": [[1, 2], [3]]}, "state": full([2, 1], 2)}),
        json!({"group": 3, "layout": 1, "seq": 2, "op": {"op": "merge", "rows": [[1, 2], [3]]}}),
        json!({"group": 3, "layout": 0, "seq": 3, "op": {"op": "append", "tokens": [[4], [5]]}, "state": full([3, 2], 3)}),
        json!({"group": 3, "layout": 1, "seq": 9,
            "op": {"op": "adopt", "cells": [[9, 6, 7, 8], [13, 10, 11, 12]],
                "state": {"offsets": [9, 6], "left_pad": [-5, -2], "ring_index": 1, "total_offset": 9, "rotated": true}},
            "state": {"offsets": [9, 6], "left_pad": [-5, -2], "ring_index": 1, "total_offset": 9, "rotated": true}}),
        json!({"group": 3, "layout": 1, "seq": 10, "op": {"op": "append", "tokens": [[14], [15]]}}),
    ]
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

#[test]
fn a_servers_log_is_one_scenario_a_layout() {
    let got = lines(&replay(&text(&log())));
    assert_eq!(got.len(), 2);
    assert_eq!((&got[0]["id"], &got[1]["id"]), (&json!("group 3 layout 0"), &json!("group 3 layout 1")));
    assert!(got.iter().all(|g| g.get("error").is_none()), "{got:?}");
    assert_eq!(got[0]["steps"][1]["sees"], json!([[[1, 2, 4]], [[3, 5]]]));
    assert_eq!(got[1]["steps"][2]["sees"], json!([[[7, 8, 9, 14]], [[11, 12, 13, 15]]]));
}

/// A layout that this version does not plan is refused alone.
#[test]
fn a_log_with_a_recurrent_layout_keeps_its_others() {
    let mut log = log();
    log[0]["layouts"] = json!([{"kind": "full"}, {"kind": "recurrent"}]);
    let got = lines(&replay(&text(&log)));
    assert_eq!((got.len(), got[0].get("error")), (2, None));
    assert_eq!(got[1]["error"]["message"], json!("cache.kind: a recurrent cache cannot be planned by this version"));
}

#[test]
fn a_recorded_state_that_differs_is_an_error() {
    let mut log = log();
    log[3]["state"]["offsets"] = json!([3, 3]);
    let got = lines(&replay(&text(&log)));
    let message = "append.state.offsets: recorded [3,3], replayed [3,2]";
    assert_eq!(got[0]["error"], json!({"step": 1, "op": "append", "field": "state.offsets", "message": message}));
    assert_eq!(got[0]["steps"].as_array().map(Vec::len), Some(1));
    assert_eq!(got[1].get("error"), None);
}

#[test]
fn a_log_that_goes_backwards_is_an_error() {
    let mut log = log();
    log[3]["seq"] = json!(1);
    let got = lines(&replay(&text(&log)));
    assert_eq!(got[0]["error"]["field"], json!("seq"));
}

/// Every frame of the recorded scenarios keeps the invariants, and every query is as defined.
#[test]
fn frames_of_recorded_scenarios_are_as_defined() {
    let files = [
        include_str!("cases/mlx-lm-scenarios.jsonl"),
        include_str!("cases/round-scenarios.jsonl"),
        include_str!("cases/sink-scenarios.jsonl"),
    ];
    let growth = annulus_plan::Growth { step: 8, reserve: 0 };
    let (mut queries, mut wrong) = (0, 0);
    for line in files.iter().flat_map(|text| text.lines()).step_by(4) {
        let right = inspect(line, Options { upstream: false, growth });
        assert_eq!(right.error, None);
        for frame in &right.frames {
            assert!(frame.invariants.iter().all(|i| i.holds), "{} {}: {:?}", right.id, frame.words, frame.invariants);
            queries += frame.queries.iter().flatten().filter(|q| q.position.is_some()).count();
        }
        wrong += usize::from(broken(&inspect(line, Options { upstream: true, growth })));
    }
    assert!(queries > 5000, "{queries}");
    assert!(wrong > 5, "upstream is wrong in {wrong} of these");
}

fn broken(inspection: &Inspection) -> bool {
    inspection.error.is_some() || inspection.frames.iter().flat_map(|f| f.queries.iter().flatten()).any(|q| !q.holds)
}

/// The smallest scenario of BR-01, as a page draws it: right, and as mlx-lm does it.
#[test]
fn a_frame_shows_which_key_a_query_lost() {
    let line = json!({"id": "br-01", "scenario": {"cache": {"kind": "rotating", "max_size": 3}, "ops": [
        {"op": "merge", "rows": [[1000, 1001, 1002], [2000]]},
        {"op": "append", "tokens": [[1003], [2001]]},
        {"op": "round_begin"},
        {"op": "append", "tokens": [[1004, 1005], [2002, 2003]]},
        {"op": "round_rollback", "keep": [1, 2]},
    ]}})
    .to_string();
    let right = inspect(&line, Options::default());
    let query = &right.frames[3].queries[1][0];
    assert_eq!((query.position, query.holds), (Some(2), true));
    assert_eq!((query.seen.as_slice(), query.expected.as_slice()), (&[0, 1, 2][..], &[0, 1, 2][..]));
    let upstream = inspect(&line, Options { upstream: true, ..Options::default() });
    let query = &upstream.frames[3].queries[1][0];
    assert_eq!((query.seen.as_slice(), query.holds), (&[1, 2][..], false));
    assert_eq!(query.hidden, [0]);

    // After the decode step the ring has turned: the newest token lies in column 0, the oldest is dropped next.
    let turned = &right.frames[1];
    assert_eq!(
        (turned.planes.head, turned.planes.rotation, turned.planes.order.as_slice()),
        (Some(1), 1, &[1, 2, 0][..])
    );
    let cells = &turned.rows[0].cells;
    assert_eq!(cells.iter().map(|c| c.position).collect::<Vec<_>>(), [Some(3), Some(1), Some(2)]);
    assert_eq!(cells.iter().map(|c| c.evicted_next).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(turned.rows[1].cells[1].kind, CellKind::LeftPadding);
    assert_eq!(
        turned.mask.as_ref().map(|m| serde_json::to_value(&m.runs).expect("JSON")),
        Some(json!([[[[0, 3]]], [[[0, 1], [2, 3]]]]))
    );

    // After the rollback row 0 shows the draft it rejected, on the left.
    let rolled = &right.frames[4].rows[0].cells;
    assert_eq!(rolled.iter().map(|c| c.kind).collect::<Vec<_>>()[..2], [CellKind::Rejected, CellKind::Live]);
    assert_eq!(rolled[0].tag, 1005);
    let words: Vec<&str> = right.frames[4].ops.iter().map(|a| a.words.as_str()).collect();
    assert_eq!(words, ["roll columns 0 to 3 right, row by row: 1, 0"]);
}

/// The operations that the documentation shows are operations, and all of them are shown.
#[test]
fn the_documented_operations_are_the_operations() {
    let source = include_str!("../src/column.rs");
    let shown = source.lines().filter_map(|line| line.strip_prefix("/// ")).filter(|line| line.starts_with("{\"do\""));
    let mut names = Vec::new();
    for line in shown {
        let op: annulus_plan::ColumnOp = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(serde_json::to_value(&op).expect("JSON"), value);
        assert!(!annulus_plan::words::column_op(&op).is_empty());
        names.push(value["do"].clone());
    }
    assert_eq!(names.len(), 12, "{names:?}");
}

#[test]
fn nobody_gets_upstreams_faults_by_default() {
    assert_eq!(Faults::default(), Faults::NONE);
    assert!(!Options::default().upstream);
}

#[test]
fn explain_says_what_is_seen_and_what_is_refused() {
    let line = json!({"id": "e", "scenario": {"cache": ring4(), "ops": [
        {"op": "merge", "rows": [[1000, 1001]]},
        {"op": "append", "tokens": [[1002]]},
        {"op": "filter", "keep": [3]},
    ]}});
    let (text, ran) = annulus_plan::explain(&line.to_string());
    assert!(!ran);
    for part in [
        "append 1 column to each of 1 row",
        "row 0 at 2 sees 0-2, as defined",
        "refused at step 2: filter.keep: row 3 of a group of 1",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}
