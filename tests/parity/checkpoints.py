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


def write(folder, config, dtype, quantization=None, layout="mlx"):
    """Writes a model with random weights. `quantization` holds group_size, bits and, under `modules`, what differs for
    modules whose path ends so. `layout` says whose names tensors have: those of mlx-lm, or of transformers."""
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
    if layout == "transformers":
        rename(folder)
    return text(config)["vocab_size"]


def rename(folder):
    """Puts a Gemma 4 into the layout that transformers publishes, beside towers for images and sound."""
    file = folder / "model.safetensors"
    weights = mx.load(str(file))
    out = {"model.vision_tower.patch.weight": mx.zeros((4, 4)), "model.audio_tower.first.weight": mx.zeros((4, 4))}
    for name, array in weights.items():
        new = name.replace("language_model.model.", "model.language_model.").replace("experts.switch_glu.", "experts.")
        if new.endswith("experts.gate_proj.weight"):
            array = mx.concatenate([array, weights[name.replace("gate_proj", "up_proj")]], axis=1)
            new = new.replace("gate_proj.weight", "gate_up_proj")
        elif new.endswith("experts.down_proj.weight"):
            new = new.removesuffix(".weight")
        if not new.endswith("experts.up_proj.weight"):
            out[new] = array
    # Published files have keys and values of layers that share those of others, which nobody uses.
    for queries in [name for name in out if name.endswith("q_proj.weight") and name.replace("q_proj", "k_proj") not in out]:
        for other in ("k_proj", "v_proj"):
            out[queries.replace("q_proj", other)] = mx.zeros((4, 4))
    mx.eval(out)
    (folder / "model.safetensors.index.json").unlink()
    file.unlink()
    mx.save_safetensors(str(file), out, {"format": "pt"})


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
