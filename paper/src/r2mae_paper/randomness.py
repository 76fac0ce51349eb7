"""Our own studies of all domains: where the randomness of the ratio belongs, and mask-aware networks.

The paper draws a ratio for every mini-batch from a range that it chooses, and shows the network zeros. Here schemes
that draw have nearly all ratios, U(0.05, 0.95), besides five fixed ones. All are judged by the mean error over the
ratios that their domain measures: 0.1 to 0.9 for images and cells, 0.15 to 0.8 for text, 0.05 to 0.8 for genomes. On
cells per-sample ratios also hide other genes in each cell, so that fixed ratios with such masks are a reference of
their own there. A summary over the sets of all domains says what random ratios gain, and what rules lose.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from r2mae.cells.baselines import log_normalized_expression
from r2mae.cells.batches import load_data
from r2mae.compare.runs import SweepRun, Variant
from r2mae.errors import UserError
from r2mae.evaluation.metrics import metrics_by_ratio
from r2mae.genome.config import GenomeConfig
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.training.config import RunConfig
from r2mae_paper import drawing as draw
from r2mae_paper import genomes
from r2mae_paper.bases import Fields, cells, few_classes, runs_of_groups, text
from r2mae_paper.gains import (
    ADVISED,
    BEST_FIXED,
    Gains,
    best_of,
    closed_form,
    compared_rows,
    draw_rules,
    gains_by_set,
    in_percent,
    pooled_rows,
    rules_table,
    sets_at_ceiling,
)
from r2mae_paper.rows import TableRow, Tables, mean_columns, select, unique
from r2mae_paper.scheme_tables import JUMPS, chosen, jumps_of_run, schemes, variants_of
from r2mae_paper.state import read_runs, state_of
from r2mae_paper.studies import ENTRIES, Scale, Size
from r2mae_paper.study import Study

_WIDE = {"low": 0.05, "high": 0.95}
_RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)


def _by_sample(ratio: float) -> dict[str, Any]:
    """Return one ratio with the masks and weights of per-sample ratios: what these do without a random ratio."""
    return {"scheme": "r2mae-per-sample", "low": ratio, "high": ratio}


SCHEMES: Mapping[str, Mapping[str, Any]] = {
    **schemes(_RATIOS),
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
_FIXED_COLOURS = {"fixed 0.10": draw.GREY, BLIND: draw.BLACK, "fixed 0.90": draw.COLOURS[5]}


@dataclass(frozen=True)
class DomainSweep:
    """The sweep of a domain; :meth:`study` is the study."""

    domain: str
    """Its name."""
    objective: str
    """The error over all missing fractions, lower is better; its values by ratio are `<objective>_0.1` and so on."""
    title: str
    """The objective as figures name it."""
    probe: str
    """A score of which higher is better, where the data have it."""
    base: Callable[[str, Fields, Path], RunConfig]
    """Takes the name of a set of data, settings, and the folder of the study; returns the configuration on the set."""
    scores_of_run: Callable[[SweepRun], Mapping[str, float]] = jumps_of_run
    """As that of a study."""
    of_features: bool = True
    """Whether `probe` is of frozen features. The accuracy at hidden places is not; the summary over domains lacks
    it."""
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By label, fields of the configuration of rows in addition to :data:`SCHEMES`, without the mask as an input
    alone."""

    @property
    def name(self) -> str:
        """Of the study, its tables and figures."""
        return f"randomness-{self.domain}"

    def study(self) -> Study:
        """Return the study of this domain."""
        return Study(ENTRIES[self.name], self.plot, self.table, runs=self.runs, scores_of_run=self.scores_of_run)

    def runs(self, size: Size, out: Path) -> list[SweepRun]:
        """Return the runs of all rows and seeds, each set in a folder of its own."""
        groups = {name: self._rows(name, self.base(name, size.settings, out), size) for name in size.sets}
        return runs_of_groups(groups, range(size.seeds), out)

    def _rows(self, data: str, base: RunConfig, size: Size) -> list[Variant]:
        rows: list[Variant] = []
        known = {**SCHEMES, **self.more}
        for mask_aware in size.mask_aware:
            given = {"mask_input": True} if mask_aware else {}
            names = [label for label in chosen(size, known, BLIND) if label in SCHEMES or not mask_aware]
            points = {label + MASK_AWARE * mask_aware: {**known[label], **given} for label in names}
            rows += [
                replace(row, values={**row.values, "mask_aware": mask_aware})
                for row in variants_of(base, points, set=data)
            ]
        return rows

    def table(self, results: pd.DataFrame) -> Tables:
        """Return means and paired differences by set, relative gains pooled over sets, all runs, and regrets."""
        name, objective = self.name, self.objective
        by_ratio = metrics_by_ratio(map(str, results.columns)).get(objective, {})
        scores = [objective, *by_ratio.values(), self.probe, *JUMPS]
        scores = [score for score in scores if score in results and results[score].notna().any()]
        rows: list[TableRow] = [
            {"set": data, **row}
            for data, group in results.groupby("set", sort=False)
            for score in scores
            for higher in [score == self.probe]
            for row in compared_rows(group, score, partial(references, higher=higher), higher=higher)
        ]
        advised = [score for score in ADVISED.values() if score in results]
        kept = ["set", "label", "scheme", "mask_aware", "seed", "seconds", *scores, *advised]
        return {
            name: rows,
            f"{name}-pooled": _pooled(results, objective),
            f"{name}-runs": results[kept].to_dict("records"),
            f"{name}-rules": rules_table(results[~results["mask_aware"]], objective, self.probe, RULES),
        }

    def plot(self, tables: Tables, size: Size) -> draw.Figures:
        """Draw pooled gains over the best fixed ratio, errors by missing fraction and set, and the regrets of rules."""
        figures: dict[str, Any] = {}
        if rules := tables[f"{self.name}-rules"]:
            titles = {self.objective: self.title, self.probe: self.probe.replace("_", " ")}
            figures[f"{self.name}-rules"] = draw_rules(rules, titles)
        labels = [*(label for label in SCHEMES if label != BY_SAMPLE), *BY_SAMPLE_ROWS]
        order = [label + mask_aware for mask_aware in ("", MASK_AWARE) for label in labels]
        pooled = select(tables[f"{self.name}-pooled"], against=BEST_FIXED)
        pooled.sort(key=lambda row: order.index(row["label"]))
        if pooled:
            figures[self.name], (axes,) = draw.panels(1, width=5.6, height=0.9 + 0.24 * len(pooled))
            _gains(axes, pooled, self.title)
        sets = unique(tables[self.name], "set")
        figure, grid_of_axes = draw.panels(len(sets), width=3.4 if len(sets) > 1 else 5.6, height=3.4)
        figures[f"{self.name}-by-fraction"] = figure
        for number, (axes, data) in enumerate(zip(grid_of_axes, sets, strict=True)):
            _by_fraction(axes, select(tables[self.name], set=data), self.objective)
            axes.set_title(data)
            if number == 0:
                axes.set_ylabel(f"{self.title},\nover that of {BLIND}")
        # The curves cross everywhere: the legend is next to the panels.
        figure.legend(
            *grid_of_axes[0].get_legend_handles_labels(), fontsize=7, handlelength=4, loc="outside right upper"
        )
        return figures


def references(rows: "Mapping[str, pd.Series[float]]", label: str, *, higher: bool) -> "dict[str, pd.Series[float]]":
    """Return what a row is compared with: the same network at fixed ratios and random ones, and the other network.

    The best fixed ratio of a seed is chosen on the other seeds; so is `best_by_sample` among :data:`BY_SAMPLE_ROWS`,
    where there are two or more of these.
    """
    mask_aware = MASK_AWARE if label.endswith(MASK_AWARE) else ""
    best = {
        against: best_of([rows[name + mask_aware] for name in names if name + mask_aware in rows], rows[label],
                         higher=higher)
        for against, names in ((BEST_FIXED, FIXED), (BEST_BY_SAMPLE, tuple(BY_SAMPLE_ROWS)))
    }  # fmt: skip
    others = {"blind": BLIND + mask_aware, "by_sample": BY_SAMPLE + mask_aware, "r2mae": RANDOM + mask_aware}
    others["mask_blind"] = label.removesuffix(MASK_AWARE)
    return {against: other for against, other in best.items() if other is not None} | {
        against: rows[name] for against, name in others.items() if name != label and name in rows
    }


def gains_over_references(results: pd.DataFrame, score: str, *, higher: bool) -> Gains:
    """Return what every row gains over its references on each set; of an error, differences of its logarithm.

    The questions are `r2mae` and `r2mae-per-sample` against `best_fixed`, and for cells, where per-sample ratios also
    hide other genes in each cell, `r2mae-per-sample` against `best_by_sample`.
    """
    if not higher:
        results = results.assign(**{score: np.log(results[score].where(results[score] > 0))})
    return gains_by_set(results, score, partial(references, higher=higher), higher=higher)


def gain_in_percent(row: TableRow) -> TableRow:
    """Return by how many percent an error is lower, with the interval, from gains of its logarithm."""
    names = ("gain", "low", "high", "equal_gain", "equal_low", "equal_high")
    return row | {name: 0.0 - in_percent(-row[name]) for name in names if name in row}


def _pooled(results: pd.DataFrame, objective: str) -> list[TableRow]:
    """Return by how many percent each row lowers the objective, on average over sets (a random-effects model).

    Verdicts are not corrected for their number.
    """
    names = {"gain": "gain_percent", "between_sets": "between_sets_percent"}
    rows = map(gain_in_percent, pooled_rows(gains_over_references(results, objective, higher=False)))
    in_percent = [row | {"between_sets": 100 * row["between_sets"]} for row in rows]
    return [{names.get(key, key): value for key, value in row.items()} for row in in_percent]


def _gains(axes: draw.Axes, rows: Sequence[TableRow], title: str) -> None:
    for place, row in enumerate(rows):
        colour = draw.COLOURS[1] if row["label"].endswith(MASK_AWARE) else draw.COLOURS[0]
        draw.interval(axes, row["gain_percent"], row["low"], row["high"], place, color=colour)
    draw.name_rows(axes, [row["label"] for row in rows], 0)
    count = rows[0]["sets"]
    over = f"average over {count} sets" if count > 1 else "one set; intervals over seeds"
    axes.set_xlabel(f"{title}: % below the best fixed ratio\nof the same network ({over})")


def _by_fraction(axes: draw.Axes, rows: Sequence[TableRow], objective: str) -> None:
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
    drawn = {"dynamic": draw.COLOURS[3], RANDOM: draw.COLOURS[1], SPREAD: draw.COLOURS[0]}
    for label, colour in {**_FIXED_COLOURS, **drawn}.items():
        line(label, colour, "-")
        if not several:
            line(label + MASK_AWARE, colour, "--")
    if several:
        for label, colour in by_sample.items():
            line(label, colour, ":")
    draw.ratio_axis(axes)
    axes.set_xlabel("missing fraction")
    axes.set_yscale("log")


_SIDES = {"mnist": 14, "tiny-imagenet": 16}
_ALIGNMENTS = {"sarbecoviruses": genomes.SARBECOVIRUSES, "mitochondria": genomes.MITOCHONDRIA}


def _images(name: str, settings: Fields, out: Path) -> RunConfig:
    data = few_classes(out) if name == "tiny-imagenet" else name
    return ImagesConfig.make(data=data, resize=_SIDES.get(name), **settings)


def _genome(name: str, settings: Fields, out: Path) -> RunConfig:
    return GenomeConfig.make(data=str(genomes.store_of(_ALIGNMENTS[name], out / name).folder), **settings)


@cache
def _advised_for_images(data: str, side: int | None) -> dict[str, float]:
    images = np.asarray(IMAGES.load(ImagesConfig.make(data=data, resize=side)).train.images)
    return closed_form(images.reshape(len(images), -1).astype(np.float64))


@cache
def _advised_for_cells(data: str) -> dict[str, float]:
    read = load_data(cells(data, {"validation": 0.2}))
    return closed_form(log_normalized_expression(read.table, read.train.rows))


def _image_scores(run: SweepRun) -> Mapping[str, float]:
    """Return how much the loss of a run jumps, and the ratios that the closed form advises for its data."""
    config = run.config
    assert isinstance(config, ImagesConfig)
    return {**jumps_of_run(run), **_advised_for_images(config.data.source, config.data.resize)}


def _cells(name: str, settings: Fields, out: Path) -> RunConfig:
    return cells(name, settings)


def _cell_scores(run: SweepRun) -> Mapping[str, float]:
    return {**jumps_of_run(run), **_advised_for_cells(run.config.data.source)}


def _texts(name: str, settings: Fields, out: Path) -> RunConfig:
    return text(name, "tiny", settings)


SWEEPS = (
    DomainSweep("images", "masked_mse", "squared error", "probe_accuracy", _images, _image_scores),
    DomainSweep("cells", "masked_loss", "loss of hidden genes", "score", _cells, _cell_scores, more=BY_SAMPLE_ROWS),
    DomainSweep("text", "loss", "masked loss", "accuracy", _texts, of_features=False),
    DomainSweep("genome", "masked_loss", "masked loss", "accuracy", _genome, of_features=False),
)


ERROR, PROBE = "error", "probe"
TITLES = {ERROR: "error over all missing fractions", PROBE: "probe"}
AVERAGE = "average"


def gather(folder: Path, scale: Scale) -> pd.DataFrame:
    """Return all runs of the studies in a folder, with a `domain`, an `error` and, of frozen features, a `probe`."""
    found, absent = [], []
    for sweep in SWEEPS:
        file = folder / sweep.name / f"{sweep.name}-runs.csv"
        if not file.is_file():
            absent.append(sweep.name)
            continue
        state = state_of(file.parent)
        if state.planned and not state.written:
            raise UserError(
                f"{sweep.name} is not finished ({state.in_words()}): run it to its end, or move its folder away"
            )
        if state.scale not in ("", scale):
            raise UserError(
                f"{sweep.name} is of the scale {state.scale}, not {scale}: give --scale {state.scale} for all"
            )
        runs = read_runs(file, ("set", "label", "mask_aware", "seed", sweep.objective))
        named = {sweep.objective: ERROR, **({sweep.probe: PROBE} if sweep.of_features else {})}
        found.append(runs.rename(columns=named).assign(domain=sweep.domain))
    if not found:
        raise UserError(f"{folder}: has no tables of {', '.join(absent)}: run one of them with the same --out first")
    if absent:
        logging.getLogger("r2mae").warning("without %s, of which %s has no tables", ", ".join(absent), folder)
    return pd.concat(found, ignore_index=True)


def table_of_summary(results: pd.DataFrame) -> Tables:
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
        for row in pooled_rows(gains(results, score), sets_at_ceiling(results, score) if score == PROBE else ())
    ]
    rules = rules_table(results[~results["mask_aware"].astype(bool)], ERROR, PROBE, RULES)
    return {"randomness": by_set, "randomness-pooled": pooled, "randomness-rules": rules}


def _in_unit(score: str, gain: "TableRow | pd.Series[float]") -> TableRow:
    """Return gains in percent of the error, from differences of logarithms; those of the probe as they are."""
    if not isinstance(gain, dict):
        mean = mean_columns(gain)
        gain = {"seeds": mean["seeds"], "gain": mean["mean"], "low": mean["low"], "high": mean["high"]}
    return {**gain, "unit": "difference"} if score == PROBE else {**gain_in_percent(gain), "unit": "percent"}


def plot_summary(tables: Tables, size: Size) -> draw.Figures:
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
    figures = {"randomness": _forest(rows, against_best, "the best fixed ratio")}
    mask_aware = {label: (label + MASK_AWARE, "mask_blind") for label in (BLIND, RANDOM, SPREAD)}
    if select(rows, against="mask_blind"):
        figures["randomness-mask-aware"] = _forest(rows, mask_aware, "the mask-blind network")
    if tables["randomness-rules"]:
        figures["randomness-rules"] = draw_rules(tables["randomness-rules"], TITLES)
    return figures


def _forest(rows: Sequence[TableRow], shown: dict[str, tuple[str, str]], what: str) -> draw.Figure:
    """Draw gains with their intervals: a line a set, the average below; a panel for each score.

    Those in percent of an error are quotients of errors, whose axis is logarithmic.
    """
    rows = [row for row in rows if (row["label"], row["against"]) in shown.values()]
    shown = {title: pair for title, pair in shown.items() if select(rows, label=pair[0], against=pair[1])}
    names = [name for name in unique(rows, "set") if name != AVERAGE]
    lines = [*names, *([AVERAGE] if len(names) > 1 else [])]
    scores = [score for score in (ERROR, PROBE) if select(rows, score=score)]
    figure, axes_of = draw.panels(len(scores), width=4.2, height=1.3 + 0.32 * len(lines))
    for number, (axes, score) in enumerate(zip(axes_of, scores, strict=True)):
        for place, (title, (label, against)) in enumerate(shown.items()):
            own = select(rows, score=score, label=label, against=against)
            for first, row in enumerate(row for row in own if row["set"] in lines):
                low, middle, high = row["low"], row["gain"], row["high"]
                if row["unit"] == "percent":
                    low, middle, high = 1 - high / 100, 1 - middle / 100, 1 - low / 100
                height = lines.index(row["set"]) + (place - (len(shown) - 1) / 2) * 0.22
                mark, named = "D" if row["set"] == AVERAGE else "o", None if first else title
                look = {"fmt": mark, "markersize": 4.5, "color": draw.COLOURS[place], "label": named}
                draw.interval(axes, middle, low, high, height, **look)
        draw.name_rows(axes, lines if number == 0 else [""] * len(lines), float(score == ERROR))
        if AVERAGE in lines:
            axes.axhline(len(lines) - 1.5, color=draw.BLACK, linewidth=0.6)
        if score == ERROR:
            draw.quotient_axis(axes)
            axes.set_xlabel(f"{TITLES[score]}:\nover that of {what}\n(left: better)")
        else:
            axes.set_xlabel(f"{TITLES[score]}: minus that of\n{what}\n(right: better)")
    columns = 3 if len(shown) == 3 else 2  # four names are too long for one line
    figure.legend(*axes_of[0].get_legend_handles_labels(), fontsize=8, loc="outside upper center", ncols=columns)
    return figure


STUDIES = (
    *(sweep.study() for sweep in SWEEPS),
    Study(ENTRIES["randomness"], plot_summary, table_of_summary, gather=gather),
)
