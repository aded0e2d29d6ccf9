//! Configs of every architecture that contradict themselves or the weights, or ask for what is not supported: the error
//! names the field, what was asked, and what is possible.

use annulus_engine::device::{ComputeDtype, DeviceChoice};
use annulus_engine::load::{LoadOptions, load};
use annulus_tests::architectures::Model;
use serde_json::{Value, json};

fn error(model: &Model) -> String {
    let folder = tempfile::tempdir().unwrap();
    model.write(folder.path()).unwrap();
    let options = LoadOptions { model: Some(folder.path().display().to_string()), ..LoadOptions::default() };
    match load(&options) {
        Ok(_) => panic!("it was loaded: {}", model.config),
        Err(error) => error,
    }
}

/// With this field changed, or removed where the value is null, the error names all of these parts.
#[track_caller]
fn refused(mut model: Model, field: &str, value: Value, parts: &[&str]) {
    model.text()[field] = value;
    let error = error(&model);
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn numbers_that_contradict_each_other() {
    for (_, model) in Model::all() {
        refused(model.clone(), "num_key_value_heads", json!(3), &["num_key_value_heads", "3", "4"]);
        refused(model.clone(), "num_key_value_heads", json!(0), &["num_key_value_heads", "at least 1"]);
        refused(model.clone(), "num_attention_heads", json!(0), &["num_attention_heads", "at least 1"]);
        refused(model.clone(), "head_dim", json!(15), &["head_dim", "15", "even"]);
        refused(model.clone(), "hidden_size", json!(64), &["tensor", "32", "64"]);
        refused(model.clone(), "intermediate_size", json!(7), &["mlp", "7"]);
        refused(model.clone(), "num_hidden_layers", json!(1u64 << 60), &["num_hidden_layers", "tensors"]);
        refused(model.clone(), "vocab_size", json!(1u64 << 60), &["320"]);
        refused(model, "head_dim", json!(1u64 << 62), &["tensor"]);
    }
}

#[test]
fn another_activation() {
    refused(Model::qwen3(), "hidden_act", json!("gelu"), &["hidden_act", "gelu", "silu"]);
    for model in [Model::gemma3(), Model::gemma4()] {
        refused(model, "hidden_activation", json!("relu"), &["hidden_activation", "relu", "gelu_pytorch_tanh"]);
    }
}

#[test]
fn qwen3_with_what_it_does_not_have() {
    refused(Model::qwen3(), "use_sliding_window", json!(true), &["use_sliding_window", "false"]);
    refused(Model::qwen3(), "layer_types", json!(["full_attention", "sliding_attention"]), &["layer_types"]);
    refused(Model::qwen3(), "rope_theta", Value::Null, &["rope_theta", "missing"]);
    refused(Model::qwen3(), "rope_theta", json!(-1), &["rope_theta", "above 0"]);
}

#[test]
fn rope_scalings_that_cannot_be() {
    let scaling = |value: Value, parts: &[&str]| refused(Model::qwen3(), "rope_scaling", value, parts);
    scaling(json!({"rope_type": "longrope"}), &["longrope", "yarn", "llama3"]);
    scaling(json!({"rope_type": "yarn"}), &["rope_scaling.factor", "missing"]);
    scaling(json!({"rope_type": "yarn", "factor": 0.5}), &["rope_scaling.factor", "at least 1"]);
    scaling(json!({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 3}), &["beta_fast", "beta_slow"]);
    scaling(json!({"rope_type": "yarn", "factor": 2, "beta_slow": 0}), &["rope_scaling.beta_slow", "above 0"]);
    scaling(json!({"rope_type": "linear", "factor": 0}), &["rope_scaling.factor", "above 0"]);
    scaling(json!({"rope_type": "default", "partial_rotary_factor": 0.5}), &["partial_rotary_factor", "proportional"]);
    scaling(json!({"rope_type": "proportional", "partial_rotary_factor": 1.5}), &["partial_rotary_factor", "0 to 1"]);
    scaling(json!({"rope_type": "proportional", "partial_rotary_factor": 0.2}), &["partial_rotary_factor", "pairs"]);
}

#[test]
fn layer_types_that_do_not_fit() {
    for model in [Model::gemma3(), Model::gemma4()] {
        refused(model.clone(), "layer_types", json!(["full_attention"]), &["layer_types", "1", "3"]);
        let odd = json!(["full_attention", "chunked_attention", "full_attention"]);
        refused(model.clone(), "layer_types", odd, &["chunked_attention", "sliding_attention"]);
        refused(model.clone(), "sliding_window", json!(0), &["sliding_window", "at least 1"]);
        refused(model, "sliding_window", Value::Null, &["sliding_window", "missing"]);
    }
    refused(Model::gemma3(), "sliding_window_pattern", json!(0), &["sliding_window_pattern", "at least 1"]);
}

#[test]
fn gemma3_with_what_it_does_not_have() {
    for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
        refused(Model::gemma3(), field, json!(50.0), &[field, "50", "null"]);
    }
    refused(Model::gemma3(), "use_bidirectional_attention", json!(true), &["use_bidirectional_attention", "false"]);
    refused(Model::gemma3(), "attention_bias", json!(true), &["attention_bias", "false"]);
    refused(Model::gemma3(), "query_pre_attn_scalar", json!(0), &["query_pre_attn_scalar", "above 0"]);
}

#[test]
fn gemma4_shared_layers_without_a_donor() {
    let shared =
        |count: usize, parts: &[&str]| refused(Model::gemma4_shared(), "num_kv_shared_layers", json!(count), parts);
    shared(5, &["num_kv_shared_layers", "5", "at least one"]);
    shared(6, &["num_kv_shared_layers", "6"]);
    shared(4, &["num_kv_shared_layers", "layer 1", "type"]);
    // Then the third layer owns a cache, for which there are tensors, and the fourth does, for which there are none.
    shared(1, &["layers.3.self_attn.k_proj"]);
}

#[test]
fn gemma4_experts_that_do_not_fit() {
    let model = Model::gemma4_experts;
    refused(model(), "top_k_experts", json!(7), &["top_k_experts", "7", "6"]);
    refused(model(), "top_k_experts", json!(0), &["top_k_experts", "at least 1"]);
    refused(model(), "num_experts", Value::Null, &["num_experts", "missing"]);
    refused(model(), "num_experts", json!(8), &["router", "8", "6"]);
    refused(model(), "moe_intermediate_size", json!(24), &["experts.gate_up_proj", "48", "32"]);
}

#[test]
fn gemma4_with_what_it_does_not_have() {
    let model = Model::gemma4;
    refused(model(), "use_bidirectional_attention", json!("all"), &["use_bidirectional_attention", "all", "vision"]);
    refused(model(), "final_logit_softcapping", json!(0), &["final_logit_softcapping", "above 0"]);
    refused(model(), "global_head_dim", json!(64), &["layers.1.self_attn", "64"]);
    refused(model(), "num_global_key_value_heads", json!(3), &["num_global_key_value_heads", "3"]);
    refused(model(), "per_layer_config", json!({"2": {"head_dim": 8}}), &["head_dim", "layer type"]);
    refused(model(), "rope_parameters", json!({"full_attention": {}}), &["rope_parameters.sliding_attention"]);
    refused(
        Model::gemma4_shared(),
        "vocab_size_per_layer_input",
        json!(10),
        &["vocab_size_per_layer_input", "10", "320"],
    );
}

/// MLX has no such product; better said before the first prompt.
#[test]
fn plain_experts_in_half_types_on_a_cpu() {
    let folder = tempfile::tempdir().unwrap();
    Model::gemma4_experts().write(folder.path()).unwrap();
    let options = LoadOptions {
        model: Some(folder.path().display().to_string()),
        device: DeviceChoice::Cpu,
        compute_dtype: ComputeDtype::Bf16,
        ..LoadOptions::default()
    };
    let Err(error) = load(&options) else { panic!("it was loaded") };
    for part in ["experts", "bfloat16", "--compute-dtype f32", "quantized"] {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn weights_of_another_library() {
    let mut model = Model::gemma4();
    model.config["quantization_config"] = json!({"quant_method": "gptq", "bits": 4});
    assert!(error(&model).contains("gptq") && error(&model).contains("affine"), "{}", error(&model));
    model.config["quantization_config"] = Value::Null;
    model.tensors.retain(|(name, ..)| !name.contains("embed_tokens"));
    assert!(error(&model).contains("model.embed_tokens.weight"), "{}", error(&model));
}
