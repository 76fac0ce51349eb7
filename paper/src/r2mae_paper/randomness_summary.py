"""Where the randomness belongs, over the sets of all domains: what random ratios gain, and what rules lose."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from r2mae.errors import UserError
from r2mae_paper.drawing import BLACK, COLOURS, Figures, interval, name_rows, panels, quotient_axis
from r2mae_paper.gains import BEST_FIXED, Gains, pooled_rows
from r2mae_paper.randomness import (
    BEST_BY_SAMPLE,
    BLIND,
    BY_SAMPLE,
    MASK_AWARE,
    RANDOM,
    RULES,
    SPREAD,
    SWEEPS,
    gain_in_percent,
    gains_over_references,
)
from r2mae_paper.rows import TableRow, Tables, mean_columns, select, unique
from r2mae_paper.rules import draw_rules, rules_table
from r2mae_paper.state import State, read_runs, state_of
from r2mae_paper.studies import ENTRIES, Scale, Size
from r2mae_paper.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ERROR, PROBE = "error", "probe"
TITLES = {ERROR: "error over all missing fractions", PROBE: "probe"}
AVERAGE = "average"


def gather(folder: Path, scale: Scale) -> pd.DataFrame:
    """Return all runs of the studies in a folder, with the columns `domain`, `error` and, of frozen features, `probe`.

    Raises
    ------
    UserError
        If none of the studies is there; one is not finished, or of another scale; or a table lacks a column.
    """
    found, absent = [], []
    for sweep in SWEEPS:
        file = folder / sweep.name / f"{sweep.name}-runs.csv"
        if not file.is_file():
            absent.append(sweep.name)
            continue
        _check(sweep.name, state_of(file.parent), scale)
        runs = read_runs(file, ("set", "label", "mask_aware", "seed", sweep.objective))
        named = {sweep.objective: ERROR, **({sweep.probe: PROBE} if sweep.of_features else {})}
        found.append(runs.rename(columns=named).assign(domain=sweep.domain))
    if not found:
        raise UserError(f"{folder}: has no tables of {', '.join(absent)}: run one of them with the same --out first")
    if absent:
        logging.getLogger("r2mae").warning("without %s, of which %s has no tables", ", ".join(absent), folder)
    return pd.concat(found, ignore_index=True)


def _check(name: str, state: State, scale: Scale) -> None:
    if state.planned and not state.written:
        raise UserError(f"{name} is not finished ({state.in_words()}): run it to its end, or move its folder away")
    if state.scale not in ("", scale):
        raise UserError(f"{name} is of the scale {state.scale}, not {scale}: give --scale {state.scale} for all")


def table(results: pd.DataFrame) -> Tables:
    """Return the gains of all rows by set and on average, and what rules lose.

    Gains are in percent of the error (positive: lower), and differences of the probe (positive: higher).
    """

    def gains(runs: pd.DataFrame, score: str) -> Gains:
        return gains_over_references(runs, score, higher=score == PROBE)

    by_set = [
        {"domain": domain, "set": name, "score": score, "label": label, "against": against, **_in_unit(score, gain)}
        for (domain, name), group in results.groupby(["domain", "set"], sort=False)
        for score in (ERROR, PROBE)
        for (label, against), own in gains(group, score).items()
        for gain in own.values()
    ]
    pooled = [
        {"score": score, **_in_unit(score, row)}
        for score in (ERROR, PROBE)
        for row in pooled_rows(gains(results, score))
    ]
    rules = rules_table(results[~results["mask_aware"].astype(bool)], ERROR, PROBE, RULES)
    return {"randomness": by_set, "randomness-pooled": pooled, "randomness-rules": rules}


def _in_unit(score: str, gain: "TableRow | pd.Series[float]") -> TableRow:
    """Return gains in percent of the error, from differences of logarithms; those of the probe as they are."""
    if not isinstance(gain, dict):
        mean = mean_columns(gain)
        gain = {"seeds": mean["seeds"], "gain": mean["mean"], "low": mean["low"], "high": mean["high"]}
    return {**gain, "unit": "difference"} if score == PROBE else {**gain_in_percent(gain), "unit": "percent"}


def plot(tables: Tables, size: Size) -> Figures:
    """Draw gains over the best fixed ratio; what the mask as an input gains; and what rules lose."""
    # What is of one set is no average, and what is of cells alone is none over all sets.
    averages = [
        {**row, "set": AVERAGE}
        for row in tables["randomness-pooled"]
        if row["sets"] > 1 and row["against"] != BEST_BY_SAMPLE
    ]
    rows = [*tables["randomness"], *averages]
    against_best = {
        "r2mae: a ratio for each batch": (RANDOM, BEST_FIXED),
        "r2mae-per-sample: for each sample": (SPREAD, BEST_FIXED),
        "one ratio, 0.50, masks by sample": (BY_SAMPLE, BEST_FIXED),
        "r2mae-per-sample, over the best ratio with masks by sample": (SPREAD, BEST_BY_SAMPLE),
    }
    against_best = {
        title: (label, against)
        for title, (label, against) in against_best.items()
        if select(tables["randomness"], label=label, against=against)
    }
    figures = {"randomness": _forest(rows, against_best, "the best fixed ratio")}
    mask_aware = {label: (label + MASK_AWARE, "mask_blind") for label in (BLIND, RANDOM, SPREAD)}
    if select(rows, against="mask_blind"):
        figures["randomness-mask-aware"] = _forest(rows, mask_aware, "the mask-blind network")
    if tables["randomness-rules"]:
        figures["randomness-rules"] = draw_rules(tables["randomness-rules"], TITLES)
    return figures


def _forest(rows: Sequence[TableRow], shown: dict[str, tuple[str, str]], what: str) -> "Figure":
    """Draw gains with their intervals: a line a set, the average below; a panel for each score."""
    rows = [row for row in rows if (row["label"], row["against"]) in shown.values()]
    names = [name for name in unique(rows, "set") if name != AVERAGE]
    lines = [*names, *([AVERAGE] if len(names) > 1 else [])]
    scores = [score for score in (ERROR, PROBE) if select(rows, score=score)]
    figure, axes_of = panels(len(scores), width=4.2, height=1.3 + 0.32 * len(lines))
    for number, (axes, score) in enumerate(zip(axes_of, scores, strict=True)):
        for place, (title, (label, against)) in enumerate(shown.items()):
            mine = select(rows, score=score, label=label, against=against)
            _marks(axes, mine, lines, (place - (len(shown) - 1) / 2) * 0.22, COLOURS[place], title)
        for name in names:
            if not select(rows, set=name, score=score):
                axes.text(
                    0.75, lines.index(name), f"no {score}", transform=axes.get_yaxis_transform(), va="center",
                    fontsize=7,
                )  # fmt: skip
        name_rows(axes, lines if number == 0 else [""] * len(lines), float(score == ERROR))
        if AVERAGE in lines:
            axes.axhline(len(lines) - 1.5, color=BLACK, linewidth=0.6)
        if score == ERROR:
            quotient_axis(axes)
            axes.set_xlabel(f"{TITLES[score]}:\nover that of {what}\n(left: better)")
        else:
            axes.set_xlabel(f"{TITLES[score]}: minus that of\n{what}\n(right: better)")
    columns = 3 if len(shown) == 3 else 2  # four names are too long for one line
    figure.legend(*axes_of[0].get_legend_handles_labels(), fontsize=8, loc="outside upper center", ncols=columns)
    return figure


def _marks(axes: "Axes", rows: Sequence[TableRow], lines: Sequence[str], shift: float, colour: str, title: str) -> None:
    """Draw gains of one kind: those in percent of an error as quotients of errors, whose axis is logarithmic."""
    label: Any = title
    for row in rows:
        if row["set"] not in lines:
            continue
        low, middle, high = row["low"], row["gain"], row["high"]
        if row["unit"] == "percent":
            low, middle, high = 1 - high / 100, 1 - middle / 100, 1 - low / 100
        look = {"fmt": "D" if row["set"] == AVERAGE else "o", "markersize": 4.5, "color": colour, "label": label}
        interval(axes, middle, low, high, lines.index(row["set"]) + shift, **look)
        label = None


STUDIES = (Study(ENTRIES["randomness"], plot, table, gather=gather),)
