"""Products in bf16 against 32 bits, on alignments: GPN-MSA."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.genome.config import GenomeConfig
from r2mae.reproduce.artefact import Tables
from r2mae.reproduce.drawing import Figures
from r2mae.reproduce.genomes import SARBECOVIRUSES, store_of
from r2mae.reproduce.precision import (
    PAPER,
    PrecisionSize,
    cells_of_models,
    draw_formats,
    final_loss,
    tables_of_formats,
)
from r2mae.reproduce.table3 import SMALL, SMOKE
from r2mae.sweep.cells import Cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COST", "DATA", "PAPER", "SIZE", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the model of genomes"
DATA = "61 sarbecoviruses"
COST = {"smoke": "seconds", "small": "not measured", "full": "not measured"}

_NAME = "precision-genome"
_SCORES = ("masked_loss", "accuracy")


@dataclass(frozen=True)
class GenomeSize(PrecisionSize):
    """How much is trained; see :class:`r2mae.reproduce.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"gpn-msa": {"steps": 30_000}})

    small: ClassVar[Mapping[str, Any]] = {"settings": {"gpn-msa": SMALL}}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"gpn-msa": SMOKE}}


scores_of_run = final_loss
SIZE = GenomeSize


def cells(size: GenomeSize, out: Path) -> list[Cell]:
    """Return a run for each model, format and seed."""
    store = store_of(SARBECOVIRUSES, out)
    bases = {name: GenomeConfig(data=str(store.folder), **settings) for name, settings in size.settings.items()}
    return cells_of_models(bases, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return differences by model and score, and all runs."""
    return tables_of_formats(results, _NAME, _SCORES)


def draw(tables: Tables, size: GenomeSize) -> Figures:
    """Draw the differences."""
    return draw_formats(tables, _NAME)
