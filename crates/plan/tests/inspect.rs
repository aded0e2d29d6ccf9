//! What a page draws, on inputs small enough to check by hand.

use annulus_plan::Columns;
use annulus_plan::inspect::{CellKind, Frame, Inspection, Options, inspect};

fn upstream() -> Options {
    Options { upstream: true, ..Options::default() }
}

fn line(cache: &str, ops: &str) -> String {
    format!(r#"{{"id": "t", "scenario": {{"cache": {cache}, "ops": [{ops}]}}}}"#)
}

/// The invariants that do not hold, each with the place.
fn broken(frame: &Frame) -> Vec<(&'static str, &str)> {
    let broken = frame.invariants.iter().filter(|i| !i.holds);
    broken.map(|i| (i.name, i.broken.as_deref().unwrap_or_default())).collect()
}

/// W=3, prefills 1 and 3, one decode step, then segments of 1 and 2 tokens: the report BR-01.
const LOST_KEY: &str = r#"{"op": "merge", "rows": [[1000], [2000, 2001, 2002]]},
    {"op": "append", "tokens": [[1001], [2003]]},
    {"op": "prepare", "lengths": [1, 2], "right_padding": [1, 0]},
    {"op": "append", "tokens": [[1002, 0], [2004, 2005]]}"#;

#[test]
fn br_01_names_the_query_and_the_key_it_lost() {
    let text = line(r#"{"kind": "rotating", "max_size": 3}"#, LOST_KEY);
    let right = inspect(&text, Options::default());
    assert_eq!(broken(&right.frames[3]), []);
    let wrong = inspect(&text, upstream());
    assert_eq!(broken(&wrong.frames[3]), [("definition", "row 0 at position 2: does not see 0")]);
    let query = &wrong.frames[3].queries[0][0];
    assert_eq!((query.expected.as_slice(), query.seen.as_slice()), ([0, 1, 2].as_slice(), [1, 2].as_slice()));
    assert_eq!((query.hidden.as_slice(), query.wrong.as_slice()), ([0].as_slice(), [].as_slice()));
}

#[test]
fn br_02_upstream_refuses_a_last_chunk_of_one_column() {
    let ops = r#"{"op": "empty", "rows": 2}, {"op": "prepare", "lengths": [5, 1], "right_padding": [0, 4]},
        {"op": "append", "tokens": [[1000, 1001, 1002, 1003], [2000, 0, 0, 0]]}, {"op": "append", "tokens": [[1004], [0]]},
        {"op": "finalize"}"#;
    let text = line(r#"{"kind": "rotating", "max_size": 8}"#, ops);
    let ends = |i: &Inspection| (i.frames.len(), i.error.as_ref().and_then(|e| e.step));
    assert_eq!(ends(&inspect(&text, Options::default())), (5, None));
    assert_eq!(ends(&inspect(&text, upstream())), (3, Some(3)));
}

/// W=4, prompts of 6 and 12 in chunks of 6: the first row is done a whole chunk early. Of its tokens the last W-1 are left, and
/// upstream takes one column more for a token.
#[test]
fn an_understated_padding_is_named_where_a_copy_would_take_it() {
    let ops = r#"{"op": "empty", "rows": 2}, {"op": "prepare", "lengths": [6, 12], "right_padding": [6, 0]},
        {"op": "append", "tokens": [[1000, 1001, 1002, 1003, 1004, 1005], [2000, 2001, 2002, 2003, 2004, 2005]]},
        {"op": "append", "tokens": [[0, 0, 0, 0, 0, 0], [2006, 2007, 2008, 2009, 2010, 2011]]},
        {"op": "finalize"}, {"op": "extract", "row": 0}, {"op": "donor"}"#;
    let text = line(r#"{"kind": "rotating", "max_size": 4}"#, ops);
    let (right, wrong) = (inspect(&text, Options::default()), inspect(&text, upstream()));
    assert_eq!(broken(&right.frames[4]), []);
    assert_eq!(right.frames[5].entry.tokens.as_deref(), Some([1003, 1004, 1005].as_slice()));
    let place = "row 0, column 5, which holds none of its tokens";
    assert_eq!(broken(&wrong.frames[4]), [("held", place)]);
    assert_eq!(wrong.frames[4].rows[0].cells[5].kind, CellKind::LeftPadding);
    // A donor would read the same column.
    let lent = |inspection: &Inspection| inspection.frames[6].donor.as_ref().expect("a donor").rows[0].clone();
    assert_eq!(broken(&right.frames[6]), []);
    assert_eq!((lent(&right).positions, lent(&right).columns), (vec![[3, 6]], vec![Columns::new(6, 9)]));
    assert_eq!((lent(&wrong).positions, lent(&wrong).columns), (vec![[2, 6]], vec![Columns::new(5, 9)]));
    assert_eq!(broken(&wrong.frames[6]), [("held", place)]);
}

/// W=3, turned: the copy is in the order of time, so its first column is not the planes' first.
#[test]
fn a_donor_names_the_columns_it_was_copied_from() {
    let ops = r#"{"op": "merge", "rows": [[1000, 1001, 1002], [2000]]}, {"op": "append", "tokens": [[1003], [2001]]},
        {"op": "donor"}"#;
    let frames = inspect(&line(r#"{"kind": "rotating", "max_size": 3}"#, ops), Options::default()).frames;
    let donor = frames[2].donor.as_ref().expect("a donor");
    assert_eq!((donor.width, donor.pinned, frames[1].donor.as_ref()), (3, 0, None));
    let columns = |list: &[[u32; 2]]| list.iter().map(|&c| Columns::from(c)).collect::<Vec<_>>();
    assert_eq!((donor.rows[0].offset, donor.rows[0].positions.as_slice()), (4, &[[1, 4]][..]));
    assert_eq!((&donor.rows[0].valid, &donor.rows[0].columns), (&columns(&[[0, 3]]), &columns(&[[1, 3], [0, 1]])));
    assert_eq!((&donor.rows[1].valid, &donor.rows[1].columns), (&columns(&[[1, 3]]), &columns(&[[2, 3], [0, 1]])));
    assert_eq!(donor.rows[1].words, "row 1 lends positions 0-1, in columns 1 to 2 of the copy");
    assert_eq!(frames[2].moved, 6);
    assert_eq!(frames[2].ops[0].words, "copy columns 1 to 2, then column 0 of every row out");
}

/// After a block the ring is wider than its window, and inside a round every append is a block: no column is next.
#[test]
fn a_write_head_is_shown_only_where_the_next_token_is_written_in_place() {
    let ops = r#"{"op": "merge", "rows": [[1000, 1001]]}, {"op": "append", "tokens": [[1002]]},
        {"op": "append", "tokens": [[1003, 1004]]}, {"op": "append", "tokens": [[1005]]}, {"op": "round_begin"}"#;
    let text = line(r#"{"kind": "rotating", "max_size": 2}"#, ops);
    let heads: Vec<Option<u32>> = inspect(&text, Options::default()).frames.iter().map(|f| f.planes.head).collect();
    assert_eq!(heads, [Some(0), Some(1), None, Some(1), None]);
}

#[test]
fn nothing_is_broken_in_any_recorded_run() {
    for text in [
        include_str!("cases/mlx-lm-scenarios.jsonl"),
        include_str!("cases/round-scenarios.jsonl"),
        include_str!("cases/sink-scenarios.jsonl"),
    ] {
        for line in text.lines() {
            let inspection = inspect(line, Options::default());
            assert_eq!(inspection.error, None);
            for (step, frame) in inspection.frames.iter().enumerate() {
                assert_eq!(broken(frame), [], "{} step {step}", inspection.id);
            }
        }
    }
}
