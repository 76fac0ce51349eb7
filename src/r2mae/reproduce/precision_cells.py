"""Products in bf16 against 32 bits, on counts of single cells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.reproduce.artefact import Tables
from r2mae.reproduce.drawing import Figures
from r2mae.reproduce.precision import (
    PAPER,
    PrecisionSize,
    cells_of_models,
    draw_formats,
    final_loss,
    tables_of_formats,
)
from r2mae.sweep.cells import Cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COST", "DATA", "PAPER", "SIZE", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the model of cells"
DATA = "covid-tcells, pig-airway"
COST = {"smoke": "seconds", "small": "not measured", "full": "not measured"}

_NAME = "precision-cells"
_SCORES = ("masked_loss", "score")
_SETS = ("covid-tcells", "pig-airway")
_NETWORK = {"n_hidden": 512, "n_latent": 128, "batch_size": 256, "validation": 0.2}


@dataclass(frozen=True)
class CellsSize(PrecisionSize):
    """How much is trained; see :class:`r2mae.reproduce.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {name: {"steps": 5000} for name in _SETS})

    small: ClassVar[Mapping[str, Any]] = {"settings": {name: {**_NETWORK, "steps": 500} for name in _SETS}}
    smoke: ClassVar[Mapping[str, Any]] = {
        "seeds": 2,
        "settings": {"csle": {"n_hidden": 16, "n_latent": 8, "batch_size": 64, "validation": 0.2, "steps": 20}},
    }


scores_of_run = final_loss
SIZE = CellsSize


def cells(size: CellsSize, out: Path) -> list[Cell]:
    """Return a run for each model, format and seed."""
    bases = {
        name: CellsConfig(data=name, **{**SET_DEFAULTS[name], **settings}) for name, settings in size.settings.items()
    }
    return cells_of_models(bases, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return differences by model and score, and all runs."""
    return tables_of_formats(results, _NAME, _SCORES)


def draw(tables: Tables, size: CellsSize) -> Figures:
    """Draw the differences."""
    return draw_formats(tables, _NAME)
