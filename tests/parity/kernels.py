"""Compares this project's CPU kernels with MLX's on the default model.

- Activations of 16 bits with float32 ones, over this project's own documents: KL divergence at most 1e-3 and the same first
  choice for at least 99 % of the tokens.
- Greedy tokens for twenty prompts with those of `--kernels mlx`: where one differs, how little lay between the two choices.

usage: kernels.py BINARY MODEL.gguf WORK_FOLDER
"""

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_tokenizer

from compare import failures, ours, report
from convert import main as convert
from kv import documents
from prompts import PROMPTS

mx.set_default_device(mx.cpu)

TOKENS, WINDOW = 4096, 256
GENERATED = 64
# Logits of the two kinds of kernels differ by rounding alone: a choice that is clearer than this must be the same.
MARGIN = 1e-3


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def activations(binary, gguf, tokenizer, work):
    tokens = tokenizer.encode(documents(), add_special_tokens=False)[:TOKENS]
    divergence, same = [], []
    for at in range(0, len(tokens), WINDOW):
        window = tokens[at:at + WINDOW]
        exact, rounded = [log_softmax(ours(binary, gguf, window, [len(window)], work, "--activations", form))
                          for form in ("f32", "int16")]
        divergence.append((np.exp(exact) * (exact - rounded)).sum(-1))
        same.append(exact.argmax(-1) == rounded.argmax(-1))
    divergence, same = np.concatenate(divergence), np.concatenate(same)
    passed = len(tokens) >= 4000 and divergence.mean() <= 1e-3 and same.mean() >= 0.99
    report(f"default model, activations of 16 bits: {len(tokens)} tokens", passed,
           f"(KL divergence {divergence.mean():.3g}, largest {divergence.max():.3g}, same first choice {same.mean():.2%})")


def greedy(binary, gguf, prompt, *flags):
    """The ids that are generated behind a prompt."""
    command = [binary, "generate", str(gguf), "--prompt", prompt, "--raw", "--temperature", "0", "--max-tokens", str(GENERATED),
               "--json", *flags]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1])
    return found["tokens"], found["prompt_tokens"]


def margin(binary, gguf, tokens, own, theirs, work):
    """How little lay between the first two choices, by MLX's kernels, where two answers part."""
    at = next((at for at, (a, b) in enumerate(zip(own, theirs)) if a != b), min(len(own), len(theirs)))
    tokens = tokens + theirs[:at]
    logits = ours(binary, gguf, tokens, [len(tokens)], work, "--kernels", "mlx")[-1]
    second, first = np.sort(logits)[-2:]
    return float(first - second)


def choices(binary, gguf, tokenizer, work):
    wanted = [greedy(binary, gguf, prompt, "--kernels", "mlx")[0] for prompt in PROMPTS]
    for form in ("f32", "int16"):
        margins = []
        for prompt, theirs in zip(PROMPTS, wanted):
            own, length = greedy(binary, gguf, prompt, "--activations", form)
            if own != theirs:
                tokens = tokenizer.encode(prompt, add_special_tokens=False)
                assert len(tokens) == length, prompt
                margins.append(margin(binary, gguf, tokens, own, theirs, work))
        equal = len(PROMPTS) - len(margins)
        shown = ", ".join(f"{each:.2g}" for each in margins)
        report(f"default model, {form}: {equal} of {len(PROMPTS)} prompts give the {GENERATED} greedy tokens of MLX's kernels",
               all(each <= MARGIN for each in margins), f"(the others part at margins of {shown})" if margins else "")


def main(binary, gguf, work):
    work = Path(work)
    folder = work / "smollm2"
    if not (folder / "config.json").exists():
        convert(gguf, folder)
    tokenizer = load_tokenizer(folder)
    activations(binary, gguf, tokenizer, work)
    choices(binary, gguf, tokenizer, work)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
