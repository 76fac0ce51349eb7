"""Error by mask ratio, on a common scale for all tasks (the paper's Fig. 1F)."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from r2mae.errors import UserError

EXTRAPOLATED = (0.15, 0.3)  # ratios of the line that is extended to ratio 0
SLOPED = (0.4, 0.8)  # ratios of the segment whose slope is made common
_COLUMNS = ("task", "ratio", "accuracy")
_SAME = 1e-9  # ratios closer than this are the same


def error_curves(
    table: pd.DataFrame,
    *,
    extrapolated: tuple[float, float] = EXTRAPOLATED,
    sloped: tuple[float, float] = SLOPED,
    slope: float | None = None,
) -> pd.DataFrame:
    """Return the error curves of tasks, shifted and scaled so that they can be superimposed.

    The paper's appendix on Fig. 1F: error rates are ``1 − accuracy``. Each task's curve is extended to ratio 0 by the
    line through its values at 0.15 and 0.3, and shifted so that this value is zero. It is then multiplied by the
    task's factor, so that the segment from 0.4 to 0.8 has the same slope in all tasks. The result is invariant to any
    ``a·error + b`` with a > 0 of the task.

    Parameters
    ----------
    table : DataFrame
        Columns ``task``, ``ratio`` and ``accuracy`` (fractions from 0 to 1), in any order; other columns are ignored.
        Rows of the same task and ratio (seeds) are averaged first.
    extrapolated, sloped : (float, float)
        The two pairs of ratios.
    slope : float, optional
        The common slope, error rate per ratio. The paper does not state it. The default is the mean of the tasks'
        slopes, so that the result has the size of an error rate.

    Returns
    -------
    DataFrame
        ``task`` (in order of appearance), ``ratio`` (ascending), ``accuracy``, ``error``, ``intercept`` (the
        extrapolated error at ratio 0), ``factor``, and ``scaled`` = factor · (error − intercept).

    Raises
    ------
    UserError
        For a missing column; no rows; values that are not in [0, 1]; a task without one of the four ratios; a task
        whose error does not rise over `sloped`, for which no positive factor exists; a slope that is not positive.
    """
    means = _means(table)
    for pair in (extrapolated, sloped):
        if not pair[0] < pair[1]:
            raise UserError(f"error curves need two ratios in ascending order, not {pair[0]:g} and {pair[1]:g}")
    if slope is not None and not (np.isfinite(slope) and slope > 0):
        raise UserError(f"slope must be a positive number, not {slope}")
    lines: dict[object, tuple[float, float]] = {}
    for name, curve in means.groupby("task", sort=False):
        ratios, errors = curve["ratio"].to_numpy(float), curve["error"].to_numpy(float)
        start, steep = _line(name, ratios, errors, extrapolated), _line(name, ratios, errors, sloped)
        if not steep[1] > 0:
            raise UserError(
                f"task {name!r}: the error does not rise from ratio {sloped[0]:g} to {sloped[1]:g} "
                f"(slope {steep[1]:.3g}), so no factor gives it the common slope: omit the task"
            )
        lines[name] = (start[0], steep[1])
    common = float(np.mean([steepness for _, steepness in lines.values()])) if slope is None else slope
    means["intercept"] = means["task"].map({name: start for name, (start, _) in lines.items()})
    means["factor"] = means["task"].map({name: common / steepness for name, (_, steepness) in lines.items()})
    means["scaled"] = means["factor"] * (means["error"] - means["intercept"])
    return means


def accuracy_table(scores: Mapping[float, Mapping[str, float]]) -> pd.DataFrame:
    """Return the table of :func:`error_curves` from accuracies by ratio and task.

    Parameters
    ----------
    scores : mapping of float to mapping of str to float
        For each mask ratio of pretraining, the accuracy of each task.
    """
    rows = [(task, ratio, accuracy) for ratio, tasks in scores.items() for task, accuracy in tasks.items()]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _means(table: pd.DataFrame) -> pd.DataFrame:
    for column in _COLUMNS:
        if column not in table.columns:
            found = ", ".join(map(str, table.columns))
            raise UserError(f"error curves: the table has no column {column!r} (it has {found}): rename or add it")
    if table.empty:
        raise UserError("error curves: the table has no rows: give task, ratio and accuracy")
    plain = pd.DataFrame({"task": table["task"].to_numpy()})
    for column in ("ratio", "accuracy"):
        values = pd.to_numeric(table[column], errors="coerce").to_numpy(float)
        wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if len(wrong):
            raise UserError(
                f"error curves: row {wrong[0] + 1} has {column} {table[column].iloc[wrong[0]]!r}, expected a fraction "
                "from 0 to 1 (divide per cent by 100)"
            )
        plain[column] = values
    order = {name: place for place, name in enumerate(dict.fromkeys(plain["task"]))}
    means = plain.groupby(["task", "ratio"], as_index=False, sort=False).mean()
    means = means.sort_values(["task", "ratio"], key=lambda s: s.map(order) if s.name == "task" else s)
    means = means.reset_index(drop=True)
    means["error"] = 1 - means["accuracy"]
    return means


def _line(name: object, ratios: np.ndarray, errors: np.ndarray, pair: tuple[float, float]) -> tuple[float, float]:
    """Return intercept and slope of the line through the errors at two ratios."""
    ends = []
    for ratio in pair:
        places = np.flatnonzero(np.abs(ratios - ratio) < _SAME)
        if not len(places):
            has = ", ".join(f"{value:g}" for value in ratios)
            raise UserError(f"task {name!r} has no accuracy at ratio {ratio:g} (it has {has}): add the ratio")
        ends.append(errors[places[0]])
    slope = (ends[1] - ends[0]) / (pair[1] - pair[0])
    return float(ends[0] - slope * pair[0]), float(slope)
