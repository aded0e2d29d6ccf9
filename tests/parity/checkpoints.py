"""Tiny random checkpoints, written by mlx-lm alone: its module, its names, its quantization, its files."""

import contextlib
import copy
import importlib
import io
import shutil

import mlx.core as mx
from mlx.utils import tree_map_with_path
from mlx_lm import utils

DTYPES = {"f32": mx.float32, "bf16": mx.bfloat16, "f16": mx.float16}


def write(folder, config, dtype, quantization=None):
    """Writes a model with random weights. `quantization` holds group_size, bits and, under `modules`, what differs for
    modules whose path ends so."""
    config = copy.deepcopy(config)
    architecture = importlib.import_module(f"mlx_lm.models.{utils.MODEL_REMAPPING.get(config['model_type'], config['model_type'])}")
    mx.random.seed(11)
    model = architecture.Model(architecture.ModelArgs.from_dict(copy.deepcopy(config)))
    tied = text(config).get("tie_word_embeddings", True)
    if tied and hasattr(inner(model), "lm_head") and config["model_type"].startswith("gemma3"):
        # Its constructor makes a head that loading drops again.
        inner(model).sanitize({})
    # Gemma 3 keeps the factors of its norms less one.
    less_one = config["model_type"].startswith("gemma3")
    model.update(tree_map_with_path(lambda path, a: random(path, a, less_one).astype(DTYPES[dtype]), model.parameters()))
    if quantization:
        model, config = quantized(model, config, **quantization)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    utils.save_model(folder, model)
    utils.save_config(config, folder / "config.json")
    return text(config)["vocab_size"]


def text(config):
    return config.get("text_config", config)


def inner(model):
    return getattr(model, "language_model", model)


def random(path, array, less_one):
    """Larger than usual, so that positions and masks matter to the result."""
    if array.ndim > 1:
        return mx.random.normal(array.shape) * 0.12
    return mx.random.normal(array.shape) * 0.3 + (0 if less_one else 1)


def quantized(model, config, group_size, bits, modules=()):
    own = getattr(model, "quant_predicate", None)

    def predicate(path, module):
        for end, entry in modules:
            if path.endswith(end):
                return entry
        return own(path, module) if own else True

    with contextlib.redirect_stdout(io.StringIO()):
        return utils.quantize_model(model, config, group_size, bits, quant_predicate=predicate)
