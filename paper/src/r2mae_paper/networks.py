"""Figs. 2A, 2B and 2D, 5 to 7: MLPs on MNIST and U-Nets on faces, of several widths at nine fixed ratios.

Figs. 8 and 9: what models trained at several mask ratios make of the same masked images.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from r2mae.compare.runs import SweepRun
from r2mae.domains.lookup import get_domain
from r2mae.errors import UserError
from r2mae.evaluation.bn_statistics import AS_TRAINED
from r2mae.evaluation.statistics import best_fixed, paired_difference, wider_partner
from r2mae.images.config import ImagesConfig
from r2mae_paper.bases import faces, first_faces, image_presets, runs_by_ratio
from r2mae_paper.drawing import COLOURS, Axes, Figure, Figures, coloured, legend_below, panels, ratio_axis
from r2mae_paper.rows import TableRow, Tables, column, difference_columns, records, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

BARS = "bars: ± 1 standard deviation\nover seeds"
"""What the bars of :func:`curve` are, for axes and legends."""


def measured(results: pd.DataFrame, scores: Sequence[str]) -> list[str]:
    """Return the scores that there are, each as measured, and with the statistics of training."""
    wanted = [prefix + name for name in scores for prefix in ("", AS_TRAINED)]
    return [name for name in wanted if name in results and bool(results[name].notna().any())]


def means(results: pd.DataFrame, keys: Sequence[str], scores: Sequence[str]) -> list[TableRow]:
    """Return for each combination of some columns the number of seeds, means of scores, and deviations (`…_sd`)."""
    grouped = results.groupby(list(keys))
    columns: dict[str, Any] = {"seeds": grouped.size()}
    for name in scores:
        columns |= {name: grouped[name].mean(), f"{name}_sd": grouped[name].std()}
    return records(pd.DataFrame(columns).reset_index())


def by_seed(runs: pd.DataFrame, score: str) -> tuple[Float[np.ndarray, "seeds ratios"], list[float], "pd.Index[int]"]:
    """Return a score of each seed and ratio, the ratios, and the seeds; one that lacks a ratio is left out."""
    table = runs.pivot_table(index="seed", columns="ratio", values=score).dropna()
    return table.to_numpy(float), [float(ratio) for ratio in table.columns], table.index


def best_ratios(
    values: Float[np.ndarray, "seeds ratios"], ratios: Sequence[float], *, higher: bool
) -> Float[np.ndarray, " seeds"]:
    """Return the ratio with the best score under each seed."""
    chosen: Float[np.ndarray, " seeds"] = np.asarray(ratios, dtype=float)[
        values.argmax(1) if higher else values.argmin(1)
    ]
    return chosen


def shape(runs: pd.DataFrame, score: str, *, higher: bool) -> TableRow:
    """Return the best ratio of one model for a score, and what the best other ratio gains over either end.

    `runs` has a line a run, with the columns `seed` and `ratio`, of two ratios or more.

    Returns
    -------
    dict
        `seeds` that have the score at every ratio; without one, nothing else. `best_ratio`, by the mean over seeds.
        `vs_lowest` and `vs_highest`: what the best other ratio gains over the lowest and the highest one, with a 95 %
        interval (`_low`, `_high`) and a verdict (`_is`), each by itself; the best ratio of a seed is chosen by the mean
        over the other seeds, as the best of many is otherwise partly luck. `interior`: whether the best inner ratio,
        chosen likewise, is better than both ends.
    """
    values, ratios, _ = by_seed(runs, score)
    row: TableRow = {"seeds": len(values)}
    if not len(values):
        return row
    row["best_ratio"] = float(best_ratios(values.mean(0, keepdims=True), ratios, higher=higher)[0])
    for name, end, others in (("lowest", 0, values[:, 1:]), ("highest", -1, values[:, :-1])):
        found = paired_difference(_best(others, values[:, end], higher=higher), values[:, end], higher_is_better=higher)
        row |= difference_columns(f"vs_{name}", found)
    row["interior"] = len(ratios) > 2 and all(
        paired_difference(_best(values[:, 1:-1], one, higher=higher), one, higher_is_better=higher).verdict == "better"
        for one in (values[:, 0], values[:, -1])
    )
    return row


def _best(
    values: Float[np.ndarray, "seeds ratios"], other: Float[np.ndarray, " seeds"], *, higher: bool
) -> Float[np.ndarray, " seeds"]:
    """Return the scores of the best ratio to pair with another, chosen on the other seeds; a single seed on itself."""
    if len(values) > 1:
        return best_fixed(values, higher_is_better=higher).partner(other)
    return np.asarray(values.max(1) if higher else values.min(1))


def curve(axes: Axes, rows: Sequence[TableRow], score: str, colour: str, label: str | None, style: str = "-") -> None:
    """Draw means of a score with deviations against the ratio; nothing where no row has it."""
    own = [row for row in rows if score in row]
    if not own:
        return
    bars = np.nan_to_num(column(own, f"{score}_sd"))
    axes.errorbar(
        column(own, "ratio"), column(own, score), bars, fmt=f"o{style}", color=colour, markersize=3.5, linewidth=1.2,
        capsize=2, label=label,
    )  # fmt: skip


_PROBE, _ENTROPY = "probe_accuracy", "spectral_entropy"
_OF_MLPS = (_PROBE, _ENTROPY, "effective_rank", "masked_mse", "clean_mse")
_KINDS = {16: "parameter-insufficient", 512: "parameter-sufficient"}
_STATISTICS = {AS_TRAINED: "batch statistics of training", "": "re-estimated batch statistics"}


def runs_of_mlps(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each width, ratio and seed; scores are taken with either kind of batch statistics.

    The narrowest of several first layers has `times_narrow` times as many seeds as the others: the seeds of the size,
    and the numbers that follow the last of them.
    """
    base = ImagesConfig.make(data=size.data, scheme="fixed", bn_statistics="both")
    runs: list[SweepRun] = []
    for hidden in size.hidden:
        models = image_presets([f"mlp-{hidden}-{latent}" for latent in size.latent], size.settings)
        narrowest = hidden == min(size.hidden) < max(size.hidden)
        first = max(size.seeds) + 1
        more = range(first, first + len(size.seeds) * (size.times_narrow - 1)) if narrowest else ()
        runs += runs_by_ratio(base, "preset", models, size.replace(seeds=(*size.seeds, *more)), out)
    return runs


def table_of_mlps(results: pd.DataFrame) -> Tables:
    """Return means over seeds, the best ratio of each width and what it gains, how widths differ in that; all runs."""
    widths = [str(preset).split("-")[1:] for preset in results["preset"]]
    results = results.assign(
        hidden=[int(hidden) for hidden, _ in widths],
        latent=[int(latent) for _, latent in widths],
        ratio=results["ratio"].astype(float),
    )
    scores = measured(results, _OF_MLPS)
    shapes = [
        # A rank, too, counts as better if it is lower: the paper's claim is that it falls.
        {"score": score, "hidden": hidden, "latent": latent, **shape(group, score, higher=score.endswith(_PROBE))}
        for score in scores
        for (hidden, latent), group in results.groupby(["hidden", "latent"])
        if len(group["ratio"].unique()) > 1
    ]
    columns = ["preset", "hidden", "latent", "ratio", "seed", "seconds", *scores]
    return {
        "fig2a": means(results, ("hidden", "latent", "ratio"), scores),
        "fig2a-shapes": shapes,
        "fig2a-widths": [row for score in scores if score.endswith(_PROBE) for row in _differences(results, score)],
        "fig2a-runs": results[columns].to_dict("records"),
    }


def plot_mlps(tables: Tables, size: Size) -> Figures:
    """Draw the probe's accuracy (Fig. 2A) and the entropy of singular values (Fig. 2D), in a row for each statistics.

    Fig. 2D is of the sufficient models. The paper's effective rank is the entropy itself, and not its exponential.
    """
    rows: list[TableRow] = tables["fig2a"]
    shown = {prefix: words for prefix, words in _STATISTICS.items() if any(prefix + _PROBE in row for row in rows)}
    hidden = sorted(unique(rows, "hidden"))
    figures: dict[str, Any] = {}
    figures["fig2a"], axes = panels(len(hidden), len(shown), width=4.0, height=3.2)
    places = [(first, prefix) for prefix in shown for first in hidden]
    for panel, (first, prefix) in zip(axes, places, strict=True):
        _widths(panel, select(rows, hidden=first), prefix + _PROBE)
        panel.set_ylabel("linear probe accuracy")
        panel.set_title(f"{_KINDS.get(first, f'first layer {first}')}\n({shown[prefix]})", fontsize=9)
    _legend_beside(axes[len(hidden) - 1 :: len(hidden)])
    figures["fig2d"], axes = panels(len(shown), width=4.0, height=3.2)
    for panel, prefix in zip(axes, shown, strict=True):
        _widths(panel, select(rows, hidden=max(hidden)), prefix + _ENTROPY)
        panel.set_ylabel("entropy of singular values")
        panel.set_title(f"test embeddings\n({shown[prefix]})", fontsize=9)
    _legend_beside(axes[-1:])
    return figures


def _widths(axes: Axes, rows: Sequence[TableRow], score: str) -> None:
    """Draw a curve for each width of the second layer."""
    for colour, latent, own in coloured(rows, "latent"):
        curve(axes, own, score, colour, f"{latent}")
    ratio_axis(axes)


def _legend_beside(last: Sequence[Axes]) -> None:
    """Name bars and widths to the right of the last panel of each row, from the top in the order of most curves."""
    for axes in last:
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(
            handles[::-1], labels[::-1], title=f"{BARS}\n\nsecond layer", fontsize=8, title_fontsize=8, frameon=False,
            loc="center left", bbox_to_anchor=(1.0, 0.5),
        )  # fmt: skip


def _gains_of_two(
    wide: Float[np.ndarray, "seeds ratios"], narrow: Float[np.ndarray, "seeds ratios"]
) -> tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]]:
    """Return two columns whose difference is how much more a best larger ratio gains over the smallest if wide.

    Of held-out scores and pseudo-values those whose difference between the widths spreads more.
    """
    if len(wide) == 1:
        return wide[:, 1:].max(1) - wide[:, 0], narrow[:, 1:].max(1) - narrow[:, 0]
    first, second = best_fixed(wide[:, 1:]), best_fixed(narrow[:, 1:])
    lowest = wide[:, 0] - narrow[:, 0]
    return wider_partner(lowest, first.scores - second.scores, first.pseudo - second.pseudo), lowest


def _differences(results: pd.DataFrame, score: str) -> list[TableRow]:
    """Return for each second layer by how much more masking gains with the wider first layer, paired over seeds.

    The gain is that of the best larger ratio over the smallest. That one width gains and the other does not is no
    evidence of a difference between them: this is.
    """
    rows: list[TableRow] = []
    for latent, group in results.groupby("latent"):
        found: dict[Any, Any] = {hidden: by_seed(own, score) for hidden, own in group.groupby("hidden")}
        tables = {hidden: pd.DataFrame(values, index=seeds) for hidden, (values, ratios, seeds) in found.items()
                  if len(ratios) > 1 and len(seeds)}  # fmt: skip
        if len(tables) < 2:
            continue
        wide, narrow = max(tables), min(tables)
        shared = tables[wide].index.intersection(tables[narrow].index)
        if not len(shared):
            continue
        gap = paired_difference(*_gains_of_two(*(tables[one].loc[shared].to_numpy() for one in (wide, narrow))))
        row: TableRow = {"score": score, "latent": latent, "wide": wide, "narrow": narrow, "seeds": gap.n}
        row |= {"gain_of_wide_minus_narrow": gap.mean, "low": gap.low, "high": gap.high, "is": gap.verdict}
        rows.append(row)
    return rows


_ERROR, _SCALED, _AUROC = "clean_mse", "attribute_accuracy", "attribute_auroc"
_OF_UNETS = {
    _ERROR: "squared error of whole images",
    _SCALED: "median scaled accuracy",
    "attribute_accuracy_raw": "median accuracy",
    _AUROC: "mean AUROC",
}
_PAPER_BEST = {8: 0.6, 16: 0.7, 32: 0.8}


def runs_of_unets(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each width, ratio and seed; scores are taken with either kind of batch statistics."""
    data = faces(size.data)
    if size.faces and not size.data:
        data = str(first_faces(size.faces, out.absolute() / f"faces-{size.faces}"))
    base = ImagesConfig.make(data=data, resize=size.side, scheme="fixed", bn_statistics="both")
    names = [f"unet-{channels}" for channels in size.channels]
    return runs_by_ratio(base, "preset", image_presets(names, size.settings), size, out)


def table_of_unets(results: pd.DataFrame) -> Tables:
    """Return all runs; means and deviations over seeds; and for each width the best ratio of every seed."""
    results = results.assign(
        channels=[int(str(preset).removeprefix("unet-")) for preset in results["preset"]],
        ratio=results["ratio"].astype(float),
    )
    scores = measured(results, list(_OF_UNETS))
    columns = ["preset", "channels", "ratio", "seed", *scores]
    by_ratio = means(results, ("channels", "ratio"), scores)
    best = [
        row
        for score in scores
        for _, group in results.groupby("channels")
        if (row := _best_of_seeds(group, score)) is not None
    ]
    return {"fig2b": by_ratio, "fig2b-best": best, "fig2b-runs": results[columns].to_dict("records")}


def plot_unets(tables: Tables, size: Size) -> Figures:
    """Draw the error of whole images (Fig. 2B) and, where there are attributes, a panel for each width (Figs. 5–7)."""
    rows: list[TableRow] = tables["fig2b"]
    figure, (axes,) = panels(1, width=5.0, height=3.8)
    for colour, channels, own in coloured(rows, "channels"):
        curve(axes, own, _ERROR, colour, f"{channels} channels")
        curve(axes, own, AS_TRAINED + _ERROR, colour, None, "--")
    axes.set_yscale("log")
    # Bars as long as their mean would reach far below all points.
    axes.set_ylim(bottom=0.6 * min(row[name] for row in rows for name in (_ERROR, AS_TRAINED + _ERROR) if name in row))
    ratio_axis(axes, _OF_UNETS[_ERROR], "Unmasked reconstruction\n(dashed: batch statistics of training)")
    axes.legend(title=BARS, title_fontsize=8)
    figures = {"fig2b": figure}
    if any(_SCALED in row for row in rows):
        figures["fig5-7"] = _attributes(rows)
    return figures


def _attributes(rows: Sequence[TableRow]) -> Figure:
    """Draw the paper's score of the attribute probe, and below it the AUROC, which moves where that is still zero."""
    scores = [score for score in (_SCALED, _AUROC) if any(score in row for row in rows)]
    widths = sorted(unique(rows, "channels"))
    figure, grid_of_axes = panels(len(widths), len(scores), width=3.4, height=3.0)
    places = [(score, *width) for score in scores for width in zip(widths, itertools.cycle(COLOURS))]
    for panel, (score, channels, colour) in zip(grid_of_axes, places, strict=True):
        own = select(rows, channels=channels)
        curve(panel, own, score, colour, "re-estimated batch statistics")
        curve(panel, own, AS_TRAINED + score, colour, "those of training", "--")
        ratio_axis(panel, _OF_UNETS[score], f"{channels} channels")
    legend_below(figure, grid_of_axes[0], 2, title=BARS.replace("\n", " "), fontsize=8, title_fontsize=8)
    return figure


def _best_of_seeds(group: pd.DataFrame, score: str) -> TableRow | None:
    """Return the best ratio of each seed for a score and width, if there is one, and where the mean rises most."""
    values, ratios, _ = by_seed(group, score)
    if not len(values) or not np.ptp(values, axis=1).all():
        return None  # one value at all ratios: none of them is the best
    lower = score.endswith(_ERROR)
    chosen = best_ratios(values, ratios, higher=not lower)
    channels = int(group["channels"].iloc[0])
    row: TableRow = {
        "score": score,
        "channels": channels,
        "best_ratio": float(np.mean(chosen)),
        "best_ratio_lowest": float(chosen.min()),
        "best_ratio_highest": float(chosen.max()),
        "paper_best_ratio": _PAPER_BEST.get(channels, float("nan")) if lower else float("nan"),
    }
    if not lower and len(ratios) > 1:
        steps = np.diff(values.mean(0))
        row |= {"largest_rise": float(steps.max()), "largest_rise_after": ratios[int(steps.argmax())]}
    return row


_ERRORS = ("masked_mse", "clean_mse")


def runs_of_pictures(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each ratio, all with seed 0."""
    base = ImagesConfig.make(data=faces(size.data), scheme="fixed", steps=size.steps or None, resize=size.side or None)
    return runs_by_ratio(base, "preset", image_presets([size.preset], size.settings), size, out)


def table_of_pictures(results: pd.DataFrame, *, name: str) -> Tables:
    """Return the errors of each model: of hidden pixels, at each ratio that was measured, and of whole images."""
    shown = [str(score) for score in results if str(score).startswith(_ERRORS)]
    errors = results[["ratio", *shown]].astype(float).rename(columns={"ratio": "training_ratio"})
    return {name: errors.to_dict("records")}


def plot_runs(runs: Sequence[SweepRun], size: Size, *, name: str) -> Figures:
    """Draw examples (a column each): original, masked, and as the model of each ratio completes them."""
    from r2mae.compare.gather import examples_of
    from r2mae.compare.pictures import draw_pictures

    named = [
        replace(run, variant=replace(run.variant, label=f"trained at {run.variant.values['ratio']}")) for run in runs
    ]
    examples = examples_of(named, get_domain(ImagesConfig.domain), ratio=size.hidden)
    if examples is None:
        raise UserError(f"{size.preset} makes no pictures: take a preset of mlp or unet")
    return {name: draw_pictures(examples)}


STUDIES = (
    Study(ENTRIES["fig2a"], plot_mlps, table_of_mlps, runs=runs_of_mlps),
    Study(ENTRIES["fig2b"], plot_unets, table_of_unets, runs=runs_of_unets),
    *(
        Study(
            ENTRIES[name],
            table=partial(table_of_pictures, name=name),
            runs=runs_of_pictures,
            plot_runs=partial(plot_runs, name=name),
        )
        for name in ("fig8", "fig9")
    ),
)
