"""Write the model of a finished run for timm, for transformers, or as a checkpoint of the original MAE."""

import io
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from r2mae.errors import UserError
from r2mae.files import UNFINISHED, atomic_write
from r2mae.images.config import ImagesConfig
from r2mae.images.exchange.names import PATCHES, State, for_transformers
from r2mae.images.models.vit_mae.layers import NORM_EPSILON
from r2mae.images.patches import DEVIATION, MEAN
from r2mae.training.folder import RunFolder
from r2mae.training.numbers import ratios_of
from r2mae.training.saving import load_model
from r2mae.training.scheme_options import scheme_of

_PICKLED = (".pth", ".pt")
_BICUBIC = 3  # as PIL numbers it
_COLOURS = 3


@dataclass(frozen=True)
class Finished:
    """A finished vision transformer.

    Parameters
    ----------
    config : ImagesConfig
        Of its run.
    state : mapping of str to tensor
        Its weights, under our names.
    architecture : mapping
        As in ``model.json``.
    """

    config: ImagesConfig
    state: State
    architecture: Mapping[str, Any]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        height, width = self.architecture["shape"][:2]
        return int(height), int(width)

    @property
    def encoder(self) -> State:
        """The weights without those of the decoder."""
        return {name: value for name, value in self.state.items() if not name.startswith(("decoder_", "mask_token"))}


def to_timm(run: Path, output: Path) -> str:
    """Write the encoder under the names of timm's ``VisionTransformer``: .safetensors or .pth."""
    _new(output, (".safetensors", *_PICKLED))
    made = finished(run)
    if output.suffix == ".safetensors":
        _write(output, save(_contiguous(made.encoder), {"format": "pt"}))
    else:
        _write(output, _pickled(made.encoder))
    width, channels, patch = made.state[PATCHES].shape[:3]
    height, across = made.size
    size = height if height == across else (height, across)
    return (
        f"timm's VisionTransformer(img_size={size}, patch_size={patch}, in_chans={channels}, embed_dim={width}, "
        f"depth={_layers(made.state, 'blocks')}, num_heads={made.architecture['heads']}, num_classes=0) takes it as "
        "its state_dict"
    )


def to_mae(run: Path, output: Path, *, encoder: bool = False) -> str:
    """Write a checkpoint as the original MAE's code does, ``{"model": …}``; its released files hold the encoder."""
    _new(output, _PICKLED)
    made = finished(run)
    _write(output, _pickled({"model": _contiguous(made.encoder if encoder else made.state)}))
    return "MAE's main_finetune.py takes it by --finetune"


def to_transformers(run: Path, output: Path, *, encoder: bool = False) -> str:
    """Write a folder for transformers: ``ViTMAEForPreTraining``, or its encoder as ``ViTModel``."""
    _new(output)
    made = finished(run)
    height, width = made.size
    if height != width and not encoder:
        raise UserError(f"ViTMAEForPreTraining takes square images, not {height} x {width}: add --encoder for ViTModel")
    config = vit_config(made) if encoder else mae_config(made)
    state = for_transformers(made.encoder, "") if encoder else for_transformers(made.state)
    write_folder(output, state, config, processor_config(made))
    if encoder:
        return "ViTModel.from_pretrained opens it with add_pooling_layer=False, ViTForImageClassification adds a head"
    return "ViTMAEForPreTraining.from_pretrained opens it"


def finished(run: Path) -> Finished:
    """Read a finished run.

    Raises
    ------
    UserError
        If it is not finished or damaged, or its model is none that other libraries have.
    """
    from r2mae.images.wing import WING

    folder = RunFolder(run)
    if folder.trained and (model := folder.description.architecture.get("model")) != "vit-mae":
        raise UserError(f"{run} is a run of the model {str(model)[:40]!r}, which is exported nowhere: vit-mae is")
    config, _, network = load_model(run, WING)
    state = {name: value.detach() for name, value in network.state_dict().items()}
    return Finished(config, state, folder.description.architecture)


def vit_config(made: Finished, kind: str = "ViTModel") -> dict[str, Any]:
    """Return config.json for the encoder."""
    state, (height, width) = made.state, made.size
    return {
        "architectures": [kind],
        "model_type": "vit",
        "hidden_size": len(state[PATCHES]),
        "num_hidden_layers": _layers(state, "blocks"),
        "num_attention_heads": int(made.architecture["heads"]),
        "intermediate_size": len(state["blocks.0.mlp.fc1.bias"]),
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": NORM_EPSILON,
        "image_size": height if height == width else [height, width],
        "patch_size": int(state[PATCHES].shape[-1]),
        "num_channels": int(state[PATCHES].shape[1]),
        "qkv_bias": True,
        "dtype": "float32",
    }


def mae_config(made: Finished) -> dict[str, Any]:
    """Return config.json for the whole model."""
    return {
        **vit_config(made, "ViTMAEForPreTraining"),
        "model_type": "vit_mae",
        "decoder_hidden_size": len(made.state["decoder_embed.bias"]),
        "decoder_num_hidden_layers": _layers(made.state, "decoder_blocks"),
        "decoder_num_attention_heads": int(made.architecture["decoder_heads"]),
        "decoder_intermediate_size": len(made.state["decoder_blocks.0.mlp.fc1.bias"]),
        "mask_ratio": mean_ratio(made.config),
        "norm_pix_loss": bool(made.architecture["norm_pix"]),
    }


def processor_config(made: Finished) -> dict[str, Any]:
    """Return preprocessor_config.json: images become squashed to size, and standardised as the task does it."""
    channels, (height, width) = int(made.state[PATCHES].shape[1]), made.size
    mean, deviation = list(MEAN), list(DEVIATION)
    if channels != _COLOURS:
        mean, deviation = [float(np.mean(MEAN))] * channels, [float(np.mean(DEVIATION))] * channels
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": _BICUBIC,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": deviation,
    }


def mean_ratio(config: ImagesConfig) -> float:
    """Return the mean mask ratio of a run, rounded to four digits: transformers knows a single one."""
    from r2mae.images.wing import WING

    ratio = scheme_of(config, ratios_of(WING, config)).bind(1000, 1.0).ratio
    values, weights = ratio.nodes()
    return round(float(np.dot(values, weights) / np.sum(weights)), 4)


def write_folder(
    output: Path, state: Mapping[str, torch.Tensor], config: Mapping[str, Any], processor: Mapping[str, Any]
) -> None:
    """Write a folder of transformers, whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=UNFINISHED, dir=output.parent))
    try:
        _write(place / "model.safetensors", save(_contiguous(state), {"format": "pt"}))
        for name, values in (("config.json", config), ("preprocessor_config.json", processor)):
            _write(place / name, (json.dumps(values, indent=2) + "\n").encode())
        place.chmod(0o755)
        place.replace(output)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _new(output: Path, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse an output that is there already, or is not called as it must be, before anything is read."""
    if suffixes and output.suffix not in suffixes:
        raise UserError(f"{output} should end in {' or '.join(suffixes)}: -o {output.stem or 'weights'}{suffixes[0]}")
    if output.exists() and (not output.is_dir() or suffixes or any(output.iterdir())):
        raise UserError(f"{output} exists already: name a new one, or remove it")


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path, "wb") as file:
        file.write(content)


def _pickled(content: Mapping[str, Any]) -> bytes:
    made = io.BytesIO()
    torch.save(dict(content), made)
    return made.getvalue()


def _contiguous(state: Mapping[str, torch.Tensor]) -> State:
    return {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}


def _layers(state: Mapping[str, Any], blocks: str) -> int:
    return len({name.split(".")[1] for name in state if name.startswith(f"{blocks}.")})
