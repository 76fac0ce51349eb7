"""Our own curves for Figs. 1F and 2C: RoBERTas of two sizes at six fixed ratios, by task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from r2mae.errors import unknown
from r2mae.evaluation.statistics import paired_difference
from r2mae.sweep.runs import SweepRun
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae_paper import table2
from r2mae_paper.bases import of_corpus, runs_by_ratio
from r2mae_paper.by_ratio import best_ratios, by_seed, shape
from r2mae_paper.curves import EXTRAPOLATED, SLOPED, error_curves, look_of, models_by_task
from r2mae_paper.drawing import GREY, Figure, Figures, panels, ratio_axis
from r2mae_paper.rows import TableRow, Tables, column, mean_columns, records, select, unique
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

# Found in trials on seed 11: with the rate 0.002 the widest model learns nothing of context in 800 steps.
SIZES: Mapping[str, Mapping[str, Any]] = {
    "2x64": {"layers": 2, "hidden_size": 64, "heads": 1, "intermediate_size": 256, "lr": 2e-3},
    "2x128": {"layers": 2, "hidden_size": 128, "heads": 2, "intermediate_size": 512, "lr": 2e-3},
    "2x256": {"layers": 2, "hidden_size": 256, "heads": 4, "intermediate_size": 1024, "lr": 1e-3},
}
"""Models by layers and width."""
TASKS = {
    **{f"accuracy_{ratio:g}": f"masked tokens, {100 * ratio:.0f} % hidden" for ratio in table2.LOSS_RATIOS},
    **table2.GLUE_ACCURACIES,
}
"""Titles of accuracies: of hidden tokens of held-out text, and of the paper's tasks."""


def runs(size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each model, ratio and seed.

    Raises
    ------
    UserError
        For an unknown model.
    """
    known = of_corpus(size.data, size.settings)
    base = TextConfig.make(data=size.data, glue=size.glue, glue_probes=size.probes, scheme="fixed", **known)
    models = {name: {**_model(name), **size.settings} for name in size.models}
    return runs_by_ratio(base, "model", models, size, out)


def table(results: pd.DataFrame) -> Tables:
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


def plot(tables: Tables, size: Size) -> Figures:
    """Draw accuracies by task as in Fig. 2C, and errors of each model's tasks on one scale as in Fig. 1F."""
    figures = {"text-ratios": _by_task(tables["text-ratios"], tables["text-ratios-best"])}
    if tables["text-ratios-scaled"]:
        figures["text-ratios-scaled"] = _on_one_scale(tables["text-ratios-scaled"], tables["text-ratios"])
    return figures


def _model(name: str) -> Mapping[str, Any]:
    if name in SIZES:
        return SIZES[name]
    if name not in DOMAIN.presets:
        raise unknown("model", name, [*SIZES, *DOMAIN.presets])
    return {**DOMAIN.presets[name], "preset": name}


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


def _by_task(rows: Sequence[TableRow], best: Sequence[TableRow]) -> Figure:
    figure, axes = models_by_task(rows, best, columns=4, width=3.3, height=3.0)
    for panel in axes:
        panel.title.set_fontsize(9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, title="model (bars: 95 % interval over seeds; ring: the best ratio)",
        loc="outside lower center", ncols=len(labels), fontsize=8, title_fontsize=8,
    )  # fmt: skip
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
        ratio_axis(panel)
        panel.set_ylabel("scaled error rate (Fig. 1F)")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=len(models), fontsize=8)
    return figure


STUDIES = (Study(ENTRIES["text-ratios"], plot, table, runs=runs),)
