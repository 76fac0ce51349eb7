"""Products in bf16 against 32 bits, on text: RoBERTa."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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
from r2mae.reproduce.table2 import SMALL, SMOKE
from r2mae.sweep.cells import Cell
from r2mae.text.config import TextConfig
from r2mae.text.sets import SET_DEFAULTS
from r2mae.text.wing import WING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COST", "DATA", "PAPER", "SIZE", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the model of text"
DATA = "wiki"
COST = {"smoke": "seconds", "small": "not measured", "full": "not measured"}

_NAME = "precision-text"
_SCORES = ("loss", "accuracy")


@dataclass(frozen=True)
class TextSize(PrecisionSize):
    """How much is trained; see :class:`r2mae.reproduce.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"tiny": {**SMALL, "steps": 20_000}})

    small: ClassVar[Mapping[str, Any]] = {"settings": {"tiny": {**SMALL, "steps": 1000, "eval_sequences": 500}}}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"tiny": SMOKE}}


scores_of_run = final_loss
SIZE = TextSize


def cells(size: TextSize, out: Path) -> list[Cell]:
    """Return a run for each model, format and seed."""
    presets = {
        name: {**SET_DEFAULTS.get(DATA, {}), **WING.presets[name], "preset": name, **settings}
        for name, settings in size.settings.items()
    }
    bases = {name: TextConfig(data=DATA, **preset) for name, preset in presets.items()}
    return cells_of_models(bases, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return differences by model and score, and all runs."""
    return tables_of_formats(results, _NAME, _SCORES)


def draw(tables: Tables, size: TextSize) -> Figures:
    """Draw the differences."""
    return draw_formats(tables, _NAME)
