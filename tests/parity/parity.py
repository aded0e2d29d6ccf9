"""Compares Annulus with mlx-lm on the same weights, which mlx-lm or `convert.py` wrote.

With MLX's own kernels (`--kernels mlx`) and the same type, every logit must be the same to the bit: one forward of the
whole prompt, the prompt in chunks, and tokens one by one through the cache, past several turns of a sliding window. With
our kernels the largest difference is printed, and greedy tokens must be the same.

usage: parity.py BINARY MODEL.gguf WORK_FOLDER [PART_OF_A_NAME]      all but quantized experts
       parity.py --experts BINARY MODEL.gguf WORK_FOLDER             quantized experts, which need another mlx-lm
"""

import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load, load_model

import checkpoints
import variants
from compare import compare, failures, random_tokens, report
from prompts import PROMPTS

mx.set_default_device(mx.cpu)

SPLITS = {"prompt whole": [120], "prompt in chunks": [48, 48, 24], "decode": [100]}
# Chunks shorter than the window, as long, longer, and such that the ring has turned before one that does not fill it.
TINY_SPLITS = {"prompt whole": [232], "prompt in chunks": [1, 15, 16, 17, 5, 40, 64, 11, 63], "200 decode steps": [32]}


def compare_tiny(binary, folder, work, cases, only=""):
    for name, (config, dtype, *how) in cases.items():
        if only not in name:
            continue
        checkpoint = work / "tiny"
        vocabulary = checkpoints.write(checkpoint, config, dtype, *how)
        for helper in ("tokenizer.json", "tokenizer_config.json"):
            (checkpoint / helper).write_bytes((folder / helper).read_bytes())
        model, _ = load_model(checkpoint)
        compare(name, binary, checkpoint, model, random_tokens(vocabulary, 232), TINY_SPLITS, work, dtype, own=dtype == "f32")


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


def compare_default(binary, gguf, folder, work):
    model, tokenizer = load(str(folder))
    tokens = random_tokens(49152, 120)
    compare("default model as GGUF", binary, gguf, model, tokens, SPLITS, work, own=True)
    compare("default model as a folder", binary, folder, model, tokens, SPLITS, work)
    compare_greedy(binary, gguf, model, tokenizer)


def main(*arguments):
    experts = arguments[0] == "--experts"
    binary, gguf, work, *only = arguments[1:] if experts else arguments
    work = Path(work)
    folder = work / "smollm2"
    if not (folder / "config.json").exists():
        from convert import main as convert  # The environment for experts has no `gguf` and comes second.

        convert(gguf, folder)
    compare_tiny(binary, folder, work, variants.QUANTIZED_EXPERTS if experts else variants.PLAIN, *only)
    if not experts and not only:
        compare_default(binary, gguf, folder, work)
    print(f"{len(failures)} failed" if failures else "all as it must be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
