"""Write the model of a finished run for timm, for transformers, or as a checkpoint of the original MAE."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from r2mae.errors import UserError
from r2mae.files import UNFINISHED, atomic_write, write_json
from r2mae.images.models.vit_mae.model import NORM_EPSILON
from r2mae.images.patches import DEVIATION, MEAN
from r2mae.images.weight_conversion.load import FinishedModel, State, for_transformers, read_finished

_PICKLED = (".pth", ".pt")
_BILINEAR = 2  # as PIL numbers it
_COLOURS = 3


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
    """Write a folder for transformers.

    It is one of ``ViTMAEForPreTraining``, of a classifier one of ``ViTForImageClassification``; with `encoder` one of
    ``ViTModel``.
    """
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
    """Return config.json of a class of transformers."""
    own, (height, width) = made.architecture, made.size
    config: dict[str, Any] = {
        "architectures": [kind],
        "model_type": "vit_mae" if kind == "ViTMAEForPreTraining" else "vit",
        "hidden_size": own["width"],
        "num_hidden_layers": own["layers"],
        "num_attention_heads": own["heads"],
        "intermediate_size": 4 * own["width"],
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": NORM_EPSILON,
        "image_size": height if height == width else [height, width],
        "patch_size": own["patch"],
        "num_channels": own["shape"][2],
        "qkv_bias": True,
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
    mean, deviation = list(MEAN), list(DEVIATION)
    if channels != _COLOURS:
        mean, deviation = [float(np.mean(MEAN))] * channels, [float(np.mean(DEVIATION))] * channels
    size = {"height": height, "width": width}
    if made.crop:  # which ViTImageProcessor cannot
        resize = {
            "image_processor_type": "BitImageProcessor",
            "size": {"shortest_edge": min(height, width)},
            "do_center_crop": True,
            "crop_size": size,
            "do_convert_rgb": channels == _COLOURS,
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
        "image_mean": mean,
        "image_std": deviation,
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
