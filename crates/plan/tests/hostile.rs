//! Inputs that nobody means: a plan is a cheap answer or an error, never a panic and never a machine without memory.

use annulus_plan::inspect::{Options, inspect};
use annulus_plan::{
    Error, Full, Growth, Heads, Kind, Layout, MAX_COLUMNS, Mask, Padding, Pos, Positions, Ring, Row, Source, Window,
    replay,
};
use serde_json::Value;

fn kinds() -> Vec<Kind> {
    [1, 2, 40, MAX_COLUMNS, u32::MAX]
        .into_iter()
        .flat_map(|size| [Window::of(size), Window { size, sinks: size - 1 }, Window { size, sinks: size / 2 }])
        .map(Kind::Ring)
        .chain([Kind::Full])
        .collect()
}

#[test]
fn a_billion_rows_are_refused() {
    for kind in kinds() {
        let refused = Layout::empty(kind, Growth::default(), 1_000_000_000);
        assert!(matches!(refused, Err(Error::TooLarge { .. }) | Err(Error::OutOfRange { .. })), "{kind:?}");
    }
}

#[test]
fn a_billion_columns_are_planned_or_refused() {
    for kind in kinds() {
        for growth in [Growth::default(), Growth { step: u32::MAX, reserve: u32::MAX }, Growth { step: 0, reserve: 0 }]
        {
            let Ok(mut group) = Layout::empty(kind, growth, 3) else { continue };
            for n in [1, 0, 1_000_000_000, 1, u32::MAX, MAX_COLUMNS, 1] {
                if let Ok(step) = group.append(n) {
                    assert!(step.fetch.len() >= n, "{kind:?}");
                    assert!(step.mask.dense(u32::MAX, n, 0, 0).is_err());
                    if let Mask::Runs(runs) = &step.mask {
                        let _ = (runs.visible(0, u32::MAX), runs.visible(usize::MAX, 0));
                    }
                    group = step.next;
                }
                let _ = (group.trim(u32::MAX), group.trim(1), group.round_begin(), group.finalize());
                let donor = group.donor().donor;
                assert!((0..3).all(|row| donor.recent(row, u32::MAX).to <= donor.width), "{kind:?}");
                let _ = (donor.recent(usize::MAX, 0), donor.pins(usize::MAX));
                let _ = (
                    group.extract(Row(0), Some(u32::MAX)),
                    group.extract(Row(u32::MAX), None),
                    group.filter(&[Row(u32::MAX)]),
                );
            }
        }
    }
}

#[test]
fn sources_that_contradict_themselves_are_refused_or_harmless() {
    let odd = [0, 1, 7, MAX_COLUMNS, u32::MAX];
    for kind in kinds() {
        for columns in odd {
            for capacity in odd {
                for offset in [i32::MIN, -1, 0, 1, 7, 1 << 30, i32::MAX] {
                    for pinned in [0, 1, u32::MAX] {
                        let source = Source { columns, capacity, offset: Pos(offset), pinned };
                        let Ok(plan) = Layout::merge(kind, Growth::default(), &[source, source]) else { continue };
                        let _ = (plan.next.append(1), plan.next.append(5), plan.next.extract(Row(1), None));
                        let _ = (plan.next.extend(&[source]), plan.next.filter(&[Row(1)]));
                    }
                }
            }
        }
    }
}

#[test]
fn adopted_integers_are_refused_or_harmless() {
    let odd = [0u32, 1, 3, 4, 5, MAX_COLUMNS, u32::MAX];
    let mut adopted = 0;
    for ring_index in odd {
        for total_offset in odd {
            for capacity in odd {
                for offset in [i32::MIN, -3, 0, 2, 9, i32::MAX] {
                    for left_pad in [i32::MIN, -2, 0, 3, i32::MAX] {
                        for (rotated, ends) in
                            [(false, None), (true, None), (false, Some(vec![Pos(2)])), (true, Some(vec![Pos(2)]))]
                        {
                            let at = Positions {
                                max_size: 4,
                                offsets: vec![Pos(offset)],
                                left_pad: vec![left_pad],
                                ring_index,
                                total_offset,
                                rotated,
                                prefill_ends: ends,
                            };
                            for window in [Window::of(4), Window { size: 4, sinks: 2 }] {
                                let Ok(ring) = Ring::adopt(window, Growth::default(), &at, capacity) else { continue };
                                adopted += 1;
                                let donor = ring.donor().donor;
                                assert!(
                                    donor.recent(0, u32::MAX).to <= donor.width && donor.pins(0).to <= donor.pinned
                                );
                                let _ =
                                    (ring.append(1), ring.append(3), ring.finalize(), ring.trim(1), ring.held(0, 9));
                                let _ =
                                    (ring.extend(&[Source::whole(2)]), ring.extract(Row(0), Some(9)), ring.filter(&[]));
                                if let Ok(step) = ring.append(2) {
                                    let _ = (step.next.append(1), step.next.finalize().map(|m| m.next.append(1)));
                                }
                            }
                            let _ = Full::adopt(
                                Growth::default(),
                                &at.offsets,
                                &at.left_pad,
                                at.prefill_ends.as_deref(),
                                capacity,
                            )
                            .map(|full| {
                                let donor = full.donor().donor;
                                assert!(donor.recent(0, u32::MAX).to <= donor.width);
                                (full.append(3), full.finalize(), full.filter(&[Row(0)]), full.live(0))
                            });
                        }
                    }
                }
            }
        }
    }
    assert!(adopted > 100, "{adopted}");
}

#[test]
fn paddings_that_overflow_are_refused() {
    for kind in kinds() {
        let Ok(group) = Layout::empty(kind, Growth::default(), 2) else { continue };
        let huge = [u32::MAX, u32::MAX];
        for padding in [
            Padding { lengths: &huge, left: &huge, right: &huge },
            Padding { lengths: &[0, 0], left: &huge, right: &[] },
            Padding { lengths: &[u32::MAX], left: &[], right: &[] },
        ] {
            assert!(group.prepare(padding).is_err(), "{kind:?}");
        }
        let far = Padding { lengths: &[MAX_COLUMNS, 0], left: &[], right: &[0, MAX_COLUMNS] };
        let prefill = group.prepare(far).expect("within the bounds").next;
        let _ = (prefill.append(MAX_COLUMNS), prefill.append(3).map(|s| s.next.finalize()), prefill.filter(&[Row(1)]));
    }
}

/// Every line gives one line, whatever it is; and what stopped it is said.
#[test]
fn lines_that_are_no_scenarios_say_so() {
    let lines = [
        "nonsense",
        "[]",
        "3",
        "null",
        "{}",
        r#"{"id": 7}"#,
        r#"{"id": "x", "scenario": 3}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "rotating", "max_size": 0}, "ops": []}}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "rotating", "max_size": 4, "sinks": 4}, "ops": []}}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "rotating", "max_size": 4294967296}, "ops": []}}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "full", "max_size": 4}, "ops": []}}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "recurrent"}, "ops": []}}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "full"}, "ops": [], "more": 1}}"#,
        r#"{"id": "x", "scenario": {"cache": {"kind": "full"}, "ops": {}}}"#,
        r#"{"group": 1, "layout": 0, "seq": 1, "op": {"op": "empty", "rows": 1}}"#,
    ];
    let out = replay(&lines.join("\n"));
    let out: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(out.len(), lines.len());
    for (line, got) in lines.iter().zip(&out) {
        assert_eq!(got["error"]["step"], Value::Null, "{line}");
        assert!(got["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{line}");
        assert_eq!(got["steps"], Value::Array(Vec::new()), "{line}");
    }
    assert_eq!((&out[0]["id"], &out[5]["id"], &out[6]["id"]), (&Value::Null, &Value::from(7), &Value::from("x")));
}

/// The operations `ops` of a full group, and where and of what they stop.
fn stops(ops: &str) -> (Option<u64>, String, String) {
    let line = format!(r#"{{"id": "x", "scenario": {{"cache": {{"kind": "full"}}, "ops": [{ops}]}}}}"#);
    let got: Value = serde_json::from_str(&replay(&line)).expect("JSON");
    let text = |field: &str| got["error"][field].as_str().unwrap_or_default().to_owned();
    assert_eq!(inspect(&line, Options::default()).error.is_some(), got["error"].is_object());
    (got["error"]["step"].as_u64(), text("op"), text("field"))
}

#[test]
fn operations_that_are_malformed_name_their_field() {
    let at = |step, op: &str, field: &str| (Some(step), op.to_owned(), field.to_owned());
    assert_eq!(stops(r#"{"op": "empty", "rows": 1000000000}"#), at(0, "empty", "rows"));
    assert_eq!(stops(r#"{"op": "empty", "rows": -1}"#), at(0, "empty", "rows"));
    assert_eq!(stops(r#"{"op": "empty", "rows": 1, "x": 2}"#), at(0, "empty", "x"));
    assert_eq!(stops(r#"{"op": "finalize"}"#), at(0, "finalize", "op"));
    assert_eq!(stops(r#"{"op": "merge", "rows": [[0]]}"#), at(0, "merge", "rows"));
    assert_eq!(stops(r#"{"op": "merge", "rows": [{"from": "a", "to": "b"}]}"#), at(0, "merge", "rows"));
    assert_eq!(stops(r#"{"op": "merge", "rows": [[1]]}, 3"#), (Some(1), "?".to_owned(), "op".to_owned()));
    assert_eq!(stops(r#"{"op": "donor"}"#), at(0, "donor", "op"));
    assert_eq!(stops(r#"{"op": "merge", "rows": [[1]]}, {"op": "donor", "row": 0}"#), at(1, "donor", "row"));
    assert_eq!(
        stops(r#"{"op": "merge", "rows": [[1]]}, {"op": "append", "tokens": [[1.5]]}"#),
        at(1, "append", "tokens")
    );
    assert_eq!(stops(r#"{"op": "merge", "rows": [[1]]}, {"op": "trim"}"#), at(1, "trim", "n"));
    assert_eq!(stops(r#"{"op": "merge", "rows": [[1]]}, {"op": "finalize", "x": 1}"#), at(1, "finalize", "x"));
    assert_eq!(
        stops(r#"{"op": "adopt", "state": {"offsets": [1], "left_pad": [0]}, "cells": [[]]}"#),
        at(0, "adopt", "offsets")
    );
    assert_eq!(stops(r#"{"op": "adopt", "state": {"offsets": [1]}, "cells": [[1]]}"#), at(0, "adopt", "left_pad"));
}

/// A short line cannot ask for a large table: one long row beside many empty ones.
#[test]
fn tables_beyond_the_interpreter_are_refused() {
    let long: Vec<String> = (1..=400).map(|t: u32| t.to_string()).collect();
    let rows = vec!["[]"; 60_000].join(",");
    let (step, op, _) = stops(&format!(r#"{{"op": "merge", "rows": [[{}], {rows}]}}"#, long.join(",")));
    assert_eq!((step, op.as_str()), (Some(0), "merge"));
}

#[test]
fn bytes_do_not_overflow() {
    let heads = Heads { kv_heads: u32::MAX, head_dim: u32::MAX };
    let plain = annulus_plan::Format::Plain { bits: u32::MAX };
    assert!(annulus_plan::column_bytes(plain, heads).is_err());
    let grouped = annulus_plan::Format::Affine { bits: 4, group: 0, scale_bits: 16 };
    assert!(annulus_plan::column_bytes(grouped, Heads { kv_heads: 1, head_dim: 64 }).is_err());
}
