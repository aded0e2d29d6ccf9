"""Writes the default model's GGUF file as a folder that mlx-lm loads.

It shares nothing with our loader: GGUF is read by the `gguf` package, so a mistake of ours cannot stand on both sides.
Weights keep their blocks (Q4_1 and Q8_0 are affine groups of 32), with float32 scales, the setting in which mlx-lm is
fastest on a CPU.

usage: convert.py MODEL.gguf FOLDER
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

GROUP = 32

# Parts of a block of 32 elements: a float16 scale, for Q4_1 a float16 minimum, then the elements.
BLOCKS = {GGMLQuantizationType.Q4_1: 4, GGMLQuantizationType.Q8_0: 8}

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def unpack(tensor):
    """(integers, scales, biases) of a quantized tensor, one row an output."""
    columns, rows = (int(n) for n in tensor.shape)
    blocks = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(rows, columns // GROUP, -1)
    scales = blocks[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
    if tensor.tensor_type == GGMLQuantizationType.Q8_0:
        # Signed bytes, shifted so that MLX's unsigned ones stand for the same numbers.
        integers = blocks[..., 2:].view(np.int8).astype(np.int16) + 128
        biases = -128 * scales
    else:
        biases = blocks[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
        nibbles = blocks[..., 4:]
        # The low halves are the first 16 elements, the high halves the others.
        integers = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(np.int16)
    return integers.reshape(rows, columns), scales, biases


def pack(integers, bits):
    """Little-endian words along the last axis, the first element in the lowest bits."""
    per_word = 32 // bits
    grouped = integers.astype(np.uint32).reshape(*integers.shape[:-1], -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint32) * bits
    return np.bitwise_or.reduce(grouped << shifts, axis=-1)


def halves_apart(array, heads):
    """Rows of a head from pairs of neighbours, as GGUF files of Llama have them, to two halves."""
    rows = array.shape[0]
    pairs = array.reshape(heads, rows // heads // 2, 2, *array.shape[1:])
    return np.swapaxes(pairs, 1, 2).reshape(array.shape)


def main(source, folder):
    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    arrays = {}
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            name = f"model.layers.{parts[1]}.{NAMES[parts[2]]}"
        else:
            name = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[parts[0]]
        order = {"attn_q": heads, "attn_k": kv_heads}.get(parts[2] if parts[0] == "blk" else "")
        turn = (lambda a: halves_apart(a, order)) if order else (lambda a: a)
        if tensor.tensor_type in BLOCKS:
            integers, scales, biases = (turn(part) for part in unpack(tensor))
            arrays[f"{name}.weight"] = pack(integers, BLOCKS[tensor.tensor_type])
            arrays[f"{name}.scales"], arrays[f"{name}.biases"] = scales, biases
        else:
            arrays[f"{name}.weight"] = turn(tensor.data.astype(np.float32))

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), {k: mx.array(v) for k, v in arrays.items()}, {"format": "mlx"})
    quantization = {"group_size": GROUP, "bits": 4, "model.embed_tokens": {"group_size": GROUP, "bits": 8}}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": fields["llama.rope.freq_base"],
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": True,
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "quantization": quantization,
        "quantization_config": quantization,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(fields, folder)


def write_tokenizer(fields, folder):
    """A tokenizer in the Hugging Face layout: single digits, then byte-level BPE."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    control = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, (t, kind) in enumerate(zip(tokens, kinds)) if kind == 3]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
    }
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": control, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None, "decoder": byte_level, "model": model,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    named = {key: tokens[fields[f"tokenizer.ggml.{field}_token_id"]] for key, field in
             [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")]
             if f"tokenizer.ggml.{field}_token_id" in fields}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
              "model_max_length": fields["llama.context_length"], "chat_template": fields["tokenizer.chat_template"], **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:3])
