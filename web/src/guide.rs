//! From "two prompts, then a draft" to the operations of a scenario.
//!
//! A guide is a list of cards. A card says what happens in an engine's words; how many tokens a row has and at which position
//! the next one stands is asked of the planner, never counted here. A card may also be one operation as it stands, so every
//! scenario is a guide.

use std::collections::BTreeMap;

use annulus_plan::scenario::{JoinRow, Keep, Op, read_kind};
use annulus_plan::session::Session;
use annulus_plan::{Error, Growth, Kind, Layout, Padding, Row, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most tokens that the cards of a guide spell out together.
const TOKEN_LIMIT: u64 = 1 << 19;

/// A cache and what happens to it, card by card.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guide {
    /// The cache, as a scenario names it.
    pub cache: Value,
    /// What happens.
    pub cards: Vec<Card>,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Card {
    /// Prompts of these lengths are read.
    Prefill {
        /// One length a row.
        lengths: Vec<u32>,
        /// Where shorter rows are padded.
        padding: Side,
        /// At most so many columns at once; all of them when absent.
        chunk: Option<u32>,
    },
    /// Every row gets so many tokens, one at a time.
    Decode {
        /// How many.
        steps: u32,
    },
    /// A draft is verified and partly taken.
    Draft {
        /// How many columns each append of the round has.
        columns: Vec<u32>,
        /// How many tokens each row accepts.
        accept: Vec<u32>,
    },
    /// Rows that were prefilled alone join.
    Join {
        /// One length a row.
        lengths: Vec<u32>,
    },
    /// Rows leave.
    Leave {
        /// Which.
        rows: Vec<u32>,
    },
    /// One operation as it stands.
    Op {
        /// The operation.
        op: Value,
    },
}

/// Where shorter rows are padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Nowhere: each row is prefilled alone, then they are merged.
    Alone,
    /// Before the prompt.
    Left,
    /// After the prompt.
    Right,
}

/// A scenario, and where it came from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Built {
    /// The scenario, as far as it could be spelled out.
    pub scenario: Value,
    /// The operations of each card: the first, and one past the last.
    pub spans: Vec<[usize; 2]>,
    /// Why the operations of a card could not be spelled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// A card that has no operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// The card.
    pub card: usize,
    /// Its field.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Spells a guide out. Once an operation is refused no further card can be, except those that are operations already: the
/// scenario then ends with the refused one, and whoever runs it sees why.
#[must_use]
pub fn build(guide: &Guide) -> Built {
    let mut builder = Builder::new(guide);
    let (mut spans, mut stopped) = (Vec::new(), None);
    for (place, card) in guide.cards.iter().enumerate() {
        let from = builder.ops.len();
        if stopped.is_none()
            && let Err((field, message)) = builder.card(card)
        {
            stopped = Some(Stopped { card: place, field, message });
        }
        spans.push([from, builder.ops.len()]);
    }
    Built { scenario: json!({ "cache": guide.cache, "ops": builder.ops }), spans, stopped }
}

/// Why a card has no operations: its field, and what is wrong.
type Refused = (&'static str, String);

/// The scenario as it is written, and the same scenario as it is planned.
struct Builder {
    ops: Vec<Value>,
    /// None once something was refused.
    course: Option<Course>,
    /// The number of each row, from 1 in order of birth: its tags are `stride` times that, plus the position.
    names: Vec<u64>,
    remembered: BTreeMap<String, Vec<u64>>,
    born: u64,
    stride: u64,
    tokens: u64,
    /// Cards before this one have to be run, because a later one asks where rows stand.
    generated: usize,
    done: usize,
}

impl Builder {
    fn new(guide: &Guide) -> Self {
        let course = read_kind(&guide.cache).ok().map(Course::new);
        let longest = guide.cards.iter().map(Card::longest).fold(0, u64::saturating_add);
        let stride = if longest < 1000 { 1000 } else { 1_000_000 };
        let generated =
            guide.cards.iter().rposition(|card| !matches!(card, Card::Op { .. })).map_or(0, |last| last + 1);
        let (ops, names, remembered) = Default::default();
        Self { ops, course, names, remembered, born: 0, stride, tokens: 0, generated, done: 0 }
    }

    fn card(&mut self, card: &Card) -> Result<(), Refused> {
        let wait = || ("do", "waits for the card above, which is refused".to_owned());
        if !matches!(card, Card::Op { .. }) && self.course.is_none() {
            return Err(wait());
        }
        match card {
            Card::Prefill { lengths, padding, chunk } => self.prefill(lengths, *padding, *chunk)?,
            Card::Decode { steps } => {
                for _ in 0..*steps {
                    self.append(1, None)?;
                }
            }
            Card::Draft { columns, accept } => self.draft(columns, accept)?,
            Card::Join { lengths } => {
                let rows = self.prompts(lengths)?;
                self.push(json!({ "op": if self.layout().is_some() { "extend" } else { "merge" }, "rows": rows }));
            }
            Card::Leave { rows } => {
                let stay = (0..self.names.len() as u32).filter(|row| !rows.contains(row));
                let keep: Vec<u32> = stay.collect();
                if let Some(row) = rows.iter().find(|&&row| row as usize >= self.names.len()) {
                    return Err(("rows", format!("row {row} of a group of {}", self.names.len())));
                }
                self.push(json!({ "op": "filter", "keep": keep }));
            }
            Card::Op { op } => self.push(op.clone()),
        }
        self.done += 1;
        Ok(())
    }

    fn layout(&self) -> Option<&Layout> {
        self.course.as_ref()?.layout.as_ref()
    }

    fn prefill(&mut self, lengths: &[u32], padding: Side, chunk: Option<u32>) -> Result<(), Refused> {
        if padding == Side::Alone && self.layout().is_none() {
            let rows = self.prompts(lengths)?;
            self.push(json!({ "op": "merge", "rows": rows }));
            return Ok(());
        }
        let chunk = match chunk {
            Some(0) => return Err(("chunk", "0, must be at least 1".to_owned())),
            chunk => chunk.unwrap_or(u32::MAX),
        };
        let width = lengths.iter().copied().max().unwrap_or(0);
        self.count(u64::from(width) * lengths.len() as u64, "lengths")?;
        let pads: Vec<u32> = lengths.iter().map(|n| width - n).collect();
        if self.layout().is_none() {
            self.push(json!({ "op": "empty", "rows": lengths.len() }));
        }
        let starts = self.positions();
        let padded = pads.iter().any(|&n| n > 0);
        let left = if padding == Side::Left { pads.as_slice() } else { &[] };
        match padding {
            Side::Left if padded => self.push(json!({ "op": "prepare", "lengths": lengths, "left_padding": left })),
            _ if padded => self.push(json!({ "op": "prepare", "lengths": lengths, "right_padding": pads })),
            _ => {}
        }
        let tag = |row: usize, column: u32| -> u64 {
            let before = left.get(row).copied().unwrap_or(0);
            let (Some(&length), Some(&start)) = (lengths.get(row), starts.get(row)) else { return 0 };
            let token = (before..before + length).contains(&column);
            if token { self.tag(row, start + u64::from(column - before)) } else { 0 }
        };
        let rows = self.names.len();
        let block = |from: u32| -> Value {
            let columns = from..from.saturating_add(chunk).min(width);
            (0..rows).map(|row| columns.clone().map(|c| tag(row, c)).collect::<Vec<_>>()).collect::<Vec<_>>().into()
        };
        let blocks: Vec<Value> = (0..width).step_by(chunk as usize).map(block).collect();
        for tokens in blocks {
            self.push(json!({ "op": "append", "tokens": tokens }));
        }
        if padded {
            self.push(json!({ "op": "finalize" }));
        }
        Ok(())
    }

    fn draft(&mut self, columns: &[u32], accept: &[u32]) -> Result<(), Refused> {
        self.push(json!({ "op": "round_begin" }));
        for &n in columns {
            self.append(n, None)?;
        }
        let all: u32 = columns.iter().copied().fold(0, u32::saturating_add);
        if !accept.is_empty() && accept.iter().all(|&n| n == all) {
            self.push(json!({ "op": "round_commit" }));
        } else {
            self.push(json!({ "op": "round_rollback", "keep": accept }));
        }
        Ok(())
    }

    /// Appends so many columns of tokens to every row.
    fn append(&mut self, columns: u32, field: Option<&'static str>) -> Result<(), Refused> {
        let starts = self.positions();
        self.count(u64::from(columns) * starts.len() as u64, field.unwrap_or("steps"))?;
        let row = |(row, &start): (usize, &u64)| -> Vec<u64> {
            (0..u64::from(columns)).map(|i| self.tag(row, start + i)).collect()
        };
        let tokens: Vec<Vec<u64>> = starts.iter().enumerate().map(row).collect();
        self.push(json!({ "op": "append", "tokens": tokens }));
        Ok(())
    }

    /// The tokens of rows that are prefilled alone.
    fn prompts(&mut self, lengths: &[u32]) -> Result<Vec<Vec<u64>>, Refused> {
        self.count(lengths.iter().map(|&n| u64::from(n)).sum(), "lengths")?;
        let first = self.born + 1;
        let name = |(i, &n): (u64, &u32)| (0..u64::from(n)).map(|p| (first + i) * self.stride + p).collect();
        Ok((0..).zip(lengths).map(name).collect())
    }

    /// The position of each row's next token.
    fn positions(&self) -> Vec<u64> {
        let Some(layout) = self.layout() else { return Vec::new() };
        let next = |(row, &offset): (usize, &annulus_plan::Pos)| {
            u64::try_from(layout.phase().valid(row, offset).0).unwrap_or(0)
        };
        layout.offsets().iter().enumerate().map(next).collect()
    }

    fn tag(&self, row: usize, position: u64) -> u64 {
        self.names.get(row).copied().unwrap_or(0) * self.stride + position
    }

    fn count(&mut self, tokens: u64, field: &'static str) -> Result<(), Refused> {
        self.tokens = self.tokens.saturating_add(tokens);
        if self.tokens > TOKEN_LIMIT {
            return Err((field, format!("{} tokens are beyond the bound of {TOKEN_LIMIT}", self.tokens)));
        }
        Ok(())
    }

    /// Writes an operation down and plans it.
    fn push(&mut self, op: Value) {
        if self.done < self.generated
            && let Some(course) = &mut self.course
        {
            match Op::read(&op).and_then(|op| course.step(&op).map(|()| op)) {
                Ok(op) => self.rename(&op),
                Err(_) => self.course = None,
            }
        }
        self.ops.push(op);
    }

    /// Follows which row is which.
    fn rename(&mut self, op: &Op) {
        let rows = self.layout().map_or(0, Layout::rows);
        match op {
            Op::Filter { keep } => {
                self.names = keep.iter().filter_map(|&row| self.names.get(row as usize).copied()).collect();
            }
            Op::Snapshot { name } => {
                self.remembered.insert(name.clone(), self.names.clone());
            }
            Op::Restore { name } => self.names = self.remembered.get(name).cloned().unwrap_or_default(),
            _ => {
                while self.names.len() < rows {
                    self.born += 1;
                    self.names.push(self.born);
                }
            }
        }
    }
}

/// A scenario planned without columns: only to know where its rows stand. Nothing is executed, so it costs nothing.
struct Course {
    kind: Kind,
    layout: Option<Layout>,
    saved: BTreeMap<String, Source>,
    snapshots: BTreeMap<String, Layout>,
}

impl Course {
    fn new(kind: Kind) -> Self {
        Self { kind, layout: None, saved: BTreeMap::new(), snapshots: BTreeMap::new() }
    }

    fn step(&mut self, op: &Op) -> Result<(), Error> {
        let next = match (op, &self.layout) {
            (Op::Merge { rows }, None) => Layout::merge(self.kind, Growth::default(), &self.sources(rows)?)?.next,
            (Op::Empty { rows }, None) => Layout::empty(self.kind, Growth::default(), *rows as usize)?,
            (Op::Adopt { .. }, None) => {
                let mut session = Session::new(self.kind);
                session.step(op)?;
                let none = Error::NotStarted { op: op.name(), field: "op" };
                session.group().ok_or(none)?.layout.clone()
            }
            (Op::Merge { .. } | Op::Empty { .. } | Op::Adopt { .. }, Some(_)) => {
                return Err(Error::Started { op: op.name(), field: "op" });
            }
            (_, None) => return Err(Error::NotStarted { op: op.name(), field: "op" }),
            (Op::Extract { row, limit, name }, Some(layout)) => {
                let source = layout.extract(Row(*row), *limit)?.source;
                if let Some(name) = name {
                    self.saved.insert(name.clone(), source);
                }
                return Ok(());
            }
            (Op::Snapshot { name }, Some(layout)) => {
                self.snapshots.insert(name.clone(), layout.clone());
                return Ok(());
            }
            (Op::Restore { name }, Some(_)) => {
                let unknown = || Error::UnknownName { op: "restore", field: "name", name: name.clone() };
                self.snapshots.get(name).ok_or_else(unknown)?.clone()
            }
            (_, Some(layout)) => self.change(op, layout)?,
        };
        self.layout = Some(next);
        Ok(())
    }

    fn change(&self, op: &Op, layout: &Layout) -> Result<Layout, Error> {
        Ok(match op {
            Op::Append { tokens } => append(layout, tokens)?,
            Op::Prepare { lengths, left_padding, right_padding } => {
                layout.prepare(Padding { lengths, left: left_padding, right: right_padding })?.next
            }
            Op::Finalize {} => layout.finalize()?.next,
            Op::Filter { keep } => layout.filter(&keep.iter().map(|&row| Row(row)).collect::<Vec<_>>())?.next,
            Op::Extend { rows } => layout.extend(&self.sources(rows)?)?.next,
            Op::Trim { n } => layout.trim(*n)?.next,
            Op::RoundBegin {} => layout.round_begin()?.next,
            Op::RoundCommit {} => layout.round_commit()?.next,
            Op::RoundRollback { keep: Keep::All(n) } => layout.round_rollback(&vec![*n; layout.rows()])?.next,
            Op::RoundRollback { keep: Keep::Each(list) } => layout.round_rollback(list)?.next,
            _ => layout.clone(),
        })
    }

    fn sources(&self, rows: &[JoinRow]) -> Result<Vec<Source>, Error> {
        let source = |row: &JoinRow| match row {
            JoinRow::Tokens(tokens) => Ok(Source::whole(u32::try_from(tokens.len()).unwrap_or(u32::MAX))),
            JoinRow::Saved { from } => {
                let unknown = || Error::UnknownName { op: "extend", field: "rows", name: from.clone() };
                self.saved.get(from).copied().ok_or_else(unknown)
            }
        };
        rows.iter().map(source).collect()
    }
}

/// The group after these tokens; inside a round padding may follow them.
fn append(layout: &Layout, tokens: &[Vec<u64>]) -> Result<Layout, Error> {
    let columns = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let n = columns(tokens.first().map_or(0, Vec::len));
    if matches!(layout.phase(), annulus_plan::Phase::Round(_)) {
        let real: Vec<u32> = tokens.iter().map(|t| columns(t.iter().take_while(|&&t| t != 0).count())).collect();
        return Ok(layout.append_ragged(n, &real)?.next);
    }
    Ok(layout.append(n)?.next)
}

impl Card {
    /// The most tokens that the card adds to one row.
    fn longest(&self) -> u64 {
        match self {
            Self::Prefill { lengths, .. } | Self::Join { lengths } => lengths.iter().copied().max().unwrap_or(0).into(),
            Self::Decode { steps } => (*steps).into(),
            Self::Draft { columns, .. } => columns.iter().map(|&n| u64::from(n)).sum(),
            Self::Leave { .. } | Self::Op { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(cache: &Value, cards: &Value) -> Built {
        let guide = json!({ "cache": cache, "cards": cards });
        build(&serde_json::from_value(guide).expect("a guide"))
    }

    fn ring(window: u32) -> Value {
        json!({ "kind": "rotating", "max_size": window })
    }

    #[test]
    fn right_padding_is_declared_cut_in_chunks_and_finalized() {
        let built = built(&ring(8), &json!([{ "do": "prefill", "lengths": [3, 1], "padding": "right", "chunk": 2 }]));
        let expected = json!([
            { "op": "empty", "rows": 2 },
            { "op": "prepare", "lengths": [3, 1], "right_padding": [0, 2] },
            { "op": "append", "tokens": [[1000, 1001], [2000, 0]] },
            { "op": "append", "tokens": [[1002], [0]] },
            { "op": "finalize" },
        ]);
        assert_eq!(built.scenario["ops"], expected);
        assert_eq!((built.spans, built.stopped), (vec![[0, 5]], None));
    }

    #[test]
    fn left_padding_stands_before_the_tokens() {
        let built = built(&ring(8), &json!([{ "do": "prefill", "lengths": [3, 1], "padding": "left", "chunk": null }]));
        assert_eq!(built.scenario["ops"][2], json!({ "op": "append", "tokens": [[1000, 1001, 1002], [0, 0, 2000]] }));
    }

    /// Row 1 accepts both tokens of the draft, row 0 none; then each goes on where it stands.
    #[test]
    fn tokens_after_a_draft_stand_where_the_rows_do() {
        let built = built(
            &ring(4),
            &json!([
                { "do": "prefill", "lengths": [2, 1], "padding": "alone", "chunk": null },
                { "do": "draft", "columns": [2], "accept": [0, 2] },
                { "do": "decode", "steps": 1 },
            ]),
        );
        assert_eq!(built.scenario["ops"][0], json!({ "op": "merge", "rows": [[1000, 1001], [2000]] }));
        assert_eq!(built.scenario["ops"][3], json!({ "op": "round_rollback", "keep": [0, 2] }));
        assert_eq!(built.scenario["ops"][4], json!({ "op": "append", "tokens": [[1002], [2003]] }));
        assert_eq!(built.spans, [[0, 1], [1, 4], [4, 5]]);
    }

    #[test]
    fn rows_keep_their_names_when_others_leave_and_join() {
        let built = built(
            &json!({ "kind": "full" }),
            &json!([
                { "do": "join", "lengths": [1, 1] },
                { "do": "leave", "rows": [0] },
                { "do": "join", "lengths": [1] },
                { "do": "decode", "steps": 1 },
            ]),
        );
        assert_eq!(built.scenario["ops"][2], json!({ "op": "extend", "rows": [[3000]] }));
        assert_eq!(built.scenario["ops"][3], json!({ "op": "append", "tokens": [[2001], [3001]] }));
    }

    #[test]
    fn a_refused_operation_ends_the_guide_but_not_the_operations_after_it() {
        let built = built(
            &ring(4),
            &json!([
                { "do": "join", "lengths": [1] },
                { "do": "draft", "columns": [1], "accept": [9] },
                { "do": "decode", "steps": 1 },
            ]),
        );
        assert_eq!(built.scenario["ops"][3], json!({ "op": "round_rollback", "keep": [9] }));
        assert_eq!(built.stopped.map(|s| (s.card, s.field)), Some((2, "do")));
    }

    #[test]
    fn a_guide_of_operations_is_the_scenario_itself() {
        let ops = json!([{ "op": "spin" }, { "op": "append", "tokens": [[1]] }]);
        let cards: Vec<Value> =
            ops.as_array().into_iter().flatten().map(|op| json!({ "do": "op", "op": op })).collect();
        let built = built(&json!("none"), &cards.into());
        assert_eq!(built.scenario, json!({ "cache": "none", "ops": ops }));
    }

    #[test]
    fn a_guide_beyond_all_bounds_is_refused_at_its_field() {
        let built = built(&ring(4), &json!([{ "do": "join", "lengths": [4_000_000_000u32] }]));
        assert_eq!(built.stopped.map(|s| s.field), Some("lengths"));
    }
}
