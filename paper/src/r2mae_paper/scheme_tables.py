"""What tables of schemes share: means over seeds with intervals, paired differences, ranks, and a figure with dots.

Table 1 on Tiny-ImageNet: every scheme with ViT-MAE; and how much the loss jumps, by the way ratios are drawn.

Table 2: every scheme of the paper with RoBERTa, by masked loss, and by fine-tuning or linear probes on GLUE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure
from sklearn.preprocessing import SplineTransformer

from r2mae.catalogue import data_root
from r2mae.compare.comparison import BASELINE
from r2mae.compare.gather import metrics_of
from r2mae.compare.measure import check_baselines
from r2mae.compare.runs import SweepRun, Variant, runs_of
from r2mae.compare.style import BLUE, GREEN, VERMILION
from r2mae.errors import UserError, unknown
from r2mae.evaluation.statistics import AVERAGE_RANK, rank_table
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.training.config import RunConfig
from r2mae_paper.bases import Fields, few_classes, grid, runs_of_groups, text
from r2mae_paper.drawing import Axes, Figures, interval, name_rows, panels
from r2mae_paper.gains import Scores, compared_rows
from r2mae_paper.rows import TableRow, Tables, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study


def schemes(ratios: Sequence[float], *names: str) -> dict[str, Mapping[str, Any]]:
    """Return rows of a table by their labels: fixed ratios, and schemes of these names."""
    fixed = {f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in ratios}
    return {**fixed, **{name: {"scheme": name} for name in names}}


def chosen(size: Size, known: Mapping[str, Fields], reference: str) -> dict[str, Fields]:
    """Return the rows that a size names, by default all; the `reference`, with which others are compared, is needed."""
    names = size.rows or tuple(known)
    for name in names:
        if name not in known:
            raise unknown("row", name, known)
    if reference not in names:
        raise UserError(f"the rows need {reference!r}, with which others are compared: name it, too")
    return {name: known[name] for name in names}


CURRICULA = ("r2mae-dynamic", "cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0")
"""Schemes that the paper combines with others, or compares with R²MAE, in Tables 1, 3, 4 and 6."""


def variants_of(
    base: RunConfig, points: Mapping[str, Mapping[str, Any]], baselines: Sequence[str] = (), **values: Any
) -> list[Variant]:
    """Return a variant for each row of a table, by its label and the fields that it sets, and for each baseline.

    `base` is what all rows share, and what baselines are measured with; `values` are columns of the table of runs, in
    addition to `scheme`.
    """
    rows = grid(base, {"row": points})
    return [
        *(replace(row, values={**values, "scheme": row.config.scheme.name}) for row in rows),
        *(Variant(name, base, {**values, "scheme": BASELINE}, baseline=True) for name in baselines),
    ]


def tables_of(
    results: pd.DataFrame,
    name: str,
    scores: Sequence[str],
    reference: str,
    *,
    baseline: str,
    lower: Sequence[str],
    neither: Sequence[str] = (),
) -> Tables:
    """Return means of scores over seeds with 95 % intervals, and paired differences from a row and from a baseline.

    `results` has a line a run; `name` is that of the tables. All rows are compared with the `reference` and, where it
    has the score, with the `baseline`. Scores whose names begin with one of `lower` are better if lower; of those named
    in `neither` neither is better, and their differences have no verdict.
    """
    scores = [score for score in scores if score in results]

    def references(rows: Scores, label: str) -> Scores:
        named = {"reference": reference, baseline: baseline}
        return {against: rows[other] for against, other in named.items() if other in rows and other != label}

    rows = [
        row
        for score in scores
        for row in compared_rows(results, score, references, higher=not score.startswith(tuple(lower)), counted=True)
    ]
    rows = [row for label in results["label"].unique() for row in select(rows, label=label)]
    rows = [{key: row[key] for key in row if row["score"] not in neither or not key.endswith("_is")} for row in rows]
    kept = ["label", "scheme", "seed", "seconds", *scores]
    return {name: rows, f"{name}-runs": results[kept].to_dict("records")}


def average_ranks(results: pd.DataFrame, scores: Sequence[str]) -> dict[str, float]:
    """Return the mean of each row's ranks over scores, as the paper's tables have it: the best of tied ranks.

    Scores are means over seeds; higher is better. Those that a row does not have are left out.
    """
    means = results.groupby("label", sort=False)[[score for score in scores if score in results]].mean()
    means = means.dropna(axis="columns")
    if means.empty:
        return {}
    ranked = rank_table(means, {str(score): True for score in means})[AVERAGE_RANK]
    return {str(label): float(rank) for label, rank in ranked.items()}


def dots(
    rows: Sequence[TableRow], titles: Mapping[str, str], baseline: str, *, without: Sequence[str] = (), columns: int = 4
) -> Figure:
    """Draw a panel for each score: rows with their means and intervals, and a baseline as a dashed line.

    Rows named in `without` are left out, and so are those without a value in the panels of a line.
    """
    named = [title for title in titles if select(rows, score=title)]
    labels = [label for label in unique(rows, "label") if label not in without]
    columns = max(min(len(named), columns), 1)
    lines = [named[start : start + columns] for start in range(0, len(named), columns)] or [[]]
    valued = [{row["label"] for row in rows if row["score"] in line} for line in lines]
    shown = [[label for label in labels if label in line] for line in valued]
    heights = [0.8 + 0.24 * len(one) for one in shown]
    figure, grid_of_axes = panels(columns, len(lines), width=3.1, height=sum(heights) / len(lines), heights=heights)
    for axes in grid_of_axes[len(named) :]:
        axes.set_visible(False)
    for place, (axes, score) in enumerate(zip(grid_of_axes, named, strict=False)):
        _panel(axes, select(rows, score=score), shown[place // columns], baseline, place % columns == 0)
        axes.set_title(titles[score], fontsize=9)
    return figure


def _panel(axes: Axes, rows: Sequence[TableRow], labels: Sequence[str], baseline: str, named: bool) -> None:
    found = {row["label"]: row for row in rows if row["label"] in labels}
    for label, row in found.items():
        colour = GREEN if label == baseline else VERMILION if label.startswith("r2mae") else BLUE
        interval(axes, row["mean"], row["low"], row["high"], labels.index(label), color=colour)
    reference = next((row["mean"] for row in rows if row["label"] == baseline), None)
    name_rows(axes, list(labels) if named else [""] * len(labels), reference)
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(axis="x", labelsize=7)  # larger ones of a narrow range, such as 0.60025, would touch


JUMPS = ("loss_sd", "loss_sd_beside_ratio")
_SKIPPED_FRACTION = 0.2  # the beginning of the run, where the trend is too steep to separate from fluctuation
_KNOTS = 6
_LEAST_STEPS = 63  # of a run, so that fifty are left to measure jumps on


def jumps_of_run(run: SweepRun) -> Mapping[str, float]:
    """Return how much the loss of a run jumps from step to step; nothing of runs of few steps, and of baselines."""
    if run.variant.baseline or len(steps := metrics_of(run)) < _LEAST_STEPS:
        return {}
    loss, ratio = (steps[name].to_numpy(float) for name in ("loss", "ratio"))
    return dict(zip(JUMPS, loss_fluctuation(loss, ratio), strict=True))


def loss_fluctuation(loss: Float[np.ndarray, " steps"], ratio: Float[np.ndarray, " steps"]) -> tuple[float, float]:
    """Measure the fluctuation of the training loss (which the paper mentions for ViT-MAE).

    `ratio` is the mask ratio of each step, or the mean where every sample has its own. The first fifth of the run is
    omitted. The curve of the step is a cubic spline with six knots, fitted by least squares; deviations are corrected
    for the number of fitted coefficients.

    Returned are the standard deviations of the loss of single steps around a smooth curve of the step; and around the
    sum of such a curve and a cubic of the step's mask ratio, fitted jointly, which is the noise of batches and masks.
    """
    first = int(_SKIPPED_FRACTION * len(loss))
    loss, ratio = loss[first:], ratio[first:]
    trend = SplineTransformer(n_knots=_KNOTS, degree=3).fit_transform(np.arange(len(loss))[:, None])
    spread = np.ptp(ratio)
    centred = (ratio - ratio.mean()) / spread if spread > 0 else np.zeros_like(ratio)
    with_ratio = np.column_stack([trend, centred, centred**2, centred**3])
    return _residual_deviation(loss, trend), _residual_deviation(loss, with_ratio)


def _residual_deviation(loss: Float[np.ndarray, " steps"], features: Float[np.ndarray, "steps k"]) -> float:
    """Return the standard deviation of the residuals of a regression of the loss on features."""
    coefficients, _, rank, _ = np.linalg.lstsq(features, loss, rcond=1e-10)
    residuals = loss - features @ coefficients
    return float(np.sqrt(residuals @ residuals / (len(loss) - int(rank))))


UNTRAINED = "not pretrained"
ROWS_OF_VITS: Mapping[str, Mapping[str, Any]] = {
    **schemes((0.5, 0.75, 0.9), "dynamic", "mdlm", "r2mae"),
    "r2mae stratified": {"scheme": "r2mae", "sampling": "stratified"},
    "r2mae per sample": {"scheme": "r2mae", "per": "sample"},
    **schemes((), *CURRICULA),
    UNTRAINED: {"scheme": "fixed", "ratio": 0.75, "steps": 1, "base_lr": 1e-12},
}
"""Rows by name. One step at a rate of nothing leaves the weights as they were drawn."""

REFERENCE_OF_VITS = "fixed 0.75"
TITLES_OF_VITS = {
    "finetune_top1": "top-1, fine-tuned",
    "finetune_top5": "top-5, fine-tuned",
    "probe_accuracy": "top-1, linear probe",
    "knn_accuracy": "top-1, nearest neighbours",
    "masked_mse": "error of hidden patches",
    "loss_sd": "jumps of the loss,\ntrend removed",
    "loss_sd_beside_ratio": "jumps of the loss,\ntrend and ratio removed",
}
_LOWER_OF_VITS = ("masked_mse", "loss_sd")


def runs_of_vits(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each row and seed, and the baselines."""
    data = few_classes(out, size.classes) if size.classes else str(data_root() / "imagenet")
    base = ImagesConfig.make(data=data, model="vit-mae", finetune_epochs=size.finetune_epochs)
    points = chosen(size, ROWS_OF_VITS, REFERENCE_OF_VITS)
    rows = variants_of(base, {name: {**size.settings, **fields} for name, fields in points.items()})
    plain = rows[0].config.replace(finetune_epochs=0.0)
    check_baselines(plain, IMAGES, size.baselines)
    return runs_of([*rows, *variants_of(plain, {}, size.baselines)], range(size.seeds), out)


def table1(results: pd.DataFrame) -> Tables:
    """Return means, intervals and differences of every score, and all runs."""
    return tables_of(
        results, "table1", list(TITLES_OF_VITS), REFERENCE_OF_VITS, baseline=UNTRAINED, lower=_LOWER_OF_VITS
    )


def plot_table1(tables: Tables, size: Size) -> Figures:
    """Draw every score of every row; the dashed line is the network before training."""
    shown = {name: title for name, title in TITLES_OF_VITS.items() if name != "finetune_top5"}
    # Its error is twice that of all others, which would overlap.
    rows = [row for row in tables["table1"] if (row["label"], row["score"]) != (UNTRAINED, "masked_mse")]
    return {"table1": dots(rows, shown, UNTRAINED, columns=3)}


SCHEMES_OF_TEXTS = schemes((0.15, 0.4), "mdlm", "dynamic", "r2mae")
ROWS_OF_TEXTS = {**SCHEMES_OF_TEXTS, UNTRAINED: {"scheme": "fixed", "ratio": 0.15, "steps": 1, "lr": 1e-12}}
"""The paper's rows, and the weights as they were drawn: what probes find in random features of words."""
REFERENCE_OF_TEXTS = "fixed 0.15"
_GLUE = {"mnli": "MNLI", "qqp": "QQP", "sst2": "SST-2", "qnli": "QNLI"}
GLUE_ACCURACIES = {
    **{f"{name}_accuracy": f"{title}, accuracy" for name, title in _GLUE.items()},
    **{f"{name}_probe_accuracy": f"{title}, accuracy of a probe" for name, title in _GLUE.items()},
}
"""Titles of accuracies on the paper's tasks, fine-tuned or probed."""
LOSS_RATIOS = (0.15, 0.4, 0.8)
"""Shares of hidden tokens at which the masked loss is measured."""
TITLES_OF_TEXTS = {
    **GLUE_ACCURACIES,
    "glue_probe": "probes, mean accuracy",
    "loss": "masked loss, mean",
    **{f"loss_{ratio:g}": f"masked loss at {ratio:g}" for ratio in LOSS_RATIOS},
    "accuracy": "masked accuracy, mean",
}
_LOWER = ("loss",)


def runs_of_texts(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each model, scheme and seed, each model in a folder of its own."""
    groups = {}
    points = chosen(size, ROWS_OF_TEXTS if size.rows else SCHEMES_OF_TEXTS, REFERENCE_OF_TEXTS)
    for model in size.models:
        base = text(size.data, model, {"glue": size.glue, "glue_probes": size.probes, **size.settings})
        rows = variants_of(base, points, model=model)
        groups[model] = [
            replace(row, values={**row.values, "scheme": "none"}) if row.label == UNTRAINED else row for row in rows
        ]
    return runs_of_groups(groups, range(size.seeds), out)


def table2(results: pd.DataFrame) -> Tables:
    """Return for each model means, intervals and differences of every score, ranks over GLUE, and all runs."""
    tables: dict[str, list[TableRow]] = {"table2": [], "table2-runs": []}
    for model, group in results.groupby("model", sort=False):
        found = tables_of(group, "table2", list(TITLES_OF_TEXTS), REFERENCE_OF_TEXTS, baseline=UNTRAINED, lower=_LOWER)
        for name, rows in found.items():
            tables[name] += [{"model": model, **row} for row in rows]
        for title, score in (("rank", "accuracy"), ("probe_rank", "probe_accuracy")):
            trained = group[group["label"] != UNTRAINED]
            ranks = average_ranks(trained, [f"{name}_{score}" for name in _GLUE])
            tables["table2"] += [
                {"model": model, "label": label, "score": title, "mean": rank} for label, rank in ranks.items()
            ]
    return tables


def plot_table2(tables: Tables, size: Size) -> Figures:
    """Draw every score of every scheme, a figure for each model; the dashed line is a model before training."""
    # A loss of the logarithm of the vocabulary would press all others together.
    rows = [row for row in tables["table2"] if row["label"] != UNTRAINED or "probe" in row["score"]]
    return {
        f"table2-{model}": dots(select(rows, model=model), TITLES_OF_TEXTS, UNTRAINED)
        for model in unique(rows, "model")
    }


STUDIES = (
    Study(ENTRIES["table1"], plot_table1, table1, runs=runs_of_vits, scores_of_run=jumps_of_run),
    Study(ENTRIES["table2"], plot_table2, table2, runs=runs_of_texts),
)
