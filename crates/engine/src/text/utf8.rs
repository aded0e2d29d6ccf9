//! Bytes that come in pieces, as text.

/// Decodes UTF-8 whose pieces may end within a character.
///
/// The law: however a byte string is cut into pieces, what [`push`](Utf8Stream::push) and [`finish`](Utf8Stream::finish)
/// append is what [`String::from_utf8_lossy`] makes of the whole: one U+FFFD for each maximal invalid part, and the
/// character U+FFFD itself is a character like any other.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The beginning of a character: at most three bytes, which a further byte may complete or break.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes the next bytes, and appends the characters that are certain now.
    ///
    /// Returns how much of the appended text owes nothing to these bytes: the U+FFFD of a character that earlier pieces
    /// began and this one broke off, if there is one.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) -> usize {
        let begun = self.pending.len();
        let mut broken_off = 0;
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    out.push_str(valid);
                    self.pending.clear();
                    return broken_off;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    // Checked by the call above; decoding it again costs little and cannot fail.
                    out.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        Some(invalid) => {
                            let is_first = rest.len() == begun + bytes.len() && valid.is_empty();
                            if is_first && invalid == begun {
                                broken_off = char::REPLACEMENT_CHARACTER.len_utf8();
                            }
                            out.push(char::REPLACEMENT_CHARACTER);
                            rest = &after[invalid..];
                        }
                        None => {
                            self.pending = after.to_vec();
                            return broken_off;
                        }
                    }
                }
            }
        }
    }

    /// Ends the text: a character that is still incomplete is one maximal invalid part.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Whether a character has begun and not ended.
    #[must_use]
    pub fn is_within_character(&self) -> bool {
        !self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::testing::{cut, messy_bytes};

    fn pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut stream = Utf8Stream::default();
        let mut out: Vec<String> = pieces
            .into_iter()
            .map(|piece| {
                let mut text = String::new();
                stream.push(piece, &mut text);
                text
            })
            .collect();
        let mut tail = String::new();
        stream.finish(&mut tail);
        out.push(tail);
        out
    }

    /// See <https://github.com/waybarrios/vllm-mlx/issues/109>.
    #[test]
    fn br_40_an_emoji_over_four_tokens() {
        let emoji = "🦀".as_bytes();
        assert_eq!(pieces(emoji.chunks(1)), ["", "", "", "🦀", ""]);
        assert_eq!(pieces([&emoji[..3], b"!"]), ["", "\u{fffd}!", ""]);
        assert_eq!(pieces([&emoji[..3]]), ["", "\u{fffd}"]);
    }

    #[test]
    fn br_40_a_genuine_replacement_character_does_not_stall() {
        assert_eq!(pieces(["a\u{fffd}".as_bytes(), b"b"]), ["a\u{fffd}", "b", ""]);
    }

    #[test]
    fn each_maximal_invalid_part_is_one_replacement_character() {
        assert_eq!(pieces([b"\xff\xff".as_slice(), b"\xe2\x82"]), ["\u{fffd}\u{fffd}", "", "\u{fffd}"]);
        assert_eq!(pieces([b"\xe2\x82".as_slice(), b"\xe2", b"\x82\xac"]), ["", "\u{fffd}", "€", ""]);
    }

    #[test]
    fn a_character_that_is_broken_off_is_told_from_what_follows() {
        for (pieces, expected) in [
            // Broken off by a letter, and by a byte that continues others but not this one.
            ([b"\xe2\x82".as_slice(), b"a"], 3),
            ([b"\xe0", b"\x80"], 3),
            ([b"\xe2", b"\xe2\x82\xac"], 3),
            // Completed, even to U+FFFD itself; broken off by a later byte of the same piece; nothing begun.
            ([b"\xe2\x82", b"\xac"], 0),
            ([b"\xef\xbf", b"\xbd"], 0),
            ([b"\xe2", b"\x82a"], 0),
            ([b"a", b"\xff"], 0),
            ([b"\xe2", b""], 0),
        ] {
            let mut stream = Utf8Stream::default();
            let mut out = String::new();
            assert_eq!(stream.push(pieces[0], &mut out), 0);
            assert_eq!(stream.push(pieces[1], &mut out), expected, "{pieces:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_partition_gives_the_text_of_the_whole(
            bytes in messy_bytes(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let expected = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(pieces(cut(&bytes, &cuts)).concat(), expected);
        }
    }
}
