//! Strings that end a text, found while the text still comes.

use std::collections::VecDeque;

/// Looks for stop strings in a text that comes in pieces, and lets text through as soon as it is certain.
///
/// The stop string that is complete first ends the text; of several that are complete at the same character the longest
/// counts, so that no part of one is let through. What came before it is the text's end. This depends on the text alone:
/// however it is cut into pieces, the output is the same. Text that may yet turn out to begin a stop string is held back,
/// and no other text is.
///
/// Each byte is looked at a bounded number of times, however long the stop strings are (the automaton of Aho and
/// Corasick). Empty stop strings are ignored.
#[derive(Debug, Clone)]
pub struct StopScanner {
    nodes: Vec<Node>,
    state: usize,
    held: Held,
    stopped: bool,
}

/// A prefix of a stop string.
#[derive(Debug, Clone, Default)]
struct Node {
    children: Vec<(u8, usize)>,
    /// The longest proper suffix of this prefix that is a prefix of a stop string too.
    fallback: usize,
    /// The length of this prefix.
    depth: usize,
    /// The length of the longest stop string that this prefix ends with; 0 when there is none.
    matched: usize,
}

impl StopScanner {
    /// A scanner for these stop strings.
    #[must_use]
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Self {
        let mut nodes = vec![Node::default()];
        for stop in stops {
            insert(&mut nodes, stop.as_ref().as_bytes());
        }
        link(&mut nodes);
        Self { nodes, state: 0, held: Held::default(), stopped: false }
    }

    /// Takes the next piece, and returns the text that is certain now. After a stop string there is none.
    pub fn push(&mut self, piece: &str) -> String {
        if self.stopped {
            return String::new();
        }
        for (index, &byte) in piece.as_bytes().iter().enumerate() {
            self.state = step(&self.nodes, self.state, byte);
            let matched = self.nodes[self.state].matched;
            if matched > 0 {
                self.stopped = true;
                self.held.push(&piece[..=index]);
                let text = self.held.release_all_but(matched);
                self.held = Held::default();
                return text;
            }
        }
        self.held.push(piece);
        self.held.release_all_but(self.nodes[self.state].depth)
    }

    /// Ends the text: what was held back belongs to it after all.
    pub fn finish(&mut self) -> String {
        self.state = 0;
        self.held.release_all_but(0)
    }

    /// Whether a stop string has ended the text.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
}

fn child(node: &Node, byte: u8) -> Option<usize> {
    node.children.iter().find(|(label, _)| *label == byte).map(|(_, child)| *child)
}

fn step(nodes: &[Node], mut state: usize, byte: u8) -> usize {
    loop {
        if let Some(next) = child(&nodes[state], byte) {
            return next;
        }
        if state == 0 {
            return 0;
        }
        state = nodes[state].fallback;
    }
}

fn insert(nodes: &mut Vec<Node>, stop: &[u8]) {
    let mut at = 0;
    for (index, &byte) in stop.iter().enumerate() {
        at = child(&nodes[at], byte).unwrap_or_else(|| {
            let new = nodes.len();
            nodes[at].children.push((byte, new));
            nodes.push(Node { depth: index + 1, ..Node::default() });
            new
        });
    }
    nodes[at].matched = stop.len();
}

/// Sets fallbacks, shorter prefixes first, and lets prefixes match what their fallbacks match.
fn link(nodes: &mut [Node]) {
    let mut queue = VecDeque::from([0]);
    while let Some(at) = queue.pop_front() {
        for (byte, next) in nodes[at].children.clone() {
            let fallback = if at == 0 { 0 } else { step(nodes, nodes[at].fallback, byte) };
            let inherited = nodes[fallback].matched;
            let node = &mut nodes[next];
            node.fallback = fallback;
            if node.matched == 0 {
                node.matched = inherited;
            }
            queue.push_back(next);
        }
    }
}

/// Text that is held back. Its front is let go byte by byte without moving the rest each time.
#[derive(Debug, Clone, Default)]
struct Held {
    text: String,
    /// Bytes of `text` that have been let go.
    gone: usize,
}

impl Held {
    fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Lets go all but the last `keep` bytes, which are a stop string or its beginning, and so begin with a character.
    fn release_all_but(&mut self, keep: usize) -> String {
        let end = self.text.len() - keep;
        let released = self.text[self.gone..end].to_owned();
        self.gone = end;
        if self.gone > self.text.len() / 2 {
            self.text.drain(..self.gone);
            self.gone = 0;
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::testing::cut;

    fn scan(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut scanner = StopScanner::new(stops);
        let mut out: Vec<String> = pieces.iter().map(|piece| scanner.push(piece)).collect();
        out.push(scanner.finish());
        (out, scanner.is_stopped())
    }

    fn expect(stops: &[&str], pieces: &[&str], out: &[&str], stopped: bool) {
        let out: Vec<String> = out.iter().map(|piece| (*piece).to_owned()).collect();
        assert_eq!(scan(stops, pieces), (out, stopped), "{stops:?} in {pieces:?}");
    }

    #[test]
    fn br_07_a_stop_that_straddles_tokens() {
        expect(&["ab"], &["xa", "b", "x", "x"], &["x", "", "", "", ""], true);
    }

    #[test]
    fn br_07_held_text_is_flushed_at_the_end() {
        expect(&["\nUser:"], &["x\nUser"], &["x", "\nUser"], false);
    }

    #[test]
    fn only_what_may_begin_a_stop_is_held() {
        expect(&["abac"], &["aba", "b", "ac"], &["", "ab", "", ""], true);
        expect(&["abac"], &["abab", "x"], &["ab", "abx", ""], false);
        expect(&["é!"], &["caf", "é", "?"], &["caf", "", "é?", ""], false);
    }

    #[test]
    fn the_first_to_be_complete_wins_and_then_the_longest() {
        expect(&["abcd", "bc"], &["xabcd"], &["xa", ""], true);
        expect(&["bc", "abc", "c"], &["xabc"], &["x", ""], true);
        expect(&["", "b"], &["ab"], &["a", ""], true);
        expect(&[""], &["ab"], &["ab", ""], false);
    }

    /// The definition, by trying: the shortest beginning of the text that ends with a stop string.
    fn definition(stops: &[String], text: &str) -> (String, bool) {
        for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let head = &text[..end];
            let longest =
                stops.iter().filter(|stop| !stop.is_empty() && head.ends_with(stop.as_str())).map(String::len).max();
            if let Some(longest) = longest {
                return (head[..end - longest].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn every_partition_gives_what_the_definition_says(
            stops in proptest::collection::vec("[abé]{0,5}", 0..4),
            text in "[abcé]{0,24}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut scanner = StopScanner::new(&stops);
            let mut out = String::new();
            for piece in cut(text.as_bytes(), &cuts) {
                // Cuts may fall within é; what is decoded before the scanner never does.
                if let Ok(piece) = std::str::from_utf8(piece) {
                    out += &scanner.push(piece);
                } else {
                    return Ok(());
                }
            }
            out += &scanner.finish();
            prop_assert_eq!((out, scanner.is_stopped()), definition(&stops, &text));
        }

        /// Nothing is held that could have been let through: what is held begins a stop string.
        #[test]
        fn held_text_begins_a_stop(stops in proptest::collection::vec("[ab]{1,6}", 1..4), text in "[abc]{0,24}") {
            let mut scanner = StopScanner::new(&stops);
            let out = scanner.push(&text);
            if !scanner.is_stopped() {
                let held = &text[out.len()..];
                prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held)), "{}", held);
            }
        }
    }

    /// With a quadratic scanner this is 10^11 steps and does not end.
    #[test]
    fn a_long_stop_in_a_long_text_takes_linear_time() {
        let stop = format!("{}b", "a".repeat(200_000));
        let mut scanner = StopScanner::new(&[stop]);
        let mut len = 0;
        for _ in 0..500_000 {
            len += scanner.push("a").len();
        }
        assert_eq!(len, 300_000);
        len += scanner.finish().len();
        assert_eq!(len, 500_000);
    }
}
