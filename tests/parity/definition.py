"""A Llama model in float64, straight from its definition: what any arrangement of float32 sums is measured against."""

import mlx.core as mx
import numpy as np


def weight(weights, quantization, name):
    """A matrix in float64. An affine group of `bits`-bit integers q means `scale * q + bias`; q0 is in the lowest bits."""
    stored = weights[f"{name}.weight"]
    if f"{name}.scales" not in weights:
        return np.array(stored.astype(mx.float32), np.float64)
    own = quantization.get(name)
    bits, group = (own or quantization)["bits"], (own or quantization)["group_size"]
    words = np.array(stored)
    integers = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & ((1 << bits) - 1)
    groups = integers.reshape(words.shape[0], -1, group).astype(np.float64)
    scale, bias = (np.array(weights[f"{name}.{part}"].astype(mx.float32), np.float64) for part in ("scales", "biases"))
    return (groups * scale[..., None] + bias[..., None]).reshape(words.shape[0], -1)


def norm(x, scale, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale


def rotate(x, base):
    """Turns `[positions, heads, dim]`: dimension i and i + dim / 2 by the angle position / base^(2 i / dim)."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None, None] * base ** (-np.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles),
                           first * np.sin(angles) + second * np.cos(angles)], -1)


def attend(queries, keys, values, sees):
    """`[positions, heads, dim]` of queries over fewer heads of keys and values: softmax over what `sees[query, key]` lets be seen."""
    shared, out = queries.shape[1] // keys.shape[1], np.empty_like(queries)
    for head in range(queries.shape[1]):
        scores = queries[:, head] @ keys[:, head // shared].T / np.sqrt(queries.shape[-1])
        scores = np.where(sees, scores, -np.inf)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = chances @ values[:, head // shared] / chances.sum(-1, keepdims=True)
    return out


def logits(folder, config, tokens, sees):
    """`[positions, vocabulary]` for tokens at positions 0, 1, ..., each seeing what its row of `sees` says."""
    weights, quantization = mx.load(str(folder / "model.safetensors")), config.get("quantization", {})
    matrix = lambda name: weight(weights, quantization, name)
    scale = lambda name: np.array(weights[f"{name}.weight"].astype(mx.float32), np.float64)
    heads = lambda x: x.reshape(len(tokens), -1, config["head_dim"])
    eps, base = config["rms_norm_eps"], config["rope_theta"]
    embedding = matrix("model.embed_tokens")
    x = embedding[tokens]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        h = norm(x, scale(f"{at}.input_layernorm"), eps)
        queries, keys, values = (heads(h @ matrix(f"{at}.self_attn.{name}_proj").T) for name in "qkv")
        attended = attend(rotate(queries, base), rotate(keys, base), values, sees)
        x = x + attended.reshape(len(tokens), -1) @ matrix(f"{at}.self_attn.o_proj").T
        h = norm(x, scale(f"{at}.post_attention_layernorm"), eps)
        gate = h @ matrix(f"{at}.mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ matrix(f"{at}.mlp.up_proj").T)) @ matrix(f"{at}.mlp.down_proj").T
    return norm(x, scale("model.norm"), eps) @ (embedding if config["tie_word_embeddings"] else matrix("lm_head")).T
