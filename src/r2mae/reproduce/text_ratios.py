"""Our own curves beside Figs. 1F and 2C: RoBERTas of several sizes at six fixed ratios, by task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from r2mae.evaluation.statistics import mean_interval
from r2mae.reproduce import table2
from r2mae.reproduce.artefact import Row, Size, Tables
from r2mae.reproduce.by_ratio import by_seed, shape
from r2mae.reproduce.drawing import COLOURS, Figures, panels, ratio_axis
from r2mae.sweep.cells import Axis, Cell, cells_of, grid
from r2mae.text.config import TextConfig
from r2mae.text.error_curve import EXTRAPOLATED, SLOPED, error_curves
from r2mae.text.sets import SET_DEFAULTS
from r2mae.text.wing import WING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Our own curves for Figs. 1F and 2C: RoBERTas of several sizes by mask ratio and task"
DATA = "wiki and four tasks of GLUE; full: fineweb and these"
COST = {
    "smoke": "seconds",
    "small": "36 runs, 2 h on a core (estimated)",
    "full": "36 runs, a day each on an H100 (by those of Table 2)",
}
PAPER = "Error curves differ between tasks and form one family; larger RoBERTas have a higher best ratio."

_MASKED = {f"accuracy_{ratio:g}": f"masked tokens, {100 * ratio:.0f} % hidden" for ratio in (0.15, 0.4, 0.8)}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "2x128": {"layers": 2, "hidden_size": 128, "heads": 2, "intermediate_size": 512, "lr": 2e-3},
    "2x256": {"layers": 2, "hidden_size": 256, "heads": 4, "intermediate_size": 1024, "lr": 1e-3},
}
"""Models that learn from context within 2,000 steps, by layers and width. The wider one does not at twice the rate."""
TASKS = {
    **_MASKED,
    **{score: title for score, title in table2.TITLES.items() if "accuracy" in title and score != "accuracy"},
}
"""Titles of accuracies, which stand for the paper's tasks."""


@dataclass(frozen=True)
class ModelsSize(Size):
    """How much is trained.

    Attributes
    ----------
    data : str
        The corpus.
    models : tuple of str
        From the smallest to the largest: presets, or names of :data:`SIZES`.
    ratios : tuple of float
        Fixed ratios. :func:`r2mae.text.error_curve.error_curves` needs 0.15, 0.3, 0.4 and 0.8.
    glue : tuple of str
        Tasks that models are fine-tuned on.
    probes : tuple of str
        Tasks on which their frozen features are probed.
    seeds : int
        Runs of each model and ratio.
    settings : mapping
        Fields of the configuration in place of the presets'.
    """

    data: str = "fineweb"
    models: tuple[str, ...] = ("roberta-medium", "roberta-base")
    ratios: tuple[float, ...] = (0.15, 0.3, 0.4, 0.5, 0.6, 0.8)
    glue: tuple[str, ...] = table2.TextSize.glue
    probes: tuple[str, ...] = ()
    seeds: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)

    chooses: ClassVar[tuple[str, ...]] = ("seeds", "models", "ratios")
    small: ClassVar[Mapping[str, Any]] = {
        "data": "wiki",
        "models": tuple(SIZES),
        "glue": (),
        "probes": table2.TextSize.glue,
        "settings": {
            **{name: value for name, value in table2.SMALL.items() if name != "lr"},
            # Twice as many sequences a step as in Table 2: with 64 the ratio 0.15 learns nothing of context in 4,000.
            **{"batch_size": 128, "steps": 2000, "precision": "bf16"},
        },
    }
    # Both models have the same tiny layers here.
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"data": "wikitext2", "models": tuple(SIZES), "ratios": (0.15, 0.3, 0.4, 0.8), "glue": (), "seeds": 1},
        "settings": {**table2.SMOKE, "eval_sequences": 200},
    }


SIZE = ModelsSize


def cells(size: ModelsSize, out: Path) -> list[Cell]:
    """Return a run for each model, ratio and seed."""
    base = TextConfig(data=size.data, glue=size.glue, glue_probes=size.probes, scheme="fixed",
                      **SET_DEFAULTS.get(size.data, {}))  # fmt: skip
    models = Axis("model", {name: {**_model(name), **size.settings} for name in size.models})
    return cells_of(grid(base, [models, Axis.over("ratio", size.ratios)]), range(size.seeds), out)


def table(results: "pd.DataFrame") -> Tables:
    """Return accuracies by model, task and ratio, best ratios, curves on the scale of Fig. 1F, and all runs.

    The first has the columns that ``--curve`` takes.
    """
    results = results.assign(ratio=results["ratio"].astype(float))
    tasks = [score for score in TASKS if score in results and results[score].notna().any()]
    curves: list[Row] = []
    best: list[Row] = []
    for model, own in results.groupby("model", sort=False):
        for score in tasks:
            named = {"model": model, "task": TASKS[score]}
            for ratio, runs in own.groupby("ratio"):
                found = mean_interval(runs[score].dropna())
                ends = {"low": found.low, "high": found.high}
                curves.append({**named, "ratio": ratio, "seeds": found.n, "accuracy": found.mean, **ends})
            if own["ratio"].nunique() > 1:
                best.append({**named, **_best_of_seeds(own, score), **shape(own, score, higher=True)})
    columns = ["model", "label", "ratio", "seed", "seconds", "loss", *tasks]
    return {
        "text-ratios": curves,
        "text-ratios-best": best,
        "text-ratios-scaled": _scaled(curves),
        "text-ratios-runs": results[columns].to_dict("records"),
    }


def draw(tables: Tables, size: ModelsSize) -> Figures:
    """Draw accuracies by task as in Fig. 2C, and errors of each model's tasks on one scale as in Fig. 1F."""
    figures = {"text-ratios": _by_task(tables["text-ratios"], tables["text-ratios-best"])}
    if tables["text-ratios-scaled"]:
        figures["text-ratios-scaled"] = _on_one_scale(tables["text-ratios-scaled"])
    return figures


def _model(name: str) -> Mapping[str, Any]:
    return SIZES[name] if name in SIZES else {**WING.presets[name], "preset": name}


def _best_of_seeds(runs: "pd.DataFrame", score: str) -> Row:
    """Return the lowest and the highest best ratio of a seed."""
    values, ratios, _ = by_seed(runs, score)
    chosen = np.array(ratios)[values.argmax(1)]
    return {"best_ratio_lowest": float(chosen.min()), "best_ratio_highest": float(chosen.max())}


def _scaled(curves: Sequence[Row]) -> list[Row]:
    """Return the curves of each model on one scale, of tasks whose error rises where the scale is taken from."""
    import pandas as pd

    found: list[Row] = []
    if not {*EXTRAPOLATED, *SLOPED} <= {row["ratio"] for row in curves}:
        return found
    for model in dict.fromkeys(row["model"] for row in curves):
        own = pd.DataFrame([row for row in curves if row["model"] == model])
        ends = [own[own["ratio"] == ratio].set_index("task")["accuracy"] for ratio in SLOPED]
        rising = own[own["task"].map(ends[0] - ends[1]).gt(0)]
        if len(rising):
            scaled = error_curves(rising).to_dict("records")
            found += [{"model": model, **{str(name): value for name, value in row.items()}} for row in scaled]
    return found


def _by_task(rows: Sequence[Row], best: Sequence[Row]) -> "Figure":
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    columns = min(len(tasks), 4)
    figure, axes = panels(columns, -(-len(tasks) // columns), width=3.3, height=3.0)
    for panel in axes[len(tasks) :]:
        panel.set_axis_off()
    for panel, task in zip(axes, tasks, strict=False):
        for model, colour in zip(models, COLOURS, strict=False):
            own = [row for row in rows if (row["model"], row["task"]) == (model, task)]
            _curve(panel, own, colour, model)
            top = [row["best_ratio"] for row in best if (row["model"], row["task"]) == (model, task)]
            for row in own:
                if row["ratio"] in top:
                    panel.plot(row["ratio"], row["accuracy"], "o", color=colour, markersize=9, fillstyle="none")
        ratio_axis(panel)
        panel.set_title(task, fontsize=9)
        panel.set_ylabel("accuracy")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, title="layers x width (bars: 95 % interval over seeds; ring: the best ratio)",
        loc="outside lower center", ncols=len(labels), fontsize=8, title_fontsize=8,
    )  # fmt: skip
    return figure


def _curve(axes: "Axes", rows: Sequence[Row], colour: str, label: str) -> None:
    means, ends = [row["accuracy"] for row in rows], [[row[end] for row in rows] for end in ("low", "high")]
    reach = np.nan_to_num(np.abs(np.array(ends) - np.array(means)))
    axes.errorbar(
        [row["ratio"] for row in rows], means, reach, fmt="o-", color=colour, markersize=3.5, linewidth=1.2, capsize=2,
        elinewidth=0.8, label=label,
    )  # fmt: skip


def _on_one_scale(rows: Sequence[Row]) -> "Figure":
    models = list(dict.fromkeys(row["model"] for row in rows))
    colours = dict(zip(dict.fromkeys(row["task"] for row in rows), (*COLOURS, *COLOURS), strict=False))
    figure, axes = panels(len(models), width=3.4, height=3.8)
    for panel, model in zip(axes, models, strict=True):
        for place, (task, colour) in enumerate(colours.items()):
            own = [row for row in rows if (row["model"], row["task"]) == (model, task)]
            style = "-" if place < len(COLOURS) else "--"
            panel.plot([row["ratio"] for row in own], [row["scaled"] for row in own], style, marker="o", color=colour,
                       markersize=3.5, linewidth=1.4, label=task)  # fmt: skip
        panel.axhline(0, color="#808080", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        ratio_axis(panel)
        panel.set_title(f"{model}, on one scale (Fig. 1F)", fontsize=9)
        panel.set_ylabel("scaled error rate")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 3), fontsize=8)
    return figure
