"""Compares Annulus with mlx-lm on the same weights, which mlx-lm or `convert.py` wrote.

With MLX's own kernels (`--kernels mlx`) and the same type, every logit must be the same to the bit: one forward of the
whole prompt, the prompt in chunks, and tokens one by one through the cache. With our kernels the largest difference is
printed, and greedy tokens must be the same.

usage: parity.py BINARY MODEL.gguf WORK_FOLDER
"""

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load, load_model

from convert import main as convert
from prompts import PROMPTS

mx.set_default_device(mx.cpu)
failures = []


def report(name, passed, detail=""):
    print(f"{'ok  ' if passed else 'FAIL'} {name} {detail}", flush=True)
    if not passed:
        failures.append(name)


def reference(model, tokens, split):
    """Logits of every position, float32, with the tokens run in parts through one cache."""
    cache, parts, at = make_prompt_cache(model), [], 0
    for length in split + [1] * (len(tokens) - sum(split)):
        logits = model(mx.array([tokens[at:at + length]]), cache=cache)[0].astype(mx.float32)
        mx.eval(logits)
        parts.append(np.array(logits))
        at += length
    return np.concatenate(parts)


def ours(binary, model, tokens, split, work, *flags):
    out = work / "logits.safetensors"
    command = [binary, "logits", str(model), "--tokens", ",".join(map(str, tokens)), "--out", str(out), *flags]
    if split != [len(tokens)]:
        command += ["--split", ",".join(map(str, split))]
    subprocess.run(command, check=True)
    return np.array(mx.load(str(out))["logits"])


SPLITS = {"prompt whole": [120], "prompt in chunks": [48, 48, 24], "decode": [100]}


def compare_logits(name, binary, ours_model, theirs, vocabulary, work, dtype="f32", own=True):
    generator = np.random.default_rng(7)
    tokens = generator.integers(0, vocabulary, 120).tolist()
    for split_name, split in SPLITS.items():
        want = reference(theirs, tokens, split)
        flags = ("--compute-dtype", dtype)
        got = ours(binary, ours_model, tokens, split, work, "--kernels", "mlx", *flags)
        difference = np.abs(got - want).max()
        report(f"{name}, {split_name}: logits equal to the bit", np.array_equal(got, want), f"(largest difference {difference:.3g})")
        if own:
            got = ours(binary, ours_model, tokens, split, work, *flags)
            spread = want.std()
            difference = np.abs(got - want).max()
            agree = (got.argmax(-1) == want.argmax(-1)).mean()
            report(f"{name}, {split_name}: own kernels", difference < 1e-3 * spread,
                   f"(largest difference {difference:.3g}, logits spread {spread:.3g}, same first choice {agree:.1%})")


def compare_greedy(binary, gguf, theirs, tokenizer):
    same = 0
    for prompt in PROMPTS:
        command = [binary, "generate", str(gguf), "--prompt", prompt, "--max-tokens", "64", "--temperature", "0", "--json"]
        got = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=True,
                                            return_dict=False)
        want, margins = greedy(theirs, list(ids), 64, set(tokenizer.eos_token_ids))
        equal = got["tokens"] == want and got["prompt_tokens"] == len(ids)
        same += equal
        if not equal:
            first = next((i for i, (a, b) in enumerate(zip(got["tokens"], want)) if a != b), min(len(got["tokens"]), len(want)))
            margin = margins[first] if first < len(margins) else float("nan")
            print(f"     {prompt[:50]!r}: differs at token {first}, where mlx-lm's two best logits are {margin:.2g} apart; "
                  f"prompt tokens {got['prompt_tokens']} and {len(ids)}")
    report(f"greedy tokens of {len(PROMPTS)} prompts", same == len(PROMPTS), f"({same} the same)")


def greedy(model, ids, count, ends):
    """Tokens, and how far apart the two best logits were at each step."""
    cache, tokens, margins = make_prompt_cache(model), [], []
    feed = ids
    while len(tokens) < count:
        logits = np.array(model(mx.array([feed]), cache=cache)[0, -1].astype(mx.float32))
        best = int(logits.argmax())
        second, first = np.partition(logits, -2)[-2:]
        margins.append(float(first - second))
        if best in ends:
            break
        tokens.append(best)
        feed = [best]
    return tokens, margins


TINY = {
    "plain": {},
    "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3 scaling": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                        "original_max_position_embeddings": 64}},
    "traditional pairs": {"rope_traditional": True},
    "biases, head of its own, one KV head": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
                                             "num_key_value_heads": 1},
    "4-bit": {"bits": 4},
    "8-bit, groups of 32, bf16": {"bits": 8, "group_size": 32, "dtype": mx.bfloat16},
    "bf16": {"dtype": mx.bfloat16},
}


def tiny(folder, options):
    """A small random Llama, written by mlx-lm's side: its module, its names, its quantization."""
    options = dict(options)
    dtype, bits, group_size = options.pop("dtype", mx.float32), options.pop("bits", None), options.pop("group_size", 64)
    config = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 320, "rope_theta": 10000.0,
              "max_position_embeddings": 512, "tie_word_embeddings": True, **options}
    mx.random.seed(11)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    # Larger than usual, so that positions and masks matter to the result.
    model.update(tree_map(lambda a: (mx.random.normal(a.shape) * (0.12 if a.ndim > 1 else 0.3) + (a.ndim == 1)).astype(dtype), model.parameters()))
    if bits:
        nn.quantize(model, group_size=group_size, bits=bits)
        config["quantization"] = {"group_size": group_size, "bits": bits}
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return config["vocab_size"]


def main(binary, gguf, work):
    work = Path(work)
    folder = work / "smollm2"
    if not (folder / "config.json").exists():
        convert(gguf, folder)
    for name, options in TINY.items():
        checkpoint = work / "tiny"
        vocabulary = tiny(checkpoint, options)
        for helper in ("tokenizer.json", "tokenizer_config.json"):
            (checkpoint / helper).write_bytes((folder / helper).read_bytes())
        theirs, _ = load_model(checkpoint)
        dtype = "bf16" if options.get("dtype", mx.float32) == mx.bfloat16 else "f32"
        compare_logits(f"tiny Llama, {name}", binary, checkpoint, theirs, vocabulary, work, dtype, own=dtype == "f32")
    theirs, tokenizer = load(str(folder))
    compare_logits("default model as GGUF", binary, gguf, theirs, 49152, work)
    compare_logits("default model as a folder", binary, folder, theirs, 49152, work, own=False)
    compare_greedy(binary, gguf, theirs, tokenizer)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
