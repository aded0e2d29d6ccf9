//! Random histories of a group, and the laws that hold after each of their operations.
//!
//! A history is a list of dice rolls that are read against the state the group is in, so any list is a valid history, and a
//! shorter list is a simpler one: what a shrinker needs. Tags never repeat, so a token that was rejected and seen again is
//! caught even where it stands in the right place.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use annulus_plan::scenario::{JoinRow, Keep, Op};
use annulus_plan::session::{Done, Session};
use std::collections::BTreeMap;

use annulus_plan::{Capture, Columns, Growth, Inputs, Kind, Layout, Mask, Phase, Window};

/// Numbers that decide one operation.
pub type Dice = Vec<u8>;

/// Reads decisions off a list of bytes; zeros when it runs out.
pub struct Roll<'a>(&'a [u8], usize);

impl<'a> Roll<'a> {
    pub fn of(dice: &'a [u8]) -> Self {
        Self(dice, 0)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        let byte = u32::from(self.0.get(self.1).copied().unwrap_or(0));
        self.1 += 1;
        if n == 0 { 0 } else { byte % n }
    }
}

/// A group under test, and the source of its tags.
#[derive(Clone)]
pub struct Subject {
    pub session: Session,
    pub kind: Kind,
    tag: u64,
    joined: u32,
}

/// A law that an operation broke.
pub type Broken = String;

impl Subject {
    pub fn new(kind: Kind, session: Session) -> Self {
        Self { session, kind, tag: 0, joined: 0 }
    }

    pub fn fresh(&mut self, n: u32) -> Vec<u64> {
        (0..n).map(|_| self.tag()).collect()
    }

    fn tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    pub fn layout(&self) -> &Layout {
        &self.session.group().expect("the group was started").layout
    }

    /// Starts the group.
    pub fn start(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let rows = roll.below(4) + 1;
        let op = if roll.below(3) == 0 {
            Op::Empty { rows }
        } else {
            let rows = (0..rows).map(|_| {
                JoinRow::Tokens({
                    let n = roll.below(self.reach());
                    self.fresh(n)
                })
            });
            Op::Merge { rows: rows.collect() }
        };
        self.obey(&op)
    }

    /// How long a prompt is interesting: somewhat beyond the window.
    fn reach(&self) -> u32 {
        match self.kind {
            Kind::Full => 12,
            Kind::Ring(w) => w.size + w.size / 2 + 4,
        }
    }

    /// One operation that the dice choose among those that make sense now.
    pub fn act(&mut self, dice: &[u8]) -> Result<(), Broken> {
        let mut roll = Roll::of(dice);
        if roll.below(8) == 0 {
            self.donor()?;
        }
        let choice = roll.below(16);
        match self.layout().phase().clone() {
            Phase::Prefill(p) => match choice {
                0 => self.filter(&mut roll),
                1 => self.obey(&Op::Finalize {}),
                2 => self.nonsense(&mut roll),
                _ => match p.remaining.unwrap_or(0) {
                    0 => self.obey(&Op::Finalize {}),
                    left => {
                        let n = 1 + roll.below(left.min(9));
                        self.append(n, &mut roll)
                    }
                },
            },
            Phase::Round(_) => match choice {
                0 => self.filter(&mut roll),
                1 => self.nonsense(&mut roll),
                2..=8 => {
                    let n = 1 + roll.below(5);
                    self.append(n, &mut roll)
                }
                _ => self.end_round(&mut roll),
            },
            Phase::Decode => match choice {
                0 => self.filter(&mut roll),
                1 => self.extend(&mut roll),
                2 => self.recycle(&mut roll),
                3 => self.trim(&mut roll),
                4 | 5 => self.prepare(&mut roll),
                6..=8 => self.obey(&Op::RoundBegin {}),
                9 => self.nonsense(&mut roll),
                10 => self.rest(&mut roll),
                11 => {
                    let n = 1 + roll.below(7);
                    self.append(n, &mut roll)
                }
                _ => self.append(1, &mut roll),
            },
        }
    }

    /// Runs an operation that must succeed, and checks the laws.
    pub fn obey(&mut self, op: &Op) -> Result<(), Broken> {
        let done = self.session.step(op).map_err(|e| format!("refused: {e}"))?;
        self.laws(op, &done)
    }

    fn append(&mut self, n: u32, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let tokens = self.tokens(n, roll);
        if tokens.is_empty() {
            return Ok(());
        }
        if roll.below(8) == 0 && *self.layout().phase() == Phase::Decode {
            self.filter_commutes(&tokens, roll)?;
        }
        self.obey(&Op::Append { tokens })
    }

    /// Tokens for the next `n` columns, with padding where the phase has it.
    fn tokens(&mut self, n: u32, roll: &mut Roll<'_>) -> Vec<Vec<u64>> {
        let layout = self.layout().clone();
        let ragged = roll.below(2) == 0;
        let mut table = Vec::new();
        for (row, offset) in layout.offsets().iter().enumerate() {
            let mut line = self.fresh(n);
            match layout.phase() {
                Phase::Prefill(p) => {
                    for (i, cell) in line.iter_mut().enumerate() {
                        if p.is_padding(row, i64::from(offset.0) + i as i64) {
                            *cell = 0;
                        }
                    }
                }
                Phase::Round(r) => {
                    let ended = r.taken[row] < r.columns;
                    let real = if ended {
                        0
                    } else if ragged {
                        roll.below(n + 1)
                    } else {
                        n
                    };
                    line[real as usize..].fill(0);
                }
                Phase::Decode => {}
            }
            table.push(line);
        }
        table
    }

    fn filter(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let keep = self.some_rows(roll);
        self.obey(&Op::Filter { keep })
    }

    /// A selection of the rows, in some order; at least one unless there is none.
    fn some_rows(&self, roll: &mut Roll<'_>) -> Vec<u32> {
        let rows = self.layout().rows() as u32;
        let mut keep: Vec<u32> = (0..rows).filter(|_| roll.below(3) > 0).collect();
        if keep.is_empty() && rows > 0 {
            keep.push(roll.below(rows));
        }
        if roll.below(2) == 0 {
            keep.reverse();
        }
        keep
    }

    fn extend(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let room = 8u32.saturating_sub(self.layout().rows() as u32);
        let mut rows = Vec::new();
        for _ in 0..(1 + roll.below(2)).min(room) {
            let have = self.layout().rows() as u32;
            if have > 0 && roll.below(3) == 0 {
                let limit = (roll.below(3) == 0 && self.kind != Kind::Full)
                    .then(|| self.least_limit() + roll.below(self.reach()));
                rows.push(JoinRow::Saved { from: self.extract(roll.below(have), limit)? });
            } else {
                let n = roll.below(self.reach());
                rows.push(JoinRow::Tokens(self.fresh(n)));
            }
        }
        self.obey(&Op::Extend { rows })
    }

    fn least_limit(&self) -> u32 {
        match self.kind {
            Kind::Full => 0,
            Kind::Ring(w) => w.sinks,
        }
    }

    fn extract(&mut self, row: u32, limit: Option<u32>) -> Result<String, Broken> {
        self.joined += 1;
        let name = format!("row {}", self.joined);
        self.obey(&Op::Extract { row, limit, name: Some(name.clone()) })?;
        Ok(name)
    }

    /// Every row leaves and comes back into a new group, in some order or in theirs: from here on the old group's history must go on as if it had stayed.
    pub fn recycle(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let order = if roll.below(2) == 0 { self.some_rows(roll) } else { (0..self.layout().rows() as u32).collect() };
        let mut rows = Vec::new();
        for row in order {
            rows.push(JoinRow::Saved { from: self.extract(row, None)? });
        }
        self.session.restart();
        self.obey(&Op::Merge { rows })
    }

    fn trim(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let most = self.layout().offsets().iter().map(|o| o.0).min().unwrap_or(0).max(0) as u32;
        let n = roll.below(most.min(9) + 1);
        let turned = match self.layout() {
            Layout::Ring(ring) => ring.total() >= ring.window().size,
            Layout::Full(_) => false,
        };
        if turned { self.refuse(&Op::Trim { n }) } else { self.obey(&Op::Trim { n }) }
    }

    fn prepare(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let rows = self.layout().rows();
        let fresh = self.layout().offsets().iter().all(|o| o.0 == 0);
        let total = 1 + roll.below(self.reach());
        let (mut lengths, mut left_padding, mut right_padding) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rows {
            let left = if fresh { roll.below(total.min(6) + 1) } else { 0 };
            let length = roll.below(total - left + 1);
            lengths.push(length);
            left_padding.push(left);
            right_padding.push(total - left - length);
        }
        self.obey(&Op::Prepare { lengths, left_padding, right_padding })
    }

    fn end_round(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let Phase::Round(round) = self.layout().phase().clone() else { return Ok(()) };
        if roll.below(4) == 0 {
            let padded = round.taken.iter().any(|&n| n < round.columns);
            return if padded { self.refuse(&Op::RoundCommit {}) } else { self.obey(&Op::RoundCommit {}) };
        }
        let keep = round.taken.iter().map(|&n| roll.below(n + 1)).collect();
        self.obey(&Op::RoundRollback { keep: Keep::Each(keep) })
    }

    /// Law: to lend changes nothing, and says what the planner says.
    fn donor(&mut self) -> Result<(), Broken> {
        let before = self.session.group().cloned();
        let done = self.session.step(&Op::Donor {}).map_err(|e| format!("refused: {e}"))?;
        if self.session.group() != before.as_ref() {
            return Err("a donor changed the group".to_owned());
        }
        let Capture { ops, donor, moved } = self.layout().donor();
        let said = (done.entry.starts.as_ref(), done.entry.ends.as_ref(), done.entry.width);
        if said != (Some(&donor.starts), Some(&donor.ends), Some(donor.width)) {
            return Err(format!("a donor of {donor:?} is said to be {said:?}"));
        }
        if (done.ops, done.moved, done.donor) != (ops, moved, Some(donor)) {
            return Err("a donor is not the plan's".to_owned());
        }
        Ok(())
    }

    /// A snapshot, some appends, and the snapshot again.
    fn rest(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let name = "rest".to_owned();
        self.obey(&Op::Snapshot { name: name.clone() })?;
        let before = self.session.group().cloned();
        for _ in 0..roll.below(4) {
            let n = 1 + roll.below(3);
            self.append(n, roll)?;
        }
        self.obey(&Op::Restore { name })?;
        if self.session.group() != before.as_ref() {
            return Err("a restored group is not the one remembered".to_owned());
        }
        Ok(())
    }

    /// An operation that is impossible now.
    fn nonsense(&mut self, roll: &mut Roll<'_>) -> Result<(), Broken> {
        let rows = self.layout().rows() as u32;
        let choice = roll.below(8);
        let op = match (choice, self.layout().phase()) {
            (0, _) => Op::Filter { keep: vec![rows] },
            (1, _) if rows > 0 => Op::Filter { keep: vec![0, 0] },
            (2, _) => Op::Append { tokens: vec![vec![1]; rows as usize + 1] },
            (3, _) => Op::Append { tokens: vec![Vec::new(); rows as usize] },
            (4, Phase::Decode) => Op::RoundCommit {},
            (4, _) => Op::Extend { rows: Vec::new() },
            (5, Phase::Decode) => Op::Append { tokens: vec![vec![0]; rows as usize] },
            (5, _) => Op::Trim { n: 0 },
            (6, _) => Op::Restore { name: "never".to_owned() },
            _ => Op::Extract { row: rows + roll.below(3), limit: None, name: None },
        };
        self.refuse(&op)
    }

    /// Law: a refused operation changes nothing.
    pub fn refuse(&mut self, op: &Op) -> Result<(), Broken> {
        let before = self.session.clone();
        match self.session.step(op) {
            Ok(_) => Err(format!("{} was not refused", op.name())),
            Err(_) if self.session != before => Err(format!("a refused {} changed something", op.name())),
            Err(_) => Ok(()),
        }
    }

    /// Law: to filter and then append is to append and then filter.
    fn filter_commutes(&self, tokens: &[Vec<u64>], roll: &mut Roll<'_>) -> Result<(), Broken> {
        let keep = self.some_rows(roll);
        let kept: Vec<Vec<u64>> = keep.iter().map(|&r| tokens[r as usize].clone()).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let err = |e: annulus_plan::Error| format!("refused: {e}");
        let mut first = self.session.clone();
        first.step(&Op::Filter { keep: keep.clone() }).map_err(err)?;
        let sees = first.step(&Op::Append { tokens: kept }).map_err(err)?.entry.sees;
        let mut last = self.session.clone();
        let all = last.step(&Op::Append { tokens: tokens.to_vec() }).map_err(err)?.entry.sees.unwrap_or_default();
        let visible = last.step(&Op::Filter { keep: keep.clone() }).map_err(err)?.entry.visible;
        let again = first.step(&Op::Filter { keep: (0..keep.len() as u32).collect() }).map_err(err)?.entry.visible;
        let picked: Vec<_> = keep.iter().map(|&r| all[r as usize].clone()).collect();
        if sees != Some(picked) || visible != again {
            return Err("filter does not commute with append".to_owned());
        }
        Ok(())
    }

    /// What must hold after any operation that succeeded.
    pub fn laws(&self, op: &Op, done: &Done) -> Result<(), Broken> {
        let group = self.session.group().ok_or("no group")?;
        if let (Op::Append { tokens }, Some(append)) = (op, &done.append) {
            let expected = group.model.sees(tokens);
            let sees = done.entry.sees.as_ref().ok_or("no sees")?;
            if sees != &expected {
                return Err(format!("sees {sees:?}, by the definition {expected:?}"));
            }
            let width = append.fetch.len() as usize;
            let fetched = done.entry.fetched.as_ref().ok_or("nothing fetched")?;
            let masks = done.entry.mask.as_ref().ok_or("no mask")?;
            if fetched.iter().any(|f| f.len() != width) || masks.iter().flatten().any(|m| m.len() != width) {
                return Err("the mask is not as wide as the fetch".to_owned());
            }
            let all = masks.iter().flatten().all(|m| !m.contains('0'));
            if all != (append.mask == Mask::None) {
                return Err(format!("{:?}, but every column visible: {all}", append.mask));
            }
        }
        self.positions_hold()?;
        self.donor_lends()
    }

    /// Law: what a row holds are its own tokens, each at its position, and all of them that a later query can see. The
    /// definition forgets what a limited extraction left out, so it may know less than the columns still hold.
    fn positions_hold(&self) -> Result<(), Broken> {
        let group = self.session.group().ok_or("no group")?;
        for (row, history) in group.model.rows.iter().enumerate() {
            let (ranges, sinks, needed) = match &group.layout {
                Layout::Full(full) => ([Columns::default(), full.live(row), Columns::default()], 0, i64::MAX),
                Layout::Ring(ring) => {
                    let span = ring.window().size - ring.pinned();
                    (ring.held(row, span), i64::from(ring.pinned()), i64::from(span) - 1)
                }
            };
            let recent = i64::from(ranges[1].len() + ranges[2].len());
            let columns = ranges.into_iter().flat_map(Columns::iter);
            let positions = (0..i64::from(ranges[0].len())).chain(history.next - recent..history.next);
            let held: BTreeMap<i64, u64> = positions.zip(columns.filter_map(|c| group.grid.get(row, c))).collect();
            let known: BTreeMap<i64, u64> = history.tokens.iter().copied().collect();
            let wrong = |(at, tag): (&i64, &u64)| *tag == 0 || known.get(at).is_some_and(|t| t != tag);
            let lacks =
                |at: &i64| (*at < sinks || *at >= history.next.saturating_sub(needed)) && !held.contains_key(at);
            if held.iter().any(wrong) || known.keys().any(lacks) {
                return Err(format!("row {row} holds {held:?} of {known:?}"));
            }
        }
        Ok(())
    }

    /// Law: at any time a donor lends of each row what a query at its newest position sees by the definition, every token at the
    /// column that says so, and nothing else. Only what the planes have dropped is missing: never more than the oldest one.
    fn donor_lends(&self) -> Result<(), Broken> {
        let group = self.session.group().ok_or("no group")?;
        let Capture { ops, donor, .. } = group.layout.donor();
        let nothing = Inputs { incoming: &[], sources: &[] };
        let copy = group.grid.clone().run(&ops, nothing).map_err(|e| format!("a donor does not fit: {e}"))?;
        if copy.iter().any(|row| row.len() != donor.width as usize) {
            return Err(format!("{ops:?} copies no {} columns", donor.width));
        }
        let mut whole = true;
        for (row, history) in group.model.rows.iter().enumerate() {
            let newest = donor.recent(row, u32::MAX);
            let pins = donor.pins(row);
            let offset = i64::from(donor.offsets[row].0);
            let bounds = pins.to <= donor.pinned && donor.pinned <= newest.from && newest.from <= newest.to;
            if !bounds || newest.to > donor.width || offset != history.next {
                return Err(format!("{donor:?} cannot be, the next position of row {row} is {}", history.next));
            }
            let positions = (0..i64::from(pins.to)).chain(offset - i64::from(newest.len())..offset);
            let columns = pins.iter().chain(newest.iter());
            let tag = |column: u32| copy.get(row).and_then(|cells| cells.get(column as usize)).copied().unwrap_or(0);
            let lent: BTreeMap<i64, u64> = positions.zip(columns.map(tag)).collect();
            if lent.len() != (pins.len() + newest.len()) as usize {
                return Err(format!("a donor lends a position of row {row} twice"));
            }
            whole &= lent.len() == donor.width as usize;
            let sees = |at: i64| group.model.rule.sees(offset - 1, at);
            let wrong = |(&at, &tag): (&i64, &u64)| tag == 0 || !sees(at) || history.at(at).is_some_and(|t| t != tag);
            if let Some(wrong) = lent.iter().find(|&entry| wrong(entry)) {
                return Err(format!("a donor lends {wrong:?} of row {row}, which has {:?}", history.tokens));
            }
            let oldest = group.model.rule.window.map_or(i64::MIN, |w| offset - i64::from(w - group.model.rule.sinks));
            let dropped = |at: i64, tag: u64| at == oldest && !group.grid.rows()[row].contains(&tag);
            let lacks = |&&(at, tag): &&(i64, u64)| sees(at) && !lent.contains_key(&at) && !dropped(at, tag);
            if let Some(lacking) = history.tokens.iter().find(lacks) {
                return Err(format!("a donor lends {lent:?} of row {row}, without {lacking:?}"));
            }
        }
        if whole != donor.is_whole() {
            return Err(format!("{donor:?} is said to be whole: {}", donor.is_whole()));
        }
        Ok(())
    }
}

/// A cache of either layout, with windows from 1 to 40 and sinks.
pub fn cache(roll: &mut Roll<'_>) -> Kind {
    let choice = roll.below(8);
    let size = 1 + if roll.below(2) == 0 { roll.below(8) } else { roll.below(40) };
    match choice {
        0 | 1 => Kind::Full,
        2..=5 => Kind::Ring(Window::of(size)),
        _ => Kind::Ring(Window { size, sinks: roll.below(size) }),
    }
}

/// Runs a whole history: the first dice choose the cache, the others one operation each.
pub fn live(dice: &[Dice], prepare: impl Fn(Session) -> Session) -> Result<Subject, Broken> {
    let nothing = Vec::new();
    let mut roll = Roll::of(dice.first().unwrap_or(&nothing));
    let kind = cache(&mut roll);
    let growth = match roll.below(4) {
        0 => Growth { step: 1 + roll.below(5), reserve: 0 },
        1 => Growth { step: 256, reserve: roll.below(60) },
        _ => Growth::default(),
    };
    let mut subject = Subject::new(kind, prepare(Session::new(kind).with_growth(growth)));
    subject.start(&mut roll)?;
    for (i, dice) in dice.iter().enumerate().skip(1) {
        subject.act(dice).map_err(|why| format!("operation {i} on {kind:?}: {why}"))?;
    }
    Ok(subject)
}

/// A small generator of dice for the long runs: splitmix64.
pub struct Seeds(pub u64);

impl Seeds {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A history of at most 60 operations.
    pub fn history(&mut self) -> Vec<Dice> {
        let n = 2 + self.next() % 60;
        (0..n).map(|_| (0..4).flat_map(|_| self.next().to_le_bytes()).collect()).collect()
    }
}
