//! Checkpoints that are sound but not what their config says, or that ask for what is not supported.

use std::fs;
use std::path::Path;

use annulus_engine::load::{LoadOptions, load};
use annulus_tests::tiny::{TinyOptions, tiny_llama};
use serde_json::{Value, json};

/// Loads a tiny model whose config was changed, and gives the error.
fn error_with(change: impl FnOnce(&mut Value)) -> String {
    let folder = tempfile::tempdir().unwrap();
    tiny_llama(folder.path(), TinyOptions::default()).unwrap();
    edit(&folder.path().join("config.json"), change);
    let options = LoadOptions { model: Some(folder.path().display().to_string()), ..LoadOptions::default() };
    match load(&options) {
        Ok(_) => panic!("it was loaded"),
        Err(error) => error,
    }
}

fn edit(file: &Path, change: impl FnOnce(&mut Value)) {
    let mut config: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut config);
    fs::write(file, config.to_string()).unwrap();
}

fn with_field(field: &'static str, value: Value) -> String {
    error_with(|config| config[field] = value)
}

/// The error names all of these.
fn assert_names(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn an_unknown_architecture_is_named_with_those_that_are_known() {
    assert_names(&with_field("model_type", json!("mamba")), &["config.json", "mamba", "llama"]);
}

#[test]
fn zero_heads() {
    assert_names(&with_field("num_attention_heads", json!(0)), &["num_attention_heads", "at least 1"]);
    assert_names(&with_field("num_key_value_heads", json!(0)), &["num_key_value_heads", "at least 1"]);
}

#[test]
fn heads_that_do_not_divide() {
    assert_names(&with_field("num_key_value_heads", json!(3)), &["num_key_value_heads", "3", "4"]);
}

#[test]
fn a_config_of_another_model() {
    assert_names(&with_field("hidden_size", json!(128)), &["model.safetensors", "model.embed_tokens", "64", "128"]);
    assert_names(&with_field("intermediate_size", json!(7)), &["mlp", "7"]);
    assert_names(&with_field("num_hidden_layers", json!(3)), &["model.layers.2.", "no tensor"]);
}

#[test]
fn sizes_beyond_reason() {
    for field in ["hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim", "vocab_size"] {
        let error = with_field(field, json!(1u64 << 60));
        assert!(!error.is_empty(), "{field}");
    }
    assert_names(&with_field("hidden_size", json!(-1)), &["hidden_size", "-1"]);
    assert_names(&with_field("hidden_size", json!("64")), &["hidden_size", "64"]);
}

#[test]
fn an_odd_head_has_no_pairs_to_turn() {
    assert_names(&with_field("head_dim", json!(15)), &["head_dim", "15", "even"]);
}

#[test]
fn what_is_not_supported() {
    assert_names(&with_field("hidden_act", json!("gelu")), &["gelu", "silu"]);
    assert_names(&with_field("rope_scaling", json!({"rope_type": "longrope", "factor": 2.0})), &["longrope", "llama3"]);
    assert_names(&with_field("rope_scaling", json!({"rope_type": "linear", "factor": 0})), &["rope_scaling.factor"]);
    assert_names(&with_field("layer_types", json!(["sliding_attention", "full_attention"])), &["layer_types"]);
}

#[test]
fn a_missing_field() {
    let error = error_with(|config| {
        config.as_object_mut().unwrap().remove("rms_norm_eps");
    });
    assert_names(&error, &["config.json", "rms_norm_eps", "missing"]);
}

#[test]
fn a_name_that_is_nowhere() {
    let options = LoadOptions { model: Some("no-such-org/no-such-model".to_owned()), ..LoadOptions::default() };
    let Err(error) = load(&options) else { panic!("it was loaded") };
    assert_names(&error, &["no-such-org/no-such-model", "annulus list"]);
}
