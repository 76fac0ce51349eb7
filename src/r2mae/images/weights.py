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
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from r2mae.cache import create_once
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError, listed
from r2mae.files import atomic_write, ordinary, write_json
from r2mae.images.arrays import reading
from r2mae.images.models import VIT
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

_EXPECTED = (
    "expected a run folder of vit-mae, a folder of transformers (ViTMAEForPreTraining, ViTModel or "
    "ViTForImageClassification), a checkpoint of MAE (.pth) or weights of a timm ViT (.safetensors, .pth)"
)
_OTHER = (
    "give the model the sizes of the weights (--model.patch, --model.width, --model.layers …), or take other weights"
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
_BILINEAR = 2  # as PIL numbers it
_CLOSE = 1e-3
_SINE_ERROR = 5e-3  # the largest change of sines that are stored in 16 bits


def _renamed(name: str, *, ours: bool) -> str:
    """Return our name (`ours`) or transformers' for the other one; a name that the table lacks stays."""
    for mine, *theirs in _NAMES:
        for known in theirs if ours else (mine,):
            name = re.sub(rf"(^|\.\d+\.){re.escape(known)}", rf"\g<1>{mine if ours else theirs[0]}", name)
    return name


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


def for_transformers(state: Mapping[str, Tensor]) -> State:
    """Rename our parameters to those of transformers."""
    parts: State = {}
    for name, value in state.items():
        if ".qkv." in name:
            three = zip(_QKV, value.chunk(3), strict=True)
            parts |= {name.replace("qkv", part): matrix.clone() for part, matrix in three}
        else:
            parts[name] = value
    renamed = {_renamed(name, ours=False): value for name, value in parts.items()}
    return {_VIT * name.startswith(_ENCODER) + name: value for name, value in renamed.items()}


def read_finished(run: Path) -> tuple[State, Mapping[str, Any]]:
    """Return the weights of a finished masked autoencoder under our names, and its architecture with its `ratio`.

    The ratio is the mean over its steps, as transformers knows a single one.
    """
    folder = RunFolder(run)
    domain = domain_of_run(folder.read_config(), run)
    architecture = folder.description.architecture if folder.trained else {"model": VIT}
    if "encoder" in architecture:
        raise UserError(f"{run} is fine-tuned: its {folder.weights.name} has timm's names already, name that file")
    model = architecture.get("model")
    if domain.name != "images" or model != VIT:
        described = f"model {str(model)[:40]!r}" if domain.name == "images" else f"domain {domain.name}"
        raise UserError(
            f"{run} is a run of the {described}, which timm, transformers and MAE have not: name one of vit-mae"
        )
    _, _, network = load_model(run, domain)
    state = {name: value.cpu().contiguous() for name, value in network.state_dict().items()}
    ratio = float(read_metrics(folder.metrics_file)["ratio"].mean())
    return state, {**architecture, "ratio": round(ratio, 4)}


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
    place = ordinary(Path(path))
    folder = RunFolder(place)
    if folder.config_file.is_file():
        state, architecture = read_finished(place)
        heads, decoder_heads = (int(architecture[name]) for name in ("heads", "decoder_heads"))
        return Weights(place, "r2mae", state, (folder.weights,), heads, decoder_heads)
    if place.is_dir():
        read = _read_folder(place)
    else:
        state = _read_file(place)
        decoder = any(name.startswith("decoder_") for name in state)
        read = Weights(place, "mae" if decoder else "timm", state, (place,))
    if PATCHES not in read.state:
        first = ", ".join(list(read.state)[:_SHOWN]) or "nothing"
        raise UserError(f"{place} holds no vision transformer of a known library ({first} …): {_EXPECTED}")
    return read


def fit_weights(weights: Weights, model: VisionTransformerMAE) -> tuple[State, tuple[str, ...]]:
    """Return a value in the model's own type for every name that is not fresh, and notes for the user."""
    own, path = model.state_dict(), weights.path
    _check_heads(weights, model)
    wanted = [name for name in own if weights.has_decoder or not name.startswith(_DECODER)]
    missing = [name for name in wanted if name not in weights.state]
    pooled = bool(missing) and all(name.startswith("norm.") for name in missing) and "fc_norm.weight" in weights.state
    if missing and not pooled:
        raise UserError(f"{path} has no {listed(missing, _SHOWN)}: it is not complete, or {_OTHER}")
    unused = sorted(weights.state.keys() - own.keys())
    if strange := [name for name in unused if not name.startswith((*_DECODER, *_OMITTED))]:
        raise UserError(f"{path} has {listed(strange, _SHOWN)}, which our model has not: {_OTHER}")
    state, notes = {name: weights.state[name] for name in wanted if name in weights.state}, []
    for name in ("pos_embed", "decoder_pos_embed"):
        if name in state and state[name].ndim == 3 and state[name].shape[2] == own[name].shape[2]:
            state[name], note = fitted_positions(state[name], own[name], model.grid, name)
            notes += [note] if note else []
    for name, value in state.items():
        if value.shape != own[name].shape:
            shapes = f"{name} {tuple(value.shape)} for {tuple(own[name].shape)}"
            raise UserError(f"{path} has other shapes: {shapes}: {_OTHER}")
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
    Sines and cosines of another square become the model's, which are the same; learned ones of it are refused.
    """
    patches, width = table.shape[1:]
    patches, side = patches - 1, math.isqrt(max(patches - 1, 0))
    if table.shape[1] == own.shape[1] and (grid == (side, side) or side**2 != patches):
        return table, ""
    if not (side and side**2 == patches and width % 4 == 0) or not torch.allclose(
        table.float(), positions(width, (side, side)), rtol=0, atol=_SINE_ERROR
    ):
        raise UserError(
            f"{name} is learned for {patches} patches, and the images have {grid[0]} x {grid[1]}: give images of as "
            "many patches (--resize), or take weights whose positions are sines"
        )
    return own, f"{name} computed again for {grid[0]} x {grid[1]} patches from {side} x {side} (sines and cosines)"


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
            return {name.removeprefix("module."): value for name, value in state.items()}  # of DistributedDataParallel
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
    state = from_transformers(_read_file(file))
    read = Weights(folder, "transformers", state, (file,), heads, None, None if mean is None else tuple(mean))
    return replace(read, decoder_heads=config.get("decoder_num_attention_heads", 16)) if read.has_decoder else read


def _check_heads(weights: Weights, model: VisionTransformerMAE) -> None:
    """Refuse another number of attention heads than the source says; no shape shows it."""
    theirs = {"heads": weights.heads, "decoder-heads": weights.decoder_heads}
    for (name, found), blocks in zip(theirs.items(), (model.blocks, model.decoder_blocks), strict=True):
        own = int(blocks[0].attn.heads)  # type: ignore[union-attr,arg-type]
        if found not in (None, own):
            raise UserError(f"{weights.path} has {found} {name} and not {own}: take --model.{name} {found}")


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
    """Write the encoder under the names of timm's ``VisionTransformer``: .safetensors."""
    _check_file(output, ".safetensors")
    state, own = read_finished(run)
    encoder = {name: value for name, value in state.items() if not name.startswith(_DECODER)}
    with atomic_write(output, "wb") as file:
        file.write(save(encoder, {"format": "pt"}))
    height, width, channels = own["shape"]
    return (
        f"timm's VisionTransformer(img_size=({height}, {width}), patch_size={own['patch']}, in_chans={channels}, "
        f"embed_dim={own['width']}, depth={own['layers']}, num_heads={own['heads']}, num_classes=0) takes it by "
        "load_state_dict"
    )


def to_mae(run: Path, output: Path) -> str:
    """Write a checkpoint as the original MAE's code does, ``{"model": …}``: .pth."""
    _check_file(output, ".pth")
    state, _ = read_finished(run)
    with atomic_write(output, "wb") as file:
        torch.save({"model": state}, file)
    return "MAE's main_finetune.py takes it by --finetune"


def to_transformers(run: Path, output: Path) -> str:
    """Write a folder for ``ViTMAEForPreTraining``, whose encoder ``ViTModel`` and others of transformers open, too."""
    state, architecture = read_finished(run)
    height, width, channels = architecture["shape"]
    if height != width:
        raise UserError(f"ViTMAEForPreTraining takes square images, not {height} x {width}: use --to timm")
    with create_once(output) as unfinished:
        if unfinished is None:
            raise UserError(f"{output} exists already: name a new folder, or remove this one")
        save_file(for_transformers(state), unfinished / "model.safetensors", {"format": "pt"})
        write_json(unfinished / "config.json", transformers_config(architecture))
        write_json(unfinished / "preprocessor_config.json", _processor_config(height, channels))
    return "ViTMAEForPreTraining.from_pretrained opens it, and ViTModel its encoder"


def _check_file(output: Path, suffix: str) -> None:
    """Refuse an output that exists, or has another suffix, before anything is read."""
    if output.suffix != suffix:
        raise UserError(f"{output} should end in {suffix}: -o {output.stem or 'weights'}{suffix}")
    if output.exists():
        raise UserError(f"{output} exists already: name a new one, or remove it")


def transformers_config(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json for an architecture, without what is the default of the class."""
    return {
        "architectures": ["ViTMAEForPreTraining"],
        "model_type": "vit_mae",
        "hidden_size": own["width"],
        "num_hidden_layers": own["layers"],
        "num_attention_heads": own["heads"],
        "intermediate_size": 4 * own["width"],
        "layer_norm_eps": NORM_EPSILON,
        "image_size": own["shape"][0],
        "patch_size": own["patch"],
        "num_channels": own["shape"][2],
        "dtype": "float32",
        "decoder_hidden_size": own["decoder_width"],
        "decoder_num_hidden_layers": own["decoder_layers"],
        "decoder_num_attention_heads": own["decoder_heads"],
        "decoder_intermediate_size": 4 * own["decoder_width"],
        "mask_ratio": own["ratio"],
        "norm_pix_loss": own["norm_pix"],
    }


def _processor_config(side: int, channels: int) -> dict[str, Any]:
    """Return preprocessor_config.json: images are cropped and brought to size, and standardised, as they were here.

    It says what are defaults of transformers, too: other readers, such as transformers.js, have other defaults.
    """
    mean, deviation = mean_and_deviation(channels)
    return {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": side},
        "do_center_crop": True,
        "crop_size": {"height": side, "width": side},
        "do_convert_rgb": channels == len(MEAN),
        "do_resize": True,
        "resample": _BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean.tolist(),
        "image_std": deviation.tolist(),
    }
