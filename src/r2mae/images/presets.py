"""Presets of the domain `images`. No torch."""

from collections.abc import Mapping, Sequence
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

_ENCODER = ("model.patch", "model.width", "model.layers", "model.heads")
_DECODER = ("model.decoder_width", "model.decoder_layers", "model.decoder_heads")


def _vit(side: int, batch: int, accumulate: int, encoder: Sequence[int], decoder: Sequence[int]) -> dict[str, Any]:
    model = dict(zip((*_ENCODER, *_DECODER), (*encoder, *decoder), strict=True))
    return {**_RECIPE, "resize": side, "batch_size": batch, "accumulate": accumulate, **model}


PRESETS: Mapping[str, Mapping[str, Any]] = {
    **{f"mlp-{hidden}-{latent}": {"hidden": hidden, "latent": latent} for hidden, latent in _WIDTHS},
    **{f"unet-{channels}": {**_FACES, "model.channels": channels} for channels in (4, 8, 16, 32)},
    "vit-mae-base": _vit(224, 4096, 16, (16, 768, 12, 12), (512, 8, 16)),
    "vit-mae-large": _vit(224, 4096, 32, (16, 1024, 24, 16), (512, 8, 16)),
    "vit-mae-huge": _vit(224, 4096, 64, (14, 1280, 32, 16), (512, 8, 16)),
    "vit-mae-small": _vit(224, 1024, 4, (16, 384, 12, 6), (256, 4, 8)),
    "vit-mae-tiny": _vit(64, 256, 1, (8, 192, 6, 3), (128, 2, 4)),
}
"""Fields of the configuration by the name of a preset."""

SIZES = {
    **dict(
        zip((f"mlp-512-{latent}" for latent in (16, 32, 64, 256, 1024)), (0.42, 0.45, 0.49, 0.74, 1.7), strict=True)
    ),
    **dict(
        zip((f"mlp-16-{latent}" for latent in (16, 32, 64, 256, 1024)), (0.03, 0.04, 0.06, 0.22, 0.84), strict=True)
    ),
    **{"unet-4": 0.12, "unet-8": 0.49, "unet-16": 1.9, "unet-32": 7.8},
    **{"vit-mae-base": 112, "vit-mae-large": 330, "vit-mae-huge": 657, "vit-mae-small": 25, "vit-mae-tiny": 3.2},
}
"""Millions of parameters, of an MLP on 28 x 28 pixels."""
