"""Where the randomness belongs, on images: by mini-batch or by image, and a network that is told the mask."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.images.config import ImagesConfig
from r2mae.reproduce.randomness import PAPER, RandomnessSize, RandomnessStudy, jumps_of_run
from r2mae.reproduce.subsets import some_classes

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "Where the randomness belongs, on images: by batch or by sample, and a network that is told"
DATA = "digits; mnist and tiny-imagenet (10 classes) at low resolution"
COST = {"smoke": "seconds", "small": "270 runs, about an hour on a core (estimated)", "full": "not measured"}

_SIDES = {"mnist": 14, "tiny-imagenet": 16}
_CLASSES = 10
# Spread ratios hide exact counts: all others must, too, or the noise of counts would be a difference between them.
_NETWORK = {"hidden": 256, "latent": 64, "norm": "layer", "exact": True}


@dataclass(frozen=True)
class ImagesSize(RandomnessSize):
    """How much is trained; see :class:`r2mae.reproduce.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("digits", "mnist", "tiny-imagenet")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_NETWORK, "steps": 7000})

    small: ClassVar[Mapping[str, Any]] = {"seeds": 5, "settings": {**_NETWORK, "steps": 1500}}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("digits",), "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-spread"), "seeds": 2},
        "settings": {"hidden": 16, "latent": 8, "norm": "layer", "exact": True, "steps": 70},
    }


def _bases(size: ImagesSize, out: Path) -> dict[str, ImagesConfig]:
    bases = {}
    for name in size.sets:
        data = (
            str(some_classes(_CLASSES, out.absolute() / f"classes-{_CLASSES}.tar")) if name == "tiny-imagenet" else name
        )
        bases[name] = ImagesConfig(data=data, resize=_SIDES.get(name), **size.settings)
    return bases


STUDY = RandomnessStudy("randomness-images", "masked_mse", "squared error", "probe_accuracy", _bases)
SIZE = ImagesSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, jumps_of_run
