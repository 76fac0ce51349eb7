"""Where the randomness belongs, on single cells: by mini-batch or by cell, and a network that is told the mask."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.reproduce.artefact import Tables
from r2mae.reproduce.drawing import Figures
from r2mae.reproduce.randomness import RandomnessSize, cells_of_sets, draw_study, jumps_of_run, tables_of_study
from r2mae.sweep.cells import Cell

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Where the randomness belongs, on cells: by batch or by cell, and a network that is told"
DATA = "csle, covid-tcells, pig-airway, onek1k, perez-tcells"
COST = {"smoke": "seconds", "small": "270 runs, about 1.6 h on a core (estimated)", "full": "not measured"}
PAPER = "Not in the paper: it draws one ratio for each mini-batch, and its networks see zeros."

_NAME, _OBJECTIVE, _PROBE = "randomness-cells", "masked_loss", "score"
_NETWORK = {"n_hidden": 256, "n_latent": 64, "norm": "layer", "batch_size": 128, "validation": 0.2}


@dataclass(frozen=True)
class CellsSize(RandomnessSize):
    """How much is trained; see :class:`r2mae.reproduce.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("csle", "covid-tcells", "pig-airway", "onek1k", "perez-tcells")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_NETWORK, "steps": 5000})

    small: ClassVar[Mapping[str, Any]] = {
        "sets": ("covid-tcells", "pig-airway", "onek1k"),
        "seeds": 5,
        "settings": {**_NETWORK, "steps": 1000},
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("csle",), "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-spread"), "seeds": 2},
        "settings": {"n_hidden": 16, "n_latent": 8, "norm": "layer", "batch_size": 64, "validation": 0.2, "steps": 70},
    }


scores_of_run = jumps_of_run
SIZE = CellsSize


def cells(size: CellsSize, out: Path) -> list[Cell]:
    """Return a run for each set, scheme, kind of input and seed."""
    bases = {name: CellsConfig(data=name, **{**SET_DEFAULTS[name], **size.settings}) for name in size.sets}
    return cells_of_sets(bases, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return differences by set, gains pooled over sets, and all runs."""
    return tables_of_study(results, _NAME, _OBJECTIVE, _PROBE)


def draw(tables: Tables, size: CellsSize) -> Figures:
    """Draw gains pooled over sets, and the error at each missing fraction."""
    return draw_study(tables, _NAME, _OBJECTIVE, "loss of hidden genes")
