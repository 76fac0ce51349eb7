"""Tables 6 and 8 on sets of cells with types: every scheme, probes and reconstruction."""

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

TITLE = "Tables 6 and 8: schemes on cells with types, probes and reconstruction"
DATA = "onek1k, perez-tcells, combat; full: hlca"
COST = {
    "smoke": "seconds",
    "small": "165 runs, about 2.5 h on a core",
    "full": "55 runs, 1 to 2 h each on a GPU (the paper)",
}
PAPER = "On HLCA R²MAE has the best average score, 0.744, and rank, 2.83; fixed ratios have 0.729 to 0.732."


@dataclass(frozen=True)
class TypesSize(CellsSize):
    """How much is trained; see :class:`r2mae_paper.cell_tables.CellsSize`."""

    sets: tuple[str, ...] = ("hlca",)

    small: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("onek1k", "perez-tcells", "combat"), "baselines": (EXPRESSION, "pca")},
        "settings": SMALL,
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("onek1k",), "baselines": (EXPRESSION,), "rows": (REFERENCE, "r2mae"), "seeds": 1},
        "settings": SMOKE,
    }


SIZE = TypesSize


def cells(size: TypesSize, out: Path) -> list[SweepRun]:
    """Return a run for each set, scheme and seed, and the baselines."""
    return cells_of_sets(size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return means, intervals, differences and ranks of every score (Table 6), reconstruction (Table 8), all runs."""
    return tables_of_sets(results, "table6", "table8", {})


def draw(tables: Tables, size: TypesSize) -> Figures:
    """Draw the average score, and reconstruction at each ratio; the dashed line is expression itself."""
    return draw_sets(tables, "table6", "table8")
