"""Read a file or folder of weights without running code of it, and rename them to our names."""

import argparse
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from r2mae.errors import UserError
from r2mae.images.weight_conversion.names import PATCHES, State, from_transformers, is_transformers, unwrapped
from r2mae.training.folder import RunFolder
from r2mae.training.records import read_json

Layout = Literal["r2mae", "transformers", "mae", "timm"]

_EXPECTED = (
    "expected a run folder of vit-mae, a folder of transformers (ViTMAEForPreTraining, ViTModel or "
    "ViTForImageClassification), a checkpoint of MAE (.pth) or weights of a timm ViT (.safetensors, .pth)"
)
_NESTED = ("model", "state_dict", "model_state_dict", "module")
_IN_A_FOLDER = ("model.safetensors", "pytorch_model.bin")
_TYPES = ("vit_mae", "vit")
_WEIGHTS_ONLY = (
    "save the weights alone, with safetensors or as torch.save(model.state_dict(), FILE), and name that file"
)
_SHOWN = 3  # names that an error repeats
_MAX_DEPTH = 3


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
    layout: Layout
    state: State = field(repr=False)
    files: tuple[Path, ...]
    heads: int | None = None
    decoder_heads: int | None = None
    image: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None

    @property
    def patch(self) -> int:
        """Pixels along a side of a patch."""
        return int(self.state[PATCHES].shape[-1])

    @property
    def has_decoder(self) -> bool:
        """Whether there is more than an encoder."""
        return any(name.startswith("decoder_") for name in self.state)


def read_weights(path: str | Path) -> Weights:
    """Read weights of a vision transformer.

    Parameters
    ----------
    path : path
        A run folder, a folder of transformers, or a file: .safetensors, or what ``torch.save`` wrote, which is read
        with ``weights_only``, so that no code of it runs.

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
        return _run_weights(place, folder)
    files = _files_of(place) if place.is_dir() else [place]
    state: State = {}
    for file in files:
        state |= read_file(file)
    state = unwrapped(state)
    read = Weights(place, "timm", state, tuple(files))
    if is_transformers(state):
        read = replace(read, layout="transformers", state=from_transformers(state))
        return _with_architecture(read) if place.is_dir() else read
    if PATCHES not in state:
        first = ", ".join(list(state)[:_SHOWN]) or "nothing"
        raise UserError(f"{place} holds no vision transformer of a known library ({first} …): {_EXPECTED}")
    return replace(read, layout="mae") if read.has_decoder else read


def read_file(file: Path) -> State:
    """Read the tensors of one file.

    Raises
    ------
    UserError
        If it is damaged, holds no tensors by name, or anything that loading would have to run.
    """
    with _loading_errors(file):
        if file.suffix.lower() == ".safetensors":
            return load_file(file)
        # Checkpoints of MAE hold the command's arguments, a plain bag of values.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(file, map_location="cpu", weights_only=True)
    return _tensors(content, file)


@contextmanager
def _loading_errors(file: Path) -> Iterator[None]:
    """Turn what readers raise into one line."""
    try:
        yield
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is None:
            raise UserError(f"{file} is no file of weights, or a damaged one: fetch or save it again") from None
        raise UserError(
            f"{file} holds more than weights ({found[1]}), and loading it could run code: {_WEIGHTS_ONLY}"
        ) from None
    except (SafetensorError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        if "TorchScript" in str(error):
            raise UserError(f"{file} is a TorchScript archive, which holds code: {_WEIGHTS_ONLY}") from None
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{file} cannot be read ({reason}): fetch or save it again") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror or error}): name a file of weights") from None


def _tensors(content: Any, file: Path) -> State:
    """Find the mapping of names to tensors: the content itself, or under one of the default names."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(content, Mapping):
            break
        found = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
        if found:
            return found
        content = next((content[name] for name in _NESTED if isinstance(content.get(name), Mapping)), None)
    raise UserError(f"{file} holds no weights by name: {_EXPECTED}")


def _files_of(folder: Path) -> list[Path]:
    """Return the weight files of a folder of transformers."""
    config = folder / "config.json"
    if not config.is_file():
        raise UserError(f"{folder} holds neither config.yaml nor config.json: {_EXPECTED}")
    kind = read_json(config, linked=True).get("model_type")
    if kind not in _TYPES:
        raise UserError(f"{config} is of a model of the type {str(kind)[:40]!r}: expected {' or '.join(_TYPES)}")
    for name in _IN_A_FOLDER:
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            return [folder / part for part in _parts(index)]
    raise UserError(f"{folder} holds no weights: expected {' or '.join(_IN_A_FOLDER)} next to config.json")


def _parts(index: Path) -> list[str]:
    places = read_json(index, linked=True).get("weight_map")
    names = sorted({str(name) for name in places.values()}) if isinstance(places, dict) else []
    if not names or any("/" in name or "\\" in name or name.startswith(".") for name in names):
        raise UserError(f"{index} names no files next to itself: fetch or save it again")
    for name in names:
        if not (index.parent / name).is_file():
            raise UserError(f"{index.parent / name} is missing, and {index.name} names it: fetch it as well")
    return names


def _run_weights(path: Path, folder: RunFolder) -> Weights:
    """Read a finished run of a vision transformer, pretrained or fine-tuned."""
    if not folder.trained:
        raise UserError(f"{path} is not finished: rerun its command to resume, then start from it")
    architecture = folder.description.architecture
    if architecture.get("probe") == "linear":
        raise UserError(f"{path} is a probe of a frozen model: start from the run that it probes")
    encoder = architecture.get("encoder", architecture)
    if not isinstance(encoder, Mapping) or encoder.get("model") != "vit-mae":
        model = architecture.get("model", folder.description.domain)
        raise UserError(f"{path} is a run of the model {str(model)[:40]!r}: {_EXPECTED}")
    height, width = (int(side) for side in encoder["shape"][:2])
    state = read_file(folder.weights)
    read = Weights(path, "r2mae", state, (folder.weights,), int(encoder["heads"]), image=(height, width))
    return replace(read, decoder_heads=int(encoder["decoder_heads"])) if read.has_decoder else read


def _with_architecture(read: Weights) -> Weights:
    """Add what config.json and preprocessor_config.json of transformers say."""
    config = read_json(read.path / "config.json", linked=True)
    if config.get("hidden_act", "gelu") not in ("gelu", "gelu_python"):
        raise UserError(f"{read.path} has the activation {config['hidden_act']!r}: expected 'gelu', as in ours")
    image = _as_pair(config.get("image_size", 224))
    processor = read.path / "preprocessor_config.json"
    mean = read_json(processor, linked=True).get("image_mean") if processor.is_file() else None
    numbers = isinstance(mean, list) and all(isinstance(one, int | float) for one in mean)
    return replace(
        read,
        heads=_as_positive(config.get("num_attention_heads", 12)),
        decoder_heads=_as_positive(config.get("decoder_num_attention_heads", 16)) if read.has_decoder else None,
        image=image if image is None or prod(image) > 0 else None,
        mean=tuple(float(one) for one in mean) if numbers and mean is not None else None,
    )


def _as_pair(value: Any) -> tuple[int, int] | None:
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) for side in sides):
        return None
    return sides[0], sides[1]


def _as_positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
