//! What a cache tells of its moves, played again by the planner's replay: whoever listens from the start, comes late, or loses
//! lines ends with the rows that the definition gives.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use annulus_engine::cache::Format;
use annulus_engine::geometry::{Geometry, Heard, Listener};
use annulus_plan::{Kind, Window, replay};
use annulus_tests::pair::Pair;
use serde_json::Value;

/// Keeps what it hears.
#[derive(Clone, Default)]
struct Ear {
    lines: Arc<Mutex<Vec<String>>>,
    /// Loses so many lines after as many heard; 0 loses none.
    loses: usize,
    heard: usize,
}

impl Listener for Ear {
    fn take(&mut self, line: &str) -> Heard {
        assert!(!line.contains('\n'));
        self.heard += 1;
        if self.loses > 0 && self.heard / self.loses % 2 == 1 {
            return Heard::Lost;
        }
        self.lines.lock().unwrap().push(line.to_owned());
        Heard::Yes
    }
}

impl Ear {
    fn losing(loses: usize) -> Self {
        Self { loses, ..Self::default() }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The replay of each group's layout.
    fn replayed(&self) -> Vec<Value> {
        let outcomes = replay(&self.lines().join("\n"));
        let outcomes: Vec<Value> = outcomes.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for outcome in &outcomes {
            assert!(outcome.get("error").is_none(), "{outcome}\n{}", self.lines().join("\n"));
        }
        outcomes
    }
}

fn kinds() -> [Kind; 6] {
    let ring = |size, sinks| Kind::Ring(Window { size, sinks });
    [Kind::Full, ring(1, 0), ring(3, 0), ring(8, 0), ring(6, 2), ring(16, 4)]
}

/// What the newest query of each row sees, by the log, must be as many tokens as the definition says, in the order of time, and
/// no row's token another's.
fn check(pair: &Pair, ear: &Ear) {
    let outcomes = ear.replayed();
    let last = outcomes.last().unwrap()["steps"].as_array().unwrap().last().unwrap();
    let sees = last["sees"].as_array().unwrap_or_else(|| panic!("the last step is no append: {last}"));
    assert_eq!(sees.len(), pair.rows.len());
    let mut all = BTreeSet::new();
    for (row, history) in sees.iter().zip(&pair.rows) {
        let newest = row.as_array().unwrap().last().unwrap();
        let tags: Vec<u64> = newest.as_array().unwrap().iter().map(|tag| tag.as_u64().unwrap()).collect();
        let window = pair.sees().window.unwrap_or(usize::MAX);
        assert_eq!(tags.len(), history.keys.len().min(window), "{tags:?}");
        assert!(tags.windows(2).all(|pair| pair[0] < pair[1]), "{tags:?}\n{}", ear.lines().join("\n"));
        for tag in tags {
            assert!(all.insert(tag), "{tag} stands in two rows");
        }
    }
}

#[test]
fn lives_are_told_in_full() {
    for kind in kinds() {
        for seed in 0..6 {
            let geometry = Arc::new(Geometry::default());
            let whole = Ear::default();
            geometry.listen(Box::new(whole.clone()));
            let mut pair = Pair::new(kind, Format::Plain, 1 + seed as usize % 4, seed);
            pair.record(&geometry);
            pair.plain_append(3);
            pair.live(30);
            pair.plain_append(1);
            check(&pair, &whole);
            assert!(whole.lines().len() > 30);
            // Who hears all from the first moment needs to be told where a group stands only when stored rows join.
            let adopted = whole.lines().iter().filter(|line| line.contains("adopt")).count();
            assert!(adopted < whole.lines().len() / 2);
        }
    }
}

#[test]
fn late_and_forgetful_listeners_catch_up() {
    for kind in kinds() {
        for seed in 0..6 {
            let geometry = Arc::new(Geometry::default());
            let forgetful: Vec<Ear> = [2, 3, 7].map(Ear::losing).to_vec();
            forgetful.iter().for_each(|ear| geometry.listen(Box::new(ear.clone())));
            let mut pair = Pair::new(kind, Format::Plain, 1 + seed as usize % 4, 100 + seed);
            pair.record(&geometry);
            let late = Ear::default();
            pair.plain_append(3);
            pair.live(12);
            geometry.listen(Box::new(late.clone()));
            pair.live(12);
            pair.plain_append(1);
            check(&pair, &late);
            assert!(late.lines()[0].contains("layouts"));
            forgetful.iter().for_each(|ear| drop(ear.replayed()));
        }
    }
}

/// The first listener comes when the cache already holds tokens that nobody has numbered.
#[test]
fn a_cache_that_nobody_followed_is_told_of() {
    for kind in kinds() {
        let geometry = Arc::new(Geometry::default());
        let mut pair = Pair::new(kind, Format::Plain, 2, 5);
        pair.record(&geometry);
        pair.plain_append(4);
        pair.live(20);
        let ear = Ear::default();
        geometry.listen(Box::new(ear.clone()));
        pair.plain_append(1);
        pair.plain_append(2);
        check(&pair, &ear);
        assert_eq!(ear.lines().len(), 3, "the layouts, where the group stands, and one append");
    }
}

/// Inside a round no `adopt` can stand: a listener who comes then hears of the group when the round has ended.
#[test]
fn rounds_are_not_entered_half_way() {
    let geometry = Arc::new(Geometry::default());
    let mut pair = Pair::new(Kind::Ring(Window::of(4)), Format::Plain, 2, 5);
    pair.record(&geometry);
    pair.plain_append(6);
    pair.cache.round_begin().unwrap();
    let ear = Ear::default();
    geometry.listen(Box::new(ear.clone()));
    pair.plain_append(2);
    assert_eq!(ear.lines(), Vec::<String>::new());
    pair.cache.round_commit().unwrap();
    pair.plain_append(1);
    check(&pair, &ear);
}

struct Deserter;

impl Listener for Deserter {
    fn take(&mut self, _: &str) -> Heard {
        Heard::Gone
    }
}

#[test]
fn who_has_gone_is_asked_no_more() {
    let geometry = Arc::new(Geometry::default());
    geometry.listen(Box::new(Deserter));
    assert!(geometry.is_followed());
    let mut pair = Pair::new(Kind::Full, Format::Plain, 1, 5);
    pair.record(&geometry);
    assert!(!geometry.is_followed());
    pair.plain_append(1);
}
