"""Figs. 1F and 2C: accuracies by mask ratio that others published, from tables of the user's, and our own.

Other figures draw published accuracies over their own curves, and measure how alike they are. Our own are of RoBERTas
of two sizes at six fixed ratios, by task.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import pearsonr, spearmanr

from r2mae.compare.runs import SweepRun
from r2mae.errors import UserError, unknown
from r2mae.evaluation.statistics import paired_difference
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae_paper import scheme_tables
from r2mae_paper.bases import of_corpus, runs_by_ratio
from r2mae_paper.drawing import COLOURS, GREY, Axes, Figure, Figures, legend_below, panels, ratio_axis
from r2mae_paper.networks import best_ratios, by_seed, shape
from r2mae_paper.rows import TableRow, Tables, column, mean_columns, read_rows, records, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import PUBLISHED, Study

LINES = ("-", "--", ":", "-.")
"""Styles of lines, where there are more curves than colours."""
EXTRAPOLATED = (0.15, 0.3)
"""Ratios of the line that Fig. 1F extends to ratio 0."""
SLOPED = (0.4, 0.8)
"""Ratios of the segment whose slope Fig. 1F makes common."""

_NUMBERS = ("ratio", "accuracy")
_NEAR_BEST = 0.002  # published tables have three digits


def look_of(number: int) -> tuple[str, str]:
    """Return colour and style of a curve by its number."""
    return COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]


def expected(names: Sequence[str]) -> str:
    """Return in words what a table must have."""
    return f"expected a CSV file with the columns {', '.join(names)}, ratio and accuracy (fractions from 0 to 1)"


def read_curves(files: Sequence[Path], names: Sequence[str] = ("task",)) -> list[TableRow]:
    """Return the rows of tables of accuracies, one table after the other.

    These are CSV files; columns other than `names`, which are of words, `ratio` and `accuracy` are left out.
    """
    return [row for file in files for row in _rows(Path(file), names)]


def _rows(file: Path, names: Sequence[str]) -> list[TableRow]:
    head, lines = read_rows(file, expected(names))
    table = pd.DataFrame(lines, columns=[name.strip("\ufeff ") for name in head], dtype=object)
    table = table.loc[:, ~table.columns.duplicated()].apply(lambda column: column.str.strip())
    missing = [name for name in (*names, *_NUMBERS) if name not in table]
    if missing:
        raise UserError(f"{file}: has no column {missing[0]!r} (it has {', '.join(table)[:160]}): {expected(names)}")
    if "model" in table and "model" not in names and table["model"].nunique() > 1:
        raise UserError(f"{file}: has rows of several models, which are no seeds of one: give those of one model")
    if not len(table):
        raise UserError(f"{file}: has no rows: {expected(names)}")
    for name in names:
        if (nameless := table[name] == "").any():
            raise UserError(f"{file}: row {nameless.argmax() + 1} names no {name}: {expected(names)}")
    for name in _NUMBERS:
        words, numbers = table[name], pd.to_numeric(table[name], errors="coerce").astype(float)
        table[name] = numbers
        if (wrong := ~numbers.between(0, 1)).any():
            row = wrong.argmax()
            raise UserError(
                f"{file}: row {row + 1} has {name} {words[row]!r}, expected a fraction from 0 to 1 "
                "(divide per cent by 100)"
            )
    return records(table[[*names, *_NUMBERS]])


def error_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Return the error curves of tasks, shifted and scaled so that they can be superimposed.

    The paper's appendix on Fig. 1F: error rates are ``1 − accuracy``. Each task's curve is extended to ratio 0 by the
    line through its values at 0.15 and 0.3, and shifted so that this value is zero. It is then multiplied by the
    task's factor, so that the segment from 0.4 to 0.8 has the same slope in all tasks. The result is invariant to any
    ``a·error + b`` with a > 0 of the task. The paper does not state the common slope: here it is the mean of the
    tasks' slopes, so that the result has the size of an error rate.

    The table has the columns ``task``, ``ratio`` and ``accuracy`` (fractions from 0 to 1). Rows of the same task and
    ratio (seeds) are averaged first. Returned are these columns, with the ratios in ascending order, and ``error``,
    ``intercept`` (the extrapolated error at ratio 0), ``factor``, and ``scaled`` = factor · (error − intercept).
    """
    tasks = list(dict.fromkeys(table["task"]))
    means = table.groupby(["task", "ratio"])["accuracy"].mean().loc[tasks].reset_index()
    means["error"] = 1 - means["accuracy"]
    starts: dict[object, float] = {}
    slopes: dict[object, float] = {}
    for name, curve in means.groupby("task", sort=False):
        errors = curve.set_index("ratio")["error"]
        for ratio in (*EXTRAPOLATED, *SLOPED):
            if ratio not in errors:
                has = ", ".join(f"{value:g}" for value in errors.index)
                raise UserError(f"task {name!r} has no accuracy at ratio {ratio:g} (it has {has}): add the ratio")
        (first, second), (start, end) = EXTRAPOLATED, SLOPED
        starts[name] = errors[first] - (errors[second] - errors[first]) / (second - first) * first
        slopes[name] = (errors[end] - errors[start]) / (end - start)
        if not slopes[name] > 0:
            raise UserError(
                f"task {name!r}: the error does not rise from ratio {start:g} to {end:g} (slope {slopes[name]:.3g}), "
                "so no factor gives it the common slope: omit the task"
            )
    common = float(np.mean(list(slopes.values())))
    means["intercept"] = means["task"].map(starts)
    means["factor"] = means["task"].map({name: common / slope for name, slope in slopes.items()})
    means["scaled"] = means["factor"] * (means["error"] - means["intercept"])
    return means


def by_task(published: Sequence[TableRow]) -> dict[str, tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]]:
    """Return ratios in ascending order and the mean error rate at each, by task."""
    table = pd.DataFrame(published, columns=["task", "ratio", "accuracy"])
    errors = (1 - table["accuracy"]).groupby([table["task"], table["ratio"]]).mean()
    return {str(task): (errors[task].index.to_numpy(), errors[task].to_numpy()) for task in table["task"].unique()}


def likeness(
    published: Sequence[TableRow], curves: Mapping[str, tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]]
) -> list[TableRow]:
    """Return how alike published error rates and our curves are, over the published ratios that a curve covers.

    `curves` are ascending ratios and risks by name; between ratios they are interpolated. A row has `task`, `curve`,
    the number of `ratios`, and Pearson's and Spearman's correlation, missing below three ratios or if a curve is
    constant.
    """
    rows: list[TableRow] = []
    for task, (ratios, errors) in by_task(published).items():
        for name, (at, risks) in curves.items():
            inside = (ratios >= at[0]) & (ratios <= at[-1])
            ours, theirs = np.interp(ratios[inside], at, risks), errors[inside]
            row: TableRow = {"task": task, "curve": name, "ratios": int(inside.sum())}
            varied = len(ours) > 2 and np.ptp(ours) > 0 and np.ptp(theirs) > 0
            for kind, correlation in (("pearson", pearsonr), ("spearman", spearmanr)):
                row[kind] = float(correlation(ours, theirs)[0]) if varied else float("nan")
            rows.append(row)
    return rows


def models_by_task(
    rows: Sequence[TableRow], best: Sequence[TableRow], *, columns: int, width: float = 3.6, height: float = 3.2
) -> tuple[Figure, list[Axes]]:
    """Draw accuracies by ratio in a panel for each task, a curve for each model; a ring marks the best ratio of each.

    Rows have `model`, `task`, `ratio` and `accuracy`, and bars where they have `low` and `high`; those of `best` have
    `best_ratio`. At most so many `columns` of panels are side by side, of this width and height in inches. Models have
    the same colours in all panels; those with a task are returned.
    """
    tasks, models = unique(rows, "task"), unique(rows, "model")
    columns = min(len(tasks), columns)
    figure, axes = panels(columns, -(-len(tasks) // columns), width=width, height=height)
    for panel in axes[len(tasks) :]:
        panel.set_axis_off()
    for panel, task in zip(axes, tasks, strict=False):
        tops = {row["model"]: row["best_ratio"] for row in select(best, task=task) if "best_ratio" in row}
        _draw_models(panel, select(rows, task=task), tops, models)
        ratio_axis(panel, "accuracy", task)
    return figure, axes[: len(tasks)]


def _draw_models(axes: Axes, rows: Sequence[TableRow], tops: Mapping[str, float], models: Sequence[str]) -> None:
    for number, model in enumerate(models):
        own = select(rows, model=model)
        if not own:
            continue
        means, ends = column(own, "accuracy"), np.array([column(own, "low"), column(own, "high")])
        ratios, reach = [row["ratio"] for row in own], np.nan_to_num(np.abs(ends - means))
        colour, style = look_of(number)
        axes.errorbar(ratios, means, reach if reach.any() else None, fmt=f"o{style}", color=colour, markersize=3.5,
                      linewidth=1.4, elinewidth=0.8, capsize=2, label=model)  # fmt: skip
        if tops.get(model) in ratios:
            top = means[ratios.index(tops[model])]
            axes.plot(tops[model], top, "o", color=colour, markersize=9, fillstyle="none")


def draw_over(axes: Axes, published: Sequence[TableRow]) -> None:
    """Draw published error rates over a panel of risks, with an axis of their own on the right."""
    if not published:
        return
    right = axes.twinx()
    for number, (task, (ratios, errors)) in enumerate(by_task(published).items()):
        colour = COLOURS[(number + 3) % len(COLOURS)]
        right.plot(ratios, errors, color=colour, marker="s", markersize=4, linewidth=1.2, label=f"{task} (right axis)")
    right.set_ylabel("error rate (1 \N{MINUS SIGN} accuracy)")
    lines = [axes.get_legend_handles_labels(), right.get_legend_handles_labels()]
    handles, labels = ([one for part in parts for one in part] for parts in zip(*lines, strict=True))
    axes.legend(handles, labels, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def _needed(figure: str, names: Sequence[str], files: Sequence[Path]) -> list[TableRow]:
    """Return the rows of tables of accuracies."""
    if not files:
        raise UserError(
            f"{figure} needs a table of accuracies: --curve FILE.csv ({expected(names)}); "
            "for curves of our own: r2mae reproduce text-ratios"
        )
    return read_curves(files, names)


def curves_of_fig1f(files: Sequence[Path]) -> list[TableRow]:
    """Return the error curves of tables of accuracies, brought to a common scale by :func:`error_curves`.

    The tables have the columns task, ratio and accuracy; their rows are combined. The paper uses accuracies of Wettig
    et al. (2022), which are in their repository.
    """
    rows = pd.DataFrame(_needed("fig1f", ("task",), files))
    try:
        return records(error_curves(rows))
    except UserError as error:
        raise UserError(f"{', '.join(map(str, files))}: {error}") from None


def plot_fig1f(tables: Tables, size: Size) -> Figures:
    """Draw the error rates as measured, and on one scale."""
    rows = tables["fig1f"]
    figure, (plain, common) = panels(2, width=3.9, height=3.4)
    for number, task in enumerate(unique(rows, "task")):
        colour, style = look_of(number)
        look: dict[str, Any] = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3.5, "linewidth": 1.4}
        own = select(rows, task=task)
        plain.plot(column(own, "ratio"), column(own, "error"), label=str(task), **look)
        common.plot(column(own, "ratio"), column(own, "scaled"), **look)
    for axes, title, words in (
        (plain, "As measured", "error rate (1 \N{MINUS SIGN} accuracy)"),
        (common, "On one scale (Fig. 1F)", "scaled error rate"),
    ):
        ratio_axis(axes, words, title)
    common.axhline(0, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    plain.legend(fontsize=8)
    return {"fig1f": figure}


def curves_of_fig2c(files: Sequence[Path]) -> list[TableRow]:
    """Return the mean over rows (seeds) of one model, task and ratio, ratios in ascending order.

    The tables have the columns model, task, ratio and accuracy (fractions). Models are drawn in the order in which the
    tables name them: begin with the smallest.
    """
    table = pd.DataFrame(_needed("fig2c", ("model", "task"), files))
    return [
        {"model": model, "task": task, "ratio": ratio, "accuracy": accuracy}
        for (model, task), own in table.groupby(["model", "task"], sort=False)
        for ratio, accuracy in own.groupby("ratio")["accuracy"].mean().items()
    ]


def table_of_fig2c(results: Mapping[str, list[TableRow]]) -> Tables:
    """Return the mean accuracy of each model, task and ratio, and the best ratio of each model on each task.

    Ratios whose accuracy is within 0.002 of the best one's are given, too: published tables have three digits.
    """
    rows = results[PUBLISHED]
    best = []
    for model, task in dict.fromkeys((row["model"], row["task"]) for row in rows):
        own = select(rows, model=model, task=task)
        top = max(own, key=lambda row: row["accuracy"])
        near = [row["ratio"] for row in own if row["accuracy"] >= top["accuracy"] - _NEAR_BEST]
        found = {"ratios": len(own), "best_ratio": top["ratio"], "best_accuracy": top["accuracy"]}
        best.append({"model": model, "task": task, **found, "near_best_from": min(near), "near_best_until": max(near)})
    return {"fig2c": rows, "fig2c-best": best}


def plot_fig2c(tables: Tables, size: Size) -> Figures:
    """Draw a panel for each task with a curve for each model; a ring marks the best ratio of each."""
    figure, axes = models_by_task(tables["fig2c"], tables["fig2c-best"], columns=3)
    for panel in axes:
        panel.legend(fontsize=8, title="ring: the best ratio", title_fontsize=8)
    return {"fig2c": figure}


# Found in trials on seed 11: with the rate 0.002 the widest model learns nothing of context in 800 steps.
SIZES: Mapping[str, Mapping[str, Any]] = {
    "2x64": {"layers": 2, "hidden_size": 64, "heads": 1, "intermediate_size": 256, "lr": 2e-3},
    "2x128": {"layers": 2, "hidden_size": 128, "heads": 2, "intermediate_size": 512, "lr": 2e-3},
    "2x256": {"layers": 2, "hidden_size": 256, "heads": 4, "intermediate_size": 1024, "lr": 1e-3},
}
"""Models by layers and width."""
TASKS = {
    **{f"accuracy_{ratio:g}": f"masked tokens, {100 * ratio:.0f} % hidden" for ratio in scheme_tables.LOSS_RATIOS},
    **scheme_tables.GLUE_ACCURACIES,
}
"""Titles of accuracies: of hidden tokens of held-out text, and of the paper's tasks."""


def runs_of_texts(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each model, ratio and seed."""
    known = of_corpus(size.data, size.settings)
    base = TextConfig.make(data=size.data, glue=size.glue, glue_probes=size.probes, scheme="fixed", **known)
    for name in size.models:
        _model(name)  # which refuses an unknown one
    models = {name: {**SIZES.get(name, {"preset": name}), **size.settings} for name in size.models}
    return runs_by_ratio(base, "model", models, size, out)


def table_of_texts(results: pd.DataFrame) -> Tables:
    """Return accuracies by model, task and ratio, best ratios, curves on the scale of Fig. 1F, and all runs.

    The first has the columns that ``--curve`` of Fig. 2C takes. Intervals and verdicts are each by themselves.
    """
    results = results.assign(ratio=results["ratio"].astype(float))
    sizes = {name: _model(name) for name in dict.fromkeys(results["model"])}
    tasks = [score for score in TASKS if score in results and results[score].notna().any()]
    curves: list[TableRow] = []
    best: list[TableRow] = []
    scaled: list[TableRow] = []
    for model in sizes:
        for score in tasks:
            runs = results[results["model"] == model].dropna(subset=[score])
            named = {"model": model, "task": TASKS[score]}
            for ratio, own in runs.groupby("ratio"):
                mean = mean_columns(own[score])
                accuracy = {"seeds": mean.pop("seeds"), "accuracy": mean.pop("mean")}
                curves.append({**named, "ratio": ratio, **accuracy, **mean})
            if runs["ratio"].nunique() > 1:
                best.append({**named, **_best_of_seeds(runs, score), **shape(runs, score, higher=True)})
        rising = [TASKS[score] for score in tasks if _rises(results[results["model"] == model], score)]
        if own := [row for row in select(curves, model=model) if row["task"] in rising]:
            scaled += [{"model": model, **row} for row in records(error_curves(pd.DataFrame(own)))]
    for name in ("layers", "hidden_size"):
        results[name] = [sizes[model][name] for model in results["model"]]
    columns = ["model", "layers", "hidden_size", "label", "ratio", "seed", "seconds", "loss", *tasks]
    return {
        "text-ratios": curves,
        "text-ratios-best": best,
        "text-ratios-scaled": scaled,
        "text-ratios-runs": results[columns].to_dict("records"),
    }


def plot_texts(tables: Tables, size: Size) -> Figures:
    """Draw accuracies by task as in Fig. 2C, and errors of each model's tasks on one scale as in Fig. 1F."""
    figures = {"text-ratios": _plot_tasks(tables["text-ratios"], tables["text-ratios-best"])}
    if tables["text-ratios-scaled"]:
        figures["text-ratios-scaled"] = _on_one_scale(tables["text-ratios-scaled"], tables["text-ratios"])
    return figures


def _model(name: str) -> Mapping[str, Any]:
    models = {**SIZES, **DOMAIN.presets}
    if name not in models:
        raise unknown("model", name, models)
    return models[name]


def _best_of_seeds(runs: pd.DataFrame, score: str) -> TableRow:
    """Return from where to where the best ratios of single seeds reach."""
    values, ratios, _ = by_seed(runs, score)
    if not len(values):
        return {}
    chosen = best_ratios(values, ratios, higher=True)
    return {"best_ratio_from": float(chosen.min()), "best_ratio_until": float(chosen.max())}


def _rises(runs: pd.DataFrame, score: str) -> bool:
    """Return whether the error is shown to rise between the ratios that the common scale is taken from.

    A rise that is chance would be stretched to the size of the others.
    """
    values, ratios, _ = by_seed(runs, score)
    if not len(values) or not {*EXTRAPOLATED, *SLOPED} <= set(ratios):
        return False
    first, last = (values[:, ratios.index(ratio)] for ratio in SLOPED)
    return paired_difference(first, last).verdict == "better"


def _plot_tasks(rows: Sequence[TableRow], best: Sequence[TableRow]) -> Figure:
    figure, axes = models_by_task(rows, best, columns=4, width=3.3, height=3.0)
    for panel in axes:
        panel.title.set_fontsize(9)
    title, models = "model (bars: 95 % interval over seeds; ring: the best ratio)", len(unique(rows, "model"))
    legend_below(figure, axes[0], models, title=title, fontsize=8, title_fontsize=8)
    return figure


def _on_one_scale(scaled: Sequence[TableRow], rows: Sequence[TableRow]) -> Figure:
    """Draw a panel for each model; its title names how many tasks there are, and how many have no common scale."""
    models, tasks = unique(scaled, "model"), unique(scaled, "task")
    figure, axes = panels(len(models), width=3.6, height=3.8)
    handles: dict[str, Any] = {}
    for panel, model in zip(axes, models, strict=True):
        for number, task in enumerate(tasks):
            if own := select(scaled, model=model, task=task):
                (colour, style), x, y = look_of(number), column(own, "ratio"), column(own, "scaled")
                (handles[task],) = panel.plot(x, y, style, marker="o", color=colour, markersize=3.5, linewidth=1.4)
        panel.axhline(0, color=GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        shown, every = (len(unique(select(table, model=model), "task")) for table in (scaled, rows))
        panel.set_title(f"{model}: {shown} of {every} tasks, those whose\nerror is shown to rise from 0.4 to 0.8",
                        fontsize=9)  # fmt: skip
        ratio_axis(panel, "scaled error rate (Fig. 1F)")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=len(models), fontsize=8)
    return figure


STUDIES = (
    Study(ENTRIES["fig1f"], plot_fig1f, parts=lambda size: {}, curves=curves_of_fig1f),
    Study(ENTRIES["fig2c"], plot_fig2c, table_of_fig2c, parts=lambda size: {}, curves=curves_of_fig2c),
    Study(ENTRIES["text-ratios"], plot_texts, table_of_texts, runs=runs_of_texts),
)
