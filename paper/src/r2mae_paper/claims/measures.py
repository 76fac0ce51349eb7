"""From tables to numbers: what the cases of claims name as their measure."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from r2mae.evaluation.statistics import best_fixed
from r2mae_paper.claims.claim import Case, Word
from r2mae_paper.claims.estimates import (
    Differences,
    Estimate,
    Measured,
    Values,
    of_errors,
    over,
    over_models,
    over_sets,
    share_of,
)  # fmt: skip
from r2mae_paper.claims.results import (
    OURS,
    MissingRowsError,
    Results,
    Source,
    Sources,
    UnavailableError,
    UndecidableError,
    each_in_words,
    gaps_of,
    rivals_of,
    scored,
    sources_of,
)
from r2mae_paper.networks import best_ratios, by_seed
from r2mae_paper.published import Model, published
from r2mae_paper.scheme_tables import GLUE_ACCURACIES

Measure: TypeAlias = Callable[[Results, Case], Measured]
Scores: TypeAlias = Float[np.ndarray, "seeds ratios"]

_FAR = 10.0
"""A formula does not describe a simulation of which a point deviates by more, in %."""


def rows_of(results: Results, case: Case) -> pd.DataFrame:
    """Return the rows of a case's tables that count and have a number in each of its columns, with their `study`."""
    tables = [results.table(one, *case.columns, name=case.table).assign(study=one) for one in case.study.split()]
    rows = pd.concat(tables).dropna(subset=list(case.columns))
    if case.where:
        rows = rows.query(case.where, engine="python")
    if not len(rows):
        raise UnavailableError(f"{case.study} has no rows with {case.where or 'numbers'}")
    return rows


def _evaluated(rows: pd.DataFrame, expression: str) -> Values:
    """Return an expression of columns for every row, or the value that it has for all."""
    return np.atleast_1d(np.asarray(rows.eval(expression, engine="python"), dtype=float))


def is_full(results: Results, case: Case) -> bool:
    """Return whether data and sizes of a case are the paper's."""
    for condition in filter(None, map(str.strip, case.full.split(";"))):
        if condition == "never":
            return False
        name, _, expression = condition.rpartition(":")
        for study in case.study.split():
            if condition == "scale":
                holds = results.as_the_paper(study)
            else:
                holds = bool(results.table(study, name=name or case.table).eval(expression, engine="python"))
            if not holds:
                return False
    return True


@dataclass(frozen=True, eq=False)
class Curve:
    """A risk over the ratio, with its standard errors."""

    ratio: Values
    risk: Values
    error: Values
    draws: int | None
    """How many draws the errors are from, where these are few."""
    best: int
    """The place of the lowest risk, or of the lowest sum of which this risk is a part."""

    def gap(self, place: int, other: int, comparisons: int = 1) -> Estimate:
        """Return by how much the risk at one place is above that at another one, corrected for a choice of several."""
        mean = float(self.risk[place] - self.risk[other])
        return of_errors(mean, self.error[place], self.error[other], comparisons=comparisons)

    def points(self) -> dict[str, tuple[int, int]]:
        """Return by name the places that :func:`points` speaks of, and of how many each is chosen."""
        risk, count = self.risk, len(self.risk)
        ends = {"first": 0, "last": count - 1, "end": 0 if risk[0] <= risk[-1] else count - 1, "lowest": self.best}
        return {
            **{name: (place, 1) for name, place in ends.items()},
            "inner": (int(risk[1:-1].argmin()) + 1, max(count - 2, 1)),
            "other": (int(risk[1:].argmin()) + 1, count - 1),
            "highest": (int(risk.argmax()), count),
        }


def _families(results: Results, case: Case) -> dict[str, list[Curve]]:
    """Return the curves over the ratio of each group (option `by`), in the order of a signal (option `order`).

    The columns are the risk, its standard error, and perhaps the null risk, by which both are divided. With the option
    `along` curves begin where that expression is lowest.
    """
    rows, order = rows_of(results, case), case.options.get("order")
    rows = rows.iloc[_evaluated(rows, case.options.get("along", "ratio")).argsort(kind="stable")]
    families = {}
    for name, group in _groups(rows, case):
        signals = group.groupby(group[order].round(4), sort=True) if order else [("", group)]
        each = (own.drop_duplicates("ratio") for _, own in signals)  # equal signals count once
        families[name] = [_curve(own, case) for own in each]
    return families


def _groups(rows: pd.DataFrame, case: Case) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows by the values of an expression (option `by`), each with its name; without one all rows."""
    if (by := case.options.get("by")) is None:
        return [("", rows)]
    found = rows.groupby(cast("pd.Series[Any]", rows.eval(by, engine="python")), sort=False)
    return [(name if isinstance(name, str) else f"{by} {name!s}", own) for name, own in found]


def _curve(rows: pd.DataFrame, case: Case) -> Curve:
    risk, error, *null = (rows[column].to_numpy(float) for column in case.columns)
    scale = null[0][0] if null else 1.0
    draws = int(rows["draws"].iloc[0]) if "draws" in rows else None
    best = int(_evaluated(rows, case.options.get("lowest", case.columns[0])).argmin())
    return Curve(rows["ratio"].to_numpy(float), risk / scale, error / scale, draws, best)


def _named(name: str, place: object) -> str:
    return f"{name}, {place}" if name else str(place)


def points(results: Results, case: Case) -> Measured:
    """Measure an expression of points of the strongest signal's curve (option `of`), such as ``end - inner``.

    Points are the risks at the `first` and `last` ratio, and at the `end` of the two that is lower; the `lowest`, which
    may be that of an expression (option `lowest`), the lowest `inner` and the lowest `other` than the first; the
    `highest`; and the `null` risk. The interval is corrected for the number of those that one is chosen from. A
    difference between a point and itself shows nothing.
    """
    parts, said, apart = {}, [], True
    for name, (*_, own) in _families(results, case).items():
        known = own.points()
        named = {word: known[word] for word in re.findall(r"\w+", case.options["of"]) if word in known}
        places = {word: place for word, (place, _) in named.items()}
        values = {word: float(own.risk[place]) for word, place in places.items()}
        mean = cast(float, pd.eval(case.options["of"], local_dict={"null": 1.0, **values}, engine="python"))
        count = max(number for _, number in named.values())
        parts[name] = of_errors(mean, *own.error[list(places.values())], comparisons=count, draws=own.draws)
        apart = apart and len({*places.values()}) == len(places)
        said.append(_named(name, ", ".join(f"{word} at p = {own.ratio[place]:g}" for word, place in places.items())))
    return Measured(parts, f"The points: {'; '.join(said)}.", at_most="reproduced" if apart else "not reproduced")


def rises(results: Results, case: Case) -> Measured:
    """Measure the largest fall of a curve from one ratio to a later one, as a negative number.

    The interval is corrected for the number of pairs. A curve that rises throughout has its smallest rise.
    """
    ((own,),) = _families(results, case).values()
    steps = own.risk[None, :] - own.risk[:, None]
    pairs = np.triu(np.ones_like(steps, dtype=bool), 1)
    first, last = map(int, np.unravel_index(np.where(pairs, steps, np.inf).argmin(), steps.shape))
    found = own.gap(last, first, int(pairs.sum()))
    return Measured({"": found}, f"From p = {own.ratio[first]:g} to {own.ratio[last]:g}.")


def deeper(results: Results, case: Case) -> Measured:
    """Measure by how much the lowest risk falls from signal to signal."""
    parts = {}
    for name, curves in _families(results, case).items():
        lowest = [(float(own.risk.min()), float(own.error[own.risk.argmin()])) for own in curves]
        for (a, e), (b, f) in pairwise(lowest):
            parts[_named(name, f"{a:.3f} to {b:.3f}")] = of_errors(a - b, e, f)
    return Measured(parts)


def later(results: Results, case: Case) -> Measured:
    """Measure by how much the best ratio grows from the first signal to the last, or the step that falls clearly.

    The best ratio is known up to the ratios whose risk may be the lowest, and up to the step of the grid.
    """
    parts, said = {}, []
    for name, curves in _families(results, case).items():
        places = []
        for own in curves:
            low = int(own.risk.argmin())
            near = own.ratio[own.risk - own.risk[low] <= 1.96 * np.hypot(own.error, own.error[low])]
            places.append((float(own.ratio[low]), float(near.min()), float(near.max())))
        grid = float(np.diff(curves[0].ratio).min())
        steps = [
            Estimate(b - a, low - above - grid, high - below + grid, grid=grid)
            for (a, below, above), (b, low, high) in (*pairwise(places), (places[0], places[-1]))
        ]
        down = [one for one in steps[:-1] if one.high < 0]
        parts[name] = min(down, key=lambda one: one.mean) if down else steps[-1]
        said.append(_named(name, " to ".join(f"{best:g}" for best, _, _ in places)))
    return Measured(parts, f"The best ratios: {'; '.join(said)}.")


def another_sample(results: Results, case: Case) -> Measured:
    """Measure how much two samples of one model differ, at the ratio where they differ most for their errors.

    Ratios at which either risk exceeds the null risk are left out. The interval is corrected for the other ratios and
    for all pairs of samples that the two were chosen from.
    """
    drawn = results.table("fig1g", "reading", "sample", name="fig1g-plateaus").query("sample != 'formula'")
    samples = max(int((drawn["reading"] == "D").sum()), 2)
    parts = {}
    for reading, rows in rows_of(results, case).groupby("reading", sort=False):
        first, second = (_curve(group.sort_values("ratio"), case) for _, group in rows.groupby("sample"))
        below = np.flatnonzero((first.risk <= 1) & (second.risk <= 1))
        if not len(below):
            raise UnavailableError("fig4 has no ratio at which both risks are below the null risk")
        apart, count = np.abs(first.risk - second.risk), len(below) * math.comb(samples, 2)
        gaps = {place: of_errors(float(apart[place]), first.error[place], second.error[place], comparisons=count)
                for place in below}  # fmt: skip
        place = max(gaps, key=lambda one: gaps[one].low)
        parts[f"{reading} at p = {first.ratio[place]:g}"] = gaps[place]
    return Measured(parts, "Corrected for ratios and pairs of samples.")


def values(results: Results, case: Case) -> Measured:
    """Measure the mean of an expression over the rows of each group.

    With the option `printed` a second part is its difference from what the paper's table has for a covariance model, by
    Welch's interval. With the option `grid` the number is known up to a step above it, and equal ones have no interval.
    """
    rows, parts = rows_of(results, case), {}
    for name, own in _groups(rows, case):
        ours = _evaluated(own, case.options["of"])
        found = over(ours)
        if "grid" in case.options:
            step = float(case.options["grid"])
            low, high = (found.low, found.high) if found.known else (found.mean, found.mean)
            found = replace(found, low=low, high=high + step, grid=step)
        parts[name] = found
        if "printed" in case.options and found.known:
            table = published(case.study)
            printed = table.entries[cast(Model, case.options["printed"])]["r2mae"].to_numpy()
            apart = stats.ttest_ind(ours, printed, equal_var=False).confidence_interval()
            gap = float(np.mean(ours) - np.mean(printed))
            parts["minus the printed ones"] = Estimate(gap, float(apart.low), float(apart.high))
    return Measured(parts)


def deviation(results: Results, case: Case) -> Measured:
    """Measure the median deviation of a simulation from a formula in %; all must be within :data:`_FAR`.

    The columns are the simulation, the formula, and perhaps a second simulation, whose median and largest deviation are
    judged alike.
    """
    rows = rows_of(results, case)
    simulated, predicted, *others = (rows[column].to_numpy(float) for column in case.columns)
    off, *more = (100 * np.abs(one / predicted - 1) for one in (simulated, *others))
    note = f"The largest deviation of {len(off)} points is {off.max():.1f} %; up to {_FAR:g} % count as a fit."
    if more:
        note += f" With one design it is {more[0].max():.1f} %, and the median {np.median(more[0]):.1f} %."
    second = all(one.max() <= _FAR and np.median(one) <= case.margin for one in more)
    at_most: Word = "not reproduced" if off.max() > _FAR else "reproduced" if second else "direction only"
    return Measured({"": Estimate(float(np.median(off)))}, note, at_most=at_most)


def share(results: Results, case: Case) -> Measured:
    """Measure the share of rows, or of groups (option `by`), for which an expression holds."""
    rows = rows_of(results, case)
    holds = np.hstack([_evaluated(own, case.options["of"]) for _, own in _groups(rows, case)])
    return Measured({"": share_of(int(holds.sum()), len(holds))}, f"It holds for {holds.sum():.0f} of {len(holds)}.")


def number(results: Results, case: Case) -> Measured:
    """Measure an expression of columns that has one value, such as ``risk.max()``."""
    (value,) = _evaluated(rows_of(results, case), case.options["of"])
    return Measured({"": Estimate(float(value))})


def schemes(results: Results, case: Case) -> Measured:
    """Measure how much better a row (option `ours`) is than another or the best of `others`, in each `score`.

    The mean is over the sets of cells that have it, for other sets too; over models for these alone; else over seeds.
    With the option `each` every set is a number of its own. Of a set whose first results lack a row others count. With
    the option `when` ("dynamic > fixed 0.25") sets count on which one row is better than another on average. With the
    option `second` that row must be the best of the others; none of the `rivals` may be as good in everything.
    """
    ours = case.options.get("ours", OURS)
    parts, notes, same = _parts(results, case, ours)
    at_most: Word = "reproduced"
    if second := case.options.get("second"):
        ((_, (one, *_)),) = _sources(results, case).items()
        ranks = scored(one, "rank")[0].groupby("label")["rank"].mean().drop(ours)
        notes.append(f"Of the others {ranks.idxmin()} has the best mean.")
        at_most = "reproduced" if ranks.idxmin() == second else "direction only"
    for rival in _listed(case.options.get("rivals", "")):
        try:
            found = _parts(results, case, rival)[0]
        except UnavailableError:
            continue
        if found.keys() == parts.keys() and all(one.low > case.margin for one in found.values()):
            notes.append(f"As good is {rival}.")
            at_most = "not reproduced"
        elif at_most == "reproduced" and not any(one.high < case.margin for one in found.values()):
            at_most = "undecided"
    return Measured(parts, " ".join(notes), same, at_most)


def _parts(results: Results, case: Case, label: str) -> tuple[dict[str, Estimate], list[str], bool]:
    """Return by how much a row is better, for each score or set; what the reason says; whether data are the paper's."""
    scores, each = case.options.get("score", "main").split(), "each" in case.options
    found = {score: _gaps(results, case, label, score) for score in scores}
    used = [one for _, of_score in found.values() for one in of_score]
    if each:
        gaps = {f"{name} {score}" if len(scores) > 1 else name: one
                for score, (by_set, _) in found.items() for name, one in by_set.items()}  # fmt: skip
        parts = {name: over([*one.values()], worst_of=len(gaps)) for name, one in gaps.items()}
        return parts, [], all(one.own for one in used)
    if (texts := case.study == "table2") and len({one.ranked for one in used}) > 1:
        raise UnavailableError("the models have scores of different tasks of GLUE")
    parts = {
        score if len(scores) > 1 else "": over_models(by_set) if texts else over_sets(by_set, len(scores))
        for score, (by_set, _) in found.items()
    }
    first = found[scores[0]][0]
    notes = [f"By set: {each_in_words(first)}."] if len(scores) == 1 and (len(first) > 1 or used[0].table) else []
    return parts, notes, all(one.own for one in used)


def _gaps(results: Results, case: Case, label: str, score: str) -> tuple[dict[str, Differences], list[Source]]:
    """Return by set how much better a row is than others in a score, and the results that say so."""
    gaps, used, missing, failed = {}, [], [], False
    for name, sources in _sources(results, case).items():
        try:
            gaps[name], one = _first_gaps(sources, case, label, score)
            used.append(one)
        except (UndecidableError, UnavailableError) as error:
            failed = failed or isinstance(error, UndecidableError)
            missing.append(f"{name}: {error}" if name else str(error))
    if not gaps and failed:
        raise UndecidableError(f"The condition of the sentence holds on no set ({'; '.join(missing)}).")
    if not gaps:
        raise UnavailableError("; ".join(missing))
    return gaps, used


def _sources(results: Results, case: Case) -> Sources:
    """Return the runs of the case's studies, of all sets or models, or of one (option `only`)."""
    only, found = case.options.get("only"), sources_of(results, case.study)
    if only is not None and only not in found:
        raise UnavailableError(f"{case.study} has no runs of {only}")
    return found if only is None else {only: found[only]}


def _first_gaps(sources: tuple[Source, ...], case: Case, label: str, score: str) -> tuple[Differences, Source]:
    """Return the differences in the first results on a set that have its rows, and these results.

    In the place of the row among the others is the one that the sentence is about.
    """
    ours, when = case.options.get("ours", OURS), case.options.get("when")
    others = ", ".join(ours if other == label else other for other in _listed(case.options["others"]))
    lacking: MissingRowsError | None = None
    for one in sources:
        try:
            runs, column = scored(one, score)
            gaps = gaps_of(runs, label, rivals_of(runs, others), column, higher=score != "rank")
            if when is not None:
                alone, baseline = when.split(" > ")
                if sum(gaps_of(runs, alone, [baseline], column).values()) <= 0:
                    raise UndecidableError(f"{alone} alone is no better than {baseline}")
            return gaps, one
        except MissingRowsError as error:
            lacking = lacking or error
    assert lacking is not None
    raise lacking


def _listed(labels: str) -> list[str]:
    return [label.strip() for label in labels.split(",") if label.strip()]


def widths(results: Results, case: Case) -> Measured:
    """Measure the shape of a score over the ratio for every model: what one ratio gains over another, by seed.

    The option `shape` is "gain", the best larger ratio over the lowest; "fall", the lowest over the highest; the
    opposite of either, with a minus; "ends", each end over the best inner ratio (of errors); or "late fall", the middle
    over the highest ratio, or a step up between neighbours of the upper half that is shown. The best ratio of a seed is
    chosen on the others.
    """
    models = _models(results, case)
    parts: dict[str, Estimate] = {}
    for name, runs in models.items():
        scores = _by_ratio(runs, case.columns[0])[1]
        for end, gaps, count in _shape(scores, case.options["shape"], len(models)):
            parts[f"{name} {end}".strip()] = over(gaps, count, worst_of=len(models) * (2 if end else 1))
    return Measured(parts)


def _shape(scores: Scores, shape: str, models: int) -> Iterator[tuple[str, Values, int]]:
    """Yield the name of an end, the differences by seed, and of how many steps they were chosen."""
    first, last, sign = scores[:, 0], scores[:, -1], -1 if shape.startswith("-") else 1
    if shape.endswith("gain"):
        yield "", sign * (best_fixed(scores[:, 1:]).partner(first) - first), 1
    elif shape in ("fall", "-fall"):
        yield "", sign * (first - last), 1
    elif shape == "ends":
        best = best_fixed(scores[:, 1:-1], higher_is_better=False)
        yield from (("low end", first - best.partner(first), 1), ("high end", last - best.partner(last), 1))
    else:
        half = scores[:, scores.shape[1] // 2 :]
        steps = list((half[:, :-1] - half[:, 1:]).T)
        up = [one for one in steps if over(one, models * len(steps)).high < 0]
        yield ("", up[0], len(steps)) if up else ("", half[:, 0] - last, 1)


def _models(results: Results, case: Case) -> dict[str, pd.DataFrame]:
    """Return the runs by model (option `by`), from the smallest on (option `size`)."""
    rows = rows_of(results, case)
    by = case.options["by"]
    size = _evaluated(rows, case.options.get("size", by))
    return {str(group[by].iloc[0]): group for _, group in rows.groupby(size)}


def _by_ratio(runs: pd.DataFrame, score: str) -> "tuple[Values, Scores, pd.Index[int]]":
    """Return the ratios, a score of each seed and ratio, and the seeds, which have all of them."""
    if score not in runs or runs[score].dtype.kind not in "fi":
        raise UnavailableError(f"the runs have no {score}")
    scores, ratios, seeds = by_seed(runs, score)
    if len(seeds) < 2 or len(ratios) < 3:
        raise UnavailableError(f"{score}: {len(seeds)} seeds of {len(ratios)} ratios decide nothing")
    return np.array(ratios), scores, seeds


def best_ratio(results: Results, case: Case) -> Measured:
    """Measure best ratios under each seed, known up to a step of their grid.

    The option `scores` lists columns, of which one that begins with a minus is an error; "tasks" are those of GLUE that
    all runs have. The option `compare` is "size", the largest model minus the smallest for every score; "task", one
    score minus another for every model, of either sign; or "level".
    """
    models, compare = _models(results, case), case.options["compare"]
    scores = case.options["scores"].split()
    if scores == ["tasks"]:
        scores = [
            one for one in GLUE_ACCURACIES if all(one in runs and runs[one].notna().all() for runs in models.values())
        ]
    if (compare == "size" and len(models) < 2) or len(scores) < 1 + (compare == "task"):
        raise UnavailableError(
            f"{case.study} has {len(models)} models and {len(scores)} tasks, and several are compared"
        )
    best = {(name, score): _best(runs, score) for name, runs in models.items() for score in scores}
    step = max(float(np.diff(sorted(runs["ratio"].unique())).max()) for runs in models.values())
    if compare == "level":
        return Measured({name: over(one.to_numpy(float), grid=step / 2) for (name, _), one in best.items()})
    note = ", ".join(f"{one.mean():.2f} ({name})" for (name, _), one in best.items()) if len(scores) == 1 else ""
    titles = {score: GLUE_ACCURACIES.get(score, score) for score in scores}
    if compare == "size":
        small, large = next(iter(models)), list(models)[-1]
        gaps = {titles[score]: (best[large, score], best[small, score]) for score in scores}
        counts = {"worst_of": len(gaps)}
    else:
        pairs = list(itertools.combinations(scores, 2))
        gaps = {
            f"{name}, {titles[a]} minus {titles[b]}" if len(pairs) > 1 else name: (best[name, a], best[name, b])
            for name in models
            for a, b in pairs
        }
        counts = {"comparisons": 2 * len(gaps)}
    parts = {name: over(_shared(one, other), **counts, grid=step) for name, (one, other) in gaps.items()}
    return Measured(parts, f"The best ratios: {note}." if note else "")


def _shared(first: "pd.Series[float]", second: "pd.Series[float]") -> Values:
    """Return the differences under the seeds that both have."""
    gaps = (first - second).dropna().to_numpy(float)
    if not len(gaps):
        raise UnavailableError("no seed has both scores at every ratio")
    return np.asarray(gaps)


def _best(runs: pd.DataFrame, score: str) -> "pd.Series[float]":
    ratios, scores, seeds = _by_ratio(runs, score.lstrip("-"))
    if not np.ptp(scores, axis=1).all():
        raise UndecidableError("The score is the same at all ratios under a seed, which has no best one.")
    return pd.Series(best_ratios(scores, list(ratios), higher=not score.startswith("-")), index=seeds)


def jump(results: Results, case: Case) -> Measured:
    """Measure the largest step of a score between neighbouring ratios, for every model.

    It is sudden if it is half of the whole rise, and each model must have it at a place of its own.
    """
    parts, places, sudden = {}, [], True
    models = _models(results, case)
    for name, runs in models.items():
        ratios, scores, _ = _by_ratio(runs, case.columns[0])
        _best(runs, case.columns[0])
        steps, mean = np.diff(scores, axis=1), scores.mean(0)
        parts[name] = over(best_fixed(steps).partner(np.zeros(len(steps))), worst_of=len(models))
        places.append(float(ratios[1:][steps.mean(0).argmax()]))
        sudden = sudden and bool(steps.mean(0).max() >= 0.5 * (mean.max() - mean[0]))
    sudden = sudden and len(set(places)) == len(places)
    note = f"The largest step is to: {', '.join(f'{place:g}' for place in places)}."
    return Measured(parts, note, at_most="reproduced" if sudden else "direction only")


MEASURES: Mapping[str, Measure] = {
    one.__name__: one
    for one in (
        points, rises, deeper, later, another_sample, values, deviation, share, number, schemes, widths, best_ratio,
        jump,
    )
}  # fmt: skip
"""Measures by their names."""
