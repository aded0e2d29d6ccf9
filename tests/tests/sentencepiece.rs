//! SentencePiece vocabularies in GGUF files, against what SentencePiece makes of the same texts (`fixtures/sentencepiece`).
//! Real vocabularies are compared by `parity/published`.

use std::fs;

use annulus_engine::checkpoint::GgufFile;
use annulus_engine::text::Tokenizer;
use annulus_tests::gguf::{Gguf, Value};
use serde_json::{Value as Json, from_value};

struct Vocabulary {
    tokens: Vec<String>,
    kinds: Vec<i32>,
    scores: Vec<f32>,
    cases: Vec<Case>,
}

struct Case {
    text: String,
    ids: Vec<u32>,
    with_space: Option<Vec<u32>>,
}

impl Vocabulary {
    fn id(&self, token: &str) -> u32 {
        u32::try_from(self.tokens.iter().position(|other| other == token).unwrap()).unwrap()
    }
}

fn vocabulary() -> Vocabulary {
    let file: Json = serde_json::from_str(include_str!("../fixtures/sentencepiece/vocabulary.json")).unwrap();
    let case = |case: &Json| Case {
        text: from_value(case["text"].clone()).unwrap(),
        ids: from_value(case["ids"].clone()).unwrap(),
        with_space: from_value(case["with_space"].clone()).unwrap(),
    };
    Vocabulary {
        tokens: from_value(file["tokens"].clone()).unwrap(),
        kinds: from_value(file["kinds"].clone()).unwrap(),
        scores: from_value(file["scores"].clone()).unwrap(),
        cases: file["cases"].as_array().unwrap().iter().map(case).collect(),
    }
}

fn tokenizer(vocabulary: &Vocabulary, change: impl FnOnce(&mut Gguf)) -> Tokenizer {
    let mut file = Gguf::default();
    file.set("tokenizer.ggml.model", "llama".into())
        .set("tokenizer.ggml.tokens", Value::Strings(vocabulary.tokens.clone()))
        .set("tokenizer.ggml.token_type", Value::I32s(vocabulary.kinds.clone()))
        .set("tokenizer.ggml.scores", Value::F32s(vocabulary.scores.clone()))
        .set("tokenizer.ggml.bos_token_id", Value::U32(1))
        .set("tokenizer.ggml.eos_token_id", Value::U32(2))
        .set("tokenizer.ggml.unknown_token_id", Value::U32(0));
    change(&mut file);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocabulary.gguf");
    fs::write(&path, file.to_bytes()).unwrap();
    Tokenizer::from_gguf(&GgufFile::open(&path).unwrap()).unwrap()
}

fn without_prefix(file: &mut Gguf) {
    file.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
}

#[test]
fn texts_are_cut_as_sentencepiece_cuts_them() {
    let vocabulary = vocabulary();
    let (plain, prefixed) = (tokenizer(&vocabulary, without_prefix), tokenizer(&vocabulary, |_| {}));
    assert!(vocabulary.cases.len() >= 75);
    for Case { text, ids, with_space } in &vocabulary.cases {
        assert_eq!(&plain.encode(text, false).unwrap(), ids, "{text:?}");
        if let Some(with_space) = with_space {
            assert_eq!(&prefixed.encode(text, false).unwrap(), with_space, "{text:?} with a space");
        }
        // U+2581 itself is a space from here on.
        assert_eq!(plain.decode(ids), text.replace('▁', " "), "{text:?}");
    }
}

#[test]
fn a_text_begins_as_the_file_says() {
    let vocabulary = vocabulary();
    let around = |change: fn(&mut Gguf)| tokenizer(&vocabulary, change).encode("", true).unwrap();
    assert_eq!(around(|_| {}), [1]);
    assert_eq!(around(|file| _ = file.set("tokenizer.ggml.add_bos_token", Value::Bool(false))), [0_u32; 0]);
    assert_eq!(around(|file| _ = file.set("tokenizer.ggml.add_eos_token", Value::Bool(true))), [1, 2]);
}

/// A chat template writes special tokens out. Each part of a text between tokens that were added begins anew, as llama.cpp
/// and transformers have it.
#[test]
fn added_tokens_are_read_in_texts() {
    let vocabulary = vocabulary();
    let ids = tokenizer(&vocabulary, |_| {}).encode("<s>the</s>the<mark>the", false).unwrap();
    let the = vocabulary.id("▁the");
    assert_eq!(ids, [1, the, 2, the, vocabulary.id("<mark>"), the]);
}

#[test]
fn bytes_of_tokens() {
    let vocabulary = vocabulary();
    let tokenizer = tokenizer(&vocabulary, without_prefix);
    let id = |text: &str| vocabulary.id(text);
    assert_eq!(tokenizer.token_bytes(id("▁the")), b" the");
    assert_eq!(tokenizer.token_bytes(id("   ")), b"   ");
    assert_eq!(tokenizer.token_bytes(id("<0xE2>")), [0xe2]);
    assert_eq!(tokenizer.token_bytes(id("<mark>")), b"<mark>");
    assert!(
        tokenizer.is_special(id("<s>")) && tokenizer.is_special(id("<unk>")) && !tokenizer.is_special(id("<mark>"))
    );
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), vec![2]));
}
