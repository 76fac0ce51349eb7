"""Where the randomness belongs, on images: by mini-batch or by image, and a mask-aware network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep.runs import SweepRun
from r2mae_paper.randomness import PAPER, RandomnessSize, RandomnessStudy, jumps_of_run
from r2mae_paper.rules import closed_form
from r2mae_paper.subsets import some_classes

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "Where the randomness belongs, on images: by batch or by sample, and a mask-aware network"
DATA = "digits; mnist and tiny-imagenet (10 classes) at low resolution"
COST = {"smoke": "seconds", "small": "270 runs, about 1.3 h on a core", "full": "not measured"}

_SIDES = {"mnist": 14, "tiny-imagenet": 16}
_CLASSES = 10
# Spread ratios hide exact counts: all others must, too, or the noise of counts would be a difference between them.
_NETWORK = {"hidden": 256, "latent": 64, "norm": "layer", "exact": True}


@dataclass(frozen=True)
class ImagesSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("digits", "mnist", "tiny-imagenet")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_NETWORK, "steps": 7000})

    small: ClassVar[Mapping[str, Any]] = {"seeds": 5, "settings": {**_NETWORK, "steps": 1500}}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("digits",), "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-per-sample"), "seeds": 2},
        "settings": {"hidden": 16, "latent": 8, "norm": "layer", "exact": True, "steps": 70},
    }


def _bases(size: ImagesSize, out: Path) -> dict[str, ImagesConfig]:
    bases = {}
    for name in size.sets:
        data = (
            str(some_classes(_CLASSES, out.absolute() / f"classes-{_CLASSES}.tar")) if name == "tiny-imagenet" else name
        )
        bases[name] = ImagesConfig.make(data=data, resize=_SIDES.get(name), **size.settings)
    return bases


@cache
def _closed_form(data: str, side: int | None) -> dict[str, float]:
    images = np.asarray(DOMAIN.load(ImagesConfig(data=data, resize=side)).train.images)
    return closed_form(images.reshape(len(images), -1).astype(np.float64))


def scores_of_run(cell: SweepRun) -> dict[str, float]:
    """Return how much the loss of a run jumps, and the ratios that the closed form advises for its data."""
    return {**jumps_of_run(cell), **_closed_form(cell.config.data, getattr(cell.config, "resize", None))}


STUDY = RandomnessStudy("randomness-images", "masked_mse", "squared error", "probe_accuracy", _bases)
SIZE = ImagesSize
cells, table, draw = STUDY.cells, STUDY.table, STUDY.draw
