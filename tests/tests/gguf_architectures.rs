//! GGUF files of every architecture: names, config, and the logits of the same model in the Hugging Face layout.

use std::fs;
use std::path::{Path, PathBuf};

use annulus_engine::checkpoint::Checkpoint;
use annulus_engine::load::{LoadOptions, Loaded, load};
use annulus_tests::architectures::Model;
use annulus_tests::converter::{convert, names};
use annulus_tests::gguf::{Gguf, Value};
use annulus_tests::tiny::{self, TinyOptions};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

fn written(file: &Gguf) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, file.to_bytes()).unwrap();
    (dir, path)
}

fn open(model: &Path) -> Loaded {
    let options = LoadOptions { model: Some(model.display().to_string()), ..LoadOptions::default() };
    load(&options).unwrap_or_else(|error| panic!("{error}"))
}

/// A small model of every architecture that GGUF files are read of, by its name in them.
fn models() -> [(&'static str, Model); 3] {
    let (config, tensors) = tiny::llama(&TinyOptions::default());
    let mut gemma3 = Model::gemma3();
    gemma3.config["rope_scaling"] = json!({"rope_type": "linear", "factor": 8.0});
    [("llama", Model { config, tensors }), ("qwen3", Model::qwen3()), ("gemma3", gemma3)]
}

/// The GGUF file of one of them.
fn file_of(architecture: &str) -> Gguf {
    let models = models();
    let (_, Model { config, tensors }) = models.iter().find(|(name, _)| *name == architecture).unwrap();
    convert(config, tensors)
}

/// The names of the gguf package lead to those that it has them from.
#[test]
fn names_are_those_of_the_gguf_package() {
    for (architecture, _) in models() {
        let mut file = file_of(architecture);
        file.tensors.clear();
        let names = names(architecture);
        for name in names.values() {
            // Rows of q and k must make up heads.
            let dims: &[u64] = if name.contains("norm") { &[8] } else { &[8, 64] };
            let elements: u64 = dims.iter().product();
            file.tensor(name, dims, 0, vec![0; usize::try_from(elements).unwrap() * 4]);
        }
        let (_dir, path) = written(&file);
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert!(checkpoint.names().eq(names.keys().map(String::as_str)), "{architecture}");
    }
}

/// The same model gives the same logits, to the bit, far beyond the window of those that have one.
#[test]
fn both_layouts_give_the_same_logits() {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 250).collect();
    for (architecture, model) in models() {
        let folder = tempfile::tempdir().unwrap();
        model.write(folder.path()).unwrap();
        let (_dir, path) = written(&convert(&model.config, &model.tensors));
        let expected = open(folder.path()).session.all_logits(&tokens, &[40]).unwrap();
        assert!(expected.iter().all(|logit| logit.is_finite()) && expected[0] != expected[1], "{architecture}");
        let found = open(&path).session.all_logits(&tokens, &[40]).unwrap();
        assert!(found == expected, "{architecture}");
    }
}

/// A file of this architecture with these metadata, and an embedding of so many tokens.
fn config(architecture: &str, vocabulary: u64, fields: &[(&str, Value)]) -> Json {
    let mut file = Gguf::default();
    file.set("general.architecture", architecture.into());
    for (key, value) in fields {
        let key = if key.contains("ggml") { (*key).to_owned() } else { format!("{architecture}.{key}") };
        file.set(&key, value.clone());
    }
    let bytes = usize::try_from(vocabulary).unwrap() * 2;
    file.tensor("token_embd.weight", &[1, vocabulary], 1, vec![0; bytes]);
    let (_dir, path) = written(&file);
    Json::Object(Checkpoint::open(&path).unwrap().config().fields().clone())
}

/// All fields are these.
#[track_caller]
fn assert_fields(config: &Json, expected: &Json) {
    for (field, value) in expected.as_object().unwrap() {
        // 10000 and 10000.0 are the same.
        let same =
            config[field] == *value || config[field].as_f64().is_some_and(|number| Some(number) == value.as_f64());
        assert!(same, "{field}: {} is not {value}", config[field]);
    }
}

/// The metadata of the published files, and the models' own config.json.
#[test]
fn configs_of_gemma_3() {
    let common = |layers, width, inner, heads, kv_heads, head_dim, window| {
        vec![
            ("block_count", Value::U32(layers)),
            ("context_length", Value::U32(if layers == 26 { 32768 } else { 131_072 })),
            ("embedding_length", Value::U32(width)),
            ("feed_forward_length", Value::U32(inner)),
            ("attention.head_count", Value::U32(heads)),
            ("attention.head_count_kv", Value::U32(kv_heads)),
            ("attention.key_length", Value::U32(head_dim)),
            ("attention.value_length", Value::U32(head_dim)),
            ("attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
            ("attention.sliding_window", Value::U32(window)),
            ("rope.freq_base", Value::F32(1e6)),
            ("tokenizer.ggml.bos_token_id", Value::U32(2)),
            ("tokenizer.ggml.eos_token_id", Value::U32(106)),
        ]
    };
    // gemma-3-1b-it
    let one = config("gemma3", 262_144, &common(26, 1152, 6912, 4, 1, 256, 512));
    let mut expected = json!({
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attention_bias": false,
        "attn_logit_softcapping": null, "final_logit_softcapping": null, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
        "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "rope_local_base_freq": 10000, "rope_scaling": null,
        "rope_theta": 1_000_000, "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262_144,
        "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 106,
    });
    assert_fields(&one, &expected);
    // The text model of gemma-3-27b-it, whose attention is scaled by hidden_size / num_attention_heads.
    let mut fields = common(62, 5376, 21504, 32, 16, 128, 1024);
    fields.push(("rope.scaling.type", "linear".into()));
    fields.push(("rope.scaling.factor", Value::F32(8.0)));
    let largest = config("gemma3", 262_208, &fields);
    let own = json!({
        "head_dim": 128, "hidden_size": 5376, "num_hidden_layers": 62, "query_pre_attn_scalar": 168,
        "sliding_window": 1024, "vocab_size": 262_208,
    });
    assert_fields(&largest, &own);
    assert_fields(&largest["rope_scaling"], &json!({"rope_type": "linear", "factor": 8}));
    // Keys of newer files.
    let mut fields = common(26, 1152, 6912, 4, 1, 256, 512);
    fields.push(("attention.sliding_window_pattern", Value::U32(4)));
    fields.push(("rope.freq_base_swa", Value::F32(20000.0)));
    expected["sliding_window_pattern"] = json!(4);
    expected["rope_local_base_freq"] = json!(20000);
    assert_fields(&config("gemma3", 262_144, &fields), &expected);
}

#[test]
fn a_gemma_3_without_windows_sees_everything() {
    let mut file = file_of("gemma3");
    file.metadata.retain(|(key, _)| !key.contains("sliding_window"));
    let (_dir, path) = written(&file);
    let fields = Checkpoint::open(&path).unwrap().config().fields().clone();
    assert_eq!((&fields["sliding_window"], &fields["sliding_window_pattern"]), (&Json::Null, &json!(1)));
    open(&path).session.all_logits(&[1, 2, 3], &[3]).unwrap();
}

/// Qwen3-0.6B.
#[test]
fn the_config_of_qwen3() {
    let fields = [
        ("block_count", Value::U32(28)),
        ("context_length", Value::U32(40960)),
        ("embedding_length", Value::U32(1024)),
        ("feed_forward_length", Value::U32(3072)),
        ("attention.head_count", Value::U32(16)),
        ("attention.head_count_kv", Value::U32(8)),
        ("attention.key_length", Value::U32(128)),
        ("attention.value_length", Value::U32(128)),
        ("attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
        ("rope.freq_base", Value::F32(1e6)),
        ("tokenizer.ggml.bos_token_id", Value::U32(151_643)),
        ("tokenizer.ggml.eos_token_id", Value::U32(151_645)),
    ];
    let expected = json!({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false, "bos_token_id": 151_643,
        "eos_token_id": 151_645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6, "rope_scaling": null, "rope_theta": 1_000_000, "tie_word_embeddings": true,
        "use_sliding_window": false, "vocab_size": 151_936,
    });
    assert_fields(&config("qwen3", 151_936, &fields), &expected);
    let mut longer = fields.to_vec();
    longer.push(("rope.scaling.type", "yarn".into()));
    longer.push(("rope.scaling.factor", Value::F32(4.0)));
    longer.push(("rope.scaling.original_context_length", Value::U32(32768)));
    let scaling = &config("qwen3", 151_936, &longer)["rope_scaling"];
    assert_fields(scaling, &json!({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}));
}

#[test]
fn keys_and_values_of_one_length_are_needed() {
    let mut file = file_of("qwen3");
    file.set("qwen3.attention.value_length", Value::U32(8));
    let (_dir, path) = written(&file);
    let error = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(error.contains("\"qwen3.attention.value_length\" must be 16") && error.contains("found 8"), "{error}");
}

/// A vector of q whose rows lie interleaved cannot be put in order when it is packed in blocks.
#[test]
fn a_packed_bias_of_q_is_refused() {
    let mut file = file_of("llama");
    file.tensor("blk.0.attn_q.bias", &[64], 8, vec![0; 68]);
    let (_dir, path) = written(&file);
    let error = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_q.bias") && error.contains("Q8_0") && error.contains("F32"), "{error}");
}
