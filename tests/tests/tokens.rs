//! Token ids of the default model, against llama.cpp's (`parity/tokens`).

use std::sync::Arc;

use annulus_engine::checkpoint::Checkpoint;
use annulus_engine::text::{TextStream, Tokenizer};
use annulus_tests::model::default_gguf;

const STRINGS: &str = include_str!("../parity/tokens/strings.jsonl");
const LLAMA_CPP: &str = include_str!("../parity/tokens/llama-cpp.jsonl");

fn tokenizer() -> Tokenizer {
    Tokenizer::open(&Checkpoint::open(&default_gguf()).unwrap()).unwrap()
}

fn strings() -> Vec<String> {
    STRINGS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ids_are_those_of_llama_cpp() {
    let tokenizer = tokenizer();
    let strings = strings();
    let theirs: Vec<Vec<u32>> = LLAMA_CPP.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(strings.len(), theirs.len());
    assert!(strings.len() >= 200);
    for (text, theirs) in strings.iter().zip(theirs) {
        assert_eq!(tokenizer.encode(text, false).unwrap(), theirs, "{text:?}");
    }
}

/// Bytes that SmolLM2's vocabulary has no token for: some control characters, the first bytes of planes 4 to 11, and bytes
/// that UTF-8 never has. Every tokenizer leaves them out.
const WITHOUT_TOKEN: [u8; 8] = [0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xf1, 0xf2];

#[test]
fn bytes_of_the_tokens_are_the_text() {
    let tokenizer = tokenizer();
    let mut texts = strings();
    texts.push("all ASCII: ".chars().chain('\0'..='\x7f').collect());
    texts.push(
        "one of each plane: ".chars().chain((0..=16).filter_map(|plane| char::from_u32(plane << 16 | 0x40))).collect(),
    );
    for text in texts {
        let ids = tokenizer.encode(&text, false).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        let expected: Vec<u8> = text.bytes().filter(|byte| !WITHOUT_TOKEN.contains(byte)).collect();
        assert_eq!(bytes, expected, "{text:?}");
    }
}

#[test]
fn a_stream_gives_the_text_without_special_tokens() {
    let tokenizer = Arc::new(tokenizer());
    for text in strings() {
        let ids = tokenizer.encode(&text, false).unwrap();
        let mut stream = TextStream::new(Arc::clone(&tokenizer), vec![]);
        let mut pieces: Vec<_> = ids.iter().map(|&id| stream.push(id)).collect();
        pieces.push(stream.finish());
        let out: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(out, tokenizer.decode(&ids), "{text:?}");
        assert_eq!(pieces.iter().map(|piece| piece.tokens).sum::<usize>(), ids.len(), "{text:?}");
        assert!(!pieces.iter().any(|piece| piece.stopped));
    }
}

/// Long runs of one kind are where patterns with look-ahead go wrong: they run out of steps, or take quadratic time, which
/// for this length is hours.
#[test]
fn long_texts_are_cut_as_short_ones_are() {
    let tokenizer = tokenizer();
    for unit in [" ", "\n", " \n", "a", "1", "é", "🦀", ".", " a", "\u{3000}"] {
        let text = unit.repeat(300_000 / unit.len()) + "x";
        let ids = tokenizer.encode(&text, false).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        assert!(bytes == text.as_bytes(), "a long run of {unit:?} is changed");
    }
}

/// The server encodes on many threads.
#[test]
fn threads_share_a_tokenizer() {
    let tokenizer = tokenizer();
    let strings = strings();
    let alone: Vec<Vec<u32>> = strings.iter().map(|text| tokenizer.encode(text, false).unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (text, ids) in strings.iter().zip(&alone) {
                    assert_eq!(&tokenizer.encode(text, false).unwrap(), ids);
                }
            });
        }
    });
}
