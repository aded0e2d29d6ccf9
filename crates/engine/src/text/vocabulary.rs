//! The exact bytes of every token.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How the model's tokens spell bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's: each byte is a printable character of its own.
    ByteLevel,
    /// SentencePiece's: `▁` is a space, everything else itself.
    SentencePiece {
        /// Whether `<0x0A>` is a byte.
        byte_tokens: bool,
    },
}

/// Bytes of all tokens, one behind the other.
#[derive(Debug)]
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// Where token `id` ends in `bytes`; it begins where the one before it ends.
    ends: Vec<usize>,
    special: Vec<bool>,
}

/// A token as the tokenizer describes it.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// A token of the model, in the model's spelling.
    Model(String),
    /// A token that was added to the model. It is written as it is, but for SentencePiece's `▁`, unless it is special.
    Added { content: String, special: bool },
}

impl Vocabulary {
    /// A vocabulary from entries in the order of ids; a number that no token has is `None`, and has no bytes.
    pub(super) fn new(spelling: Spelling, entries: impl IntoIterator<Item = Option<Entry>>) -> Self {
        let mut vocabulary = Self { bytes: Vec::new(), ends: Vec::new(), special: Vec::new() };
        for entry in entries {
            let mut is_special = false;
            match entry {
                None => {}
                Some(Entry::Model(token)) => spell(spelling, &token, &mut vocabulary.bytes),
                Some(Entry::Added { content, special }) => {
                    match spelling {
                        // Runs of spaces are added to some vocabularies.
                        Spelling::SentencePiece { .. } if !special => spell(spelling, &content, &mut vocabulary.bytes),
                        _ => vocabulary.bytes.extend_from_slice(content.as_bytes()),
                    }
                    is_special = special;
                }
            }
            vocabulary.ends.push(vocabulary.bytes.len());
            vocabulary.special.push(is_special);
        }
        vocabulary
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let Some((id, end)) = usize::try_from(id).ok().and_then(|id| Some((id, *self.ends.get(id)?))) else {
            return &[];
        };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..end]
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        usize::try_from(id).is_ok_and(|id| self.special.get(id) == Some(&true))
    }
}

fn spell(spelling: Spelling, token: &str, out: &mut Vec<u8>) {
    match spelling {
        Spelling::ByteLevel => {
            let start = out.len();
            for character in token.chars() {
                match BYTES.get(&character) {
                    Some(&byte) => out.push(byte),
                    None => {
                        // A token outside the alphabet stands for itself, all of it, as in the reference decoder.
                        out.truncate(start);
                        out.extend_from_slice(token.as_bytes());
                        return;
                    }
                }
            }
        }
        Spelling::SentencePiece { byte_tokens } => match byte_token(token).filter(|_| byte_tokens) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(token.replace('▁', " ").as_bytes()),
        },
    }
}

/// The byte that `<0x0A>` stands for.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// GPT-2's alphabet: printable bytes of Latin-1 are themselves, the others follow from U+0100 on, in order.
fn alphabet() -> impl Iterator<Item = (u8, char)> {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = '\u{100}'..;
    (0..=u8::MAX).map(move |byte| {
        let character =
            if is_printable(byte) { char::from(byte) } else { others.next().unwrap_or(char::REPLACEMENT_CHARACTER) };
        (byte, character)
    })
}

static BYTES: LazyLock<HashMap<char, u8>> =
    LazyLock::new(|| alphabet().map(|(byte, character)| (character, byte)).collect());

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(spelling: Spelling, token: &str) -> Vec<u8> {
        let mut out = Vec::new();
        spell(spelling, token, &mut out);
        out
    }

    #[test]
    fn byte_level_tokens_spell_bytes() {
        let bytes = |token| bytes_of(Spelling::ByteLevel, token);
        assert_eq!(bytes("Ġhello"), b" hello");
        assert_eq!(bytes("Ċ"), b"\n");
        assert_eq!(bytes("ðŁ¦Ģ"), "🦀".as_bytes());
        assert_eq!(bytes("ÂŃ"), [0xc2, 0xad]);
        // Outside the alphabet as a whole.
        assert_eq!(bytes("Ġ€"), "Ġ€".as_bytes());
    }

    #[test]
    fn the_alphabet_is_that_of_the_reference() {
        let ours: std::collections::BTreeSet<char> = alphabet().map(|(_, character)| character).collect();
        let theirs = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        assert_eq!(ours, theirs.into_iter().collect());
        assert_eq!(ours.len(), 256);
    }

    #[test]
    fn sentencepiece_tokens_spell_spaces_and_bytes() {
        let bytes = |token| bytes_of(Spelling::SentencePiece { byte_tokens: true }, token);
        assert_eq!(bytes("▁the"), b" the");
        assert_eq!(bytes("<0x0A>"), b"\n");
        assert_eq!(bytes("<0xE2>"), [0xe2]);
        for literal in ["<0x>", "<0x0AB>", "<0xGG>", "<0x+1>", "x<0x0A>"] {
            assert_eq!(bytes(literal), literal.as_bytes());
        }
        let literal = Spelling::SentencePiece { byte_tokens: false };
        assert_eq!(bytes_of(literal, "<0x0A>"), b"<0x0A>");
    }

    #[test]
    fn added_runs_of_spaces_are_spaces() {
        let added = |content: &str, special| Some(Entry::Added { content: content.to_owned(), special });
        let spelling = Spelling::SentencePiece { byte_tokens: true };
        let vocabulary = Vocabulary::new(spelling, [added("▁▁", false), added("<▁>", true)]);
        assert_eq!(vocabulary.bytes(0), b"  ");
        assert_eq!(vocabulary.bytes(1), "<▁>".as_bytes());
    }

    #[test]
    fn ids_that_no_token_has_are_empty() {
        let entries = [
            Some(Entry::Model("a".to_owned())),
            None,
            Some(Entry::Added { content: "<|end|>".to_owned(), special: true }),
            Some(Entry::Added { content: "Ġ".to_owned(), special: false }),
        ];
        let vocabulary = Vocabulary::new(Spelling::ByteLevel, entries);
        assert_eq!(vocabulary.len(), 4);
        assert_eq!(vocabulary.bytes(0), b"a");
        assert_eq!(vocabulary.bytes(1), b"");
        assert_eq!(vocabulary.bytes(2), b"<|end|>");
        assert_eq!(vocabulary.bytes(3), "Ġ".as_bytes());
        assert_eq!(vocabulary.bytes(u32::MAX), b"");
        assert!(vocabulary.is_special(2));
        assert!(!vocabulary.is_special(3) && !vocabulary.is_special(4));
    }
}
