//! The definition: what "right" means, without columns, rings or padding.

use crate::layout::Kind;

/// Which positions a query sees.
///
/// A row is a list of tokens with positions. A query at position p sees the row's tokens at the positions
/// `max(0, p-W+1)..=p`; with k sinks, those below k and `max(k, p-(W-k)+1)..=p`; under full attention all up to p. Nothing else:
/// no padding, no rejected draft, no other row. Everything in this crate is an optimisation of [`Rule::sees`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// W, or none under full attention.
    pub window: Option<u32>,
    /// k: the first positions, which every query sees.
    pub sinks: u32,
}

impl From<Kind> for Rule {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Full => Self { window: None, sinks: 0 },
            Kind::Ring(window) => Self { window: Some(window.size), sinks: window.sinks },
        }
    }
}

impl Rule {
    /// Whether a query at position `query` sees the key at position `key` of its row.
    ///
    /// ```
    /// use annulus_plan::Rule;
    ///
    /// let rule = Rule { window: Some(4), sinks: 1 };
    /// let seen: Vec<i64> = (0..12).filter(|&key| rule.sees(9, key)).collect();
    /// assert_eq!(seen, [0, 7, 8, 9]);
    /// ```
    #[must_use]
    pub fn sees(self, query: i64, key: i64) -> bool {
        let recent = |w: u32| key > query - (i64::from(w) - i64::from(self.sinks));
        (0..=query).contains(&key) && (key < i64::from(self.sinks) || self.window.is_none_or(recent))
    }
}

/// A row by the definition: its tokens and their positions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The tokens, by position; a row that came back from a limited extraction lacks the older ones.
    pub tokens: Vec<(i64, u64)>,
    /// The position of the next token.
    pub next: i64,
}

impl History {
    /// A row of these tokens, from position 0.
    #[must_use]
    pub fn of(tokens: &[u64]) -> Self {
        let mut row = Self::default();
        tokens.iter().for_each(|&t| row.push(t));
        row
    }

    /// The token at a position, where the row still knows it.
    #[must_use]
    pub fn at(&self, position: i64) -> Option<u64> {
        let place = self.tokens.binary_search_by_key(&position, |&(at, _)| at).ok()?;
        self.tokens.get(place).map(|&(_, token)| token)
    }

    fn push(&mut self, token: u64) {
        self.tokens.push((self.next, token));
        self.next += 1;
    }

    /// Forgets the newest `n` tokens.
    fn drop_newest(&mut self, n: i64) {
        self.next -= n;
        self.tokens.retain(|&(at, _)| at < self.next);
    }
}

/// A group of rows by the definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Which positions a query sees.
    pub rule: Rule,
    /// The rows.
    pub rows: Vec<History>,
    round: Option<Vec<i64>>,
}

impl Model {
    /// A group of these rows.
    #[must_use]
    pub fn new(rule: Rule, rows: Vec<History>) -> Self {
        Self { rule, rows, round: None }
    }

    /// Appends tokens; 0 is padding and appends nothing.
    pub fn append(&mut self, tokens: &[Vec<u64>]) {
        for (row, tokens) in self.rows.iter_mut().zip(tokens) {
            tokens.iter().filter(|&&t| t != 0).for_each(|&t| row.push(t));
        }
    }

    /// What each query of the tokens just appended sees, oldest first; nothing for padding.
    #[must_use]
    pub fn sees(&self, tokens: &[Vec<u64>]) -> Vec<Vec<Option<Vec<u64>>>> {
        let row = |(row, tokens): (&History, &Vec<u64>)| {
            let mut at = row.next - tokens.iter().filter(|&&t| t != 0).count() as i64;
            let query = |&t: &u64| {
                (t != 0).then(|| {
                    at += 1;
                    row.tokens.iter().filter(|&&(key, _)| self.rule.sees(at - 1, key)).map(|&(_, t)| t).collect()
                })
            };
            tokens.iter().map(query).collect()
        };
        self.rows.iter().zip(tokens).map(row).collect()
    }

    /// Keeps these rows, in this order.
    pub fn filter(&mut self, keep: &[usize]) {
        self.rows = keep.iter().filter_map(|&r| self.rows.get(r).cloned()).collect();
        self.round = self.round.take().map(|saved| keep.iter().filter_map(|&r| saved.get(r).copied()).collect());
    }

    /// Adds rows.
    pub fn extend(&mut self, rows: Vec<History>) {
        self.rows.extend(rows);
    }

    /// The row as an extraction of at most `limit` tokens keeps it. With a window, W-1 tokens are all that any later query can
    /// see of it, and all that a row which ended before its cohort still holds.
    #[must_use]
    pub fn extract(&self, row: usize, limit: Option<u32>) -> History {
        let Some(row) = self.rows.get(row) else { return History::default() };
        let needed = self.rule.window.map(|w| w - 1);
        let limit = limit.into_iter().chain(needed).min();
        let oldest = limit.map_or(i64::MIN, |n| row.next - (i64::from(n) - i64::from(self.rule.sinks)).max(0));
        let held = |&&(at, _): &&(i64, u64)| at >= oldest || at < i64::from(self.rule.sinks);
        History { tokens: row.tokens.iter().filter(held).copied().collect(), next: row.next }
    }

    /// Forgets the newest `n` tokens of every row.
    pub fn trim(&mut self, n: u32) {
        self.rows.iter_mut().for_each(|row| row.drop_newest(n.into()));
    }

    /// Begins a round.
    pub fn round_begin(&mut self) {
        self.round = Some(self.rows.iter().map(|row| row.next).collect());
    }

    /// Ends a round; each row keeps its first `keep[r]` tokens of it, or all of them.
    pub fn round_end(&mut self, keep: Option<&[u32]>) {
        let (Some(saved), Some(keep)) = (self.round.take(), keep) else { return };
        for ((row, saved), &keep) in self.rows.iter_mut().zip(saved).zip(keep) {
            row.drop_newest(row.next - saved - i64::from(keep));
        }
    }
}
