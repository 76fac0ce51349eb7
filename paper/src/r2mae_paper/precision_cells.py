"""Products in bf16 against 32 bits, on counts of single cells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS
from r2mae_paper.precision import PAPER, PrecisionSize, PrecisionStudy, final_loss

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the model of cells"
DATA = "covid-tcells, pig-airway"
COST = {"smoke": "seconds", "small": "20 runs, a quarter of an hour on a core", "full": "not measured"}

_SETS = ("covid-tcells", "pig-airway")
_NETWORK = {"n_hidden": 512, "n_latent": 128, "batch_size": 256, "validation": 0.2}


@dataclass(frozen=True)
class CellsSize(PrecisionSize):
    """How much is trained; see :class:`r2mae_paper.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {name: {"steps": 5000} for name in _SETS})

    small: ClassVar[Mapping[str, Any]] = {"settings": {name: {**_NETWORK, "steps": 500} for name in _SETS}}
    smoke: ClassVar[Mapping[str, Any]] = {
        "seeds": 2,
        "settings": {"csle": {"n_hidden": 16, "n_latent": 8, "batch_size": 64, "validation": 0.2, "steps": 20}},
    }


def _bases(size: CellsSize, out: Path) -> dict[str, CellsConfig]:
    return {
        name: CellsConfig.make(data=name, **{**SET_DEFAULTS[name], **settings})
        for name, settings in size.settings.items()
    }


STUDY = PrecisionStudy("precision-cells", ("masked_loss", "score"), _bases)
SIZE = CellsSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, final_loss
