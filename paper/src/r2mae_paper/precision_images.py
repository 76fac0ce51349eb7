"""Products in bf16 against 32 bits, on images: the MLP, ViT-MAE and the U-Net."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.models import with_values
from r2mae_paper.precision import PAPER, PrecisionSize, PrecisionStudy, final_loss
from r2mae_paper.subsets import some_classes

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the models of images"
DATA = "mnist; tiny-imagenet (10 classes)"
COST = {"smoke": "seconds", "small": "30 runs, 50 min on a core", "full": "30 runs, hours on two cores"}

_SETS = {"mlp": "mnist", "vit-mae-tiny": "", "unet-4": ""}  # empty: ten classes of tiny-imagenet
_CLASSES = 10


def _settings(steps: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    own: dict[str, dict[str, Any]] = {"mlp": {}, "vit-mae-tiny": {"batch_size": 32, "base_lr": 3e-3}, "unet-4": {}}
    return {name: {**own[name], "steps": count} for name, count in steps.items()}


@dataclass(frozen=True)
class ImagesSize(PrecisionSize):
    """How much is trained; see :class:`r2mae_paper.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: _settings({"mlp": 4000, "vit-mae-tiny": 4000, "unet-4": 600})
    )

    small: ClassVar[Mapping[str, Any]] = {"settings": _settings({"mlp": 1000, "vit-mae-tiny": 250, "unet-4": 60})}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"mlp": {"hidden": 16, "latent": 8, "steps": 20}}}


def _bases(size: ImagesSize, out: Path) -> dict[str, ImagesConfig]:
    bases = {}
    for name, settings in size.settings.items():
        data = _SETS[name] or str(some_classes(_CLASSES, out.absolute() / f"classes-{_CLASSES}.tar"))
        preset = {} if name == "mlp" else {**DOMAIN.presets[name], "preset": name}
        bases[name] = with_values(ImagesConfig(data=data), {**preset, **settings})
    return bases


STUDY = PrecisionStudy("precision-images", ("masked_mse", "probe_accuracy", "knn_accuracy"), _bases)
SIZE = ImagesSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, final_loss
