//! Generated tokens as text that can be shown at once.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{StopScanner, Tokenizer, Utf8Stream};

/// What a token added to the output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// Text that is certain now: whole characters, and no beginning of a stop string.
    pub text: String,
    /// How many of the oldest tokens that were pending are final with this piece: all their text has been given out, up to
    /// here. Once a stop string is found, tokens whose text lies entirely beyond the cut are never counted.
    pub tokens: usize,
    /// Whether a stop string has ended the text, with this token or before it.
    pub stopped: bool,
}

/// Turns tokens into text, piece by piece: [`Utf8Stream`], then [`StopScanner`], with an account of which tokens the text
/// came from.
///
/// The law: the text of all pieces together depends on the bytes of the tokens together, never on where one token ends
/// and the next begins.
#[derive(Debug, Clone)]
pub struct ByteStream {
    utf8: Utf8Stream,
    stop: StopScanner,
    /// Bytes of text decoded so far, and given out so far.
    decoded: usize,
    given: usize,
    /// Tokens that are not final, oldest first.
    pending: VecDeque<Span>,
}

/// The place of a token's bytes in the decoded text.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Where the character that its first byte belongs to begins.
    start: usize,
    /// Where the character that its last byte belongs to ends; `None` while that character is incomplete.
    end: Option<usize>,
}

impl ByteStream {
    /// A stream that ends at any of these strings.
    #[must_use]
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Self {
        Self {
            utf8: Utf8Stream::default(),
            stop: StopScanner::new(stops),
            decoded: 0,
            given: 0,
            pending: VecDeque::new(),
        }
    }

    /// Takes the bytes of the next token; a token without text has none.
    pub fn push(&mut self, bytes: &[u8]) -> Piece {
        if self.stop.is_stopped() {
            return self.piece(String::new());
        }
        let mut text = String::new();
        let start = self.decoded + self.utf8.push(bytes, &mut text);
        // A character that was incomplete is the first of what has been decoded now, and whole.
        self.close_open_spans(&text);
        self.decoded += text.len();
        let end = (!self.utf8.is_within_character()).then_some(self.decoded);
        self.pending.push_back(Span { start, end });
        let text = self.stop.push(&text);
        self.piece(text)
    }

    /// Ends the text, because the model ended it or no more tokens are wanted: gives out all that was held back.
    pub fn finish(&mut self) -> Piece {
        if self.stop.is_stopped() {
            return self.piece(String::new());
        }
        let mut tail = String::new();
        self.utf8.finish(&mut tail);
        self.close_open_spans(&tail);
        self.decoded += tail.len();
        let mut text = self.stop.push(&tail);
        if !self.stop.is_stopped() {
            text += &self.stop.finish();
        }
        self.piece(text)
    }

    fn close_open_spans(&mut self, decoded_now: &str) {
        if let Some(first) = decoded_now.chars().next() {
            let end = self.decoded + first.len_utf8();
            for span in self.pending.iter_mut().rev().take_while(|span| span.end.is_none()) {
                span.end = Some(end);
            }
        }
    }

    fn piece(&mut self, text: String) -> Piece {
        self.given += text.len();
        let (given, stopped) = (self.given, self.stop.is_stopped());
        let is_final = |span: &Span| {
            if stopped {
                // With text before the cut; or without text, and not after the cut.
                span.start < given || span.end == Some(given)
            } else {
                span.end.is_some_and(|end| end <= given)
            }
        };
        let tokens = self.pending.iter().take_while(|span| is_final(span)).count();
        self.pending.drain(..tokens);
        if stopped {
            self.pending.clear();
        }
        Piece { text, tokens, stopped }
    }
}

/// A [`ByteStream`] fed with token ids.
///
/// Special tokens have no text. The text is what the bytes of the tokens say, also at its beginning: a leading space that
/// a SentencePiece model generates is kept, since the text continues a prompt.
#[derive(Debug, Clone)]
pub struct TextStream {
    tokenizer: Arc<Tokenizer>,
    bytes: ByteStream,
}

impl TextStream {
    /// A stream that ends at any of these strings; see [`StopScanner`] for which counts when several do.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "a job hands its stop strings over")]
    pub fn new(tokenizer: Arc<Tokenizer>, stop: Vec<String>) -> Self {
        Self { tokenizer, bytes: ByteStream::new(&stop) }
    }

    /// Takes the next token.
    pub fn push(&mut self, id: u32) -> Piece {
        let bytes = if self.tokenizer.is_special(id) { &[] } else { self.tokenizer.token_bytes(id) };
        self.bytes.push(bytes)
    }

    /// Ends the text, because the model ended it or no more tokens are wanted: gives out all that was held back.
    pub fn finish(&mut self) -> Piece {
        self.bytes.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::testing::{cut, messy_bytes};

    fn run<'a>(stops: &[&str], tokens: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, usize, bool)> {
        let mut stream = ByteStream::new(stops);
        let mut pieces: Vec<Piece> = tokens.into_iter().map(|token| stream.push(token)).collect();
        pieces.push(stream.finish());
        pieces.into_iter().map(|piece| (piece.text, piece.tokens, piece.stopped)).collect()
    }

    fn expect(stops: &[&str], tokens: &[&[u8]], expected: &[(&str, usize, bool)]) {
        let expected: Vec<_> =
            expected.iter().map(|(text, tokens, stopped)| ((*text).to_owned(), *tokens, *stopped)).collect();
        assert_eq!(run(stops, tokens.iter().copied()), expected);
    }

    #[test]
    fn br_07_a_stop_that_straddles_tokens() {
        expect(
            &["ab"],
            &[b"xa", b"b", b"x", b"x"],
            &[("x", 0, false), ("", 1, true), ("", 0, true), ("", 0, true), ("", 0, true)],
        );
    }

    #[test]
    fn br_07_the_end_flushes_what_was_held() {
        expect(&["\nUser:"], &[b"x\nUser"], &[("x", 0, false), ("\nUser", 1, false)]);
    }

    #[test]
    fn tokens_within_a_character_are_final_with_it() {
        expect(
            &[],
            &[b"a\xe2", b"\x82", b"\xac", b"b"],
            &[("a", 0, false), ("", 0, false), ("€", 3, false), ("b", 1, false), ("", 0, false)],
        );
        expect(&[], &[b"\xe2", b"a"], &[("", 0, false), ("\u{fffd}a", 2, false), ("", 0, false)]);
        expect(&[], &[b"\xe2"], &[("", 0, false), ("\u{fffd}", 1, false)]);
    }

    #[test]
    fn tokens_without_text_are_final_in_order() {
        expect(&["!"], &[b"", b"a", b""], &[("", 1, false), ("a", 1, false), ("", 1, false), ("", 0, false)]);
        // Within a character they wait; before a stop string they count, within it they do not.
        expect(
            &["!"],
            &[b"\xe2", b"", b"\x82\xac"],
            &[("", 0, false), ("", 0, false), ("€", 3, false), ("", 0, false)],
        );
        expect(
            &["ab"],
            &[b"x", b"", b"a", b"", b"b"],
            &[("x", 1, false), ("", 1, false), ("", 0, false), ("", 0, false), ("", 0, true), ("", 0, true)],
        );
        // The first of two held letters is text after all, and so is what came between them.
        expect(&["aab"], &[b"a", b"", b"aab"], &[("", 0, false), ("", 0, false), ("a", 2, true), ("", 0, true)]);
    }

    #[test]
    fn the_end_may_complete_a_stop() {
        expect(&["\u{fffd}"], &[b"a", b"\xe2"], &[("a", 1, false), ("", 0, false), ("", 0, true)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn every_partition_gives_the_output_of_the_whole(
            bytes in messy_bytes(),
            stops in proptest::collection::vec("[ab€\u{fffd}]{0,4}", 0..4),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let join = |pieces: Vec<(String, usize, bool)>| {
                let stopped = pieces.iter().any(|(_, _, stopped)| *stopped);
                (pieces.into_iter().map(|(text, _, _)| text).collect::<String>(), stopped)
            };
            let whole = join(run(&stops, [bytes.as_slice()]));
            prop_assert_eq!(join(run(&stops, cut(&bytes, &cuts))), whole.clone());
            prop_assert_eq!(join(run(&stops, bytes.chunks(1))), whole);
        }

        /// A token is final at the first piece by which all text up to its last character is out, and every token is
        /// final at the end unless a stop string came before its text.
        #[test]
        fn tokens_are_counted_when_their_text_is_out(
            bytes in messy_bytes(),
            stops in proptest::collection::vec("[ab€]{1,4}", 0..3),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let tokens: Vec<&[u8]> = cut(&bytes, &cuts).into_iter().filter(|token| !token.is_empty()).collect();
            let pieces = run(&stops, tokens.iter().copied());
            let text = pieces.iter().map(|(text, _, _)| text.len()).sum::<usize>();
            let stopped = pieces.last().is_some_and(|(_, _, stopped)| *stopped);
            let (mut out, mut counted) = (0, 0);
            for (index, (text_now, tokens_now, stopped_now)) in pieces.iter().enumerate() {
                out += text_now.len();
                counted += tokens_now;
                if !stopped_now {
                    let taken = tokens.len().min(index + 1);
                    let out_whole = (1..=taken).filter(|&count| end_of(&bytes, &tokens, count) <= out).count();
                    prop_assert_eq!(counted, out_whole, "after piece {}", index);
                }
            }
            let expected = (0..tokens.len()).filter(|&n| !stopped || start_of(&bytes, &tokens, n) < text).count();
            prop_assert_eq!(counted, expected);
        }
    }

    fn byte_offset(tokens: &[&[u8]], count: usize) -> usize {
        tokens[..count].iter().map(|token| token.len()).sum()
    }

    /// Places of the characters that lossy decoding makes of bytes: (first byte, first byte after, text before, text after).
    fn characters(bytes: &[u8]) -> Vec<(usize, usize, usize, usize)> {
        let (mut at, mut text, mut places) = (0, 0, Vec::new());
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                let len = character.len_utf8();
                places.push((at, at + len, text, text + len));
                (at, text) = (at + len, text + len);
            }
            let invalid = chunk.invalid().len();
            if invalid > 0 {
                places.push((at, at + invalid, text, text + 3));
                (at, text) = (at + invalid, text + 3);
            }
        }
        places
    }

    /// Where, in the text, the character ends that holds the last byte of token `count - 1`.
    fn end_of(bytes: &[u8], tokens: &[&[u8]], count: usize) -> usize {
        let last = byte_offset(tokens, count) - 1;
        characters(bytes).iter().find(|place| place.1 > last).unwrap().3
    }

    /// Where, in the text, the character begins that holds the first byte of token `index`.
    fn start_of(bytes: &[u8], tokens: &[&[u8]], index: usize) -> usize {
        let first = byte_offset(tokens, index);
        characters(bytes).iter().find(|place| place.1 > first).unwrap().2
    }
}
