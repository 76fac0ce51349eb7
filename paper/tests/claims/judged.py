"""Tables of runs with known answers, and words of verdicts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae_paper.bases import CELL_SETS
from r2mae_paper.cell_tables import CONDITION
from r2mae_paper.claims import Found, Results, judge
from r2mae_paper.study import get_study

Rows = list[dict[str, Any]]


def words(found: Mapping[str, Found], *names: str) -> list[str]:
    return [found[name].verdict for name in names]


def found_in(folder: Path) -> dict[str, Found]:
    """Judge all claims by what is in a folder: what was found, by the former names of cases."""
    return {
        name: found
        for one in judge(Results([folder]))
        for case, found in zip(one.claim.cases, one.found, strict=True)
        for name in case.formerly
    }


def runs(levels: Mapping[str, float], scores: Sequence[str], seeds: int = 5, **values: Any) -> Rows:
    """Rows with these levels of every score, jittered by the seed for all alike, and a little each."""
    rng = np.random.default_rng(0)
    return [
        {"label": label, "scheme": label.split()[0], "seed": seed, "seconds": 1.0, **values}
        | {score: level + jitter + 1e-5 * rng.normal() for score in scores}
        for seed, jitter in enumerate(rng.normal(size=seeds) / 100)
        for label, level in levels.items()
    ]


RECONSTRUCTION = [f"reconstruction_r_{ratio:g}" for ratio in (0.1, 0.2, 0.3, 0.5, 0.7)]
CELLS = {
    **dict.fromkeys(("fixed 0.10", "fixed 0.50"), 0.70),
    **dict.fromkeys(("dynamic", "cl"), 0.715),
    **dict.fromkeys(("fixed 0.25", "r2mae-dynamic", "r2mae-cl", "r2mae-cl-k0"), 0.71),
    **{"mdlm": 0.69, "cl-k0": 0.5, "scvi": 0.68, "expression": 0.65},
}
OF_A_SET = ("best", "schemes", "scvi", "expression", "dynamic", "curriculum", "range", "lowest")
TYPES = {"table4": ("sea-ad", get_study("table4")), "table6": ("hlca", get_study("table6"))}


def cells(ours: float, names: Sequence[str], condition: bool) -> pd.DataFrame:
    """Runs on some sets, with the scores that the domain measures on each."""
    settings = CONDITION if condition and "sea-ad" not in names else {}
    rows: Rows = []
    for name in names:
        config = CellsConfig.make(**{"data": name, **CELL_SETS[name], **settings})
        measured = [metric.name for metric in DOMAIN.metrics_of(config)]
        rows += runs({**CELLS, "r2mae": ours}, list(dict.fromkeys([*measured, *RECONSTRUCTION])), set=name)
    return pd.DataFrame(rows)


def as_written(target: str, rows: pd.DataFrame) -> dict[str, Rows]:
    """Return what a check reads of the target's tables, without the means, which take seconds."""
    return {target: [{"set": ""}], f"{target}-runs": rows.to_dict("records")}
