//! Laws, each stated before the code that checks it, on random groups of both layouts.

use crate::common::{Dice, live};
use annulus_plan::Entry;
use annulus_plan::scenario::{JoinRow, Keep, Op};
use annulus_plan::session::Session;
use annulus_plan::{Col, ColumnOp, Growth, Kind, Layout, Mask, Positions, Ring, Source, Window};
use proptest::collection::vec;
use proptest::prelude::*;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Full attention, or a window of 1 to 40 with any number of sinks.
fn kind() -> impl Strategy<Value = Kind> {
    let window = (1u32..=40).prop_flat_map(|size| {
        (Just(size), prop_oneof![2 => Just(0), 1 => 0..size])
            .prop_map(|(size, sinks)| Kind::Ring(Window { size, sinks }))
    });
    prop_oneof![1 => Just(Kind::Full), 3 => window]
}

fn history() -> impl Strategy<Value = Vec<Dice>> {
    vec(vec(any::<u8>(), 32), 2..=61)
}

/// A group of rows with distinct tags, prefilled alone.
fn group(kind: Kind, lengths: &[u32]) -> Session {
    let mut session = Session::new(kind);
    let rows = lengths.iter().zip(0..).map(|(&n, row)| JoinRow::Tokens(tags(row, 0, n))).collect();
    session.step(&Op::Merge { rows }).expect("rows can be merged");
    session
}

/// Tags of `n` tokens of a row: unlike any others of it when `from` differs.
fn tags(row: u64, from: u32, n: u32) -> Vec<u64> {
    (0..n).map(|i| 1 + row * 100_000 + u64::from(from + i)).collect()
}

fn append(session: &mut Session, tokens: Vec<Vec<u64>>) -> Entry {
    session.step(&Op::Append { tokens }).expect("an append").entry
}

proptest! {
    #![proptest_config(config(120))]

    /// After any history: every query sees what the definition says, masks are as wide as the fetch, rows hold what later
    /// queries need, a donor lends what the newest query sees, a refused operation changes nothing, filter commutes with append,
    /// and rows that leave and come back go on as if they had stayed.
    #[test]
    fn every_history_keeps_the_laws(history in history()) {
        if let Err(why) = live(&history, |session| session) {
            prop_assert!(false, "{why}");
        }
    }

    /// Any rollback equals never having written the rejected tokens: each row goes on as a row that was only ever given what it
    /// kept.
    #[test]
    fn a_rollback_is_as_if_the_rejected_were_never_written(
        kind in kind(),
        rows in vec((0u32..50, vec(0u32..6, 3), 0u32..100), 1..=8),
        decodes in 0u32..12,
        widths in vec(1u32..5, 3),
    ) {
        let lengths: Vec<u32> = rows.iter().map(|r| r.0).collect();
        let mut session = group(kind, &lengths);
        let mut kept: Vec<Vec<u64>> = lengths.iter().zip(0..).map(|(&n, row)| tags(row, 0, n)).collect();
        let mut at = 1000;
        let mut write = |session: &mut Session, n: u32, kept: &mut Vec<Vec<u64>>| {
            let tokens: Vec<Vec<u64>> = (0..kept.len() as u64).map(|row| tags(row, at, n)).collect();
            at += n;
            kept.iter_mut().zip(&tokens).for_each(|(all, new)| all.extend(new));
            append(session, tokens)
        };
        for _ in 0..decodes {
            write(&mut session, 1, &mut kept);
        }
        session.step(&Op::RoundBegin {}).expect("a round");
        let before: Vec<usize> = kept.iter().map(Vec::len).collect();
        for &n in &widths {
            write(&mut session, n, &mut kept);
        }
        let total: u32 = widths.iter().sum();
        let keep: Vec<u32> = rows.iter().map(|r| r.2 % (total + 1)).collect();
        kept.iter_mut().zip(&before).zip(&keep).for_each(|((all, &n), &k)| all.truncate(n + k as usize));
        session.step(&Op::RoundRollback { keep: Keep::Each(keep) }).expect("a rollback");

        let mut alone: Vec<Session> = Vec::new();
        for row in &kept {
            let mut solo = Session::new(kind);
            solo.step(&Op::Merge { rows: vec![JoinRow::Tokens(row.clone())] }).expect("a row");
            alone.push(solo);
        }
        for n in [1, 1, 3, 1] {
            let tokens: Vec<Vec<u64>> = (0..kept.len() as u64).map(|row| tags(row, at, n)).collect();
            at += n;
            let sees = append(&mut session, tokens.clone()).sees.expect("it sees");
            for ((solo, tokens), sees) in alone.iter_mut().zip(tokens).zip(sees) {
                prop_assert_eq!(append(solo, vec![tokens]).sees, Some(vec![sees]));
            }
        }
    }

    /// Extract, return, continue equals continue, for every row at once and into another company.
    #[test]
    fn rows_that_return_go_on(
        kind in kind(),
        lengths in vec(0u32..60, 1..=6),
        decodes in 0u32..50,
        stranger in 0u32..60,
    ) {
        let mut stay = group(kind, &lengths);
        let step = |session: &mut Session, at: u32, n: u32, rows: usize| {
            append(session, (0..rows as u64).map(|row| tags(row, at, n)).collect()).sees.expect("it sees")
        };
        for i in 0..decodes {
            step(&mut stay, 1000 + i, 1, lengths.len());
        }
        let mut moved = stay.clone();
        let mut names = Vec::new();
        for row in 0..lengths.len() as u32 {
            let name = format!("{row}");
            moved.step(&Op::Extract { row, limit: None, name: Some(name.clone()) }).expect("a row");
            names.push(JoinRow::Saved { from: name });
        }
        moved.restart();
        names.push(JoinRow::Tokens(tags(50, 0, stranger)));
        moved.step(&Op::Merge { rows: names }).expect("rows");
        for (i, n) in [1, 2, 1, 1, 4, 1].into_iter().enumerate() {
            let at = 2000 + 10 * i as u32;
            let seen = step(&mut stay, at, n, lengths.len());
            let also = step(&mut moved, at, n, lengths.len() + 1);
            prop_assert_eq!(&seen[..], &also[..lengths.len()]);
        }
    }

    /// The integers of a ring survive JSON, and a ring adopted from them plans the same steps.
    #[test]
    fn positions_survive(
        size in 1u32..=40,
        lengths in vec(0u32..60, 1..=8),
        appends in vec(1u32..4, 0..30),
    ) {
        let window = Window::of(size);
        let sources: Vec<Source> = lengths.iter().map(|&n| Source::whole(n)).collect();
        let mut ring = Ring::merge(window, Growth::default(), &sources).expect("rows").next;
        for &n in &appends {
            ring = ring.append(n).expect("an append").next;
        }
        let json = serde_json::to_string(&ring.positions()).expect("positions are JSON");
        let back: Positions = serde_json::from_str(&json).expect("positions from JSON");
        prop_assert_eq!(&back, &ring.positions());
        let again = Ring::adopt(window, Growth::default(), &back, ring.capacity()).expect("a state");
        for n in [1, 1, 3, 1] {
            prop_assert_eq!(again.append(n), ring.append(n));
        }
    }

    /// A steady decode step is one write in place: nothing moves, and once every row has filled its window there is no mask.
    #[test]
    fn steady_decode_moves_nothing(kind in kind(), lengths in vec(0u32..60, 1..=8), growth in 1u32..300) {
        let growth = Growth { step: growth, reserve: 2000 };
        let sources: Vec<Source> = lengths.iter().map(|&n| Source::whole(n)).collect();
        let mut group = Layout::merge(kind, growth, &sources).expect("rows").next;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        for i in 0..120u32 {
            let step = group.append(1).expect("an append");
            // After the first steps the planes have all their columns, pinned ones are written, and the ring has turned.
            if i > 60 && (kind != Kind::Full || step.ops.len() == 1) {
                prop_assert_eq!(step.moved, 0);
                prop_assert!(matches!(step.ops.as_slice(), [ColumnOp::Write { columns: 1, .. }]), "{:?}", step.ops);
                if matches!(kind, Kind::Ring(_)) {
                    prop_assert_eq!(&step.mask, &Mask::None);
                }
            }
            group = step.next;
        }
        let least = match kind {
            Kind::Full => longest + 120,
            Kind::Ring(window) => window.size,
        };
        prop_assert!(group.capacity() >= least);
    }
}

/// When every row ends in the same column a full append is one write, otherwise each row is written where it ends.
#[test]
fn full_attention_writes_once_where_ends_agree() {
    let rows = [Source::whole(3), Source::whole(1)];
    let group = Layout::merge(Kind::Full, Growth::default(), &rows).expect("rows").next;
    let step = group.append(2).expect("an append");
    assert_eq!(step.ops.last(), Some(&ColumnOp::Write { at: Col(3), columns: 2 }));
    let round = group.round_begin().expect("a round").next.append(2).expect("an append").next;
    let step = round.round_rollback(&[2, 0]).expect("a rollback").next.append(1).expect("an append");
    assert_eq!(step.ops, [ColumnOp::Scatter { starts: vec![Col(5), Col(3)], columns: 1 }]);
    assert_eq!(step.moved, 0);
}
