"""Tables 4 and 6 (probes), 7 and 8 (reconstruction): every scheme on sets of single cells.

Tables 4 and 7 are of sets whose donors have a condition, Tables 6 and 8 of sets with types of cells.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.cells.domain import DOMAIN
from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.report.comparison import BASELINE
from r2mae.sweep.runs import SweepRun, runs_of_groups
from r2mae_paper.bases import cells
from r2mae_paper.drawing import Figures
from r2mae_paper.gains import BLIND, gains_over_fixed, pooled_rows
from r2mae_paper.rows import TableRow, Tables, unique
from r2mae_paper.scheme_table import CURRICULA, average_ranks, dots, schemes, tables_of, variants_of
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

SCHEMES = schemes((0.1, 0.25, 0.5), "dynamic", "mdlm", "r2mae", *CURRICULA)
"""The rows that the paper trains, by name."""
REFERENCE, EXPRESSION = "fixed 0.25", "expression"
FIXED = tuple(name for name in SCHEMES if name.startswith("fixed"))
RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7)
RECONSTRUCTION = {
    **{f"reconstruction_r_{ratio:g}": f"Pearson r at ratio {ratio:g}" for ratio in RATIOS},
    "reconstruction_r": "Pearson r, mean",
}
CONDITION = {"auroc_labels": ("condition",), "timing": "sea-ad"}
"""As the paper's Alzheimer's disease: a condition counts with its AUROCs, over cells and donors."""


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each set, row and seed, and the baselines, each set in a folder of its own.

    Raises
    ------
    UserError
        If a baseline needs a package that is missing.
    """
    DOMAIN.check_baselines(size.baselines)
    settings = {**size.settings, **({"only": size.only} if size.only else {})}
    chosen = {label: SCHEMES[label] for label in size.rows or SCHEMES}
    groups = {name: variants_of(cells(name, settings), chosen, size.baselines, set=name) for name in size.sets}
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
    settings = dict(CONDITION) if probes == "table4" and set(results["set"]) != {"sea-ad"} else {}
    as_trained = [AS_TRAINED + name for name in RECONSTRUCTION if AS_TRAINED + name in results]
    settings["bn_statistics"] = "both" if as_trained else "yes"
    rebuilt = [*RECONSTRUCTION, *as_trained]
    tables: dict[str, list[TableRow]] = {probes: [], reconstruction: [], f"{probes}-pooled": _pooled(results)}
    tables[f"{probes}-runs"] = []
    for name, group in results.groupby("set", sort=False):
        metrics = DOMAIN.metrics_of(cells(str(name), settings))
        scores = [metric.name for metric in metrics if metric.name not in rebuilt]
        lower, neither = ([one.name for one in metrics if one.higher_is_better is way] for way in (False, None))
        judged: dict[str, Any] = {"baseline": EXPRESSION, "lower": lower, "neither": neither}
        ranks = average_ranks(group, [metric.name for metric in metrics if metric.ranked and metric.higher_is_better])
        for table, wanted in ((probes, scores), (reconstruction, rebuilt)):
            found = tables_of(group, table, wanted, REFERENCE, **judged)
            tables[table] += [
                {"set": name, **row, **({"rank": ranks.get(row["label"], math.nan)} if row["score"] == "score" else {})}
                for row in found[table]
            ]
        found = tables_of(group, probes, [*scores, *rebuilt], REFERENCE, **judged)
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


def plot(tables: Tables, size: Size, *, probes: str, reconstruction: str) -> Figures:
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


STUDIES = tuple(
    Study(
        ENTRIES[probes],
        partial(plot, probes=probes, reconstruction=reconstruction),
        partial(table, probes=probes, reconstruction=reconstruction),
        runs=runs,
    )
    for probes, reconstruction in (("table4", "table7"), ("table6", "table8"))
)
