//! The default model's file, read by us and by others.

use std::collections::BTreeMap;

use annulus_engine::checkpoint::{Checkpoint, Dtype, TensorData};
use annulus_engine::text::{ChatInput, ChatTemplate, Tokenizer, end_tokens};
use annulus_tests::model::default_gguf;
use serde_json::{Value, json};

/// See `fixtures/smollm2/make.py`.
const TENSORS: &str = include_str!("../fixtures/smollm2/tensors.json");

fn open() -> Checkpoint {
    Checkpoint::open(&default_gguf()).unwrap()
}

fn checksum(values: &[f32]) -> u64 {
    values
        .iter()
        .zip(0_u64..)
        .fold(0, |sum: u64, (value, index)| sum.wrapping_add(u64::from(value.to_bits()).wrapping_mul(2 * index + 1)))
}

#[test]
fn tensors_are_those_that_the_gguf_package_reads() {
    let checkpoint = open();
    let expected: BTreeMap<String, Value> = serde_json::from_str(TENSORS).unwrap();
    let names: Vec<&str> = checkpoint.names().collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>());
    assert_eq!(names.len(), 272);
    for (name, expected) in &expected {
        let shape: Vec<usize> = serde_json::from_value(expected["shape"].clone()).unwrap();
        let tensor = checkpoint.tensor(name, Some(&shape)).unwrap();
        let reference = checkpoint.to_f32(name).unwrap();
        assert_eq!(checksum(&reference).to_string(), expected["sum"].as_str().unwrap(), "{name}");
        // The sign of zero aside, the affine form stands for the same numbers.
        // Not with assert_eq: it would print millions of numbers.
        let same = tensor.to_f32().unwrap() == reference;
        assert!(same, "{name}: the affine form differs");
    }
}

#[test]
fn weights_come_in_the_representation_of_the_file() {
    let checkpoint = open();
    let affine = |name: &str| match checkpoint.tensor(name, None).unwrap() {
        TensorData::Affine(affine) => (affine.bits, affine.group_size, affine.packed.shape, affine.scales.shape),
        TensorData::Plain(_) => panic!("{name} is plain"),
    };
    assert_eq!(affine("model.embed_tokens.weight"), (8, 32, vec![49152, 144], vec![49152, 18]));
    assert_eq!(affine("model.layers.29.self_attn.k_proj.weight"), (4, 32, vec![192, 72], vec![192, 18]));
    match checkpoint.tensor("model.norm.weight", Some(&[576])).unwrap() {
        TensorData::Plain(plain) => {
            assert_eq!(plain.dtype, Dtype::F32);
            let place = plain.place.unwrap();
            assert_eq!(&place.file.bytes()[place.offset..][..plain.bytes.len()], &*plain.bytes);
        }
        TensorData::Affine(_) => panic!("norms are plain"),
    }
    assert_eq!(checkpoint.total_bytes(), 98_362_432);
    assert!(checkpoint.created() > 1_700_000_000);
}

#[test]
fn errors_name_file_tensor_and_expectation() {
    let checkpoint = open();
    let shape = checkpoint.tensor("model.norm.weight", Some(&[64])).unwrap_err().to_string();
    assert!(shape.contains("Q4_1.gguf: tensor \"model.norm.weight\" has shape [576]"), "{shape}");
    assert!(shape.contains("asks for [64]"), "{shape}");
    let missing = checkpoint.tensor("lm_head.weight", None).unwrap_err().to_string();
    assert!(missing.contains("no tensor \"lm_head.weight\""), "{missing}");
    let near = checkpoint.tensor("model.layers.30.mlp.up_proj.weight", None).unwrap_err().to_string();
    assert!(near.contains("model.layers.0.mlp.up_proj.weight"), "{near}");
}

#[test]
fn the_config_is_that_of_the_original() {
    let config = open().config().clone();
    // As in the model's own config.json.
    let expected = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 49152,
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
        "rope_scaling": null, "tie_word_embeddings": true, "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&config.fields()[field], value, "{field}");
    }
    assert_eq!(config.count("head_dim").unwrap(), 64);
    assert!(config.quantization("model.layers.0.mlp.up_proj").unwrap().is_none());
}

#[test]
fn a_chat_becomes_tokens() {
    let checkpoint = open();
    let tokenizer = Tokenizer::open(&checkpoint).unwrap();
    let template = ChatTemplate::open(&checkpoint, &tokenizer).unwrap().unwrap();
    let prompt = template
        .render(&ChatInput {
            messages: vec![json!({"role": "user", "content": "Hi"})],
            add_generation_prompt: true,
            ..ChatInput::default()
        })
        .unwrap();
    let ids = tokenizer.encode(&prompt, false).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 3, "three turns begin");
    assert_eq!(ids.iter().filter(|&&id| id == 2).count(), 2, "two turns end");
    assert_eq!(tokenizer.encode(&prompt, true).unwrap(), ids, "nothing is added around a text");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.vocab_size()), (Some(1), vec![2], 49152));
    assert_eq!(end_tokens(&checkpoint, &tokenizer).unwrap(), [2]);
    assert_eq!(tokenizer.special_tokens().get("eos_token"), Some("<|im_end|>"));
    assert!((0..17).all(|id| tokenizer.is_special(id)) && !tokenizer.is_special(17));
}
