"""Compares caches other than the plain one with what they must be.

- A bounded cache (`--max-kv-size`) with one forward of mlx-lm under the mask that the definition gives: each position sees
  the first 4 and the newest W - 4, itself among them. mlx-lm's own bounded cache is no reference here.
- A quantized cache (`--kv-bits`) with mlx-lm's, to the bit; and how far its distributions are from those of a plain cache,
  over this project's own documents.

usage: kv.py BINARY MODEL.gguf WORK_FOLDER
"""

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models import llama
from mlx_lm.models.cache import QuantizedKVCache
from mlx_lm.utils import load

from compare import failures, ours, random_tokens, report
from convert import main as convert

mx.set_default_device(mx.cpu)

SINKS = 4
WINDOW = 256
POSITIONS = 2000
ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/benchmarks.md", "docs/inspector.md"]


def documents():
    return "\n\n".join((ROOT / name).read_text() for name in DOCUMENTS)


def bounded(binary, folder, model, tokenizer, work):
    query, key = np.arange(POSITIONS)[:, None], np.arange(POSITIONS)[None]
    sees = (key <= query) & ((key < SINKS) | (key > query - (WINDOW - SINKS)))
    plain = llama.create_attention_mask
    llama.create_attention_mask = lambda *_, **__: mx.array(sees)
    # Text, not random tokens: those lead this model to activations so large that they make a hundredfold of every rounding.
    tokens = tokenizer.encode(documents())[:POSITIONS]
    logits = model(mx.array([tokens]))[0].astype(mx.float32)
    mx.eval(logits)
    llama.create_attention_mask = plain
    want = np.array(logits)
    # Chunks below, at and above the window, single tokens between them, then decode.
    split = [200, 1, 55, 1, 256, 300, 257, 1, 1, 500, 128]
    got = ours(binary, folder, tokens, split, work, "--kernels", "mlx", "--max-kv-size", str(WINDOW))
    difference = np.abs(got - want).max()
    report(f"default model, at most {WINDOW} tokens: {POSITIONS} positions within 1e-4 of the definition",
           difference <= 1e-4, f"(largest difference {difference:.3g}, spread {want.std():.3g})")


def quantized(binary, folder, model, work):
    tokens, split = random_tokens(49152, 64), [24, 7, 17]
    for bits, group in [(8, 64), (4, 64), (4, 32), (6, 32), (3, 64), (2, 32), (5, 32)]:
        cache, parts, at = [QuantizedKVCache(group, bits) for _ in model.layers], [], 0
        for length in split + [1] * (len(tokens) - sum(split)):
            logits = model(mx.array([tokens[at:at + length]]), cache=cache)[0].astype(mx.float32)
            mx.eval(logits)
            parts.append(np.array(logits))
            at += length
        want = np.concatenate(parts)
        got = ours(binary, folder, tokens, split, work, "--kernels", "mlx", "--kv-bits", str(bits), "--kv-group-size", str(group))
        report(f"default model, {bits}-bit cache in groups of {group}, chunks and decode: logits equal to the bit",
               np.array_equal(got, want), f"(largest difference {np.abs(got - want).max():.3g})")


def divergence(binary, gguf, work):
    text = work / "documents.txt"
    text.write_text(documents())
    for bits, limit in [(8, 0.002), (4, None)]:
        command = [binary, "perplexity", str(gguf), str(text), "--limit", "4200", "--compare", "--json", "--kv-bits", str(bits)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        against, tokens = found["against_plain_cache"], found["tokens"]
        kl = against["kl_divergence"]
        passed = tokens >= 4000 and (limit is None or kl <= limit)
        bound = "reported" if limit is None else f"at most {limit}"
        report(f"default model, {bits}-bit cache: KL divergence over {tokens} tokens, {bound}", passed,
               f"({kl:.6f}, largest {against['largest_kl_divergence']:.3g}, same first choice "
               f"{against['same_first_choice']:.2%}, perplexity {found['perplexity']:.3f})")


def main(binary, gguf, work):
    work = Path(work)
    folder = work / "smollm2"
    if not (folder / "config.json").exists():
        convert(gguf, folder)
    model, tokenizer = load(str(folder))
    quantized(binary, folder, model, work)
    bounded(binary, folder, model, tokenizer, work)
    divergence(binary, gguf, work)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
