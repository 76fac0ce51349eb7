"""Where the randomness belongs, over the sets of all domains: what random ratios gain, and what rules lose."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError
from r2mae.evaluation.statistics import mean_interval
from r2mae_paper import randomness_cells, randomness_genome, randomness_images, randomness_text
from r2mae_paper.artefact import Size, TableRow, Tables
from r2mae_paper.drawing import BLACK, COLOURS, GREY, Figures, panels, quotient_axis
from r2mae_paper.gains import BEST_FIXED, by_label, pooled_rows
from r2mae_paper.randomness import (
    BEST_BY_SAMPLE,
    BLIND,
    BY_SAMPLE,
    MASK_AWARE,
    PAPER,
    RANDOM,
    RULES,
    SPREAD,
    references,
)
from r2mae_paper.rules import draw_rules, in_percent, rules_table
from r2mae_paper.run_tables import read_runs
from r2mae_paper.state import State, state_of
from r2mae_paper.targets import Scale

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COST", "DATA", "PAPER", "SIZE", "TITLE", "draw", "gather", "table"]

TITLE = "Where the randomness belongs, over all sets: what random ratios gain, and rules for a ratio"
DATA = "the tables of randomness-images, -cells, -text and -genome in the same --out"
COST = {"smoke": "seconds", "small": "seconds", "full": "seconds"}

STUDIES = {module.STUDY.name: module.STUDY for module in (
    randomness_images, randomness_cells, randomness_text, randomness_genome
)}  # fmt: skip
ERROR, PROBE = "error", "probe"
TITLES = {ERROR: "error over all missing fractions", PROBE: "probe"}
AVERAGE = "average"


@dataclass(frozen=True)
class SummarySize(Size):
    """It has none: what it is made of is in the tables, of whichever scale."""

    @classmethod
    def of(cls, scale: Scale) -> "SummarySize":
        """Return the size, which is the same at each scale."""
        return cls()


SIZE = SummarySize


def gather(beside: Path, scale: Scale) -> "pd.DataFrame":
    """Return all runs of the studies in a folder, with the columns `domain`, `error` and, of frozen features, `probe`.

    Raises
    ------
    UserError
        If none of the studies is there; one is not finished, or of another scale; or a table lacks a column.
    """
    import pandas as pd

    found, absent = [], []
    for name, study in STUDIES.items():
        file = beside / name / f"{name}-runs.csv"
        if not file.is_file():
            absent.append(name)
            continue
        _check(name, state_of(file.parent), scale)
        runs = read_runs(file, ("set", "label", "mask_aware", "seed", study.objective))
        named = {study.objective: ERROR, **({study.probe: PROBE} if study.of_features else {})}
        found.append(runs.rename(columns=named).assign(domain=name.partition("-")[2]))
    if not found:
        raise UserError(f"{beside}: has no tables of {', '.join(absent)}: run one of them with the same --out first")
    if absent:
        logging.getLogger("r2mae").warning("without %s, of which %s has no tables", ", ".join(absent), beside)
    return pd.concat(found, ignore_index=True)


def _check(name: str, state: State, scale: Scale) -> None:
    if state.planned and not state.written:
        raise UserError(f"{name} is not finished ({state.in_words()}): run it to its end, or move its folder away")
    if state.scale not in ("", scale):
        raise UserError(f"{name} is of the scale {state.scale}, not {scale}: give --scale {state.scale} for all")


def table(results: "pd.DataFrame") -> Tables:
    """Return the gains of all rows by set and on average, and what rules lose.

    Gains are in percent of the error (positive: lower), and differences of the probe (positive: higher).
    """
    by_set: list[TableRow] = []
    gains: dict[str, dict[tuple[str, str], list[Float[np.ndarray, " _"]]]] = {ERROR: {}, PROBE: {}}
    logs = results.assign(**{ERROR: np.log(results[ERROR].where(results[ERROR] > 0))})
    for (domain, name), group in logs.groupby(["domain", "set"], sort=False):
        for score in (ERROR, PROBE):
            for (label, against), gain in _gains(group, score).items():
                gains[score].setdefault((label, against), []).append(gain)
                mean = mean_interval(gain)
                row: TableRow = {"domain": domain, "set": name, "score": score, "label": label, "against": against}
                row |= {"seeds": len(gain), "gain": mean.mean, "low": mean.low, "high": mean.high}
                by_set.append(_in_unit(row))
    pooled = [_in_unit({"score": score, **row}) for score in (ERROR, PROBE) for row in pooled_rows(gains[score])]
    rules = rules_table(results[~results["mask_aware"].astype(bool)], ERROR, PROBE, RULES)
    return {"randomness": by_set, "randomness-pooled": pooled, "randomness-rules": rules}


def _gains(group: "pd.DataFrame", score: str) -> dict[tuple[str, str], Float[np.ndarray, " _"]]:
    """Return what each row of a set gains over each of its references, by seed."""
    if score not in group or not group[score].notna().any():
        return {}
    higher = score == PROBE
    rows, found = by_label(group, score), {}
    for label, mine in rows.items():
        for against, other in references(rows, label, higher=higher).items():
            both = mine.index.intersection(other.index)
            if len(both):
                gain = (mine[both] - other[both]).to_numpy(float)
                found[label, against] = gain if higher else -gain
    return found


def _in_unit(row: TableRow) -> TableRow:
    """Return gains in percent of the error, from differences of logarithms; those of the probe as they are."""
    if row["score"] == PROBE:
        return {**row, "unit": "difference"}
    lower = {"gain": row["gain"], "low": row["low"], "high": row["high"]}
    return {**row, **{key: 0.0 - in_percent(-value) for key, value in lower.items()}, "unit": "percent"}


def draw(tables: Tables, size: SummarySize) -> Figures:
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
    against_best = {title: pair for title, pair in against_best.items() if _has(tables["randomness"], pair)}
    figures = {"randomness": _forest(rows, against_best, "the best fixed ratio")}
    mask_aware = {label: (label + MASK_AWARE, "mask_blind") for label in (BLIND, RANDOM, SPREAD)}
    if any(row["against"] == "mask_blind" for row in rows):
        figures["randomness-mask-aware"] = _forest(rows, mask_aware, "the mask-blind network")
    if tables["randomness-rules"]:
        figures["randomness-rules"] = draw_rules(tables["randomness-rules"], TITLES)
    return figures


def _has(rows: Sequence[TableRow], pair: tuple[str, str]) -> bool:
    return any((row["label"], row["against"]) == pair for row in rows)


def _forest(rows: Sequence[TableRow], shown: dict[str, tuple[str, str]], what: str) -> "Figure":
    """Draw gains with their intervals: a line a set, the average below; a panel for each score."""
    rows = [row for row in rows if (row["label"], row["against"]) in shown.values()]
    names = [name for name in dict.fromkeys(row["set"] for row in rows) if name != AVERAGE]
    lines = [*names, *([AVERAGE] if len(names) > 1 else [])]
    scores = [score for score in (ERROR, PROBE) if any(row["score"] == score for row in rows)]
    figure, axes_of = panels(len(scores), width=4.2, height=1.3 + 0.32 * len(lines))
    for number, (axes, score) in enumerate(zip(axes_of, scores, strict=True)):
        for place, (title, pair) in enumerate(shown.items()):
            mine = [row for row in rows if row["score"] == score and (row["label"], row["against"]) == pair]
            _marks(axes, mine, lines, (place - (len(shown) - 1) / 2) * 0.22, COLOURS[place], title)
        for name in names:
            if not any(row["set"] == name and row["score"] == score for row in rows):
                axes.text(
                    0.75,
                    lines.index(name),
                    f"no {score}",
                    transform=axes.get_yaxis_transform(),
                    va="center",
                    fontsize=7,
                )
        axes.axvline(float(score == ERROR), color=GREY, linestyle="--", linewidth=1, zorder=0)
        axes.set_yticks(range(len(lines)), lines if number == 0 else [""] * len(lines))
        axes.set_ylim(len(lines) - 0.5, -0.5)
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
        ends = None if np.isnan([low, high]).any() else [[middle - low], [high - middle]]
        axes.errorbar(
            middle, lines.index(row["set"]) + shift, xerr=ends, fmt="D" if row["set"] == AVERAGE else "o",
            color=colour, markersize=4.5, capsize=2, label=label,
        )  # fmt: skip
        label = None
