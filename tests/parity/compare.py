"""Runs Annulus and mlx-lm over the same tokens and compares every logit."""

import subprocess

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache

failures = []


def report(name, passed, detail=""):
    print(f"{'ok  ' if passed else 'FAIL'} {name} {detail}", flush=True)
    if not passed:
        failures.append(name)


def theirs(model, tokens, split):
    """mlx-lm's logits of every position, float32, with the tokens run in parts through one cache."""
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


def random_tokens(vocabulary, count):
    return np.random.default_rng(7).integers(0, vocabulary, count).tolist()


def sensitivity(model, tokens, before):
    """How far the logits move when every weight moves by about one unit in its last place: what rounding makes of a model."""
    weights = model.parameters()

    def disturbed(array):
        if not mx.issubdtype(array.dtype, mx.floating):
            return array
        return array * (1 + (mx.random.uniform(shape=array.shape) - 0.5) * 2 * mx.finfo(mx.float32).eps)

    mx.random.seed(3)
    model.update(tree_map(disturbed, weights))
    moved = np.abs(theirs(model, tokens, [len(tokens)]) - before).max()
    model.update(weights)
    return moved


def compare(name, binary, checkpoint, model, tokens, splits, work, dtype="f32", own=False):
    """One line for each way to split the tokens: with MLX's kernels the same to the bit, with our own as near as rounding
    allows."""
    allowed = 0
    for split_name, split in splits.items():
        want = theirs(model, tokens, split)
        flags = ("--compute-dtype", dtype)
        got = ours(binary, checkpoint, tokens, split, work, "--kernels", "mlx", *flags)
        report(f"{name}, {split_name}: logits equal to the bit", np.array_equal(got, want),
               f"(largest difference {np.abs(got - want).max():.3g}, spread {want.std():.3g})")
        if own:
            allowed = allowed or 10 * sensitivity(model, tokens, want)
            # Where weights are packed, activations of 16 bits are the default: their step is 128 times that of float32 at the
            # largest of 32 numbers, and smaller ones share it.
            for form, most in [("f32", allowed), ("int16", 32 * allowed)]:
                got = ours(binary, checkpoint, tokens, split, work, "--activations", form, *flags)
                difference = np.abs(got - want).max()
                agree = (got.argmax(-1) == want.argmax(-1)).mean()
                report(f"{name}, {split_name}: own kernels, {form}", difference < most and agree >= 0.99,
                       f"(largest difference {difference:.3g}, allowed {most:.3g}, same first choice {agree:.1%})")
