"""Where the randomness belongs, on single cells: by mini-batch or by cell, and a mask-aware network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from r2mae.cells.baselines import log_normalized_expression
from r2mae.cells.batches import load_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.sweep.runs import SweepRun
from r2mae_paper.randomness import BY_SAMPLE_ROWS, PAPER, RandomnessSize, RandomnessStudy, jumps_of_run
from r2mae_paper.rules import closed_form

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "Where the randomness belongs, on cells: by batch or by cell, and a mask-aware network"
DATA = "covid-tcells, pig-airway, onek1k; full: csle and perez-tcells, too"
COST = {"smoke": "seconds", "small": "330 runs, about 2.5 h on a core", "full": "not measured"}

_NETWORK = {"n_hidden": 256, "n_latent": 64, "norm": "layer", "batch_size": 128, "validation": 0.2}


@dataclass(frozen=True)
class CellsSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("csle", "covid-tcells", "pig-airway", "onek1k", "perez-tcells")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_NETWORK, "steps": 5000})

    small: ClassVar[Mapping[str, Any]] = {
        "sets": ("covid-tcells", "pig-airway", "onek1k"),
        "seeds": 5,
        "settings": {**_NETWORK, "steps": 1000},
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{
            "sets": ("csle",),
            "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-per-sample", "by sample 0.90"),
            "seeds": 2,
        },
        "settings": {"n_hidden": 16, "n_latent": 8, "norm": "layer", "batch_size": 64, "validation": 0.2, "steps": 70},
    }


def _bases(size: CellsSize, out: Path) -> dict[str, CellsConfig]:
    return {name: CellsConfig.make(data=name, **{**SET_DEFAULTS[name], **size.settings}) for name in size.sets}


@cache
def _closed_form(data: str) -> dict[str, float]:
    read = load_data(CellsConfig.make(data=data, **{**SET_DEFAULTS[data], "validation": _NETWORK["validation"]}))
    assert read.train.rows is not None  # as some cells are held out
    return closed_form(log_normalized_expression(read.table, read.train.rows))


def scores_of_run(cell: SweepRun) -> dict[str, float]:
    """Return how much the loss of a run jumps, and the ratios that the closed form advises for its data."""
    return {**jumps_of_run(cell), **_closed_form(cell.config.data)}


STUDY = RandomnessStudy(
    "randomness-cells", "masked_loss", "loss of hidden genes", "score", _bases, untold_rows=BY_SAMPLE_ROWS
)
SIZE = CellsSize
cells, table, draw = STUDY.cells, STUDY.table, STUDY.draw
