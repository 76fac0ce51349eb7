"""Weights of vision transformers: our names and those of other libraries, models that start from files, and exports.

Our names are those of the original MAE, and its encoder's are timm's. transformers keeps queries, keys and values
apart, where MAE and timm have one matrix ``qkv``. Its names changed with version 5; both are read, and the older are
written, which every version opens.

What fits is taken, what is missing stays random, and no code of a file is run.
"""

import argparse
import math
import pickle
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import interpolate

from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.files import UNFINISHED, atomic_write, write_json
from r2mae.images.arrays import reading
from r2mae.images.files import listed
from r2mae.images.models.vit_mae.model import NORM_EPSILON, VisionTransformerMAE, positions
from r2mae.images.patches import MEAN, mean_and_deviation
from r2mae.training.folder import RunFolder, read_json
from r2mae.training.initial import Origin
from r2mae.training.metrics import read_metrics
from r2mae.training.saving import load_model

State = dict[str, Tensor]

PATCHES = "patch_embed.proj.weight"
"""A name of every such model; its shape is (width, channels, patch, patch)."""

# Our names, those of transformers that every version reads, and others since version 5: where a name begins, and in it
# after the number of a layer.
_NAMES = (
    ("cls_token", "embeddings.cls_token"),
    ("pos_embed", "embeddings.position_embeddings"),
    ("patch_embed.proj.", "embeddings.patch_embeddings.projection."),
    ("blocks.", "encoder.layer.", "layers."),
    ("norm.", "layernorm."),
    ("decoder_embed.", "decoder.decoder_embed."),
    ("mask_token", "decoder.mask_token"),
    ("decoder_pos_embed", "decoder.decoder_pos_embed"),
    ("decoder_blocks.", "decoder.decoder_layers.", "decoder.decoder_encoder.layer."),
    ("decoder_norm.", "decoder.decoder_norm."),
    ("decoder_pred.", "decoder.decoder_pred."),
    ("head.", "classifier."),
    ("norm1.", "layernorm_before."),
    ("attn.query.", "attention.attention.query.", "attention.q_proj."),
    ("attn.key.", "attention.attention.key.", "attention.k_proj."),
    ("attn.value.", "attention.attention.value.", "attention.v_proj."),
    ("attn.proj.", "attention.output.dense.", "attention.o_proj."),
    ("norm2.", "layernorm_after."),
    ("mlp.fc1.", "intermediate.dense."),
    ("mlp.fc2.", "output.dense."),
)
_QKV = ("query", "key", "value")
_ENCODER = ("embeddings.", "encoder.", "layernorm.")  # beginnings of transformers' names of an encoder
_VIT = "vit."
_STOCK_PATCHES = "embeddings.patch_embeddings.projection.weight"

_EXPECTED = (
    "expected a run folder of vit-mae, a folder of transformers (ViTMAEForPreTraining, ViTModel or "
    "ViTForImageClassification), a checkpoint of MAE (.pth) or weights of a timm ViT (.safetensors, .pth)"
)
_NESTED = ("model", "state_dict", "model_state_dict", "module")
_IN_A_FOLDER = ("model.safetensors", "pytorch_model.bin")
_TYPES = ("vit_mae", "vit")
_SHOWN = 3  # names that an error repeats
_DECODER = ("decoder_", "mask_token")
# Of classifiers, and of other losses: no part of what is pretrained here.
_OMITTED = (
    *("head.", "head_dist.", "fc_norm.", "pooler.", "pre_logits.", "classifier.", "decoder."),
    "embeddings.mask_token",
)
_PICKLED = (".pth", ".pt")
_BILINEAR = 2  # as PIL numbers it
_CLOSE = 1e-3
_SINE_ERROR = 5e-3  # the largest change of sines that are stored in 16 bits


def count_layers(names: Iterable[str], prefix: str) -> int:
    """Return the number of layers in names such as ``blocks.0.norm1.bias``, for the prefix ``blocks``."""
    return len({name.removeprefix(f"{prefix}.").split(".")[0] for name in names if name.startswith(f"{prefix}.")})


def _renamed(name: str, *, ours: bool) -> str:
    """Return our name (`ours`) or transformers' for the other one; a name that the table lacks stays."""
    for mine, *theirs in _NAMES:
        for known in theirs if ours else (mine,):
            name = re.sub(rf"(^|\.\d+\.){re.escape(known)}", rf"\g<1>{mine if ours else theirs[0]}", name)
    return name


def unwrapped(state: Mapping[str, Tensor]) -> State:
    """Remove what wrappers put before every name, such as ``module.``, ``_orig_mod.`` or ``vit.``."""
    for known in (PATCHES, _STOCK_PATCHES):
        if found := next((name for name in state if f".{name}".endswith(f".{known}")), None):
            for wrapper in found.removesuffix(known).split(".")[:-1]:
                state = {name.removeprefix(f"{wrapper}."): value for name, value in state.items()}
            break
    return dict(state)


def from_transformers(state: Mapping[str, Tensor]) -> State:
    """Rename the parameters of a ViT of transformers; those that we do not have keep their names."""
    found: State = {}
    projections: dict[str, State] = defaultdict(dict)
    for name, value in state.items():
        bare = name.removeprefix(_VIT)
        ours = _renamed(bare, ours=True)
        if parts := re.fullmatch(r"(.+\.attn\.)(query|key|value)(\..+)", ours):
            projections[f"{parts[1]}qkv{parts[3]}"][parts[2]] = value
        else:
            found[name if ours == bare else ours] = value
    for ours, three in projections.items():
        if missing := [part for part in _QKV if part not in three]:
            raise UserError(f"{ours} has no {' and no '.join(missing)} projection: the file is not complete")
        found[ours] = torch.cat([three[part] for part in _QKV])
    return found


def for_transformers(state: Mapping[str, Tensor], prefix: str = _VIT) -> State:
    """Rename our parameters to those of transformers; the prefix of the encoder is empty for a ``ViTModel``."""
    parts: State = {}
    for name, value in state.items():
        if ".qkv." in name:
            three = zip(_QKV, value.chunk(3), strict=True)
            parts |= {name.replace("qkv", part): matrix.clone() for part, matrix in three}
        else:
            parts[name] = value
    renamed = {_renamed(name, ours=False): value for name, value in parts.items()}
    return {prefix * name.startswith(_ENCODER) + name: value for name, value in renamed.items()}


@dataclass(frozen=True)
class FinishedModel:
    """A finished vision transformer, under our names: a masked autoencoder, or a classifier of `classes`.

    `architecture` is that of the masked autoencoder, `ratio` its mean mask ratio, and `pool` what a classifier takes.
    With `crop`, images that were not square lost the ends of their longer side; else they were squashed.
    """

    state: State
    architecture: Mapping[str, Any]
    ratio: float | None = None
    classes: tuple[str, ...] = ()
    pool: str = "class"
    crop: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        height, width = self.architecture["shape"][:2]
        return int(height), int(width)

    @property
    def encoder(self) -> State:
        """The weights without those of the decoder and the head."""
        other = ("decoder_", "mask_token", "head.")
        return {name: value for name, value in self.state.items() if not name.startswith(other)}


def read_finished(run: Path) -> FinishedModel:
    """Read a finished run."""
    folder = RunFolder(run)
    domain = domain_of_run(folder.read_config(), run)
    architecture = folder.description.architecture if folder.trained else {}
    model = architecture.get("encoder", architecture).get("model") if folder.trained else "vit-mae"
    if domain.name != "images" or model != "vit-mae":
        described = f"model {str(model)[:40]!r}" if domain.name == "images" else f"domain {domain.name}"
        raise UserError(
            f"{run} is a run of the {described}, which timm, transformers and MAE have not: name one of vit-mae"
        )
    config, _, network = load_model(run, domain)
    state = {name: value.detach() for name, value in network.state_dict().items()}
    crop = getattr(config.data, "resize_mode", "squash") == "crop"
    if "classes" in architecture:
        classes = tuple(map(str, architecture["classes"]))
        return FinishedModel(state, architecture["encoder"], None, classes, architecture["pool"], crop)
    return FinishedModel(state, architecture, mean_ratio(folder), crop=crop)


def mean_ratio(folder: RunFolder) -> float:
    """Return the mean mask ratio of a run's steps, rounded to four digits: transformers knows a single one."""
    return round(float(read_metrics(folder.metrics_file)["ratio"].mean()), 4)


@dataclass(frozen=True)
class Weights:
    """Weights of a vision transformer as they were stored, on the CPU, under the names of the original MAE.

    `layout` says whose names they had; "mae" has a decoder, "timm" an encoder alone. Attention heads, which no shape
    shows, and the mean by which pixels were standardised are None if the source does not say them.
    """

    path: Path
    layout: Literal["r2mae", "transformers", "mae", "timm"]
    state: State = field(repr=False)
    files: tuple[Path, ...]
    heads: int | None = None
    decoder_heads: int | None = None
    mean: tuple[float, ...] | None = None

    @property
    def has_decoder(self) -> bool:
        """Whether there is more than an encoder."""
        return any(name.startswith("decoder_") for name in self.state)


def load_initial_weights(path: str | Path, model: nn.Module) -> Origin:
    """Let a fresh encoder, and its decoder if there is one, start with the weights of a file or folder."""
    assert isinstance(model, VisionTransformerMAE)
    weights = read_weights(path)
    state, notes = fit_weights(weights, model)
    model.load_state_dict({**model.state_dict(), **state})
    return Origin(Path(path), weights.files, weights.layout, notes)


def read_weights(path: str | Path) -> Weights:
    """Read weights of a vision transformer: of a run folder, a folder of transformers, or a .safetensors or .pth file.

    A .pth is read with ``weights_only``, so that no code of it runs.
    """
    place = Path(path)
    if not place.exists():
        raise UserError(f"{place}: no such file or folder: {_EXPECTED}")
    folder = RunFolder(place)
    if folder.config_file.is_file():
        made = read_finished(place)
        heads, decoder_heads = (int(made.architecture[name]) for name in ("heads", "decoder_heads"))
        return Weights(place, "r2mae", made.state, (folder.weights,), heads, decoder_heads)
    if place.is_dir():
        read = _read_folder(place)
    else:
        state = unwrapped(_read_file(place))
        if _STOCK_PATCHES in state:
            read = Weights(place, "transformers", from_transformers(state), (place,))
        else:
            decoder = any(name.startswith("decoder_") for name in state)
            read = Weights(place, "mae" if decoder else "timm", state, (place,))
    if PATCHES not in read.state:
        first = ", ".join(list(read.state)[:_SHOWN]) or "nothing"
        raise UserError(f"{place} holds no vision transformer of a known library ({first} …): {_EXPECTED}")
    return read


def fit_weights(weights: Weights, model: VisionTransformerMAE) -> tuple[State, tuple[str, ...]]:
    """Return a value in the model's own type for every name that is not fresh, and notes for the user."""
    own, path = model.state_dict(), weights.path
    _check_sizes(weights, own, model)
    wanted = [name for name in own if weights.has_decoder or not name.startswith(_DECODER)]
    missing = [name for name in wanted if name not in weights.state]
    pooled = bool(missing) and all(name.startswith("norm.") for name in missing) and "fc_norm.weight" in weights.state
    if missing and not pooled:
        raise UserError(f"{path} has no {listed(missing, _SHOWN)}: it is not a complete vision transformer")
    unused = sorted(weights.state.keys() - own.keys())
    if strange := [name for name in unused if not name.startswith((*_DECODER, *_OMITTED))]:
        raise UserError(f"{path} has {listed(strange, _SHOWN)}, which our model has not: it is another architecture")
    state, notes = {name: weights.state[name] for name in wanted if name in weights.state}, []
    for name in ("pos_embed", "decoder_pos_embed"):
        if name in state and state[name].ndim == 3:
            state[name], note = fitted_positions(state[name], own[name], model.grid, name)
            notes += [note] if note else []
    for name, value in state.items():
        if value.shape != own[name].shape:
            shapes = f"{name} {tuple(value.shape)} for {tuple(own[name].shape)}"
            raise UserError(f"{path} has other shapes: {shapes}: it is another architecture")
        if not value.is_floating_point() or not torch.isfinite(value).all():
            raise UserError(f"{path}: {name} does not hold finite numbers alone: fetch or save it again")
    fresh = [name for name in own if name not in state]
    converted = {name: value.to(own[name].dtype) for name, value in state.items()}
    return converted, (*_notes(weights, fresh, unused), *notes)


def fitted_positions(
    table: Float[Tensor, "1 tokens width"], own: Float[Tensor, "1 others width"], grid: tuple[int, int], name: str
) -> tuple[Float[Tensor, "1 others width"], str]:
    """Return embeddings of positions, the class token's first, for the model's `grid` of patches, and a note.

    As many as the model's `own` stay as they are, unless they are of a square of patches and the model's are not.
    Others are of a square: sines and cosines become the model's, which are the same, and learned ones are interpolated.
    """
    side = math.isqrt(max(table.shape[1] - 1, 0))
    if table.shape[1] == own.shape[1] and (grid == (side, side) or side**2 != table.shape[1] - 1):
        return table, ""
    if not side or side**2 != table.shape[1] - 1:
        raise UserError(
            f"{name} has {table.shape[1]} positions, which are not those of a square of patches and a class token: "
            f"take images that are cut into {table.shape[1] - 1} patches, or other weights"
        )
    sizes, width = f"{grid[0]} x {grid[1]} patches from {side} x {side}", table.shape[2]
    if width % 4 == 0 and torch.allclose(table.float(), positions(width, (side, side)), rtol=0, atol=_SINE_ERROR):
        return own, f"{name} computed again for {sizes} (sines and cosines)"
    image = table[:, 1:].float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    made = interpolate(image, size=grid, mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)
    found = torch.cat([table[:, :1], made.to(table.dtype)], 1)
    return found, f"{name} interpolated for {sizes} (bicubic; it holds no sines)"


def _read_file(file: Path) -> State:
    """Read the tensors of one file: its content, or what is under one of the usual names."""
    with reading(file, "file of weights", "fetch or save it again"):
        if file.suffix.lower() == ".safetensors":
            return load_file(file)
        try:
            # Checkpoints of MAE hold the command's arguments, a plain bag of values.
            with torch.serialization.safe_globals([argparse.Namespace]):
                content = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            found = re.search(r"GLOBAL ([\w.]+)", str(error))
            if found is None:
                raise ValueError("no weights, or damaged ones") from None
            raise UserError(
                f"{file} holds more than weights ({found[1]}), and loading it could run code: save the weights alone, "
                "with safetensors or as torch.save(model.state_dict(), FILE), and name that file"
            ) from None
    for _ in range(3):  # a mapping may hold itself
        content = content if isinstance(content, Mapping) else {}
        state = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
        if state:
            return state
        content = next((content[name] for name in _NESTED if isinstance(content.get(name), Mapping)), None)
    raise UserError(f"{file} holds no weights by name: {_EXPECTED}")


def _read_folder(folder: Path) -> Weights:
    """Read a folder of transformers: its weights, config.json and preprocessor_config.json."""
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder} holds neither config.yaml nor config.json: {_EXPECTED}")
    config = read_json(path, linked=True)
    if config.get("model_type") not in _TYPES:
        kind = str(config.get("model_type"))[:40]
        raise UserError(f"{path} is of a model of the type {kind!r}: expected {' or '.join(_TYPES)}")
    file = next((folder / name for name in _IN_A_FOLDER if (folder / name).is_file()), None)
    if file is None:
        expected = f"expected {' or '.join(_IN_A_FOLDER)} next to config.json, in one file"
        raise UserError(f"{folder} holds no weights: {expected}")
    if config.get("hidden_act", "gelu") not in ("gelu", "gelu_python"):
        raise UserError(f"{folder} has the activation {config['hidden_act']!r}: expected 'gelu', as in ours")
    heads = config.get("num_attention_heads", 12)
    if type(heads) is not int:
        raise UserError(f"{path}: num_attention_heads should be a whole number: fetch or save it again")
    processor = folder / "preprocessor_config.json"
    mean = read_json(processor, linked=True).get("image_mean") if processor.is_file() else None
    if not (isinstance(mean, list) and all(isinstance(one, int | float) for one in mean)):
        mean = None
    state = from_transformers(unwrapped(_read_file(file)))
    read = Weights(folder, "transformers", state, (file,), heads, None, None if mean is None else tuple(mean))
    return replace(read, decoder_heads=config.get("decoder_num_attention_heads", 16)) if read.has_decoder else read


def _check_sizes(weights: Weights, own: Mapping[str, Tensor], model: VisionTransformerMAE) -> None:
    """Refuse another architecture in the words in which it is configured."""
    path, there = weights.path, weights.state[PATCHES]
    if there.ndim != own[PATCHES].ndim:
        raise UserError(f"{path}: {PATCHES} has the shape {tuple(there.shape)}, which no images have")
    if there.shape[1] != model.shape[2]:
        raise UserError(
            f"{path} takes images of {there.shape[1]} channels, and these have {model.shape[2]}: bring the images to "
            f"{there.shape[1]} channels, or omit init"
        )
    heads = [int(blocks[0].attn.heads) for blocks in (model.blocks, model.decoder_blocks)]  # type: ignore[union-attr,arg-type]
    found = _sizes(weights.state, weights.heads, weights.decoder_heads)
    expected = _sizes(own, *heads)
    wrong = {name: value for name, value in found.items() if value is not None and value != expected[name]}
    if wrong:
        sizes = ", ".join(f"{name} {value} and not {expected[name]}" for name, value in wrong.items())
        options = " ".join(f"--model.{name} {value}" for name, value in wrong.items())
        raise UserError(f"{path} has other sizes than the model ({sizes}): take {options}, or other weights")


def _sizes(state: Mapping[str, Tensor], heads: int | None, decoder_heads: int | None) -> dict[str, int | None]:
    """Return the sizes of a model, as the options that set them are called."""
    width, _, patch = state[PATCHES].shape[:3]
    sizes = {"patch": patch, "width": width, "layers": count_layers(state, "blocks"), "heads": heads}
    if "decoder_embed.weight" not in state:
        return sizes
    decoder = len(state["decoder_embed.weight"]), count_layers(state, "decoder_blocks"), decoder_heads
    return {**sizes, **dict(zip(("decoder-width", "decoder-layers", "decoder-heads"), decoder, strict=True))}


def _notes(weights: Weights, fresh: list[str], unused: list[str]) -> Iterable[str]:
    if any(name.startswith(_DECODER) for name in fresh):
        yield "the decoder is fresh"
    if rest := [name for name in fresh if not name.startswith(_DECODER)]:
        yield f"{listed(rest, _SHOWN)} fresh"
    if unused:
        yield f"{listed(unused, _SHOWN)} not used"
    mean = weights.mean
    if mean and len(mean) == len(MEAN) and max(abs(a - b) for a, b in zip(mean, MEAN, strict=True)) > _CLOSE:
        yield f"it was trained on pixels around {mean}, and here they are around ImageNet's {MEAN}"


def to_timm(run: Path, output: Path) -> str:
    """Write the encoder, or a classifier, under the names of timm's ``VisionTransformer``: .safetensors or .pth."""
    _check_output(output, (".safetensors", *_PICKLED))
    made = read_finished(run)
    _write_weights(output, made.state if made.classes else made.encoder)
    return f"timm's VisionTransformer({_timm_options(made)}) takes it by load_state_dict"


def to_mae(run: Path, output: Path, *, encoder: bool = False) -> str:
    """Write a checkpoint as the original MAE's code does, ``{"model": …}``; its released files hold the encoder."""
    _check_output(output, _PICKLED)
    made = read_finished(run)
    _write_weights(output, made.encoder if encoder else made.state, entry="model")
    if made.classes and not encoder:
        pool = " --cls_token" if made.pool == "class" else ""
        return f"MAE's main_finetune.py takes it by --resume, with --eval --nb_classes {len(made.classes)}{pool}"
    return "MAE's main_finetune.py takes it by --finetune"


def to_transformers(run: Path, output: Path, *, encoder: bool = False) -> str:
    """Write a folder for ``ViTMAEForPreTraining``, ``ViTForImageClassification`` or, with `encoder`, ``ViTModel``."""
    _check_output(output)
    made = read_finished(run)
    height, width = made.size
    if made.classes and made.pool != "class":
        raise UserError(
            f"{run} classifies a mean over patches, and ViTForImageClassification the class token: fine-tune with "
            "--pool class, or export --to timm"
        )
    if not made.classes and height != width and not encoder:
        raise UserError(f"ViTMAEForPreTraining takes square images, not {height} x {width}: add --encoder for ViTModel")
    if encoder:
        kind, note = "ViTModel", " with add_pooling_layer=False, ViTForImageClassification adds a head"
    else:
        kind, note = "ViTForImageClassification" if made.classes else "ViTMAEForPreTraining", ""
    state = for_transformers(made.encoder, "") if encoder else for_transformers(made.state)
    _write_folder(output, state, _transformers_config(made, kind), _processor_config(made))
    return f"{kind}.from_pretrained opens it{note}"


def _timm_options(made: FinishedModel) -> str:
    """Return the arguments with which timm makes the same model."""
    height, across = made.size
    options: dict[str, Any] = {
        "img_size": height if height == across else (height, across),
        "patch_size": made.architecture["patch"],
        "in_chans": made.architecture["shape"][2],
        "embed_dim": made.architecture["width"],
        "depth": made.architecture["layers"],
        "num_heads": made.architecture["heads"],
        "num_classes": len(made.classes),
    }
    if made.pool != "class":
        options |= {"global_pool": "avg", "fc_norm": True}
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _transformers_config(made: FinishedModel, kind: str) -> dict[str, Any]:
    """Return config.json of a class of transformers, without what is the default of the class."""
    own, (height, width) = made.architecture, made.size
    config: dict[str, Any] = {
        "architectures": [kind],
        "model_type": "vit_mae" if kind == "ViTMAEForPreTraining" else "vit",
        "hidden_size": own["width"],
        "num_hidden_layers": own["layers"],
        "num_attention_heads": own["heads"],
        "intermediate_size": 4 * own["width"],
        "layer_norm_eps": NORM_EPSILON,
        "image_size": height if height == width else [height, width],
        "patch_size": own["patch"],
        "num_channels": own["shape"][2],
        "dtype": "float32",
    }
    if kind == "ViTMAEForPreTraining":
        config |= {
            "decoder_hidden_size": own["decoder_width"],
            "decoder_num_hidden_layers": own["decoder_layers"],
            "decoder_num_attention_heads": own["decoder_heads"],
            "decoder_intermediate_size": 4 * own["decoder_width"],
            "mask_ratio": made.ratio,
            "norm_pix_loss": own["norm_pix"],
        }
    if kind == "ViTForImageClassification":
        config["id2label"] = {str(number): name for number, name in enumerate(made.classes)}
        config["label2id"] = {name: number for number, name in enumerate(made.classes)}
    return config


def _processor_config(made: FinishedModel) -> dict[str, Any]:
    """Return preprocessor_config.json: images are brought to size, and standardised, as they were here."""
    channels, (height, width) = made.architecture["shape"][2], made.size
    mean, deviation = mean_and_deviation(channels)
    size = {"height": height, "width": width}
    if made.crop:  # which ViTImageProcessor cannot
        resize = {
            "image_processor_type": "BitImageProcessor",
            "size": {"shortest_edge": min(height, width)},
            "do_center_crop": True,
            "crop_size": size,
            "do_convert_rgb": channels == len(MEAN),
        }
    else:
        resize = {"image_processor_type": "ViTImageProcessor", "size": size}
    return {
        **resize,
        "do_resize": True,
        "resample": _BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean.tolist(),
        "image_std": deviation.tolist(),
    }


def _write_folder(output: Path, state: State, config: Mapping[str, Any], processor: Mapping[str, Any]) -> None:
    """Write a folder of transformers, complete or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=UNFINISHED, dir=output.parent))
    try:
        _write_weights(place / "model.safetensors", state)
        write_json(place / "config.json", config)
        write_json(place / "preprocessor_config.json", processor)
        place.chmod(0o755)
        place.replace(output)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _check_output(output: Path, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse an output that exists, or has another suffix, before anything is read."""
    if suffixes and output.suffix not in suffixes:
        raise UserError(f"{output} should end in {' or '.join(suffixes)}: -o {output.stem or 'weights'}{suffixes[0]}")
    if output.exists() and (not output.is_dir() or suffixes or any(output.iterdir())):
        raise UserError(f"{output} exists already: name a new one, or remove it")


def _write_weights(path: Path, state: State, *, entry: str = "") -> None:
    """Write weights as .safetensors, or as torch.save does, there as a mapping or the entry of one."""
    state = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    with atomic_write(path, "wb") as file:
        if path.suffix == ".safetensors":
            file.write(save(state, {"format": "pt"}))
        else:
            torch.save({entry: state} if entry else state, file)
