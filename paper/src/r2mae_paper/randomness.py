"""Where the randomness of the ratio belongs, and mask-aware networks: what the studies of all domains share.

The paper draws a ratio for every mini-batch from a range that it chooses, and shows the network zeros. Here schemes
that draw have nearly all ratios, U(0.05, 0.95), beside five fixed ones. All are judged by the mean error over the
ratios that their domain measures: 0.1 to 0.9 for images and cells, 0.15 to 0.8 for text, 0.05 to 0.8 for genomes. On
cells per-sample ratios also hide other genes in each cell, so that fixed ratios with such masks are a reference of
their own there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from r2mae.evaluation.fluctuation import loss_fluctuation
from r2mae.evaluation.metrics import metrics_by_ratio
from r2mae.evaluation.statistics import mean_interval, paired_difference
from r2mae.sweep.gather import metrics_of
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of_groups
from r2mae.sweep.runs import Variant as SweepRow
from r2mae_paper.artefact import Size, TableRow, Tables
from r2mae_paper.drawing import BLACK, COLOURS, GREY, Figures, panels, ratio_axis
from r2mae_paper.gains import BEST_FIXED, best_of, by_label, pooled_rows
from r2mae_paper.rules import ADVISED, draw_rules, in_percent, rules_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from r2mae.training.config import RunConfig

PAPER = "Not in the paper: it draws one ratio for each mini-batch, and its networks see zeros."
_WIDE = {"low": 0.05, "high": 0.95}
_RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)


def _by_sample(ratio: float) -> dict[str, Any]:
    """Return one ratio with the masks and weights of per-sample ratios: what these do without a random ratio."""
    return {"scheme": "r2mae-per-sample", "low": ratio, "high": ratio}


SCHEMES: Mapping[str, Mapping[str, Any]] = {
    **{f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in _RATIOS},
    "dynamic": {"scheme": "dynamic", **_WIDE},
    "r2mae": {"scheme": "r2mae", **_WIDE},
    "r2mae-per-sample": {"scheme": "r2mae-per-sample", **_WIDE},
    "by sample 0.50": _by_sample(0.5),
}
BY_SAMPLE_ROWS: Mapping[str, Mapping[str, Any]] = {f"by sample {ratio:.2f}": _by_sample(ratio) for ratio in _RATIOS}
"""One ratio for all cells, and a mask of its own for each cell: on cells this is not what "fixed" does, whose cells of
a mini-batch all hide the same genes."""
FIXED = tuple(name for name in SCHEMES if name.startswith("fixed"))
BLIND, RANDOM, SPREAD, BY_SAMPLE = "fixed 0.50", "r2mae", "r2mae-per-sample", "by sample 0.50"
BEST_BY_SAMPLE = "best_by_sample"
"""What rows are compared with: the best of :data:`BY_SAMPLE_ROWS`, as the best fixed ratio is chosen."""
RULES = {
    "one ratio, 0.50": BLIND,
    "r2mae, nearly all ratios": RANDOM,
    "r2mae-per-sample, the same range": SPREAD,
    "one ratio, 0.50, masks by sample": BY_SAMPLE,
}
"""Rows that are rules for choosing the ratio, by what figures call them."""
MASK_AWARE = " mask-aware"
"""End of the labels of rows whose network gets the mask, too."""
JUMPS = ("loss_sd", "loss_sd_beside_ratio")
_FIXED_COLOURS = {"fixed 0.10": GREY, BLIND: BLACK, "fixed 0.90": COLOURS[5]}
_LEAST_STEPS = 63  # of a run, so that fifty are left to measure jumps on


@dataclass(frozen=True)
class RandomnessSize(Size):
    """How much is trained.

    Attributes
    ----------
    sets : tuple of str
        Sets of data.
    rows : tuple of str
        Names of rows of the study; by default all.
    mask_aware : tuple of bool
        Without the mask as an input, and with it.
    seeds : int
        Runs of each row.
    settings : mapping
        Fields of the configuration.
    """

    sets: tuple[str, ...] = ()
    rows: tuple[str, ...] | None = None
    mask_aware: tuple[bool, ...] = (False, True)
    seeds: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)

    chooses: ClassVar[tuple[str, ...]] = ("seeds", "sets", "rows", "mask_aware")


@dataclass(frozen=True)
class RandomnessStudy:
    """The study of a domain: its methods are the functions of an artefact's module.

    Attributes
    ----------
    name : str
        Of its tables and figures.
    objective : str
        The error over all missing fractions, lower is better; its values by ratio are `<objective>_0.1` and so on.
    title : str
        The objective as figures name it.
    probe : str
        A score of which higher is better, where the data have it.
    bases : callable
        Takes a size and the folder of the study; returns the configuration on each set of data by its name.
    of_features : bool
        Whether `probe` is of frozen features. The accuracy at hidden places is not; the summary over domains lacks it.
    untold_rows : mapping
        By label, fields of the configuration of rows that this study has beside :data:`SCHEMES`, without the mask as
        an input alone.
    """

    name: str
    objective: str
    title: str
    probe: str
    bases: "Callable[[Any, Path], Mapping[str, RunConfig]]"
    of_features: bool = True
    untold_rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def cells(self, size: RandomnessSize, out: Path) -> list[SweepRun]:
        """Return the runs of all rows and seeds, each set in a folder of its own."""
        groups = {name: self._rows(name, base, size) for name, base in self.bases(size, out).items()}
        return runs_of_groups(groups, range(size.seeds), out)

    def _rows(self, data: str, base: "RunConfig", size: RandomnessSize) -> list[SweepRow]:
        rows: list[SweepRow] = []
        known = {**SCHEMES, **self.untold_rows}
        for mask_aware in size.mask_aware:
            given = {"mask_input": True} if mask_aware else {}
            names = [label for label in size.rows or known if label in SCHEMES or not mask_aware]
            points = {label + MASK_AWARE * mask_aware: {**known[label], **given} for label in names}
            rows += [
                replace(row, values={"set": data, "scheme": row.config.scheme, "mask_aware": mask_aware})
                for row in (grid(base, [SweepParameter("row", points)]) if points else ())
            ]
        return rows

    def table(self, results: "pd.DataFrame") -> Tables:
        """Return means and paired differences by set, relative gains pooled over sets, and all runs."""
        name, objective = self.name, self.objective
        scores = [
            objective,
            *metrics_by_ratio(map(str, results.columns)).get(objective, {}).values(),
            self.probe,
            *JUMPS,
        ]
        scores = [score for score in scores if score in results and results[score].notna().any()]
        rows: list[TableRow] = []
        for data, group in results.groupby("set", sort=False):
            for score in scores:
                rows += [{"set": data, **row} for row in _differences(group, score, higher=score == self.probe)]
        advised = [column for column in ADVISED.values() if column in results]
        runs = results[["set", "label", "scheme", "mask_aware", "seed", "seconds", *scores, *advised]].to_dict(
            "records"
        )
        tables = {name: rows, f"{name}-pooled": _pooled(results, objective), f"{name}-runs": runs}
        return {**tables, f"{name}-rules": rules_table(results[~results["mask_aware"]], objective, self.probe, RULES)}

    def draw(self, tables: Tables, size: RandomnessSize) -> Figures:
        """Draw pooled gains over the best fixed ratio, errors by missing fraction and set, and the regrets of rules."""
        figures: dict[str, Any] = {}
        if rules := tables[f"{self.name}-rules"]:
            titles = {self.objective: self.title, self.probe: self.probe.replace("_", " ")}
            figures[f"{self.name}-rules"] = draw_rules(rules, titles)
        labels = [*(label for label in SCHEMES if label != BY_SAMPLE), *BY_SAMPLE_ROWS]
        order = [label + mask_aware for mask_aware in ("", MASK_AWARE) for label in labels]
        pooled = [row for row in tables[f"{self.name}-pooled"] if row["against"] == BEST_FIXED]
        pooled.sort(key=lambda row: order.index(row["label"]))
        if pooled:
            figures[self.name], (axes,) = panels(1, width=5.6, height=0.9 + 0.24 * len(pooled))
            _gains(axes, pooled, self.title)
        sets = list(dict.fromkeys(row["set"] for row in tables[self.name]))
        figure, grid_of_axes = panels(len(sets), width=3.4 if len(sets) > 1 else 5.6, height=3.4)
        figures[f"{self.name}-by-fraction"] = figure
        for number, (axes, data) in enumerate(zip(grid_of_axes, sets, strict=True)):
            _by_fraction(axes, [row for row in tables[self.name] if row["set"] == data], self.objective)
            axes.set_title(data)
            if number == 0:
                axes.set_ylabel(f"{self.title},\nover that of {BLIND}")
        # The curves cross everywhere: the names stand beside the panels.
        figure.legend(
            *grid_of_axes[0].get_legend_handles_labels(), fontsize=7, handlelength=4, loc="outside right upper"
        )
        return figures


def jumps_of_run(cell: SweepRun) -> Mapping[str, float]:
    """Return how much the loss of a run jumps from step to step; nothing of runs of few steps."""
    steps = metrics_of(cell)
    if len(steps) < _LEAST_STEPS:
        return {}
    found = loss_fluctuation(steps["loss"].to_numpy(float), steps["ratio"].to_numpy(float))
    return dict(zip(JUMPS, (found.around_trend, found.around_trend_and_ratio), strict=True))


def _differences(results: "pd.DataFrame", score: str, *, higher: bool) -> list[TableRow]:
    """Return for each row of a set its mean and its differences from the references, paired over seeds."""
    rows: list[TableRow] = []
    by_row = by_label(results, score)
    for label, mine in by_row.items():
        found = mean_interval(mine)
        row: TableRow = {"label": label, "score": score, "seeds": found.n, "mean": found.mean}
        row |= {"low": found.low, "high": found.high}
        for against, other in references(by_row, label, higher=higher).items():
            both = mine.index.intersection(other.index)
            if not len(both):
                continue
            difference = paired_difference(mine[both], other[both], higher_is_better=higher)
            row |= {f"vs_{against}": difference.mean, f"vs_{against}_low": difference.low}
            row |= {f"vs_{against}_high": difference.high, f"vs_{against}_is": difference.verdict}
        rows.append(row)
    return rows


def references(rows: "Mapping[str, pd.Series[float]]", label: str, *, higher: bool) -> "dict[str, pd.Series[float]]":
    """Return what a row is compared with: the same network at fixed ratios and random ones, and the other network.

    The best fixed ratio of a seed is chosen on the other seeds; so is `best_by_sample` among :data:`BY_SAMPLE_ROWS`,
    where there are two or more of these.
    """
    mask_aware = MASK_AWARE if label.endswith(MASK_AWARE) else ""
    found = {}
    for short, names in ((BEST_FIXED, FIXED), (BEST_BY_SAMPLE, tuple(BY_SAMPLE_ROWS))):
        fixed = [rows[name + mask_aware] for name in names if name + mask_aware in rows]
        best = best_of(fixed, rows[label], higher=higher) if len(fixed) > 1 else None
        if best is not None:
            found[short] = best
    others = {"blind": BLIND, "by_sample": BY_SAMPLE, "r2mae": RANDOM}
    for short, name in [
        *((short, name + mask_aware) for short, name in others.items()),
        ("mask_blind", label.removesuffix(MASK_AWARE)),
    ]:
        if name != label and name in rows:
            found[short] = rows[name]
    return found


def _pooled(results: "pd.DataFrame", objective: str) -> list[TableRow]:
    """Return by how many percent each row lowers the objective, on average over sets (a random-effects model).

    The questions are `r2mae` and `r2mae-per-sample` against `best_fixed`, and for cells, where per-sample ratios also
    hide other genes in each cell, `r2mae-per-sample` against `best_by_sample`. Verdicts are not corrected for their
    number.
    """
    logs = results.assign(**{objective: np.log(results[objective].where(results[objective] > 0))})
    gains: dict[tuple[str, str], list[Float[np.ndarray, " _"]]] = {}
    for _, group in logs.groupby("set", sort=False):
        rows = by_label(group, objective)
        for label, mine in rows.items():
            for against, other in references(rows, label, higher=False).items():
                both = mine.index.intersection(other.index)
                gains.setdefault((label, against), []).append((other[both] - mine[both]).to_numpy(float))
    return [_in_percent(row) for row in pooled_rows(gains)]


def _in_percent(row: TableRow) -> TableRow:
    found = {key: row[key] for key in ("label", "against", "sets")}
    found |= {
        "gain_percent": -in_percent(-row["gain"]),
        "low": -in_percent(-row["low"]),
        "high": -in_percent(-row["high"]),
    }
    return {**found, "between_sets_percent": 100 * row["between_sets"], "is": row["is"]}


def _gains(axes: "Axes", rows: Sequence[TableRow], title: str) -> None:
    for place, row in enumerate(rows):
        ends = [[row["gain_percent"] - row["low"]], [row["high"] - row["gain_percent"]]]
        colour = COLOURS[1] if row["label"].endswith(MASK_AWARE) else COLOURS[0]
        axes.errorbar(
            row["gain_percent"], place, xerr=None if np.isnan(ends).any() else ends, fmt="o", color=colour,
            markersize=4, capsize=2,
        )  # fmt: skip
    axes.axvline(0, color=GREY, linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    count = rows[0]["sets"]
    over = f"average over {count} sets" if count > 1 else "one set; intervals over seeds"
    axes.set_xlabel(f"{title}: % below the best fixed ratio\nof the same network ({over})")


def _by_fraction(axes: "Axes", rows: Sequence[TableRow], objective: str) -> None:
    """Draw each scheme's error at every missing fraction over that of the blind fixed ratio.

    mask-aware networks are dashed. Where masks by sample have more ratios than one, these are dotted, and mask-aware
    networks are left out, for room.
    """
    names = metrics_by_ratio(row["score"] for row in rows).get(objective, {})
    means = {(row["label"], row["score"]): row["mean"] for row in rows}
    base = np.array([means.get((BLIND, score), np.nan) for score in names.values()])

    def line(label: str, colour: str, style: str) -> None:
        values = np.array([means.get((label, score), np.nan) for score in names.values()])
        if np.isfinite(values).any():
            axes.plot(list(names), values / base, style, marker="o", markersize=3, color=colour, label=label)

    by_sample = {f"by sample {label[-4:]}": colour for label, colour in _FIXED_COLOURS.items()}
    several = sum((label, objective) in means for label in by_sample) > 1
    for label, colour in {**_FIXED_COLOURS, "dynamic": COLOURS[3], RANDOM: COLOURS[1], SPREAD: COLOURS[0]}.items():
        line(label, colour, "-")
        if not several:
            line(label + MASK_AWARE, colour, "--")
    if several:
        for label, colour in by_sample.items():
            line(label, colour, ":")
    ratio_axis(axes)
    axes.set_xlabel("missing fraction")
    axes.set_yscale("log")
