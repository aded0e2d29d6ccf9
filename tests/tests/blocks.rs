//! Blocks of every encoding, against the numbers that the gguf package reads in them (`fixtures/blocks`).

use std::collections::BTreeMap;
use std::fs;

use annulus_engine::checkpoint::gguf::{Encoding, Target};
use annulus_engine::checkpoint::{Checkpoint, TensorData};
use annulus_tests::gguf::small_llama;
use serde_json::Value;

const BLOCKS: &str = include_str!("../fixtures/blocks/blocks.json");

struct Case {
    encoding: Encoding,
    kind: u32,
    blocks: Vec<u8>,
    numbers: Vec<f32>,
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes().as_chunks::<2>().0;
    digits.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn cases() -> Vec<Case> {
    let cases: BTreeMap<String, Value> = serde_json::from_str(BLOCKS).unwrap();
    let kinds =
        [(2, "Q4_0"), (3, "Q4_1"), (6, "Q5_0"), (7, "Q5_1"), (8, "Q8_0"), (12, "Q4_K"), (13, "Q5_K"), (14, "Q6_K")];
    assert_eq!(cases.len(), kinds.len());
    kinds
        .map(|(kind, name)| {
            let numbers = bytes(&cases[name]["numbers"]);
            Case {
                encoding: Encoding::from_ggml(kind).unwrap(),
                kind,
                blocks: bytes(&cases[name]["blocks"]),
                numbers: numbers.as_chunks::<4>().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
            }
        })
        .into()
}

/// Equal as numbers: only zeros of either sign count as the same.
#[track_caller]
fn assert_exact(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!(ours == theirs, "{what}, number {place}: ours {ours:e}, theirs {theirs:e}");
    }
}

#[test]
fn blocks_are_decoded_exactly() {
    for Case { encoding, blocks, numbers, .. } in cases() {
        let mut ours = Vec::new();
        encoding.decode(&blocks, &mut ours);
        assert_exact(&ours, &numbers, &format!("{encoding:?}"));
    }
}

/// The same in a file, in the affine form in which models use them.
#[test]
fn the_affine_form_is_exact() {
    for Case { encoding, kind, blocks, numbers } in cases() {
        let layout = encoding.layout();
        let (columns, rows) = (layout.elements, numbers.len() / layout.elements);
        let mut file = small_llama();
        file.tensor("output.weight", &[columns as u64, rows as u64], kind, blocks);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        fs::write(&path, file.to_bytes()).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        let tensor = checkpoint.tensor("lm_head.weight", Some(&[rows, columns])).unwrap();
        assert_exact(&tensor.to_f32().unwrap(), &numbers, &format!("{encoding:?}, affine"));
        assert_exact(&checkpoint.to_f32("lm_head.weight").unwrap(), &numbers, &format!("{encoding:?}, decoded"));
        let TensorData::Affine(affine) = tensor else { panic!("{encoding:?} is plain") };
        assert_eq!(layout.target, Target::Affine { bits: affine.bits, group_size: affine.group_size });
        assert_eq!(affine.packed.shape, [rows, columns * affine.bits / 32]);
        assert_eq!(affine.scales.shape, [rows, columns / affine.group_size]);
    }
}
