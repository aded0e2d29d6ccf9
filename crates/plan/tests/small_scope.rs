//! Everything in a small scope: two rows, windows of 1 to 3, and every sequence of six operations out of sixteen, depth first
//! over shared prefixes; less deep with sinks, under full attention, and from empty rows. An operation that is impossible must
//! be refused and change nothing; every other one must keep the laws. `SMALL_SCOPE` sets the depth.

use crate::common::{Broken, Roll, Subject};
use annulus_plan::scenario::{JoinRow, Keep, Op};
use annulus_plan::session::Session;
use annulus_plan::{Kind, Phase, Window};

/// How deep the search goes: six operations, or what `SMALL_SCOPE` says.
fn depth() -> u32 {
    std::env::var("SMALL_SCOPE").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

const ALPHABET: u32 = 16;

#[derive(Default)]
struct Count {
    sequences: u64,
    operations: u64,
    refused: u64,
}

/// The instance of letter `letter` in the state the group is in; none where it would be another letter's again.
fn instance(subject: &mut Subject, letter: u32) -> Option<Op> {
    let layout = subject.layout().clone();
    let rows = layout.rows();
    let phase = layout.phase().clone();
    let prefill = matches!(phase, Phase::Prefill(_));
    let mut write = |n: u32, ragged: bool| {
        let mut tokens: Vec<Vec<u64>> = (0..rows).map(|_| subject.fresh(n)).collect();
        for (row, line) in tokens.iter_mut().enumerate() {
            if let Phase::Prefill(p) = &phase {
                let at = layout.offsets()[row].wide();
                line.iter_mut().zip(at..).filter(|(_, at)| p.is_padding(row, *at)).for_each(|(t, _)| *t = 0);
            }
        }
        if ragged {
            tokens.last_mut()?.last_mut().map(|t| *t = 0)?;
        }
        Some(Op::Append { tokens })
    };
    let list = |one: u32, others: u32| (0..rows).map(|row| if row == 0 { one } else { others }).collect::<Vec<_>>();
    Some(match letter {
        0 => write(1, false)?,
        1 => write(2, false)?,
        2 if !prefill => write(2, true)?,
        3 => Op::RoundBegin {},
        4 => Op::RoundCommit {},
        5 => Op::RoundRollback { keep: Keep::All(0) },
        6 => Op::RoundRollback { keep: Keep::Each(list(1, 0)) },
        7 => Op::RoundRollback { keep: Keep::Each(list(1, 1)) },
        8 => Op::Prepare { lengths: list(1, 2), left_padding: Vec::new(), right_padding: list(1, 0) },
        9 => Op::Prepare { lengths: list(2, 1), left_padding: list(0, 1), right_padding: Vec::new() },
        10 => Op::Finalize {},
        11 if rows == 2 => Op::Filter { keep: vec![1, 0] },
        12 if rows > 1 => Op::Filter { keep: vec![rows as u32 - 1] },
        13 if rows < 3 => Op::Extend { rows: vec![JoinRow::Tokens(subject.fresh(2))] },
        14 => Op::Trim { n: 1 },
        _ => return None,
    })
}

fn search(subject: &Subject, left: u32, count: &mut Count) -> Result<(), Broken> {
    if left == 0 {
        count.sequences += 1;
        return Ok(());
    }
    for letter in 0..ALPHABET {
        let mut next = subject.clone();
        if letter == 15 {
            // Every row leaves and comes back.
            if *subject.layout().phase() == Phase::Decode {
                count.operations += 1;
                next.recycle(&mut Roll::of(&[1])).map_err(|why| format!("recycle: {why}"))?;
                search(&next, left - 1, count)?;
            }
            continue;
        }
        let Some(op) = instance(&mut next, letter) else { continue };
        count.operations += 1;
        let Ok(done) = next.session.step(&op) else {
            count.refused += 1;
            if next.session != subject.session {
                return Err(format!("a refused {} changed something", op.name()));
            }
            continue;
        };
        next.laws(&op, &done).map_err(|why| format!("{op:?}: {why}"))?;
        search(&next, left - 1, count).map_err(|why| format!("{}; {why}", op.name()))?;
    }
    Ok(())
}

/// Searches groups of one kind, from two rows with tokens and from two without.
fn scope(kinds: impl IntoIterator<Item = Kind>, depth: u32) {
    let mut count = Count::default();
    for kind in kinds {
        for (start, depth) in [(vec![2, 1], depth), (vec![0, 0], depth - 1)] {
            let mut subject = Subject::new(kind, Session::new(kind));
            let rows = start.iter().map(|&n| JoinRow::Tokens(subject.fresh(n))).collect();
            subject.obey(&Op::Merge { rows }).expect("rows can be merged");
            if let Err(why) = search(&subject, depth, &mut count) {
                panic!("{kind:?} from {start:?}: {why}");
            }
        }
    }
    let Count { sequences, operations, refused } = count;
    println!(
        "{sequences} sequences of up to {depth} operations out of {ALPHABET}: {operations} run, {refused} refused"
    );
    assert!(sequences > 0);
}

#[test]
fn window_of_1() {
    scope([Kind::Ring(Window::of(1))], depth());
}

#[test]
fn window_of_2() {
    scope([Kind::Ring(Window::of(2))], depth());
}

#[test]
fn window_of_3() {
    scope([Kind::Ring(Window::of(3))], depth());
}

#[test]
fn sinks() {
    let window = |size, sinks| Kind::Ring(Window { size, sinks });
    scope([window(2, 1), window(3, 1), window(3, 2)], depth() - 2);
}

#[test]
fn full_attention() {
    scope([Kind::Full], depth() - 1);
}
