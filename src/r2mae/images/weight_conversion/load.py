"""Start a model with the weights of a file or folder: what fits is taken, what is missing stays random.

No code of the file is run. The weights of other libraries are renamed to our names.
"""

import argparse
import math
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate

from r2mae.errors import UserError
from r2mae.images.formats import reading
from r2mae.images.listing import listed
from r2mae.images.models.vit_mae.model import VisionTransformerMAE, positions
from r2mae.images.patches import MEAN
from r2mae.images.weight_conversion.export import read_finished
from r2mae.images.weight_conversion.names import (
    PATCHES,
    State,
    count_layers,
    from_transformers,
    is_transformers,
    unwrapped,
)
from r2mae.training.folder import RunFolder
from r2mae.training.initial import Origin
from r2mae.training.records import read_json

Table = Float[Tensor, "1 tokens width"]
Found = Float[Tensor, "1 others width"]

_EXPECTED = (
    "expected a run folder of vit-mae, a folder of transformers (ViTMAEForPreTraining, ViTModel or "
    "ViTForImageClassification), a checkpoint of MAE (.pth) or weights of a timm ViT (.safetensors, .pth)"
)
_NESTED = ("model", "state_dict", "model_state_dict", "module")
_IN_A_FOLDER = ("model.safetensors", "pytorch_model.bin")
_TYPES = ("vit_mae", "vit")
_SHOWN = 3  # names that an error repeats
_MAX_DEPTH = 3
_DECODER = ("decoder_", "mask_token")
# Of classifiers, and of other losses: no part of what is pretrained here.
_OMITTED = (
    *("head.", "head_dist.", "fc_norm.", "pooler.", "pre_logits.", "classifier.", "decoder."),
    "embeddings.mask_token",
)
_CLOSE = 1e-3
_SINE_ERROR = 5e-3  # the largest change of sines that are stored in 16 bits


@dataclass(frozen=True)
class Weights:
    """Weights of a vision transformer, under the names of the original MAE.

    Parameters
    ----------
    path : Path
        As it was given.
    layout : str
        Whose names they had: r2mae, transformers, mae (with a decoder) or timm (an encoder).
    state : mapping of str to tensor
        On the CPU, as they were stored.
    files : tuple of Path
        That they are stored in.
    heads, decoder_heads : int, optional
        Attention heads, which no shape shows; None if the source does not say.
    image : tuple of int, optional
        Height and width of the images, if the source says.
    mean : tuple of float, optional
        With which pixels were standardised, if the source says.
    """

    path: Path
    layout: Literal["r2mae", "transformers", "mae", "timm"]
    state: State = field(repr=False)
    files: tuple[Path, ...]
    heads: int | None = None
    decoder_heads: int | None = None
    image: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None

    @property
    def has_decoder(self) -> bool:
        """Whether there is more than an encoder."""
        return any(name.startswith("decoder_") for name in self.state)


def load_initial_weights(path: str | Path, model: nn.Module) -> Origin:
    """Let a fresh model start with the weights of a file or folder (:func:`read_weights`).

    Its encoder gets all of its weights from there; so does its decoder if the file has one.

    Raises
    ------
    UserError
        If the weights are of another architecture, or damaged.
    """
    assert isinstance(model, VisionTransformerMAE)
    weights = read_weights(path)
    state, notes = fit_weights(weights, model)
    model.load_state_dict({**model.state_dict(), **state})
    return Origin(Path(path), weights.files, weights.layout, notes)


def read_weights(path: str | Path) -> Weights:
    """Read weights of a vision transformer.

    `path` is a run folder, a folder of transformers, or a file: .safetensors, or what ``torch.save`` wrote, which is
    read with ``weights_only``, so that no code of it runs.

    Raises
    ------
    UserError
        If it is not there, damaged, not of a vision transformer with a class token, or holds more than weights.
    """
    place = Path(path)
    if not place.exists():
        raise UserError(f"{place}: no such file or folder: {_EXPECTED}")
    folder = RunFolder(place)
    if folder.config_file.is_file():
        made = read_finished(place)
        heads, decoder_heads = (int(made.architecture[name]) for name in ("heads", "decoder_heads"))
        return Weights(place, "r2mae", made.state, (folder.weights,), heads, decoder_heads, made.size)
    file = _file_of(place) if place.is_dir() else place
    state = unwrapped(_read_file(file))
    read = Weights(place, "timm", state, (file,))
    if is_transformers(state):
        read = replace(read, layout="transformers", state=from_transformers(state))
        return _with_architecture(read) if place.is_dir() else read
    if PATCHES not in state:
        first = ", ".join(list(state)[:_SHOWN]) or "nothing"
        raise UserError(f"{place} holds no vision transformer of a known library ({first} …): {_EXPECTED}")
    return replace(read, layout="mae") if read.has_decoder else read


def fit_weights(weights: Weights, model: VisionTransformerMAE) -> tuple[State, tuple[str, ...]]:
    """Return a value in the model's own type for every name that is not fresh, and notes for the user.

    Raises
    ------
    UserError
        If they are of another architecture. It names the sizes, or the first weights that are missing, unknown or of
        another shape.
    """
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
    grid = None if weights.image is None else (weights.image[0] // model.patch, weights.image[1] // model.patch)
    for name in ("pos_embed", "decoder_pos_embed"):
        if name in state and state[name].ndim == 3:
            state[name], note = fitted_positions(state[name], model.grid, there=grid, name=name)
            notes += [note] if note else []
    shapes = {name: (tuple(value.shape), tuple(own[name].shape)) for name, value in state.items()}
    if wrong := [f"{name} {there} for {here}" for name, (there, here) in shapes.items() if there != here]:
        raise UserError(f"{path} has other shapes: {listed(wrong, _SHOWN)}: it is another architecture")
    for name, value in state.items():
        if not value.is_floating_point() or not torch.isfinite(value).all():
            raise UserError(f"{path}: {name} does not hold finite numbers alone: fetch or save it again")
    fresh = [name for name in own if name not in state]
    converted = {name: value.to(own[name].dtype) for name, value in state.items()}
    return converted, (*_notes(weights, fresh, unused), *notes)


def fitted_positions(
    table: Table, grid: tuple[int, int], *, there: tuple[int, int] | None = None, name: str = "pos_embed"
) -> tuple[Found, str]:
    """Return embeddings of positions, the class token's first, for a grid of patches, and a note how they were made.

    For the grid of the file, `there` (by default a square), they stay. For another one they are sines and cosines again
    if the file's are, otherwise the file's after bicubic interpolation; the class token's stays as it is.

    Raises
    ------
    UserError
        If the file's number of patches is no square, and nothing says which rectangle it is.
    """
    count = table.shape[1] - 1
    if there is None or math.prod(there) != count:
        there = (math.isqrt(max(count, 0)),) * 2
    if count == math.prod(grid) and (there == grid or math.prod(there) != count):
        return table, ""
    if count < 1 or math.prod(there) != count:
        raise UserError(
            f"{name} has {table.shape[1]} positions, which are not those of a square of patches and a class token: "
            f"take images that are cut into {count} patches, or other weights"
        )
    sizes = f"{grid[0]} x {grid[1]} patches from {there[0]} x {there[1]}"
    width = table.shape[2]
    if width % 4 == 0 and torch.allclose(table.float(), positions(width, there), rtol=0, atol=_SINE_ERROR):
        return positions(width, grid).to(table.dtype), f"{name} computed again for {sizes} (sines and cosines)"
    image = table[:, 1:].float().reshape(1, *there, -1).permute(0, 3, 1, 2)
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
    for _ in range(_MAX_DEPTH):
        if not isinstance(content, Mapping):
            break
        state = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
        if state:
            return state
        content = next((content[name] for name in _NESTED if isinstance(content.get(name), Mapping)), None)
    raise UserError(f"{file} holds no weights by name: {_EXPECTED}")


def _file_of(folder: Path) -> Path:
    """Return the file of weights in a folder of transformers."""
    config = folder / "config.json"
    if not config.is_file():
        raise UserError(f"{folder} holds neither config.yaml nor config.json: {_EXPECTED}")
    kind = read_json(config, linked=True).get("model_type")
    if kind not in _TYPES:
        raise UserError(f"{config} is of a model of the type {str(kind)[:40]!r}: expected {' or '.join(_TYPES)}")
    found = [folder / name for name in _IN_A_FOLDER if (folder / name).is_file()]
    if not found:
        expected = f"expected {' or '.join(_IN_A_FOLDER)} next to config.json, in one file"
        raise UserError(f"{folder} holds no weights: {expected}")
    return found[0]


def _with_architecture(read: Weights) -> Weights:
    """Add what config.json and preprocessor_config.json of transformers say."""
    path = read.path / "config.json"
    config = read_json(path, linked=True)
    if config.get("hidden_act", "gelu") not in ("gelu", "gelu_python"):
        raise UserError(f"{read.path} has the activation {config['hidden_act']!r}: expected 'gelu', as in ours")
    image = config.get("image_size", 224)
    numbers = {
        "heads": config.get("num_attention_heads", 12),
        "decoder_heads": config.get("decoder_num_attention_heads", 16) if read.has_decoder else None,
        "image": tuple(image) if isinstance(image, list) else (image, image),
    }
    if not all(type(one) is int and one > 0 for one in (numbers["heads"], *numbers["image"])):
        raise UserError(f"{path}: num_attention_heads and image_size should be whole numbers: fetch or save it again")
    processor = read.path / "preprocessor_config.json"
    mean = read_json(processor, linked=True).get("image_mean") if processor.is_file() else None
    known = isinstance(mean, list) and all(isinstance(one, int | float) for one in mean)
    return replace(read, **numbers, mean=tuple(mean) if known else None)  # type: ignore[arg-type]


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
