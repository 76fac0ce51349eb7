"""Tables 4 and 6 (probes), 7 and 8 (reconstruction): every scheme on sets of single cells.

Tables 4 and 7 are of sets whose donors have a condition, Tables 6 and 8 of sets with types of cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cells.sets import SET_DEFAULTS
from r2mae.report.comparison import BASELINE
from r2mae.sweep.runs import SweepRun, runs_of_groups
from r2mae_paper.drawing import Figures
from r2mae_paper.gains import BLIND, gains_over_fixed, pooled_rows
from r2mae_paper.rows import TableRow, Tables, unique
from r2mae_paper.scheme_table import average_ranks, dots, tables_of, variants_of
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import Size, Study

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    **{f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in (0.1, 0.25, 0.5)},
    **{
        name: {"scheme": name}
        for name in ("dynamic", "mdlm", "r2mae", "r2mae-dynamic", "cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0")
    },
}
"""The rows that the paper trains, by name."""
REFERENCE, EXPRESSION = "fixed 0.25", "expression"
FIXED = tuple(name for name in SCHEMES if name.startswith("fixed"))
RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7)
RECONSTRUCTION = {
    **{f"reconstruction_r_{ratio:g}": f"Pearson r at ratio {ratio:g}" for ratio in RATIOS},
    "reconstruction_r": "Pearson r, mean",
}
SMALL = {**DOMAIN.presets["small"], "preset": "small", "batch_size": 128, "steps": 1000}
SMOKE = {"n_hidden": 16, "n_latent": 8, "batch_size": 64, "steps": 2}
CONDITION = {"auroc_labels": ("condition",), "timing": "sea-ad"}
"""As the paper's Alzheimer's disease: a condition counts with its AUROCs, over cells and donors."""


@dataclass(frozen=True)
class CellsSize(Size):
    """How much is trained.

    Attributes
    ----------
    sets : tuple of str
        Sets of cells.
    rows : tuple of str
        Names of :data:`SCHEMES`; by default all.
    baselines : tuple of str
        What is measured without training; scvi needs scvi-tools.
    seeds : int
        Runs of each row. A seed draws weights, order, held-out cells and test donors, for all rows alike.
    settings : mapping
        Fields of the configuration; by default the paper's network, whose recipe is the domain's.
    """

    sets: tuple[str, ...] = ()
    rows: tuple[str, ...] | None = None
    baselines: tuple[str, ...] = (EXPRESSION, "scvi")
    seeds: int = 5
    settings: Mapping[str, Any] = field(default_factory=lambda: {**DOMAIN.presets["paper"], "preset": "paper"})


@dataclass(frozen=True)
class DonorsSize(CellsSize):
    """How much is trained for Tables 4 and 7; see :class:`CellsSize`."""

    sets: tuple[str, ...] = ("sea-ad",)

    small: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("csle", "covid-tcells", "pig-airway"), "baselines": (EXPRESSION, "pca")},
        "settings": {**SMALL, **CONDITION},
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("csle", "pig-airway"), "baselines": (EXPRESSION,), "rows": (REFERENCE, "r2mae"), "seeds": 1},
        "settings": {**SMOKE, **CONDITION},
    }


@dataclass(frozen=True)
class TypesSize(CellsSize):
    """How much is trained for Tables 6 and 8; see :class:`CellsSize`."""

    sets: tuple[str, ...] = ("hlca",)

    small: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("onek1k", "perez-tcells", "combat"), "baselines": (EXPRESSION, "pca")},
        "settings": SMALL,
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("onek1k",), "baselines": (EXPRESSION,), "rows": (REFERENCE, "r2mae"), "seeds": 1},
        "settings": SMOKE,
    }


def runs(size: CellsSize, out: Path) -> list[SweepRun]:
    """Return a run for each set, row and seed, and the baselines, each set in a folder of its own.

    Raises
    ------
    UserError
        If a baseline needs a package that is missing.
    """
    DOMAIN.check_baselines(size.baselines)
    chosen = {label: SCHEMES[label] for label in size.rows or SCHEMES}
    groups = {name: variants_of(config_of(name, size.settings), chosen, size.baselines, set=name) for name in size.sets}
    return runs_of_groups(groups, range(size.seeds), out)


def table(results: pd.DataFrame, *, probes: str, reconstruction: str) -> Tables:
    """Return for each set means, intervals and differences of probes and of reconstruction; and all runs.

    `<probes>-pooled` has the average gain of each scheme over sets: over the best of the fixed ratios, which is chosen
    on the other seeds, and over the reference, which stands for a ratio that is chosen blindly.

    Probes have the average rank over the scores that the paper ranks, of means over seeds, the best of tied ranks.

    Parameters
    ----------
    results : DataFrame
        A line a run.
    probes, reconstruction : str
        Names of the tables.
    """
    # What is ranked: a condition's AUROCs, too; sea-ad's own settings have them.
    settings = CONDITION if probes == "table4" and set(results["set"]) != {"sea-ad"} else {}
    tables: dict[str, list[TableRow]] = {probes: [], reconstruction: [], f"{probes}-pooled": _pooled(results)}
    tables[f"{probes}-runs"] = []
    for name, group in results.groupby("set", sort=False):
        metrics = DOMAIN.metrics_of(config_of(str(name), settings))
        scores = [metric.name for metric in metrics if metric.name not in RECONSTRUCTION]
        lower, neither = ([one.name for one in metrics if one.higher_is_better is way] for way in (False, None))
        judged: dict[str, Any] = {"baseline": EXPRESSION, "lower": lower, "neither": neither}
        ranks = average_ranks(group, [metric.name for metric in metrics if metric.ranked and metric.higher_is_better])
        for table, wanted in ((probes, scores), (reconstruction, list(RECONSTRUCTION))):
            found = tables_of(group, table, wanted, REFERENCE, **judged)
            tables[table] += [{"set": name, **row, **_rank_of(row, ranks)} for row in found[table]]
        found = tables_of(group, probes, [*scores, *RECONSTRUCTION], REFERENCE, **judged)
        tables[f"{probes}-runs"] += [{"set": name, **row} for row in found[f"{probes}-runs"]]
    return tables


def _pooled(results: pd.DataFrame) -> list[TableRow]:
    """Return what each scheme gains on average over sets, in the average score and in reconstruction."""
    trained = results[results["scheme"] != BASELINE]
    return [
        {"score": score, **row}
        for score in ("score", "reconstruction_r")
        if score in trained
        for row in pooled_rows(gains_over_fixed(trained, score, FIXED, REFERENCE))
        if row["label"] not in FIXED or row["against"] == BLIND
    ]


def plot(tables: Tables, size: CellsSize, *, probes: str, reconstruction: str) -> Figures:
    """Draw the average score of each set, and reconstruction at each ratio; the dashed line is expression itself."""
    names = unique(tables[probes], "set")
    return {
        probes: _by_set(tables[probes], names, {"score": "average score"}, min(len(names), 3)),
        reconstruction: _by_set(tables[reconstruction], names, RECONSTRUCTION, len(RECONSTRUCTION)),
    }


def _by_set(rows: Sequence[TableRow], names: Sequence[str], titles: Mapping[str, str], columns: int) -> Any:
    named = [{**row, "score": f"{row['set']} {row['score']}"} for row in rows if row["score"] in titles]
    shown = {f"{name} {score}": f"{name}: {title}" for name in names for score, title in titles.items()}
    return dots(named, shown, EXPRESSION, columns=columns)


def config_of(name: str, settings: Mapping[str, Any]) -> CellsConfig:
    """Return what all runs on a set share; settings take the place of what is known of the set."""
    values: dict[str, Any] = {"data": name, **SET_DEFAULTS[name], **settings}
    return CellsConfig.make(**values)


def _rank_of(row: TableRow, ranks: Mapping[str, float]) -> TableRow:
    return {"rank": ranks.get(row["label"], float("nan"))} if row["score"] == "score" else {}


STUDIES = tuple(
    Study(
        ENTRIES[probes],
        size,
        partial(plot, probes=probes, reconstruction=reconstruction),
        partial(table, probes=probes, reconstruction=reconstruction),
        runs=runs,
    )
    for probes, reconstruction, size in (("table4", "table7", DonorsSize), ("table6", "table8", TypesSize))
)
