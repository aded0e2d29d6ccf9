"""The tiny models that are compared: every architecture, with what its checkpoints vary in."""

# Small enough to turn several times over, with heads of the widths that have rules of their own.
WINDOW = 16
SLIDING, FULL = "sliding_attention", "full_attention"

LLAMA = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 320, "rope_theta": 10000.0, "max_position_embeddings": 512,
         "tie_word_embeddings": True}
QWEN3 = {"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-6, "vocab_size": 320, "rope_theta": 1000000.0,
         "max_position_embeddings": 512, "tie_word_embeddings": True}
GEMMA3 = {"model_type": "gemma3_text", "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 7,
          "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6, "vocab_size": 320,
          "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 40, "sliding_window": WINDOW,
          "sliding_window_pattern": 3, "max_position_embeddings": 512}
GEMMA4 = {"model_type": "gemma4_text", "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 7,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "global_head_dim": 64, "rms_norm_eps": 1e-6,
          "vocab_size": 320, "vocab_size_per_layer_input": 320, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
          "use_double_wide_mlp": False, "attention_k_eq_v": False, "final_logit_softcapping": 30.0, "sliding_window": WINDOW,
          "layer_types": [SLIDING] * 5 + [FULL, SLIDING], "max_position_embeddings": 512, "tie_word_embeddings": True,
          "rope_parameters": {FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
                              SLIDING: {"rope_theta": 10000.0, "rope_type": "default"}}}
KEYS_AS_VALUES = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
# As E2B: inputs for each layer, and the last layers read what the last ones of their kind before them wrote.
SHARED = {"num_hidden_layers": 10, "layer_types": ([SLIDING] * 4 + [FULL]) * 2, "num_kv_shared_layers": 4, "use_double_wide_mlp": True,
          "hidden_size_per_layer_input": 64, "num_key_value_heads": 1}
EXPERTS = {**KEYS_AS_VALUES, "enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 64}

FOUR = {"group_size": 64, "bits": 4}
MIXED = {"group_size": 32, "bits": 4, "modules": [
    ("embed_tokens", {"group_size": 64, "bits": 8}), ("q_proj", {"group_size": 128, "bits": 6}), ("o_proj", {"group_size": 32, "bits": 3}),
    ("up_proj", {"group_size": 64, "bits": 5}), ("down_proj", {"group_size": 32, "bits": 2}), ("layers.1.self_attn.k_proj", False)]}


def nested(kind, config, **changes):
    """As part of a model that also sees and hears."""
    config = {**config, **changes}
    return {"model_type": kind, "vocab_size": config["vocab_size"], "text_config": config}


def scaled(kind, **parameters):
    return {"rope_scaling": {"rope_type": kind, **parameters}}


# Name: config, type, quantization, and whose names the tensors have where they are not mlx-lm's.
PLAIN = {
    "Llama, plain": (LLAMA, "f32", None),
    "Llama, linear scaling": ({**LLAMA, **scaled("linear", factor=4.0)}, "f32", None),
    "Llama, llama3 scaling": ({**LLAMA, **scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                  original_max_position_embeddings=64)}, "f32", None),
    "Llama, traditional pairs": ({**LLAMA, "rope_traditional": True}, "f32", None),
    "Llama, biases, head of its own, one KV head": ({**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
                                                     "num_key_value_heads": 1}, "f32", None),
    "Llama, 4-bit": (LLAMA, "f32", FOUR),
    "Llama, 8-bit, groups of 32": (LLAMA, "bf16", {"group_size": 32, "bits": 8}),
    "Llama, bf16": (LLAMA, "bf16", None),
    "Qwen3, bf16": (QWEN3, "bf16", None),
    "Qwen3, yarn": ({**QWEN3, **scaled("yarn", factor=4.0, original_max_position_embeddings=64)}, "bf16", None),
    "Qwen3, head of its own, 4-bit": ({**QWEN3, "tie_word_embeddings": False}, "bf16", FOUR),
    "Qwen3, mixed bits": (QWEN3, "bf16", MIXED),
    "Gemma 3, bf16": (GEMMA3, "bf16", None),
    "Gemma 3, f16": (GEMMA3, "f16", None),
    "Gemma 3, f32": (GEMMA3, "f32", None),
    "Gemma 3, nested, linear scaling, 4-bit": (nested("gemma3", GEMMA3, **scaled("linear", factor=8.0)), "bf16", FOUR),
    "Gemma 3, mixed bits": (GEMMA3, "bf16", MIXED),
    "Gemma 4 dense, bf16": ({**GEMMA4, **KEYS_AS_VALUES}, "bf16", None),
    "Gemma 4 dense, f32": ({**GEMMA4, **KEYS_AS_VALUES}, "f32", None),
    "Gemma 4 dense, 4-bit": (nested("gemma4", GEMMA4, **KEYS_AS_VALUES), "bf16", FOUR),
    "Gemma 4 dense, mixed bits": ({**GEMMA4, **KEYS_AS_VALUES}, "bf16", MIXED),
    "Gemma 4 dense, values of their own, no cap": ({**GEMMA4, "final_logit_softcapping": None}, "bf16", None),
    "Gemma 4 E, bf16": (nested("gemma4", GEMMA4, **SHARED), "bf16", None),
    "Gemma 4 E, f32": ({**GEMMA4, **SHARED}, "f32", None),
    "Gemma 4 E, 4-bit": ({**GEMMA4, **SHARED}, "bf16", FOUR),
    "Gemma 4 E, mixed bits": (nested("gemma4", GEMMA4, **SHARED), "bf16", MIXED),
    # In float32 our kernels spell quantized weights out.
    "Gemma 4 E, mixed bits, f32": ({**GEMMA4, **SHARED}, "f32", MIXED),
    "Gemma 4 E, as transformers names it": (nested("gemma4", GEMMA4, **SHARED), "bf16", None, "transformers"),
    # MLX gathers plain matrices on the CPU in float32 only, so there is no plain bf16.
    "Gemma 4 experts, f32": ({**GEMMA4, **EXPERTS}, "f32", None),
    "Gemma 4 experts, as transformers names it": (nested("gemma4", GEMMA4, **EXPERTS), "f32", None, "transformers"),
}

# mlx-lm 0.32.2 hands `gather_qmm` an argument that MLX 0.32.2 does not know; 0.32.0 does not.
QUANTIZED_EXPERTS = {
    "Gemma 4 experts, 4-bit": (nested("gemma4", GEMMA4, **EXPERTS), "bf16", FOUR),
    "Gemma 4 experts, mixed bits": ({**GEMMA4, **EXPERTS}, "bf16", MIXED),
    "Gemma 4 experts, mixed bits, f32": ({**GEMMA4, **EXPERTS}, "f32", MIXED),
}
