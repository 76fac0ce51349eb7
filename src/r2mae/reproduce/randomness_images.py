"""Where the randomness belongs, on images: by mini-batch or by image, and a network that is told the mask."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.images.config import ImagesConfig
from r2mae.reproduce.artefact import Tables
from r2mae.reproduce.drawing import Figures
from r2mae.reproduce.randomness import RandomnessSize, cells_of_sets, draw_study, jumps_of_run, tables_of_study
from r2mae.reproduce.subsets import some_classes
from r2mae.sweep.cells import Cell

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Where the randomness belongs, on images: by batch or by sample, and a network that is told"
DATA = "digits; mnist and tiny-imagenet (10 classes) at low resolution"
COST = {"smoke": "seconds", "small": "540 runs, about 1.7 h on a core (estimated)", "full": "not measured"}
PAPER = "Not in the paper: it draws one ratio for each mini-batch, and its networks see zeros."

_NAME, _OBJECTIVE, _PROBE = "randomness-images", "masked_mse", "probe_accuracy"
_SIDES = {"mnist": 14, "tiny-imagenet": 16}
_CLASSES = 10
# Spread ratios hide exact counts: all others must, too, or the noise of counts would be a difference between them.
_NETWORK = {"hidden": 256, "latent": 64, "norm": "layer", "exact": True}


@dataclass(frozen=True)
class ImagesSize(RandomnessSize):
    """How much is trained; see :class:`r2mae.reproduce.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("digits", "mnist", "tiny-imagenet")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_NETWORK, "steps": 7000})

    small: ClassVar[Mapping[str, Any]] = {"settings": {**_NETWORK, "steps": 1500}}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("digits",), "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-spread"), "seeds": 2},
        "settings": {"hidden": 16, "latent": 8, "norm": "layer", "exact": True, "steps": 70},
    }


scores_of_run = jumps_of_run
SIZE = ImagesSize


def cells(size: ImagesSize, out: Path) -> list[Cell]:
    """Return a run for each set, scheme, kind of input and seed."""
    bases = {}
    for name in size.sets:
        data = (
            str(some_classes(_CLASSES, out.absolute() / f"classes-{_CLASSES}.tar")) if name == "tiny-imagenet" else name
        )
        bases[name] = ImagesConfig(data=data, resize=_SIDES.get(name), **size.settings)
    return cells_of_sets(bases, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return differences by set, gains pooled over sets, and all runs."""
    return tables_of_study(results, _NAME, _OBJECTIVE, _PROBE)


def draw(tables: Tables, size: ImagesSize) -> Figures:
    """Draw gains pooled over sets, and the error at each missing fraction."""
    return draw_study(tables, _NAME, _OBJECTIVE, "squared error")
