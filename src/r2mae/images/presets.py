"""Presets of the domain `images`. No torch."""

from collections.abc import Mapping
from typing import Any

_WIDTHS = [(hidden, latent) for hidden in (512, 16) for latent in (16, 32, 64, 256, 1024)]

# The paper's recipe for its U-Nets on CelebA, whose base channels are 8, 16 and 32.
_FACES: dict[str, Any] = {"model": "unet", "lr": 1e-3, "batch_size": 256, "epochs": 10.0}

# The recipe of the masked autoencoder; the paper's epochs, with warm-up over 10 of its 150.
_RECIPE: dict[str, Any] = {
    "model": "vit-mae",
    "augment": "crop-flip",
    "optimizer": "adamw",
    "betas": (0.9, 0.95),
    "weight_decay": 0.05,
    "base_lr": 1.5e-4,
    "schedule": "cosine",
    "warmup": 10 / 150,
    "epochs": 150.0,
}


def _sizes(width: int, layers: int, heads: int, patch: int) -> dict[str, Any]:
    return {"model.patch": patch, "model.width": width, "model.layers": layers, "model.heads": heads}


def _decoder(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"model.decoder_width": width, "model.decoder_layers": layers, "model.decoder_heads": heads}


def _vit(side: int, batch: int, accumulate: int, encoder: dict[str, Any], decoder: dict[str, Any]) -> dict[str, Any]:
    return {**_RECIPE, "resize": side, "batch_size": batch, "accumulate": accumulate, **encoder, **decoder}


PRESETS: Mapping[str, Mapping[str, Any]] = {
    **{f"mlp-{hidden}-{latent}": {"hidden": hidden, "latent": latent} for hidden, latent in _WIDTHS},
    **{f"unet-{channels}": {**_FACES, "model.channels": channels} for channels in (4, 8, 16, 32)},
    "vit-mae-base": _vit(224, 4096, 16, _sizes(768, 12, 12, 16), _decoder(512, 8, 16)),
    "vit-mae-large": _vit(224, 4096, 32, _sizes(1024, 24, 16, 16), _decoder(512, 8, 16)),
    "vit-mae-huge": _vit(224, 4096, 64, _sizes(1280, 32, 16, 14), _decoder(512, 8, 16)),
    "vit-mae-small": _vit(224, 1024, 4, _sizes(384, 12, 6, 16), _decoder(256, 4, 8)),
    "vit-mae-tiny": _vit(64, 256, 1, _sizes(192, 6, 3, 8), _decoder(128, 2, 4)),
}
"""Fields of the configuration by the name of a preset."""
