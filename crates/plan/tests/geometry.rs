//! Single facts, group by group: what upstream's tests assert and a simulation filled in. Field names are upstream's. On rings
//! left padding is compared after normalisation; where upstream understates it (`hazard`) ours is the true one.

#![allow(clippy::needless_pass_by_value, reason = "a case reads better without ampersands")]

use annulus_plan::Entry;
use annulus_plan::scenario::{AdoptState, JoinRow, Keep, Op};
use annulus_plan::session::Session;
use annulus_plan::{
    Col, ColumnOp, Columns, Full, Grid, Growth, Inputs, Kind, Layout, Mask, Pos, Positions, Ring, Rope, Row, Source,
    Window,
};
use serde_json::Value;

const CASES: &str = include_str!("cases/geometry-cases.jsonl");

/// The cases of a group; there must be `count` of them.
fn cases(group: &str, count: usize) -> Vec<Value> {
    let all = CASES.lines().map(|line| serde_json::from_str::<Value>(line).expect("a case is JSON"));
    let group: Vec<Value> = all.filter(|case| case["group"] == group).collect();
    assert_eq!(group.len(), count);
    group
}

fn ints(v: &Value) -> Vec<i64> {
    v.as_array().into_iter().flatten().map(|x| x.as_i64().unwrap_or(0)).collect()
}

fn counts(v: &Value) -> Vec<u32> {
    ints(v).into_iter().map(|n| n as u32).collect()
}

fn number(v: &Value) -> i64 {
    v.as_i64().expect("a number")
}

/// Left padding of a ring in a form that says the same for the same columns.
fn normal(pads: &[i64], window: i64, active: i64) -> Vec<i64> {
    pads.iter().map(|&pad| pad.max(0).max(active - window + 1)).collect()
}

/// Compares a state entry with upstream's snapshot, as far as it goes.
fn same_state(id: &str, entry: &Entry, want: &Value, window: Option<i64>) {
    let state = entry.state.as_ref().expect("a state");
    let got = serde_json::to_value(state).expect("a state is JSON");
    assert_eq!(ints(&got["offsets"]), ints(&want["offsets"]), "{id} offsets");
    for (ours, theirs) in [("ring_index", "ringIndex"), ("total_offset", "totalOffset"), ("rotated", "rotated")] {
        if want.get(theirs).is_some() {
            assert_eq!(got[ours], want[theirs], "{id} {theirs}");
        }
    }
    let pads = (ints(&got["left_pad"]), ints(&want["leftPad"]));
    match window {
        Some(w) => {
            let active = if state.rotated == Some(true) { w } else { state.ring_index.unwrap_or(0).into() };
            assert_eq!(normal(&pads.0, w, active), normal(&pads.1, w, active), "{id} leftPad");
        }
        None => assert_eq!(pads.0, pads.1, "{id} leftPad"),
    }
}

fn do_(session: &mut Session, op: Op) -> Entry {
    session.step(&op).unwrap_or_else(|e| panic!("{op:?}: {e}")).entry
}

fn ring(size: u32) -> Session {
    Session::new(Kind::Ring(Window::of(size)))
}

fn merge(session: &mut Session, rows: Vec<Vec<u64>>) -> Entry {
    do_(session, Op::Merge { rows: rows.into_iter().map(JoinRow::Tokens).collect() })
}

/// Tags `base + 1 + position`, so that position 0 is not padding.
fn run(base: u64, from: i64, to: i64) -> Vec<u64> {
    (from..to).map(|p| base + 1 + p as u64).collect()
}

fn positions(tags: &[u64], base: u64) -> Vec<i64> {
    tags.iter().map(|&t| t as i64 - base as i64 - 1).collect()
}

fn snapshot(v: &Value) -> (Positions, u32) {
    let list = |v: &Value| ints(v).into_iter().map(|p| Pos(p as i32)).collect();
    let at = Positions {
        max_size: number(&v["maxSize"]) as u32,
        offsets: list(&v["offsets"]),
        left_pad: ints(&v["leftPad"]).into_iter().map(|p| p as i32).collect(),
        ring_index: number(&v["ringIndex"]) as u32,
        total_offset: number(&v["totalOffset"]) as u32,
        rotated: v["rotated"] == true,
        prefill_ends: None,
    };
    let capacity = if at.rotated { at.max_size } else { at.ring_index };
    (at, capacity)
}

/// Puts a group where upstream's snapshot stands, each live column filled with the tag of its position.
fn adopt(session: &mut Session, v: &Value) -> Entry {
    let (at, capacity) = snapshot(v);
    let active = i64::from(capacity);
    let cell = |row: usize, column: i64| {
        let t = if at.rotated { (column - i64::from(at.ring_index)).rem_euclid(active) } else { column };
        let pad = i64::from(at.left_pad[row].max(0)).max(active - i64::from(at.max_size));
        let position = i64::from(at.offsets[row].0) - active + t;
        if t < pad || position < 0 { 0 } else { row as u64 * 1000 + 1 + position as u64 }
    };
    let cells = (0..at.offsets.len()).map(|row| (0..active).map(|c| cell(row, c)).collect()).collect();
    let state = AdoptState {
        offsets: at.offsets.iter().map(|p| p.0).collect(),
        left_pad: at.left_pad.clone(),
        prefill_ends: None,
        ring_index: Some(at.ring_index),
        total_offset: Some(at.total_offset),
        rotated: Some(at.rotated),
        width: None,
    };
    do_(session, Op::Adopt { state, cells })
}

fn mask_bits(entry: &Entry) -> Vec<Vec<Vec<i64>>> {
    let line = |l: &String| l.bytes().map(|b| i64::from(b == b'1')).collect();
    let masks = entry.mask.as_ref().expect("a mask");
    masks.iter().map(|row| row.iter().map(line).collect()).collect()
}

fn bits(v: &Value) -> Vec<Vec<Vec<i64>>> {
    let rows = |r: &Value| r.as_array().into_iter().flatten().map(ints).collect();
    v.as_array().into_iter().flatten().map(rows).collect()
}

/// One query a row: `[row][column]`.
fn line_bits(v: &Value) -> Vec<Vec<Vec<i64>>> {
    v.as_array().into_iter().flatten().map(|row| vec![ints(row)]).collect()
}

#[test]
fn rotating_state() {
    let all = cases("rotating-state", 4);
    let adopt = |case: &Value, width: u32, offsets: &Value| {
        let at = Positions {
            max_size: number(&case["inputs"]["maxSize"]) as u32,
            offsets: ints(offsets).into_iter().map(|p| Pos(p as i32)).collect(),
            left_pad: ints(&case["inputs"]["leftPad"]).into_iter().map(|p| p as i32).collect(),
            ring_index: width,
            total_offset: width,
            rotated: false,
            prefill_ends: None,
        };
        Ring::adopt(Window::of(at.max_size), Growth::default(), &at, width).expect("a state")
    };

    let (one, want) = (&all[0], &all[0]["expected"]);
    let step = adopt(one, 4, &one["inputs"]["ops"][0][2]).append(1).expect("one write");
    assert_eq!(step.ops, [ColumnOp::Write { at: Col(number(&want["writeColumn"]) as u32), columns: 1 }]);
    let next = step.next;
    assert_eq!(Value::from(next.rotated()), want["rotated"]);
    assert_eq!(next.offsets().iter().map(|o| i64::from(o.0)).collect::<Vec<_>>(), ints(&want["offsetsAfterWrite"]));
    let pads: Vec<i64> = next.left_pad().iter().map(|&p| p.into()).collect();
    assert_eq!(pads, ints(&want["leftPadAfterWrite"]).into_iter().map(|p| p.max(0)).collect::<Vec<_>>());
    assert_eq!(next.physical(Columns::new(0, 4)), [Columns::new(1, 4), Columns::new(0, 1)]);
    let kept = next.filter(&[Row(1)]).expect("a row").next;
    assert_eq!((kept.offsets(), kept.left_pad()), ([Pos(1)].as_slice(), [0].as_slice()));

    let (two, want) = (&all[1], &all[1]["expected"]);
    let next = adopt(two, 5, &two["inputs"]["ops"][0][2]).trim(2).expect("a ring that has not turned").next;
    assert_eq!(i64::from(next.total()), number(&want["totalOffset"]));
    assert_eq!(i64::from(next.head()), number(&want["ringIndex"]));
    assert_eq!(next.offsets().iter().map(|o| i64::from(o.0)).collect::<Vec<_>>(), ints(&want["offsets"]));

    let (three, want) = (&all[2], &all[2]["expected"]);
    let next = adopt(three, 4, &three["inputs"]["ops"][0][2]).append(1).expect("one write").next;
    let grid = Grid::of(rows(&three["inputs"]["physical"]), 0);
    let temporal =
        |row| next.physical(Columns::new(0, 4)).into_iter().flat_map(|c| grid.read(row, c)).collect::<Vec<_>>();
    assert_eq!([temporal(0), temporal(1)].to_vec(), rows(&want["temporal"]));
    let held = next.held(1, 4).into_iter().flat_map(|c| grid.read(1, c)).map(|t| t as i64).collect::<Vec<_>>();
    assert_eq!(held, ints(&want["row1FromMax0LeftPad"]));

    let (four, want) = (&all[3], &all[3]["expected"]);
    let turned = adopt(four, 4, &four["inputs"]["ops"][0][2]).append(1).expect("one write").next;
    let block = turned.append(3).expect("a block");
    let mut grid = Grid::of(rows(&four["inputs"]["physical"]), 0);
    grid.run(&block.ops, Inputs { incoming: &rows(&four["inputs"]["incoming"]), sources: &[] }).expect("it fits");
    assert_eq!(grid.rows(), rows(&want["block"]));
    assert_eq!((block.next.active(), block.next.rotated()), (6, false));
    let offsets = |r: &Ring| r.offsets().iter().map(|o| i64::from(o.0)).collect::<Vec<_>>();
    assert_eq!(offsets(&block.next), ints(&want["afterConcat"]["offsets"]));
    assert_eq!(block.next.left_pad(), [0, 0]);
    let last = block.next.append(1).expect("one write");
    let at = number(&want["writeColumnAfterOvershootTrim"]) as u32;
    assert_eq!(last.ops.last(), Some(&ColumnOp::Write { at: Col(at), columns: 1 }));
    assert_eq!((offsets(&last.next), i64::from(last.next.active())), (ints(&want["final"]["offsets"]), 4));
}

fn rows(v: &Value) -> Vec<Vec<u64>> {
    v.as_array().into_iter().flatten().map(|r| ints(r).into_iter().map(|t| t as u64).collect()).collect()
}

#[test]
fn temporal_ranges() {
    for case in cases("temporal-ranges", 6) {
        let (head, total, length) =
            (&case["inputs"]["ringIndex"], &case["inputs"]["totalOffset"], &case["inputs"]["bufferLength"]);
        let (head, total, length) = (number(head) as u32, number(total) as u32, number(length) as u32);
        let at = Positions {
            max_size: length.max(1),
            offsets: vec![Pos(total as i32)],
            left_pad: vec![0],
            ring_index: head,
            total_offset: total,
            rotated: head < total && head < length,
            prefill_ends: None,
        };
        let ring = Ring::adopt(Window::of(at.max_size), Growth::default(), &at, length).expect("a state");
        let ranges = ring.physical(Columns::new(0, ring.active()));
        let got: Vec<Vec<i64>> =
            ranges.into_iter().filter(|c| !c.is_empty()).map(|c| vec![c.from.into(), c.to.into()]).collect();
        let want: Vec<Vec<i64>> =
            case["expected"]["ranges"].as_array().into_iter().flatten().map(ints).filter(|r| r[0] != r[1]).collect();
        assert_eq!(got, want, "{}", case["id"]);
    }
}

#[test]
fn row_roll() {
    for case in cases("row-roll", 5) {
        let (length, shifts) = (number(&case["inputs"]["length"]) as u32, counts(&case["inputs"]["shifts"]));
        let mut grid = Grid::of(vec![(0..u64::from(length)).collect(); shifts.len()], 0);
        let ops = [ColumnOp::Roll { over: Columns::new(0, length), shifts }];
        grid.run(&ops, Inputs { incoming: &[], sources: &[] }).expect("it fits");
        assert_eq!(grid.rows(), rows(&case["expected"]["exampleRowResult"]), "{}", case["id"]);
    }
}

/// `rb-2` asks for columns to be preserved for the sake of a sibling in another group, which these layouts do not have.
#[test]
fn rollback_plan() {
    for case in cases("rollback-plan", 6).iter().filter(|c| c["inputs"]["preserveColumns"] == false) {
        let (inputs, want, id) = (&case["inputs"], &case["expected"], case["id"].as_str().unwrap_or("?"));
        let window = number(&inputs["snapshot"]["maxSize"]);
        let (before, after) = (ints(&inputs["before"]), ints(&inputs["snapshot"]["offsets"]));
        let mut session = ring(window as u32);
        merge(&mut session, before.iter().map(|&n| run(0, 0, n)).collect());
        do_(&mut session, Op::RoundBegin {});
        let block = before.iter().zip(&after).map(|(&a, &b)| run(0, a, b)).collect();
        same_state(id, &do_(&mut session, Op::Append { tokens: block }), &inputs["snapshot"], Some(window));
        let keep = match inputs["keep"].as_u64() {
            Some(n) => Keep::All(n as u32),
            None => Keep::Each(counts(&inputs["keep"])),
        };
        let entry = do_(&mut session, Op::RoundRollback { keep });
        if let Some(n) = want["trim"].as_i64() {
            assert!(entry.ops.is_empty());
            assert_eq!(i64::from(entry.state.expect("a state").offsets[0]), after[0] - n, "{id}");
        } else {
            same_state(id, &entry, &want["position"], Some(window));
            let shifts = counts(&want["shifts"]);
            let over = Columns::new(0, number(&want["position"]["ringIndex"]) as u32);
            let ops = serde_json::to_value(&entry.ops).expect("operations are JSON");
            let roll = serde_json::to_value([ColumnOp::Roll { over, shifts }]).expect("operations are JSON");
            assert_eq!(ops, roll, "{id}");
        }
    }
}

#[test]
fn block_mask() {
    for case in cases("block-mask", 6) {
        let (inputs, want) = (&case["inputs"], &case["expected"]);
        let mut session = ring(number(&inputs["maxSize"]) as u32);
        adopt(&mut session, &inputs["preWrite"]);
        let n = number(&inputs["blockTokens"]);
        let offsets = ints(&inputs["preWrite"]["offsets"]);
        let block = offsets.iter().zip(0..).map(|(&o, row)| run(row * 1000, o, o + n)).collect();
        let entry = do_(&mut session, Op::Append { tokens: block });
        assert_eq!(mask_bits(&entry), bits(&want["mask"]), "{}", case["id"]);
        // Tags there are row * 1000 + position, null for padding; ours are one larger, 0 for padding.
        let cells: Vec<Vec<i64>> =
            entry.fetched.iter().flatten().map(|row| row.iter().map(|&t| t as i64 - 1).collect()).collect();
        let nulls =
            |r: &Value| r.as_array().into_iter().flatten().map(|t| t.as_i64().unwrap_or(-1)).collect::<Vec<_>>();
        let columns: Vec<Vec<i64>> = want["columnsAfterWrite"].as_array().into_iter().flatten().map(nulls).collect();
        assert_eq!(cells, columns, "{}", case["id"]);
        let sees: Vec<Vec<Vec<i64>>> = entry
            .sees
            .iter()
            .flatten()
            .map(|row| row.iter().flatten().map(|q| q.iter().map(|&t| t as i64 - 1).collect()).collect())
            .collect();
        assert_eq!(sees, bits(&want["visible"]), "{}", case["id"]);
    }
}

#[test]
fn rotating_golden() {
    let case = &cases("rotating-golden", 1)[0];
    let mut session = ring(6);
    merge(&mut session, rows(&case["inputs"]["rows"]));
    let decode = rows(&case["inputs"]["decode"]);
    let steps = case["expected"]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 8);
    for (i, (tokens, want)) in decode.iter().zip(steps).enumerate() {
        let entry = do_(&mut session, Op::Append { tokens: tokens.iter().map(|&t| vec![t]).collect() });
        assert_eq!(mask_bits(&entry), line_bits(&want["mask"]));
        same_state("rg-1", &entry, &want["after"], Some(6));
        // The recorded views share one buffer: only before the first growth and after the last write do they say what was seen.
        if i == 0 || i == 7 {
            assert_eq!(entry.fetched, Some(rows(&want["view"])));
        }
        for (row, tokens) in rows(&want["extract"]).into_iter().enumerate() {
            let extracted = do_(&mut session, Op::Extract { row: row as u32, limit: None, name: None });
            assert_eq!(extracted.tokens, Some(tokens));
        }
    }
}

#[test]
fn serial_rotating() {
    for case in cases("serial-rotating", 15) {
        let (inputs, want, id) = (&case["inputs"], &case["expected"], &case["id"]);
        let mut session = ring(8);
        do_(&mut session, Op::Empty { rows: 1 });
        let mut at = 0;
        // The generation of the token at each position: rewritten ones carry 1000 more.
        let mut base = 0;
        let write = |session: &mut Session, at: &mut i64, base: u64, n: i64| {
            let entry = do_(session, Op::Append { tokens: vec![run(base, *at, *at + n)] });
            *at += n;
            entry
        };
        let window = |session: &mut Session| {
            let entry = do_(session, Op::Extract { row: 0, limit: None, name: None });
            positions(&entry.tokens.expect("tokens"), 0)
        };
        if let Some(steps) = want["steps"].as_array() {
            for (n, step) in ints(&inputs["writes"]).into_iter().zip(steps) {
                let entry = write(&mut session, &mut at, base, n);
                assert_eq!(positions(&entry.fetched.expect("fetched")[0], 0), ints(&step["fetched"]), "{id}");
                let cells = session.group().expect("a group").grid.rows()[0].clone();
                let physical: Vec<i64> =
                    step["physical"].as_array().into_iter().flatten().map(|p| p.as_i64().unwrap_or(-1)).collect();
                assert_eq!(positions(&cells, 0), physical, "{id}");
                assert_eq!(window(&mut session), ints(&step["newestWindow"]), "{id}");
            }
            continue;
        }
        for n in ints(inputs.get("before").unwrap_or(&inputs["prefill"])) {
            write(&mut session, &mut at, base, n);
        }
        if let Some(verify) = inputs["verify"].as_i64() {
            do_(&mut session, Op::RoundBegin {});
            write(&mut session, &mut at, base, verify);
            assert_eq!(window(&mut session), ints(&want["windowAfterVerify"]), "{id}");
            let rejected = number(&inputs["rejected"]);
            do_(&mut session, Op::RoundRollback { keep: Keep::All((verify - rejected) as u32) });
            at -= rejected;
            assert_eq!(window(&mut session), ints(&want["windowAfterRollback"]), "{id}");
        } else {
            do_(&mut session, Op::Trim { n: number(&inputs["trim"]) as u32 });
            at -= number(&inputs["trim"]);
            assert_eq!(window(&mut session), ints(&want["windowAfterTrim"]), "{id}");
        }
        base += 1000;
        for (n, seen) in
            ints(&inputs["appends"]).into_iter().zip(want["windowsAfterAppends"].as_array().expect("windows"))
        {
            write(&mut session, &mut at, base, n);
            assert_eq!(window(&mut session), ints(seen), "{id}");
        }
    }
}

#[test]
fn speculative_rotating() {
    for case in cases("speculative-rotating", 5) {
        let (inputs, want, id) = (&case["inputs"], &case["expected"], case["id"].as_str().unwrap_or("?"));
        let mut session = ring(8);
        if let Some(rounds) = want["rounds"].as_array() {
            // The first rounds are written down, the others follow the rule that those after the fourth follow.
            let rule = |s: u32| vec![1 + s % 4, 1 + 3 * s % 4, 1 + (7 * s + 2) % 4];
            assert_eq!(counts(&rounds[4]["keep"]), rule(0), "{id}");
            let mut at = ints(&inputs["initialLengths"]);
            merge(&mut session, at.iter().zip(0..).map(|(&n, row)| run(row * 1000, 0, n)).collect());
            for n in 0..36u32 {
                do_(&mut session, Op::RoundBegin {});
                let block = at.iter().zip(0..).map(|(&o, row)| run(row * 1000, o, o + 4)).collect();
                do_(&mut session, Op::Append { tokens: block });
                let round = rounds.get(n as usize);
                let keep = round.map_or_else(|| rule(n - 4), |round| counts(&round["keep"]));
                at.iter_mut().zip(&keep).for_each(|(o, &k)| *o += i64::from(k));
                let end = if round.is_some_and(|round| round["plan"] == "commit") {
                    Op::RoundCommit {}
                } else {
                    Op::RoundRollback { keep: Keep::Each(keep) }
                };
                do_(&mut session, end);
                let token = at.iter().zip(0..).map(|(&o, row)| run(row * 1000, o, o + 1)).collect();
                let entry = do_(&mut session, Op::Append { tokens: token });
                at.iter_mut().for_each(|o| *o += 1);
                if let Some(round) = round {
                    same_state(id, &entry, &round["stateAfterDecode"], Some(8));
                }
            }
            assert_eq!(at, ints(&want["finalOffsets"]), "{id}");
            for (row, window) in want["finalWindows"].as_array().into_iter().flatten().enumerate() {
                let entry = do_(&mut session, Op::Extract { row: row as u32, limit: None, name: None });
                let tags: Vec<i64> = entry.tokens.iter().flatten().map(|&t| t as i64 - 1).collect();
                assert_eq!(tags, ints(window), "{id}");
            }
            let kept = do_(&mut session, Op::Filter { keep: vec![2, 0] });
            assert_eq!(kept.state.expect("a state").offsets, [at[2] as i32, at[0] as i32], "{id}");
            continue;
        }
        let prompt = match inputs["promptLength"].as_i64() {
            Some(n) => run(0, 0, n),
            None => rows(&Value::Array(vec![inputs["prompt"].clone()])).remove(0),
        };
        merge(&mut session, vec![prompt]);
        do_(&mut session, Op::RoundBegin {});
        let one = |v: &Value| vec![ints(v).into_iter().map(|t| t as u64).collect::<Vec<_>>()];
        do_(&mut session, Op::Append { tokens: one(&inputs["block"]) });
        let kept = do_(&mut session, Op::RoundRollback { keep: Keep::All(number(&inputs["keep"]) as u32) });
        if want.get("offsets").is_some() {
            same_state(id, &kept, want, Some(8));
        }
        let entry = do_(&mut session, Op::Append { tokens: one(&inputs["tail"]) });
        if want.get("fetched").is_some() {
            assert_eq!(entry.fetched, Some(one(&want["fetched"])), "{id}");
        } else {
            let window = do_(&mut session, Op::Extract { row: 0, limit: None, name: None });
            assert_eq!(window.offset.map(i64::from), want["offset"].as_i64(), "{id}");
            assert_eq!(window.tokens, Some(one(&want["window"]).remove(0)), "{id}");
        }
    }
}

#[test]
fn verify_rounds() {
    for case in cases("verify-rounds", 7) {
        let (inputs, id) = (&case["inputs"], case["id"].as_str().unwrap_or("?"));
        let mut session = ring(8);
        let mut at = ints(&inputs["lengths"]);
        merge(&mut session, at.iter().zip(0..).map(|(&n, row)| run(row * 1000, 0, n)).collect());
        let write = |session: &mut Session, at: &mut Vec<i64>, n: i64| {
            let tokens = at.iter().zip(0..).map(|(&o, row)| run(row * 1000, o, o + n)).collect();
            let entry = do_(session, Op::Append { tokens });
            for (row, queries) in entry.sees.iter().flatten().enumerate() {
                for (i, seen) in (0..).zip(queries) {
                    let p = at[row] + i;
                    let expected: Vec<i64> = ((p - 7).max(0)..=p).collect();
                    assert_eq!(positions(seen.as_ref().expect("a query"), row as u64 * 1000), expected, "{id}");
                }
            }
            at.iter_mut().for_each(|o| *o += n);
            entry
        };
        for _ in 0..number(&inputs["decodesFirst"]) {
            write(&mut session, &mut at, 1);
        }
        for round in case["expected"]["rounds"].as_array().expect("rounds") {
            assert_eq!(at, ints(&round["before"]), "{id}");
            do_(&mut session, Op::RoundBegin {});
            let width = number(&round["width"]);
            write(&mut session, &mut at, width);
            let keep = counts(&round["keep"]);
            at.iter_mut().zip(&keep).for_each(|(o, &k)| *o -= width - i64::from(k));
            let entry = do_(&mut session, Op::RoundRollback { keep: Keep::Each(keep) });
            same_state(id, &entry, &round["afterRollback"], Some(8));
            write(&mut session, &mut at, 1);
            let entry = write(&mut session, &mut at, 1);
            same_state(id, &entry, &round["afterTwoDecodes"], Some(8));
        }
    }
}

#[test]
fn full_kv() {
    let all = cases("full-kv", 7);
    let case = |id: &str| all.iter().find(|c| c["id"] == id).expect("the case");
    let full = || Session::new(Kind::Full);

    let (inputs, want) = (&case("fk-1")["inputs"], &case("fk-1")["expected"]);
    let mut session = full();
    let merged = merge(&mut session, rows(&inputs["rows"])).state.expect("a state");
    assert_eq!(merged.offsets, [2, 4]);
    assert_eq!(merged.left_pad, [2, 0]);
    do_(&mut session, Op::RoundBegin {});
    do_(&mut session, Op::Append { tokens: rows(&inputs["block"]) });
    let rolled = do_(&mut session, Op::RoundRollback { keep: Keep::Each(counts(&want["keep"])) });
    assert!(rolled.ops.is_empty(), "nothing moves");
    let entry = do_(&mut session, Op::Append { tokens: rows(&inputs["then"]) });
    assert_eq!(
        entry.rope_offsets.clone().map(|r| r.into_iter().map(i64::from).collect::<Vec<_>>()),
        Some(ints(&want["rope"]))
    );
    assert_eq!(mask_bits(&entry), bits(&want["mask"]));
    for (row, tokens) in rows(&want["rowsAfter"]).into_iter().enumerate() {
        let extracted = do_(&mut session, Op::Extract { row: row as u32, limit: None, name: None });
        assert_eq!(extracted.tokens, Some(tokens));
    }

    let (inputs, want) = (&case("fk-3")["inputs"], &case("fk-3")["expected"]);
    let mut session = full();
    merge(&mut session, rows(&inputs["rowsA"]));
    do_(&mut session, Op::RoundBegin {});
    do_(&mut session, Op::Append { tokens: vec![run(50, 0, 3), run(60, 0, 3)] });
    do_(&mut session, Op::RoundRollback { keep: Keep::Each(counts(&inputs["keep"])) });
    let joiner = ints(&inputs["joiner"]).into_iter().map(|t| t as u64).collect();
    let joined = do_(&mut session, Op::Extend { rows: vec![JoinRow::Tokens(joiner)] });
    assert_eq!(joined.state.map(|s| s.offsets), Some(vec![3, 7, 3]));
    assert_eq!(ints(&want["afterJoinOffsets"]), [3, 7, 3]);
    do_(&mut session, Op::Filter { keep: counts(&inputs["filter"]) });
    do_(&mut session, Op::Append { tokens: vec![run(1000, 0, 300), run(2000, 0, 300)] });
    let last = do_(&mut session, Op::Append { tokens: vec![vec![1], vec![2]] }).state.expect("a state");
    assert_eq!(last.offsets.into_iter().map(i64::from).collect::<Vec<_>>(), ints(&want["finalOffsets"]));

    // A single row: one scalar position, and no mask but the order of its queries.
    let (inputs, want) = (&case("fk-4")["inputs"], &case("fk-4")["expected"]["afterRound"]);
    assert_eq!(ints(&inputs["row"]), [1, 2]);
    let single = Full::merge(Growth::default(), &[Source::whole(2)]).expect("a row").next;
    assert_eq!(single.append(1).expect("one").mask, Mask::None);
    assert_eq!(single.append(3).expect("three").mask, Mask::Causal);
    assert_eq!(single.append(3).expect("three").rope, Rope::Same(Pos(2)));
    let mut session = full();
    merge(&mut session, vec![vec![1, 2]]);
    do_(&mut session, Op::RoundBegin {});
    let one = |v: &Value| vec![ints(v).into_iter().map(|t| t as u64).collect::<Vec<_>>()];
    do_(&mut session, Op::Append { tokens: one(&want["block"]) });
    do_(&mut session, Op::RoundRollback { keep: Keep::All(number(&want["accepted"][0]) as u32 + 1) });
    let entry = do_(&mut session, Op::Append { tokens: one(&want["append"]) });
    assert_eq!(entry.fetched, Some(one(&want["row"])));

    let (inputs, want) = (&case("fk-5")["inputs"], &case("fk-5")["expected"]);
    let mut session = full();
    let merged = merge(&mut session, rows(&inputs["rows"])).state.expect("a state");
    assert_eq!((merged.offsets, merged.left_pad), (vec![0, 2], vec![2, 0]));
    do_(&mut session, Op::Append { tokens: vec![vec![1], vec![13]] });
    for (row, tokens) in rows(&want["afterAppend"]).into_iter().enumerate() {
        let extracted = do_(&mut session, Op::Extract { row: row as u32, limit: None, name: None });
        assert_eq!(extracted.tokens, Some(tokens));
    }

    let (inputs, want) = (&case("fk-7")["inputs"], &case("fk-7")["expected"]);
    let ends = number(&inputs["ends"][0]) as u32;
    let step = Full::merge(Growth::default(), &[Source::whole(ends)]).expect("a row").next;
    let step = step.append(number(&inputs["N"]) as u32).expect("a block");
    assert_eq!(i64::from(step.fetch.len()), number(&want["needed"]));
    assert_eq!(i64::from(step.next.capacity()), number(&want["capacity"]));

    let (inputs, want) = (&case("fk-8")["inputs"], &case("fk-8")["expected"]);
    let sources: Vec<Source> = counts(&inputs["lengths"]).into_iter().map(Source::whole).collect();
    let group = Full::merge(Growth::default(), &sources).expect("rows").next.round_begin().expect("a round").next;
    let group = group.append(number(&inputs["append"]) as u32).expect("a block").next;
    let keep: Vec<u32> = counts(&inputs["accepted"]).into_iter().map(|n| n + 1).collect();
    let group = group.round_rollback(&keep).expect("kept").next;
    assert_eq!(group.offsets().iter().map(|o| i64::from(o.0)).collect::<Vec<_>>(), ints(&want["offsets"]));
    assert_eq!(group.left_pad(), counts(&want["leftPad"]));
    let ends: Vec<i64> = (0..2).map(|row| i64::from(group.end(row).expect("a row").0)).collect();
    assert_eq!(ends, ints(&want["ends"]));
    assert_eq!(i64::from(group.append(2).expect("a block").fetch.len()), number(&want["maskN2Shape"][3]));

    let (inputs, want) = (&case("fk-9")["inputs"], &case("fk-9")["expected"]);
    let sources = |v: &Value| counts(v).into_iter().map(Source::whole).collect::<Vec<_>>();
    let merged = Full::merge(Growth::default(), &sources(&inputs["merge"])).expect("rows").next;
    assert_eq!(
        (i64::from(merged.width()), merged.left_pad()),
        (number(&want["mergeWidth"]), &counts(&want["mergePads"])[..])
    );
    let pair = sources(&inputs["extend"]);
    let extended =
        Full::merge(Growth::default(), &pair[..1]).expect("a row").next.extend(&pair[1..]).expect("a row").next;
    assert_eq!(
        (i64::from(extended.width()), extended.left_pad()),
        (number(&want["extendWidth"]), &counts(&want["extendPads"])[..])
    );
    let kept: Vec<Row> = counts(&inputs["keep"]).into_iter().map(Row).collect();
    let filtered = Full::merge(Growth::default(), &sources(&inputs["filterRows"]))
        .expect("rows")
        .next
        .filter(&kept)
        .expect("rows");
    assert_eq!(
        (i64::from(filtered.next.width()), filtered.next.left_pad()),
        (number(&want["filterWidth"]), &counts(&want["filterPads"])[..])
    );
    let dropped = number(&inputs["trimLeft"]) as u32;
    assert!(filtered.ops.contains(&ColumnOp::Slice { ranges: vec![Columns::new(dropped, 12)] }));
}

/// Appends `n` columns to every row of a prefill, zeros where it has padding.
fn prefill_chunk(session: &mut Session, n: i64) -> Entry {
    let layout: Layout = session.group().expect("a group").layout.clone();
    let annulus_plan::Phase::Prefill(prefill) = layout.phase() else { panic!("no prefill is pending") };
    let cell = |row: usize, at: i64| if prefill.is_padding(row, at) { 0 } else { row as u64 * 1000 + 1 + at as u64 };
    let tokens = layout
        .offsets()
        .iter()
        .enumerate()
        .map(|(row, o)| (0..n).map(|i| cell(row, i64::from(o.0) + i)).collect())
        .collect();
    do_(session, Op::Append { tokens })
}

#[test]
fn full_padding() {
    let all = cases("full-padding", 3);
    let mut session = Session::new(Kind::Full);
    let (inputs, want) = (&all[0]["inputs"], &all[0]["expected"]);
    merge(&mut session, (0..3).map(|row| run(row * 1000, 0, 11)).collect());
    do_(
        &mut session,
        Op::Prepare {
            lengths: counts(&inputs["lengths"]),
            left_padding: Vec::new(),
            right_padding: counts(&inputs["rightPadding"]),
        },
    );
    prefill_chunk(&mut session, number(&inputs["processed"]));
    let filtered = do_(&mut session, Op::Filter { keep: counts(&inputs["keep"]) });
    assert_eq!(
        filtered.state.map(|s| s.offsets.into_iter().map(i64::from).collect()),
        Some(ints(&want["offsetsAtFilter"]))
    );
    same_state("fp-1", &do_(&mut session, Op::Finalize {}), &want["final"], None);
    assert!(do_(&mut session, Op::Finalize {}).ops.is_empty(), "a second finalize does nothing");

    let mut session = Session::new(Kind::Full);
    let (inputs, want) = (&all[1]["inputs"], &all[1]["expected"]);
    do_(&mut session, Op::Empty { rows: 2 });
    for (part, columns) in [(inputs, number(&inputs["processed"])), (&inputs["second"], 7)] {
        do_(
            &mut session,
            Op::Prepare {
                lengths: counts(&part["lengths"]),
                left_padding: Vec::new(),
                right_padding: counts(&part["rightPadding"]),
            },
        );
        prefill_chunk(&mut session, columns);
        let entry = do_(&mut session, Op::Finalize {});
        if part.get("processed").is_some() {
            assert!(entry.ops.is_empty());
            assert_eq!(
                entry.state.map(|s| s.offsets.into_iter().map(i64::from).collect()),
                Some(ints(&want["offsetsAfterFirst"]))
            );
        } else {
            same_state("fp-2", &entry, &want["final"], None);
        }
    }

    let mut session = Session::new(Kind::Full);
    let (inputs, want) = (&all[2]["inputs"], &all[2]["expected"]);
    merge(&mut session, vec![run(0, 0, 7), run(1000, 0, 7)]);
    do_(
        &mut session,
        Op::Prepare {
            lengths: counts(&inputs["lengths"]),
            left_padding: Vec::new(),
            right_padding: counts(&inputs["rightPadding"]),
        },
    );
    let entry = do_(&mut session, Op::Finalize {});
    assert!(entry.ops.is_empty());
    assert_eq!(entry.state.map(|s| s.offsets.into_iter().map(i64::from).collect()), Some(ints(&want["offsets"])));
}

/// What a donor of the group is, in upstream's names.
fn donor(session: &mut Session) -> Value {
    let entry = do_(session, Op::Donor {});
    serde_json::json!({"offsets": entry.offsets, "starts": entry.starts, "ends": entry.ends, "width": entry.width})
}

/// Upstream's tests speak of layouts that are not ours: rows whose numbers are stored in another precision, packed at once or
/// later (a delayed conversion). What they say of columns holds of full attention all the same, and is tested here; when rows
/// are converted, and from which position on they may be reused, is no matter of this crate.
#[test]
fn donors() {
    let all = cases("donor", 4);
    for case in &all[..2] {
        let (inputs, want, id) = (&case["inputs"], &case["expected"], case["id"].as_str().unwrap_or("?"));
        let mut session = ring(number(&inputs["maxSize"]) as u32);
        do_(&mut session, Op::Empty { rows: 2 });
        let (lengths, right_padding) = (counts(&inputs["lengths"]), counts(&inputs["rightPadding"]));
        do_(&mut session, Op::Prepare { lengths, left_padding: Vec::new(), right_padding });
        prefill_chunk(&mut session, number(&inputs["columns"]));
        let got = donor(&mut session);
        for field in ["offsets", "starts", "ends", "width"] {
            assert_eq!(got[field], want[field], "{id} {field}");
        }
        let valid = |row: usize| (number(&got["starts"][row])..number(&got["ends"][row])).collect::<Vec<_>>();
        assert_eq!(valid(0), ints(&want["visibleColumnsRow0"]), "{id}");
        assert_eq!(valid(1), ints(&want["visibleColumnsRow1"]), "{id}");
    }

    let (inputs, want) = (&all[2]["inputs"], &all[2]["expected"]);
    let mut session = Session::new(Kind::Full);
    do_(&mut session, Op::Empty { rows: 2 });
    let (lengths, right_padding) = (counts(&inputs["lengths"]), counts(&inputs["rightPadding"]));
    do_(&mut session, Op::Prepare { lengths, left_padding: Vec::new(), right_padding });
    prefill_chunk(&mut session, 5);
    let got = donor(&mut session);
    for field in ["offsets", "starts", "ends"] {
        assert_eq!(got[field], want["beforeFinalize"][field], "{field}");
    }
    do_(&mut session, Op::Finalize {});
    let filtered = do_(&mut session, Op::Filter { keep: counts(&inputs["filter"]) });
    same_state("do-packed", &filtered, &want["afterFilter"], None);
    do_(&mut session, Op::RoundBegin {});
    let n = number(&inputs["append"]);
    do_(&mut session, Op::Append { tokens: vec![run(1000, 5, 5 + n), run(0, 3, 3 + n)] });
    do_(&mut session, Op::RoundRollback { keep: Keep::Each(counts(&inputs["keep"])) });
    let got = donor(&mut session);
    assert_eq!(got, want["donor"]);
    let positions: Vec<i64> = ints(&got["offsets"]).into_iter().map(|next| next - 1).collect();
    assert_eq!(positions, ints(&want["assistantPositions"]));

    // A group that stands amid a padded prefill, wherever it came from.
    let (inputs, want) = (&all[3]["inputs"], &all[3]["expected"]);
    let left_pad = counts(&inputs["externalLeftPad"]);
    let written = |row: usize| number(&inputs["rows"][row]["columns"]) - number(&inputs["rows"][row]["left"]);
    let state = AdoptState {
        offsets: (0..2).map(|row| written(row) as i32).collect(),
        left_pad: left_pad.iter().map(|&pad| pad as i32).collect(),
        prefill_ends: Some(ints(&want["offsets"]).into_iter().map(|end| end as i32).collect()),
        ..AdoptState::default()
    };
    let cell = |row: usize, column: i64| {
        let at = column - i64::from(left_pad[row]);
        if (0..number(&want["offsets"][row])).contains(&at) { 1 + at as u64 } else { 0 }
    };
    let cells = (0..2).map(|row| (0..number(&inputs["width"])).map(|column| cell(row, column)).collect()).collect();
    let mut session = Session::new(Kind::Full);
    do_(&mut session, Op::Adopt { state, cells });
    let got = donor(&mut session);
    assert_eq!(got["width"], inputs["width"]);
    for field in ["offsets", "starts", "ends"] {
        assert_eq!(got[field], want[field], "do-full {field}");
    }
}

/// A drafter that reads two layers and a window smaller than theirs: after each round its keys are the newest tokens, by its
/// own window, and its query stands where the newest of them does.
#[test]
fn a_drafter_reads_the_newest_tokens() {
    for lengths in [[2, 7], [11, 19]] {
        for (kind, limit) in [(Kind::Full, u32::MAX), (Kind::Ring(Window::of(8)), 8), (Kind::Ring(Window::of(8)), 3)] {
            let mut session = Session::new(kind);
            let mut rows: Vec<Vec<u64>> = (0..2).map(|row| run(row as u64 * 1000, 0, lengths[row])).collect();
            merge(&mut session, rows.clone());
            for round in 0..5 {
                do_(&mut session, Op::RoundBegin {});
                // Rejected tokens differ from those that take their positions later.
                let tokens: Vec<Vec<u64>> = (0..2).map(|row| run(10_000 + round * 100 + row * 10, 0, 4)).collect();
                do_(&mut session, Op::Append { tokens: tokens.clone() });
                do_(&mut session, Op::RoundRollback { keep: Keep::Each(vec![1, 3]) });
                for ((row, tokens), keep) in rows.iter_mut().zip(&tokens).zip([1, 3]) {
                    row.extend(&tokens[..keep]);
                }
                let group = session.group().expect("a group");
                let capture = group.layout.donor();
                let copy =
                    group.grid.clone().run(&capture.ops, Inputs { incoming: &[], sources: &[] }).expect("it fits");
                for (row, all) in rows.iter().enumerate() {
                    assert_eq!(capture.donor.offsets[row], Pos(all.len() as i32));
                    let columns = capture.donor.recent(row, limit);
                    let read = &copy[row][columns.from as usize..columns.to as usize];
                    assert_eq!(read, &all[all.len().saturating_sub(limit as usize)..], "{kind:?} {lengths:?} {round}");
                }
            }
        }
    }
}

#[test]
fn padded_prefill_oracle() {
    for case in cases("padded-prefill-oracle", 35) {
        let (inputs, want, id) = (&case["inputs"], &case["expected"], case["id"].as_str().unwrap_or("?"));
        let window = inputs["maxSize"].as_i64();
        let mut session = match window {
            Some(w) => ring(w as u32),
            None => Session::new(Kind::Full),
        };
        let right = counts(&inputs["rightPadding"]);
        do_(&mut session, Op::Empty { rows: right.len() as u32 });
        let prefix = number(&inputs["prefixTokens"]);
        if prefix > 0 {
            let entry = do_(
                &mut session,
                Op::Append { tokens: (0..right.len() as u64).map(|row| run(row * 1000, 0, prefix)).collect() },
            );
            same_state(id, &entry, &want["afterPrefix"], window);
        }
        let left = counts(&inputs["leftPadding"]);
        // Upstream's lengths include the left padding, and its right padding what was never processed.
        let pad = |row: usize| left.get(row).copied().unwrap_or(0);
        let lengths = counts(&inputs["lengths"]).iter().enumerate().map(|(row, &n)| n - pad(row)).collect();
        let entry = do_(&mut session, Op::Prepare { lengths, left_padding: left.clone(), right_padding: right });
        let chunks = want["chunks"].as_array().expect("chunks");
        let mut active = 0;
        assert_eq!(
            ints(&serde_json::to_value(&entry.state).expect("JSON")["offsets"]),
            ints(&want["afterPrepare"]["offsets"]),
            "{id}"
        );
        if want["prefillEnds"].is_array() {
            let ends = entry.state.and_then(|s| s.prefill_ends).unwrap_or_default();
            assert_eq!(ends.into_iter().map(i64::from).collect::<Vec<_>>(), ints(&want["prefillEnds"]), "{id}");
        }
        for chunk in chunks {
            let entry = prefill_chunk(&mut session, number(&chunk["count"]));
            active = entry.fetched.as_ref().map_or(0, |f| f[0].len() as i64);
            assert_eq!(active, number(&chunk["columnsReturned"]), "{id}");
            same_state(id, &entry, &chunk["after"], window);
            let layout = &session.group().expect("a group").layout;
            let valid: Vec<i64> =
                layout.offsets().iter().enumerate().map(|(r, &o)| layout.phase().valid(r, o).0.into()).collect();
            assert_eq!(valid, ints(&chunk["valid"]), "{id}");
        }
        if inputs["retireKeep"].is_array() {
            do_(&mut session, Op::Filter { keep: counts(&inputs["retireKeep"]) });
        }
        same_state(id, &do_(&mut session, Op::Finalize {}), &want["final"], window);
        for step in want["decode"].as_array().expect("decode steps") {
            let offsets = session.group().expect("a group").layout.offsets().to_vec();
            let tokens =
                offsets.iter().zip(0..).map(|(o, row)| run(row * 1000, o.0.into(), i64::from(o.0) + 1)).collect();
            let entry = do_(&mut session, Op::Append { tokens });
            same_state(id, &entry, &step["after"], window);
            assert_eq!(
                entry.fetched.as_ref().map_or(0, |f| f[0].len() as i64),
                number(&step["columnsReturned"]),
                "{id}"
            );
            if step["mask"].is_null() {
                assert!(mask_bits(&entry).iter().flatten().flatten().all(|&bit| bit == 1), "{id}");
            } else {
                assert_eq!(mask_bits(&entry), line_bits(&step["mask"]), "{id}");
            }
        }
        assert!(active > 0, "{id}");
    }
}

#[test]
fn hazard() {
    let all = cases("hazard", 2);
    // A row that finished a whole chunk before its cohort: six columns of padding, not three.
    let (inputs, want) = (&all[0]["inputs"], &all[0]["expected"]["desired"]);
    let mut session = ring(number(&inputs["maxSize"]) as u32);
    do_(&mut session, Op::Empty { rows: 2 });
    do_(
        &mut session,
        Op::Prepare {
            lengths: counts(&inputs["lengths"]),
            left_padding: Vec::new(),
            right_padding: counts(&inputs["rightPadding"]),
        },
    );
    for n in ints(&inputs["chunks"]) {
        prefill_chunk(&mut session, n);
    }
    let entry = do_(&mut session, Op::Finalize {});
    assert_eq!(i64::from(entry.state.expect("a state").left_pad[0]), number(&want["row0LeadingPadding"]));
    let row = do_(&mut session, Op::Extract { row: 0, limit: None, name: None });
    assert_eq!(positions(&row.tokens.expect("tokens"), 0), ints(&want["row0LivePositions"]));

    // A rollback whose padding had become negative: the rejected columns count in full.
    let (inputs, want) = (&all[1]["inputs"], &all[1]["expected"]);
    let mut session = ring(3);
    merge(&mut session, vec![run(1000, 0, 8), run(2000, 0, 1)]);
    for i in 0..2 {
        do_(&mut session, Op::Append { tokens: vec![run(1000, 8 + i, 9 + i), run(2000, 1 + i, 2 + i)] });
    }
    do_(&mut session, Op::RoundBegin {});
    let block = do_(&mut session, Op::Append { tokens: vec![run(1000, 10, 14), run(2000, 3, 7)] });
    same_state("hz-2", &block, &inputs["snapshotAfterBlock"], Some(3));
    let entry = do_(&mut session, Op::RoundRollback { keep: Keep::Each(counts(&inputs["keep"])) });
    assert_eq!(
        entry.state.expect("a state").left_pad.into_iter().map(i64::from).collect::<Vec<_>>(),
        ints(&want["trueLeadingJunk"])
    );
    let cells: Vec<Vec<i64>> = session
        .group()
        .expect("a group")
        .grid
        .rows()
        .iter()
        .map(|row| row.iter().map(|&t| t as i64 - 1).collect())
        .collect();
    assert_eq!(cells, want["columnsAfterRoll"].as_array().into_iter().flatten().map(ints).collect::<Vec<_>>());
    let windows: Vec<Vec<i64>> =
        entry.visible.iter().flatten().map(|row| row.iter().map(|&t| t as i64 - 1).collect()).collect();
    assert_eq!(windows, want["newestWindows"].as_array().into_iter().flatten().map(ints).collect::<Vec<_>>());
}
