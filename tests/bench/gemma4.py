"""Gemma 4 in its real shapes with random weights that mlx-lm writes: the same greedy tokens, and the speed of both.

For a GPU with room for 18 GB of weights; the files take up to 40 GB. mlx-lm 0.32.0, since 0.32.2 cannot run quantized experts.

usage: gemma4.py BINARY TOKENIZER_FOLDER WORK_FOLDER NAME...
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import checkpoints

SLIDING, FULL = "sliding_attention", "full_attention"
COMMON = {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "rms_norm_eps": 1e-6, "vocab_size": 262144,
          "vocab_size_per_layer_input": 262144, "max_position_embeddings": 131072, "final_logit_softcapping": 30.0,
          "tie_word_embeddings": True}
E4B = {**COMMON, "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42, "num_attention_heads": 8,
       "num_key_value_heads": 2, "num_kv_shared_layers": 18, "hidden_size_per_layer_input": 256, "use_double_wide_mlp": True,
       "sliding_window": 512, "layer_types": ([SLIDING] * 5 + [FULL]) * 7}
A4B = {**COMMON, "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30, "num_attention_heads": 16,
       "num_key_value_heads": 8, "num_global_key_value_heads": 2, "attention_k_eq_v": True, "num_kv_shared_layers": 0,
       "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False, "enable_moe_block": True, "num_experts": 128,
       "top_k_experts": 8, "moe_intermediate_size": 704, "sliding_window": 1024, "layer_types": ([SLIDING] * 5 + [FULL]) * 5}
FOUR = {"group_size": 64, "bits": 4}
SHAPES = {"e4b-4bit": (E4B, FOUR), "e4b-bf16": (E4B, None), "26b-a4b-4bit": (A4B, FOUR)}
PROMPT, STEPS, DECODE = 512, 50, 100


def run(model, rows, steps):
    """Greedy tokens of every row, and the seconds that prompt and decode took."""
    prompt = np.random.default_rng(5).integers(0, 262144, (rows, PROMPT))
    cache = make_prompt_cache(model)
    started = time.perf_counter()
    token = mx.argmax(model(mx.array(prompt), cache=cache)[:, -1], axis=-1)
    mx.eval(token)
    prefill = time.perf_counter() - started
    tokens, started = [], time.perf_counter()
    # As mlx-lm generates: a step is built while the one before it runs.
    for _ in range(steps):
        following = mx.argmax(model(token[:, None], cache=cache)[:, -1], axis=-1)
        mx.async_eval(following)
        tokens.append(token.tolist())
        token = following
    mx.eval(token)
    return prompt[0].tolist(), [row[0] for row in tokens], prefill, time.perf_counter() - started


def same_tokens(binary, folder, work, prompt, tokens):
    """Whether our greedy choice after the prompt and each of their tokens is theirs."""
    given, out = work / "tokens.txt", work / "logits.safetensors"
    given.write_text(",".join(map(str, prompt + tokens)))
    subprocess.run([binary, "logits", str(folder), "--tokens-file", str(given), "--split", str(len(prompt)), "--out", str(out)],
                   check=True)
    logits = mx.load(str(out))["logits"]
    ours = mx.argmax(logits[len(prompt) - 1:-1], axis=-1).tolist()
    out.unlink()
    return sum(a == b for a, b in zip(ours, tokens))


def compare(name, binary, tokenizer, work):
    config, quantization = SHAPES[name]
    folder = work / name
    if not (folder / "config.json").exists():
        checkpoints.write(folder, config, "bf16", quantization)
        for helper in ("tokenizer.json", "tokenizer_config.json"):
            (folder / helper).write_bytes((tokenizer / helper).read_bytes())
    model, _ = load_model(folder)
    for rows in (1, 16):
        try:
            run(model, rows, 4)
            prompt, tokens, prefill, decode = run(model, rows, DECODE)
        except RuntimeError as error:
            # MLX's CUDA backend cannot launch its expert kernels over so many tokens at once.
            print(f"{name}, mlx-lm, {rows} rows: {error}", flush=True)
            continue
        print(f"{name}, mlx-lm, {rows} rows: prompt {rows * PROMPT / prefill:.0f} tokens/s, decode {rows * DECODE / decode:.1f}",
              flush=True)
        if rows == 1:
            greedy = (prompt, tokens[:STEPS])
    del model
    mx.clear_cache()
    same = same_tokens(binary, folder, work, *greedy)
    print(f"{name}: {same} of {STEPS} greedy tokens the same", flush=True)
    command = [binary, "bench", str(folder), "--prompt-tokens", str(PROMPT), "--decode-tokens", str(DECODE), "--batch", "1,16",
               "--repeat", "3", "--json"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        found = json.loads(line)
        print(f"{name}, Annulus, {found['rows']} rows: prompt {found['prompt_tps']:.0f} tokens/s, decode {found['decode_tps']:.1f}",
              flush=True)
    return same == STEPS


def main(binary, tokenizer, work, *names):
    Path(work).mkdir(parents=True, exist_ok=True)
    passed = [compare(name, binary, Path(tokenizer), Path(work)) for name in names or SHAPES]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
