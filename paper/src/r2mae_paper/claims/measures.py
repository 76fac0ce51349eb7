"""From tables to numbers: what the cases of claims name as their measure.

Most serve many claims. The last dozen compute what one sentence speaks of.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, cast

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

WITHIN = 2.0, 10.0
"""A formula describes a simulation if half of the points deviate by at most the first, and all by the second, in %."""


def rows_of(results: Results, case: Case) -> pd.DataFrame:
    """Return the rows of a case's tables that count, and have a number in each of its columns; `study` names the table.

    Raises
    ------
    UnavailableError
        If there are none.
    """
    tables = [results.table(one, *case.columns, name=case.table).assign(study=one) for one in case.study.split()]
    rows = pd.concat(tables).dropna(subset=list(case.columns))
    if case.where:
        rows = rows.query(case.where, engine="python")
    if not len(rows):
        raise UnavailableError(f"{case.study} has no rows with {case.where or 'numbers'}")
    return rows


def _evaluated(rows: pd.DataFrame, expression: str) -> Values:
    """Return an expression of columns for every row."""
    return np.asarray(rows.eval(expression, engine="python"), dtype=float)


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

    def gap(self, place: int, other: int, comparisons: int = 1) -> Estimate:
        """Return by how much the risk at one place is above that at another one, corrected for a choice of several."""
        mean = float(self.risk[place] - self.risk[other])
        return of_errors(mean, self.error[place], self.error[other], comparisons=comparisons)


def _families(results: Results, case: Case) -> dict[str, list[Curve]]:
    """Return the curves over the ratio of each group (option `by`), in the order of a signal (option `order`).

    The columns are the risk, its standard error, and perhaps the null risk, by which both are divided.
    """
    rows = rows_of(results, case).sort_values("ratio", kind="stable")
    by, order = case.options.get("by"), case.options.get("order")
    families = {}
    for name, group in rows.groupby(by, sort=False) if by else [("", rows)]:
        signals = group.groupby(group[order].round(4), sort=True) if order else [("", group)]
        each = (own.drop_duplicates("ratio") for _, own in signals)  # equal signals count once
        families[str(name)] = [_curve(own, case) for own in each]
    return families


def _curve(rows: pd.DataFrame, case: Case) -> Curve:
    risk, error, *null = (rows[column].to_numpy(float) for column in case.columns)
    scale = null[0][0] if null else 1.0
    return Curve(rows["ratio"].to_numpy(float), risk / scale, error / scale)


def _named(name: str, place: object) -> str:
    return f"{name}, {place}" if name else str(place)


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


def inner(results: Results, case: Case) -> Measured:
    """Measure by how much the lower end of the strongest signal's curve is above its lowest inner point.

    The interval is corrected for the number of inner points, of which the lowest was chosen.
    """
    parts = {}
    for name, (*_, own) in _families(results, case).items():
        count = len(own.risk)
        low, end = int(own.risk[1:-1].argmin()) + 1, 0 if own.risk[0] <= own.risk[-1] else count - 1
        parts[_named(name, f"p = {own.ratio[low]:g}")] = own.gap(end, low, max(count - 2, 1))
    return Measured(parts, f"The lowest risk is at: {'; '.join(parts)}.")


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


def descent(results: Results, case: Case) -> Measured:
    """Measure the largest descent of the risk below its null risk, as a share of it."""
    found = _families(results, case)
    return Measured({name: Estimate(1 - float(own.risk.min())) for name, (own, *_) in found.items()})


def lowest(results: Results, case: Case) -> Measured:
    """Measure the lowest risk."""
    ((own,),) = _families(results, case).values()
    place = int(own.risk.argmin())
    return Measured({"": of_errors(float(own.risk[place]), own.error[place])}, f"It is at p = {own.ratio[place]:g}.")


def transition(results: Results, case: Case) -> Measured:
    """Measure by how much the risk next to p = γ is above the lowest on that side, on both sides."""
    ((own,),) = _families(results, case).values()
    gamma = float(rows_of(results, case)["gamma"].iloc[0])
    parts = {}
    for name, side, nearest in (("below", own.ratio < gamma - 1e-9, -1), ("above", own.ratio > gamma + 1e-9, 0)):
        place = int(np.flatnonzero(side)[nearest])
        others = np.setdiff1d(np.flatnonzero(side), place)
        parts[name] = own.gap(place, int(others[own.risk[others].argmin()]), len(others))  # the lowest was chosen
    return Measured(parts)


def degenerate_ends(results: Results, case: Case) -> Measured:
    """Measure how far the strongest signal's risk at the highest ratio is above the null risk.

    At the lowest ratio less than a quarter of the descent must be behind it.
    """
    strongest = {name: own for name, (*_, own) in _families(results, case).items()}
    begun = max(float((1 - own.risk[0]) / (1 - own.risk.min())) for own in strongest.values())
    parts = {name: of_errors(float(own.risk[-1] - 1), own.error[-1]) for name, own in strongest.items()}
    note = f"At the lowest ratio at most {100 * begun:.0f} % of the descent is behind it; less than 25 % is degenerate."
    return Measured(parts, note, at_most="reproduced" if begun < 0.25 else "not reproduced")


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


def bias_fall(results: Results, case: Case) -> Measured:
    """Measure the fall of the bias from the lowest ratio to that of the lowest risk, for every covariance.

    Where the lowest ratio has the lowest risk masking lowers nothing.
    """
    parts, lowered = {}, True
    for name, group in rows_of(results, case).groupby("model", sort=False):
        own = group.sort_values("ratio", ignore_index=True)
        best = int((own["bias"] + own["variance"]).argmin())
        lowered = lowered and best > 0
        fall, errors = float(own["bias"][0] - own["bias"][best]), own["bias_error"][[0, best]]
        parts[str(name)] = of_errors(fall, *errors, draws=int(own["draws"][0]))
    return Measured(parts, at_most="reproduced" if lowered else "not reproduced")


def largest_bias(results: Results, case: Case) -> Measured:
    """Measure the largest bias over the ratios for every covariance; the interval is corrected for their number."""
    parts = {}
    for name, own in rows_of(results, case).groupby("model", sort=False):
        most = own.loc[own["bias"].idxmax()]
        bias, error = float(most["bias"]), float(most["bias_error"])
        parts[str(name)] = of_errors(bias, error, comparisons=len(own), draws=int(most["draws"]))
    return Measured(parts)


def disparity(results: Results, case: Case) -> Measured:
    """Measure for which share of strengths magnitudes differ more over p > 0.5 than over p < 0.5."""
    rows, columns = rows_of(results, case), list(case.columns)
    sides = [rows[side].groupby("delta")[columns].mean() for side in (rows["ratio"] > 0.5, rows["ratio"] < 0.5)]
    grows = (sides[0] < sides[1]).all(axis="columns")
    note = f"It does at δ = {', '.join(f'{delta:g}' for delta in grows.index[grows])}." if grows.any() else ""
    return Measured({"": Estimate(float(grows.mean()))}, note)


def plateau(results: Results, case: Case) -> Measured:
    """Measure the width of a plateau by an expression, for both readings of the model, in the samples of each."""
    step, parts = float(case.options.get("grid", 0)), {}
    for reading, rows in rows_of(results, case).groupby("reading", sort=False):
        found = over(_evaluated(rows, case.options["of"]))
        low, high = (found.low, found.high) if found.known else (found.mean, found.mean)  # all samples alike
        parts[f"reading {reading}"] = replace(found, low=low, high=high + step, grid=step)
    return Measured(parts)


def values(results: Results, case: Case) -> Measured:
    """Measure the mean of an expression over the rows.

    With the option `printed` a second part is its difference from what the paper's table has for a covariance model, by
    Welch's interval.
    """
    ours = _evaluated(rows_of(results, case), case.options["of"])
    parts = {"": over(ours)}
    if "printed" in case.options and parts[""].known:
        table = published(case.study)
        printed = table.entries[cast(Model, case.options["printed"])]["r2mae"].to_numpy()
        apart = stats.ttest_ind(ours, printed, equal_var=False).confidence_interval()
        gap = float(np.mean(ours) - np.mean(printed))
        parts["minus the printed ones"] = Estimate(gap, float(apart.low), float(apart.high))
    return Measured(parts)


def deviation(results: Results, case: Case) -> Measured:
    """Measure the median deviation of a simulation from a formula in %; it must be a fit by :data:`WITHIN`.

    The columns are the simulation, the formula, and perhaps a second simulation, which must fit, too.
    """
    rows = rows_of(results, case)
    simulated, predicted, *others = (rows[column].to_numpy(float) for column in case.columns)
    off, *more = (100 * np.abs(one / predicted - 1) for one in (simulated, *others))
    fits = [float(np.median(one)) <= WITHIN[0] and float(one.max()) <= WITHIN[1] for one in (off, *more)]
    note = f"The largest deviation of {len(off)} points is {off.max():.1f} %."
    if more:
        note += f" With one design it is {more[0].max():.1f} %, and the median {np.median(more[0]):.1f} %."
    note += f" Half within {WITHIN[0]:g} % and all within {WITHIN[1]:g} % count as a fit."
    at_most: Word = "not reproduced" if not fits[0] else "reproduced" if all(fits) else "direction only"
    return Measured({"": Estimate(float(np.median(off)))}, note, at_most=at_most)


def share(results: Results, case: Case) -> Measured:
    """Measure the share of rows for which an expression holds."""
    holds = _evaluated(rows_of(results, case), case.options["of"])
    return Measured({"": share_of(int(holds.sum()), len(holds))}, f"It holds for {holds.sum():.0f} of {len(holds)}.")


def largest(results: Results, case: Case) -> Measured:
    """Measure the largest value of a column, without its sign; with the option `spread` the largest over the smallest.

    Of several rows with the same value in the column of the option `first` the first one counts.
    """
    rows = rows_of(results, case)
    rows = rows.drop_duplicates(case.options["first"]) if "first" in case.options else rows
    column = rows[case.columns[0]].abs()
    return Measured({"": Estimate(float(column.max() / column.min() if "spread" in case.options else column.max()))})


def schemes(results: Results, case: Case) -> Measured:
    """Measure how much better a row (option `ours`) is than another or the best of `others`, in a `score`.

    The mean is over the sets of cells that have it, for other sets too; over models for these alone; else over seeds.
    Of a set whose first results lack a row others count. With the option `when` ("dynamic > fixed 0.25") sets count on
    which one row is better than another on average. With the option `second` that row must be the best of the others.
    """
    ours, others = case.options.get("ours", OURS), case.options["others"]
    score, only = case.options.get("score", "main"), case.options.get("only")
    gaps, used, missing, failed = {}, [], [], 0
    for name, sources in sources_of(results, case.study).items():
        if only not in (None, name):
            continue
        try:
            gaps[name], one = _first_gaps(
                sources, ours, others, score, higher=score != "rank", when=case.options.get("when")
            )
            used.append(one)
        except UndecidableError as error:
            failed += 1
            missing.append(f"{name}: {error}" if name else str(error))
        except UnavailableError as error:
            missing.append(f"{name}: {error}")
    if not gaps and failed:
        raise UndecidableError(f"The condition of the sentence holds on no set ({'; '.join(missing)}).")
    if not gaps:
        raise UnavailableError("; ".join(missing) or f"{case.study} has no runs of {only}")
    texts = case.study == "table2"
    if len({one.ranked for one in used}) > 1 and texts:
        raise UnavailableError("the models have scores of different tasks of GLUE")
    notes = [f"By set: {each_in_words(gaps)}."] if len(gaps) > 1 or used[0].table else []
    at_most: Word = "reproduced"
    if second := case.options.get("second"):
        ranks = scored(used[0], score)[0].groupby("label")["rank"].mean().drop(ours)
        notes.append(f"Of the others {ranks.idxmin()} has the best mean.")
        at_most = "reproduced" if ranks.idxmin() == second else "direction only"
    found = over_models(gaps) if texts else over_sets(gaps, int(case.options.get("comparisons", 1)))
    return Measured({"": found}, " ".join(notes), all(one.own for one in used), at_most)


def _first_gaps(
    sources: tuple[Source, ...], ours: str, others: str, score: str, *, higher: bool = True, when: str | None = None
) -> tuple[Differences, Source]:
    """Return the differences in the first results on a set that have its rows, and these results."""
    lacking: MissingRowsError | None = None
    for one in sources:
        try:
            runs, column = scored(one, score)
            gaps = gaps_of(runs, ours, rivals_of(runs, others), column, higher=higher)
            if when is not None:
                alone, baseline = when.split(" > ")
                if sum(gaps_of(runs, alone, [baseline], column).values()) <= 0:
                    raise UndecidableError(f"{alone} alone is no better than {baseline}")
            return gaps, one
        except MissingRowsError as error:
            lacking = lacking or error
    assert lacking is not None
    raise lacking


def three_tasks(results: Results, case: Case) -> Measured:
    """Measure how much better R²MAE is than the best other scheme, for each model at MNLI, QQP and SST-2."""
    gaps, same = {}, True
    for name, (one,) in sources_of(results, case.study).items():
        for task in ("mnli", "qqp", "sst2"):
            gaps[f"{name} {task}"] = _first_gaps((one,), OURS, "all", f"{task}_accuracy")[0]
        same = same and one.own
    parts = {name: over([*one.values()], worst_of=len(gaps)) for name, one in gaps.items()}
    return Measured(parts, same=same)


def every_domain(results: Results, case: Case) -> Measured:
    """Measure a scheme minus the best fixed ratio on all data that have both; no rival may be better on all of them."""
    sources: dict[str, tuple[Source, ...]] = {}
    for study in ("table1", "table2", "table3", "table4 table6"):
        try:
            sources |= sources_of(results, study)
        except UnavailableError:
            continue  # the sentence is about what there is
    found: dict[str, dict[str, Differences]] = {OURS: {}, "dynamic": {}, "mdlm": {}, "cl": {}}
    for (label, gaps), (name, (one, *_)) in itertools.product(found.items(), sources.items()):
        try:
            gaps[name] = gaps_of(one.runs, label, rivals_of(one.runs, "fixed"), one.main)
        except UnavailableError:
            continue
    ours = found.pop(OURS)
    if not ours:
        raise UnavailableError("no comparison of R²MAE with fixed ratios has run")
    as_good = [label for label, gaps in found.items()
               if set(gaps) == set(ours) and all(over([*one.values()]).low > 0 for one in gaps.values())]  # fmt: skip
    parts = {name: over([*gaps.values()], worst_of=len(ours)) for name, gaps in ours.items()}
    note = f"Better on all are also: {', '.join(as_good)}." if as_good else ""
    return Measured(parts, note, False, "not reproduced" if as_good else "reproduced")


def reconstruction(results: Results, case: Case) -> Measured:
    """Measure by how much R²MAE is better than the best other scheme at each ratio of its range.

    Each fixed ratio must be further than the margin from the best at one of them; intervals are corrected for all.
    """
    ratios, fixed = (0.1, 0.2, 0.3, 0.5), ("fixed 0.10", "fixed 0.25", "fixed 0.50")
    rows = (OURS, *fixed, "mdlm", "dynamic", "cl", "cl-k0")

    def behind(label: str, ratio: float) -> tuple[Estimate, bool]:
        others = ", ".join(other for other in rows if other != label)
        options = {"ours": label, "others": others, "score": f"reconstruction_r_{ratio:g}"}
        measured = schemes(results, replace(case, options={**options, "comparisons": str(len(ratios))}))
        return measured.parts[""], measured.same

    ours = {f"p = {ratio:g}": behind(OURS, ratio) for ratio in ratios}
    words: list[Word] = ["reproduced"]
    for label in fixed:
        found = [behind(label, ratio)[0] for ratio in ratios]
        if not any(one.high < case.margin for one in found):
            words.append("not reproduced" if all(one.low > case.margin for one in found) else "undecided")
    at_most: Word = "not reproduced" if "not reproduced" in words else words[-1]
    return Measured(
        {name: one for name, (one, _) in ours.items()}, same=all(same for _, same in ours.values()), at_most=at_most
    )


def widths(results: Results, case: Case) -> Measured:
    """Measure the shape of a score over the ratio for every model: what one ratio gains over another, by seed.

    The option `shape` is "gain", the best larger ratio over the lowest, or "no gain", the opposite; "fall", the lowest
    over the highest, or "rise", the opposite; "ends", each end over the best inner ratio (of errors); or "late fall",
    the middle over the highest ratio, or a step up between neighbours of the upper half that is shown. The best ratio
    of a seed is chosen on the others.
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
    first, last = scores[:, 0], scores[:, -1]
    if shape in ("gain", "no gain"):
        gain = best_fixed(scores[:, 1:]).partner(first) - first
        yield "", gain if shape == "gain" else -gain, 1
    elif shape in ("fall", "rise"):
        yield "", first - last if shape == "fall" else last - first, 1
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
        rises, inner, deeper, later, descent, lowest, values, deviation, share, largest, schemes, widths, best_ratio,
        three_tasks, every_domain, reconstruction, jump, transition, disparity, plateau, another_sample,
        degenerate_ends, bias_fall, largest_bias,
    )
}  # fmt: skip
"""Measures by their names."""
