"""Tables 4 and 6 (probes), 7 and 8 (reconstruction): every scheme on sets of single cells.

Tables 4 and 7 are of sets whose donors have a condition, Tables 6 and 8 of sets with types of cells.

Do the schemes of Tables 4 and 6 to 8 compare at the paper's width as at the small one? Cells, both widths.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.cells.domain import DOMAIN
from r2mae.compare.comparison import BASELINE
from r2mae.compare.measure import check_baselines
from r2mae.compare.runs import SweepRun, Variant
from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae_paper.bases import cells, grid, runs_of_groups
from r2mae_paper.drawing import COLOURS, GREY, Axes, Figures, interval, legend_below, name_rows, panels
from r2mae_paper.gains import (
    BEST_FIXED,
    BLIND,
    Gains,
    best_and_blind,
    compared_rows,
    gains_over_fixed,
    pooled_rows,
    sets_at_ceiling,
)
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.scheme_tables import CURRICULA, average_ranks, chosen, dots, schemes, tables_of, variants_of
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
    """Return a run for each set, row and seed, and the baselines, each set in a folder of its own."""
    settings = {**size.settings, **({"only": size.only} if size.only else {})}
    rows = chosen(size, SCHEMES, REFERENCE)
    bases = {name: cells(name, settings) for name in size.sets}
    for base in bases.values():
        check_baselines(base, DOMAIN, size.baselines)
    groups = {name: variants_of(base, rows, size.baselines, set=name) for name, base in bases.items()}
    return runs_of_groups(groups, range(size.seeds), out)


def table(results: pd.DataFrame, *, probes: str, reconstruction: str) -> Tables:
    """Return for each set means, intervals and differences, in tables named `probes` and `reconstruction`; all runs.

    `<probes>-pooled` has the average gain of each scheme over sets: over the best of the fixed ratios, which is chosen
    on the other seeds, and over the reference, which stands for a ratio that is chosen blindly.

    Probes have the average rank over the scores that the paper ranks, of means over seeds, the best of tied ranks.
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
        found = tables_of(group, probes, [*scores, *rebuilt], REFERENCE, **judged)
        for row in found[probes]:
            rank = {"rank": ranks.get(row["label"], math.nan)} if row["score"] == "score" else {}
            tables[reconstruction if row["score"] in rebuilt else probes].append({"set": name, **row, **rank})
        tables[f"{probes}-runs"] += [{"set": name, **row} for row in found[f"{probes}-runs"]]
    return tables


def _pooled(results: pd.DataFrame) -> list[TableRow]:
    """Return what each scheme gains on average over sets, in the average score and in reconstruction."""
    trained = results[results["scheme"] != BASELINE]
    return [
        {"score": score, **row}
        for score in ("score", "reconstruction_r")
        if score in trained
        for row in pooled_rows(gains_over_fixed(trained, score, FIXED, REFERENCE), sets_at_ceiling(trained, score))
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


SCORES = {"score": "average score", "reconstruction_r": "reconstruction, Pearson's r"}
_ROW, _WIDTH = "row", "width"
_ENDS = ("", "_low", "_high")


def runs_of_widths(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each set, width, row and seed, each set in a folder of its own."""
    rows = chosen(size, SCHEMES, REFERENCE)
    groups: dict[str, list[Variant]] = {}
    for name in size.sets:
        judged = CONDITION if name in ENTRIES["table4"].small["sets"] else {}
        widths = {width: {"preset": width, **size.settings} for width in size.widths}
        base = cells(name, {**size.settings, **judged})
        groups[name] = [
            replace(row, values={"set": name, **row.values, "scheme": row.config.scheme.name})
            for row in grid(base, {_WIDTH: widths, _ROW: rows})
        ]
    return runs_of_groups(groups, range(size.seeds), out)


def table_of_widths(results: pd.DataFrame) -> Tables:
    """Return means by set and width, gains by set and pooled, how much they differ between widths, and all runs.

    Gains are over the best of the fixed ratios, which is chosen on the other seeds, and over one chosen blindly.
    """
    scores = [score for score in SCORES if score in results]
    references = partial(best_and_blind, fixed=FIXED, blind=REFERENCE)
    by_row = results.assign(label=results[_ROW])
    rows: list[TableRow] = []
    pooled: list[TableRow] = []
    for score in scores:
        ceiling = sets_at_ceiling(by_row, score)
        by_width = {
            str(name): gains_over_fixed(group, score, FIXED, REFERENCE)
            for name, group in by_row.groupby(_WIDTH, sort=False)
        }
        for width, gains in {**by_width, "difference": _widening(by_width)}.items():
            pooled += [{"score": score, _WIDTH: width, **row} for row in pooled_rows(gains, ceiling)]
        for (data, preset), group in by_row.groupby(["set", _WIDTH], sort=False):
            rows += [
                {"set": data, _WIDTH: preset, **{"score": score, **row}}
                for row in compared_rows(group, score, references, higher=True)
            ]
    kept = ["set", "label", _WIDTH, _ROW, "scheme", "seed", "seconds", *scores]
    return {"cells-width": rows, "cells-width-pooled": pooled, "cells-width-runs": results[kept].to_dict("records")}


def plot_widths(tables: Tables, size: Size) -> Figures:
    """Draw what each row gains over the best fixed ratio at each width: on average, and below it on each set."""
    rows, pooled = tables["cells-width"], tables["cells-width-pooled"]
    scores = unique(rows, "score")
    labels = [label for label in size.rows if any(row["label"] == label for row in rows)]
    sets = unique(rows, "set")
    figure, grid_of_axes = panels(len(scores), 1, width=5.2, height=1.2 + 0.26 * len(labels) * (1 + len(sets)))
    for axes, score in zip(grid_of_axes, scores, strict=True):
        average = [row for row in select(pooled, score=score, against=BEST_FIXED) if row["sets"] > 1]
        named = [("average", average)] if average else []
        named += [(name, select(rows, set=name, score=score)) for name in sets]
        _panel(axes, named, labels, size.widths)
        axes.set_xlabel(f"{SCORES[score]}: minus the best fixed ratio")
    for colour, unit in zip(COLOURS, map(DOMAIN.presets.__getitem__, size.widths), strict=False):
        grid_of_axes[0].plot([], [], "o", color=colour, label=f"{unit['n_hidden']} and {unit['n_latent']}")
    legend_below(figure, grid_of_axes[0], len(size.widths), title="hidden and latent units", title_fontsize=9)
    return {"cells-width": figure}


def _widening(by_width: Mapping[str, Gains]) -> Gains:
    """Return how much more each row gains at the last width than at the first, on each set, paired over seeds."""
    widths = list(by_width.values())
    first, last = (widths[0], widths[-1]) if len(widths) > 1 else ({}, {})
    return {
        pair: {  # of seeds that both widths have
            name: (last[pair][name] - first[pair][name]).dropna() for name in last[pair] if name in first[pair]
        }
        for pair in last
        if pair in first
    }


def _panel(
    axes: Axes, named: Sequence[tuple[str, list[TableRow]]], labels: Sequence[str], widths: Sequence[str]
) -> None:
    """Draw a block of rows for each group of gains, a colour for each width; in averages all sets count alike."""
    places: list[str] = []
    for name, rows in named:
        known = {(row["label"], row[_WIDTH]): row for row in rows}
        for label, (number, width) in itertools.product(labels, enumerate(widths)):
            if number == 0:
                places.append(f"{name}: {label}")
            if (label, width) in known:
                offset = 0.25 * (number - (len(widths) - 1) / 2)
                row, place = known[label, width], len(places) - 1 + offset
                pooled = ("equal_gain", "equal_low", "equal_high")  # which the verdicts are about
                keys = pooled if "equal_gain" in row else (f"vs_{BEST_FIXED}{end}" for end in _ENDS)
                gain, low, high = (float(row.get(key, np.nan)) for key in keys)
                interval(axes, gain, low, high, place, color=COLOURS[number], markersize=3.5, elinewidth=1)
        axes.axhline(len(places) - 0.5, color=GREY, linewidth=0.5)
    name_rows(axes, places, 0)
    axes.tick_params(axis="y", labelsize=7)


STUDIES = (
    *(
        Study(
            ENTRIES[probes],
            partial(plot, probes=probes, reconstruction=reconstruction),
            partial(table, probes=probes, reconstruction=reconstruction),
            runs=runs,
        )
        for probes, reconstruction in (("table4", "table7"), ("table6", "table8"))
    ),
    Study(ENTRIES["cells-width"], plot_widths, table_of_widths, runs=runs_of_widths),
)
