"""What the paper says of RoBERTas of several sizes at fixed ratios (Fig. 2C), by our own curves."""

import itertools
from typing import TYPE_CHECKING

import numpy as np

from r2mae_paper.claims.claim import Check, Claim, Found
from r2mae_paper.claims.judging import of_clearest, of_difference, of_most, weakest
from r2mae_paper.claims.results import Results, UnavailableError
from r2mae_paper.claims.runs import best_of_seeds, grid_step, minus, on_grid
from r2mae_paper.table2 import GLUE_ACCURACIES

if TYPE_CHECKING:
    import pandas as pd

_NAME = "text-ratios-runs"
_CLOSE = 0.15  # best ratios that are closer count as equal, as for the other networks


def _models(results: Results) -> tuple[dict[str, "pd.DataFrame"], dict[str, str]]:
    """Return the runs by model, from the smallest on, and the titles of the tasks that all runs have, by score."""
    runs = results.table("text-ratios", "model", "layers", "hidden_size", "ratio", "seed", name=_NAME)
    sizes = {str(name): group for name, group in runs.groupby("model")}
    order = sorted(sizes, key=lambda name: int((sizes[name]["layers"] * sizes[name]["hidden_size"] ** 2).iloc[0]))
    tasks = {score: title for score, title in GLUE_ACCURACIES.items() if score in runs and runs[score].notna().all()}
    if not tasks:
        raise UnavailableError("text-ratios has no task of GLUE that every run was measured on")
    return {name: sizes[name] for name in order}, tasks


def _size_decides(results: Results, claim: Claim) -> Found:
    """Judge that the largest model has a higher best ratio than the smallest, on every task."""
    models, tasks = _models(results)
    if len(models) < 2:
        raise UnavailableError("text-ratios has one model, and sizes are compared")
    (small, *_), (*_, large) = models, models
    step = max(grid_step(models[name]) for name in (small, large))
    found, means, equal = {}, [], []
    for score, title in tasks.items():
        best = [best_of_seeds(models[name], score, higher=True) for name in (small, large)]
        gaps = minus(best[1], best[0])
        one, corrected = (of_difference(on_grid(gaps, step, count), "", same=False) for count in (1, len(tasks)))
        found[title] = one if one.verdict != "not reproduced" else corrected
        means.append(f"{title} {best[0].mean():.2f} and {best[1].mean():.2f}")
        equal += [title] if not np.ptp(gaps) else []
    worst = next(title for title, one in found.items() if one is weakest(list(found.values())))
    reason = f"Our own models, {small} and {large}, not those of the figure. Their best ratios, means over seeds: "
    reason += f"{'; '.join(means)}. Shown is the task that shows it least, {worst}; the interval is wider by a step of "
    reason += f"the grid, {step:g}."
    if equal:
        reason += f" Without an interval, as all seeds have the same difference: {', '.join(equal)}."
    return of_most(list(found.values()), reason)


def _task_decides(results: Results, claim: Claim) -> Found:
    """Judge that a model has other best ratios on one task than on another."""
    models, tasks = _models(results)
    pairs = list(itertools.combinations(tasks, 2))
    gaps = {}
    for name, runs in models.items():
        best = {score: best_of_seeds(runs, score, higher=True) for score in tasks}
        for one, other in pairs:
            gap = on_grid(minus(best[one], best[other]), grid_step(runs), 2 * len(pairs) * len(models))
            gaps[f"{name}, {tasks[one]} minus {tasks[other]}"] = gap
    if not gaps:
        raise UnavailableError("text-ratios has one task of GLUE, and tasks are compared")
    reason = f"Our own models, {' and '.join(models)}."
    return of_clearest(gaps, reason, within=_CLOSE, corrected="models, pairs of tasks and both signs", same=False)


CHECKS: dict[str, Check] = {"roberta-size": _size_decides, "roberta-task": _task_decides}
