"""Tables 4 and 7 on sets of cells whose donors have a condition: every scheme, probes and reconstruction."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.sweep.runs import SweepRun
from r2mae_paper.artefact import Tables
from r2mae_paper.cell_tables import (
    EXPRESSION,
    REFERENCE,
    SMALL,
    SMOKE,
    CellsSize,
    cells_of_sets,
    draw_sets,
    tables_of_sets,
)
from r2mae_paper.drawing import Figures

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Tables 4 and 7: schemes on cells of donors with a condition, probes and reconstruction"
DATA = "csle, covid-tcells, pig-airway; full: sea-ad"
COST = {
    "smoke": "seconds",
    "small": "165 runs, 1.3 h on a core",
    "full": "55 runs, 1 to 2 h each on a GPU (the paper)",
}
PAPER = "On SEA-AD R²MAE has the best average score, 0.697, and rank, 2.17; fixed ratios have 0.582 to 0.667."

CONDITION = {"auroc_labels": ("condition",), "timing": "sea-ad"}
"""As the paper's Alzheimer's disease: a condition counts with its AUROCs, over cells and donors."""


@dataclass(frozen=True)
class DonorsSize(CellsSize):
    """How much is trained; see :class:`r2mae_paper.cell_tables.CellsSize`."""

    sets: tuple[str, ...] = ("sea-ad",)

    small: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("csle", "covid-tcells", "pig-airway"), "baselines": (EXPRESSION, "pca")},
        "settings": {**SMALL, **CONDITION},
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("csle", "pig-airway"), "baselines": (EXPRESSION,), "rows": (REFERENCE, "r2mae"), "seeds": 1},
        "settings": {**SMOKE, **CONDITION},
    }


SIZE = DonorsSize


def cells(size: DonorsSize, out: Path) -> list[SweepRun]:
    """Return a run for each set, scheme and seed, and the baselines."""
    return cells_of_sets(size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return means, intervals, differences and ranks of every score (Table 4), reconstruction (Table 7), all runs."""
    known = set(results["set"]) <= {"sea-ad"}
    return tables_of_sets(results, "table4", "table7", {} if known else CONDITION)


def draw(tables: Tables, size: DonorsSize) -> Figures:
    """Draw the average score, and reconstruction at each ratio; the dashed line is expression itself."""
    return draw_sets(tables, "table4", "table7")
