"""What rows of runs gain over others: paired over seeds on each set of data, and pooled over sets.

Rules for choosing the mask ratio are judged by their regret: what they lose to the best fixed ratio of a full sweep. A
rule may measure the data of a user, by a short sweep or by their spectrum; nothing else in it depends on the sets on
which it is judged. The best fixed ratio of a seed is chosen on the other seeds, by the score in question.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import optimize, stats

from r2mae.evaluation.statistics import best_fixed, judge, mean_interval, paired_difference
from r2mae.theory.advise import advise
from r2mae.theory.sample import from_data
from r2mae_paper.drawing import BLACK, COLOURS, Axes, Figure, interval, name_rows, panels, quotient_axis
from r2mae_paper.rows import TableRow, difference_columns, mean_columns, select, unique
from r2mae_paper.study import compared

Scores: TypeAlias = Mapping[str, pd.Series]
"""A score by seed, of each row by its label."""
References: TypeAlias = Callable[[Scores, str], Scores]
"""Takes the score of all rows of a set, and a label; returns what that row is compared with, by name."""
_ROUNDING, _NEGLIGIBLE = 1e-12, 1e-6
CEILING = 0.95
"""A set is at its ceiling if every row has this share of the highest possible score; 0.05 is left to gain."""
BEST_FIXED, BLIND = "best_fixed", "blind"
"""What rows are compared with: the best of the fixed ratios, and one that was chosen blindly."""

Gains: TypeAlias = dict[tuple[str, str], dict[str, pd.Series]]
"""By row and by what it is compared with: for each set of data the gain under each seed, higher is better."""


def by_label(results: pd.DataFrame, score: str) -> dict[str, pd.Series]:
    """Return a score by seed for each row of a table of runs that has it."""
    found = {
        str(label): group.set_index("seed")[score].dropna() for label, group in results.groupby("label", sort=False)
    }
    return {label: values for label, values in found.items() if len(values)}


def best_of(fixed: Sequence[pd.Series], mine: pd.Series, *, higher: bool) -> pd.Series | None:
    """Return what a row is paired with: the best fixed ratio under each of its seeds, chosen on its other seeds.

    None where there are fewer than two ratios, or fewer than two of the seeds have every ratio. See
    :class:`r2mae.evaluation.statistics.BestFixed`.
    """
    if len(fixed) < 2:
        return None
    table = pd.concat(fixed, axis=1).dropna()
    table = table[table.index.isin(mine.index)]
    if len(table) < 2:
        return None
    best = best_fixed(table.to_numpy(), higher_is_better=higher)
    return pd.Series(best.partner(mine[table.index].to_numpy(float)), index=table.index)


def best_and_blind(
    rows: Scores, label: str, *, fixed: Sequence[str], blind: str, higher: bool = True
) -> dict[str, pd.Series]:
    """Return what a row is compared with: the best of the fixed ratios, and one of them, which is chosen blindly."""
    best = best_of([rows[name] for name in fixed if name in rows], rows[label], higher=higher)
    found = {} if best is None else {BEST_FIXED: best}
    return found | ({BLIND: rows[blind]} if blind in rows and blind != label else {})


def compared_rows(
    results: pd.DataFrame, score: str, references: References, *, higher: bool, counted: bool = False
) -> list[TableRow]:
    """Return for each row of a set its mean with its interval, and its differences from its references.

    Differences are paired over seeds, in columns that begin with ``vs_`` and the name of the reference; `counted` ones
    have the number of pairs, too. `results` has a line a run, with its `label` and `seed`; of the score higher is
    better with `higher`.
    """
    rows: list[TableRow] = []
    by_row = by_label(results, score)
    for label, mine in by_row.items():
        row: TableRow = {"label": label, "score": score, **mean_columns(mine)}
        for against, other in references(by_row, label).items():
            both = mine.index.intersection(other.index)
            if len(both):
                found = paired_difference(mine[both], other[both], higher_is_better=higher)
                row |= difference_columns(f"vs_{against}", found)
                row |= {f"vs_{against}_pairs": found.n} if counted else {}
        rows.append(row)
    return rows


def gains_by_set(results: pd.DataFrame, score: str, references: References, *, higher: bool = True) -> Gains:
    """Return what every row gains over its references on each set, paired over seeds.

    `results` has a line a run, with its `set`, `label` and `seed`; without the score there are no gains.
    """
    gains: Gains = {}
    for name, group in results.groupby("set", sort=False) if score in results else ():
        rows = by_label(group, score)
        for label, mine in rows.items():
            for against, other in references(rows, label).items():
                both = mine.index.intersection(other.index)
                gain = mine[both] - other[both]
                if len(both):
                    gains.setdefault((label, against), {})[str(name)] = gain if higher else -gain
    return gains


@dataclass(frozen=True)
class Pooled:
    """The average effect over sets."""

    mean: float
    low: float
    high: float
    """`mean`, `low`, `high`: the average of the sets' true effects, and its interval, NaN for a single set."""
    between: float
    """Estimated standard deviation of the true effects between sets."""
    sets: int
    """Number of sets."""
    largest_weight: float = 1.0
    """Share of the average that the set with the smallest errors has."""


def pooled_effect(effects: Any, errors: Any, *, confidence: float = 0.95) -> Pooled:
    """Average effects measured on several sets, with an interval that is valid for unmeasured sets, too.

    The model is eₖ = μ + uₖ + εₖ, with uₖ ~ N(0, τ²) between sets and εₖ ~ N(0, sₖ²) within. τ² is the estimate of
    Paule and Mandel. The interval of μ is that of Hartung and Knapp: its t has one degree of freedom less than the
    number of sets, and it is never narrower than the errors within sets allow. A standard error of 0 is replaced by the
    median of the others.
    """
    effect, error = np.asarray(effects, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if len(effect) == 1:
        return Pooled(float(effect[0]), float("nan"), float("nan"), float("nan"), 1)
    largest = max(float(error.max()), float(np.ptp(effect)))
    rounding = _ROUNDING * float(np.abs(effect).max())  # smaller differences are rounding errors
    if largest <= rounding:
        return Pooled(float(effect[0]), float(effect[0]), float(effect[0]), 0.0, len(effect))
    # The error of a set with equal differences is unknown: it gets the median error, not an infinite weight.
    known = error > _NEGLIGIBLE * largest
    variance = np.where(known, error, np.median(error[known]) if known.any() else _NEGLIGIBLE * largest) ** 2

    def excess(between: float) -> float:
        weight = 1 / (variance + between)
        return float((weight * (effect - np.average(effect, weights=weight)) ** 2).sum() - (len(effect) - 1))

    most = (float(np.ptp(effect)) + rounding) ** 2 * len(effect)
    between = float(optimize.brentq(excess, 0.0, most)) if excess(0.0) > 0 else 0.0
    weight = 1 / (variance + between)
    mean = float(np.average(effect, weights=weight))
    free = len(effect) - 1
    # Sets that agree better than their errors allow do so by chance: the factor is at least 1.
    scale = max((weight * (effect - mean) ** 2).sum() / free, 1.0) / weight.sum()
    half = float(stats.t.ppf((1 + confidence) / 2, free) * np.sqrt(scale))
    most_of_all = float(weight.max() / weight.sum())
    return Pooled(mean, mean - half, mean + half, float(np.sqrt(between)), len(effect), most_of_all)


def pooled(by_set: Sequence[Any], *, confidence: float = 0.95) -> Pooled:
    """Return the average over sets (a random-effects model), each with the mean of its seeds and its standard error."""
    errors = [float(np.std(values, ddof=1) / np.sqrt(len(values))) for values in by_set]
    return pooled_effect([float(np.mean(values)) for values in by_set], errors, confidence=confidence)


def sets_at_ceiling(results: pd.DataFrame, score: str) -> list[str]:
    """Return the sets at the ceiling of a score whose highest value is 1: where every row has :data:`CEILING` of it.

    Such a set tells nothing of how much a row can gain, and its small errors would give it most of the weight in an
    average over sets. The rule is about levels, not about differences, so it favours no row. The sets are logged, as
    averages of gains leave them out. Without the score there are none.
    """
    if score not in results:
        return []
    means = results.groupby(["set", "label"], sort=False)[score].mean().dropna()
    found = [str(name) for name, part in means.groupby("set", sort=False) if part.min() >= CEILING]
    for name in found:
        logging.getLogger("r2mae").warning(
            "averages of %s over sets are without %s, where every row has at least %g of 1", score, name, CEILING
        )
    return found


def pooled_rows(gains: Mapping[tuple[str, str], Mapping[str, Any]], ceiling: Collection[str] = ()) -> list[TableRow]:
    """Return for each row and what it is compared with the average gain over sets, or that on the only set there is.

    Over sets `gain` is that of a random-effects model, and `equal_gain` the average in which all sets count alike, with
    Student's interval over the sets. The model gives sets with small errors most of the weight (`largest_weight`), and
    its interval is then too narrow (``tests/evaluation/coverage.py``), so the verdict `is` is that of the second
    average. On a single set the interval is over its seeds, which says nothing of other sets, and `between_sets` is
    NaN. Verdicts are not corrected for their number.

    Left out are sets with fewer than two seeds, which have no error, and those at their `ceiling`, which `left_out`
    names.
    """
    rows: list[TableRow] = []
    for (label, against), by_set in gains.items():
        left_out = [name for name in by_set if name in ceiling]
        usable = [
            np.asarray(gain, dtype=float) for name, gain in by_set.items() if len(gain) > 1 and name not in ceiling
        ]
        if not usable:
            continue
        found = pooled(usable)
        low, high = found.low, found.high
        equal = mean_interval([float(gain.mean()) for gain in usable])
        verdict = judge(equal, higher_is_better=True).verdict
        if found.sets == 1:
            alone = paired_difference(usable[0], np.zeros(len(usable[0])))
            low, high, verdict = alone.low, alone.high, alone.verdict
        row: TableRow = {"label": label, "against": against, "sets": found.sets, "gain": found.mean, "low": low}
        row |= {"high": high, "between_sets": found.between, "largest_weight": found.largest_weight}
        row |= {"equal_gain": equal.mean, "equal_low": equal.low, "equal_high": equal.high}
        rows.append({**row, "is": verdict, "left_out": " ".join(left_out)})
    return rows


def gains_over_fixed(results: pd.DataFrame, score: str, fixed: Sequence[str], blind: str) -> Gains:
    """Return what every row gains over the best fixed ratio and over a blind one; of the score higher is better."""
    return gains_by_set(results, score, partial(best_and_blind, fixed=fixed, blind=blind))


ADVISED = {"directions": "advised_directions", "features": "advised_features"}
"""Columns of runs: the ratio that the closed form advises for their data."""

SWEEP = "one seed of each ratio, by masked error"
CLOSED_FORM = "closed form on the spectrum"
SETS = "all sets"
_AVERAGE = "average, with its interval"
GRID = np.round(np.linspace(0.02, 0.98, 49), 2)
"""Ratios among which the closed form chooses."""


def closed_form(values: Float[np.ndarray, "samples features"]) -> dict[str, float]:
    """Return the ratios at which masked ridgeless regression on these data has its lowest risk.

    For the leading directions, as a guide to representations; and for predicting features from each other, as a guide
    to reconstruction. Features that never vary are left out.
    """
    varying = np.asarray(values, dtype=np.float64)[:, np.ptp(values, axis=0) > 0]
    with compared():
        advice = advise(from_data(varying, scale=True), len(varying), ratios=GRID)
    directions, features = advice.directions, advice.features
    return {
        ADVISED["directions"]: directions.ratio_of_lowest(directions.mean),
        ADVISED["features"]: features.ratio_of_lowest(features.weighted),
    }


def rules_table(results: pd.DataFrame, objective: str, probe: str, others: Mapping[str, str]) -> list[TableRow]:
    """Return what each rule loses to the best fixed ratio, on each set and on average over sets.

    Regret is positive where the rule is worse: in percent of the error for the objective, the error over all missing
    fractions, by which the short sweep chooses; a difference of the probe, of which higher is better. `results` are
    runs of one kind of network: a line each, with `set`, `label`, `seed`, the two scores, and perhaps :data:`ADVISED`.
    Rows of fixed ratios are labelled "fixed 0.50"; `others` are those that are rules themselves, by the rule's name.
    """
    logs = results.assign(**{objective: np.log(results[objective].where(results[objective] > 0))})
    rows: list[TableRow] = []
    ceiling = sets_at_ceiling(results, probe)
    for score, kind, column in (
        (objective, "percent", ADVISED["features"]),
        (probe, "difference", ADVISED["directions"]),
    ):
        if score not in results or not results[score].notna().any():
            continue
        found: list[TableRow] = []
        for name, group in logs.groupby("set", sort=False):
            advised = float(group[column].iloc[0]) if column in group else float("nan")
            errors = by_label(group, objective)
            lost = regrets(by_label(group, score), errors, others, advised, higher=score == probe)
            found += [{"set": name, **one} for one in lost]
        averaged = _regret_rows(found, ceiling if score == probe else [])
        rows += [{"score": score, "unit": kind, **_in_unit(row, kind)} for row in averaged]
    return rows


def regrets(
    scores: Scores, errors: Scores, others: Mapping[str, str], advised: float, *, higher: bool
) -> list[TableRow]:
    """Return what each rule loses on one set; nothing if there are not two fixed ratios under two seeds.

    Taken are a score, and the error over all missing fractions, by seed for each row; labels of the rows that are rules
    themselves, by the name of the rule; and the ratio of the closed form, for which the nearest measured one stands, or
    NaN. A rule has its name, what it `lost` by seed, the ratios that it has `chosen`, if it chooses, and the `best`
    fixed ratios under the seeds, and whether one is the lowest or the highest of those that were tried.
    """
    fixed = {float(label.split()[1]): label for label in scores if label.startswith("fixed ")}
    present = {ratio: scores[label] for ratio, label in sorted(fixed.items())}
    table = pd.concat(list(present.values()), axis=1).dropna() if len(present) > 1 else pd.DataFrame()
    if len(table) < 2:
        return []
    tried = list(present)
    at = [tried[place] for place in best_fixed(table.to_numpy(), higher_is_better=higher).chosen]
    found = {rule: (scores[label], "") for rule, label in others.items() if label in scores}
    measured = {ratio: errors[label] for ratio, label in fixed.items() if label in errors}
    if measured:
        swept, ratios = _swept(present, measured, table.index)
        found[SWEEP] = swept, _listed(ratios)
    if np.isfinite(advised):
        nearest = min(present, key=lambda ratio: abs(ratio - advised))
        edge = ", the end of its grid" if advised in GRID[[0, -1]] else ""
        found[CLOSED_FORM] = present[nearest], f"{nearest:g} (advised {advised:.2f}{edge})"
    best_ratios = _listed(at) + (" (at the edge)" if {tried[0], tried[-1]} & set(at) else "")
    rows: list[TableRow] = []
    for rule, (mine, chosen) in found.items():
        best = best_of(list(present.values()), mine.dropna(), higher=higher)
        lost = mine[:0] if best is None else ((best - mine) * (1.0 if higher else -1.0)).dropna()
        rows.append({"rule": rule, "lost": lost.to_numpy(float) + 0.0, "chosen": chosen, "best": best_ratios})
    return rows  # 0.0 is added as there are no zeros with a minus sign


def _listed(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:g}" for ratio in sorted(set(ratios)))


def _swept(
    scores: Mapping[float, pd.Series], errors: Mapping[float, pd.Series], seeds: pd.Index
) -> tuple[pd.Series, list[float]]:
    """Return the score under each seed of the ratio whose masked error is lowest under the next seed."""
    following = np.roll(np.asarray(seeds), -1)
    ratios = [min(errors, key=lambda ratio: float(errors[ratio].get(other, np.inf))) for other in following]
    values = [float(scores[ratio].get(seed, np.nan)) for seed, ratio in zip(seeds, ratios, strict=True)]
    return pd.Series(values, index=seeds), ratios


def _regret_rows(found: Sequence[TableRow], ceiling: Collection[str]) -> list[TableRow]:
    """Return the mean of each rule's regrets by set, and their average over sets that are not at their ceiling."""
    rows: list[TableRow] = []
    for rule in unique(found, "rule"):
        own = [one for one in select(found, rule=rule) if len(one["lost"])]
        means: list[Any] = [(one["set"], 1, mean_interval(one["lost"]), one["chosen"], one["best"]) for one in own]
        several = [one["lost"] for one in own if len(one["lost"]) > 1 and one["set"] not in ceiling]
        if len(several) > 1:
            means.append((SETS, (average := pooled(several)).sets, average, "", ""))
        rows += [
            {"rule": rule, "set": name, "sets": sets, "regret": mean.mean, "low": mean.low, "high": mean.high,
             "chosen": chosen, "best_fixed": best}
            for name, sets, mean, chosen, best in means
        ]  # fmt: skip
    return rows


def in_percent(difference: float) -> float:
    """Return by how many percent a positive number is larger, from the difference of its logarithms."""
    return float(100 * np.expm1(difference))


def _in_unit(row: TableRow, kind: str) -> TableRow:
    """Return regrets as percent, from differences of logarithms; or as they are."""
    if kind == "difference":
        return row
    return {**row, **{key: in_percent(row[key]) for key in ("regret", "low", "high")}}


def draw_rules(rows: Sequence[TableRow], titles: Mapping[str, str]) -> Figure:
    """Draw what each rule loses: a mark for each set, and the average with its interval; a panel for each title."""
    shown = [score for score in titles if select(rows, score=score)]
    rules, sets = unique(rows, "rule"), [name for name in unique(rows, "set") if name != SETS]
    figure, panels_of = panels(len(shown), width=4.4, height=1.2 + 0.32 * len(rules))
    for number, (axes, score) in enumerate(zip(panels_of, shown, strict=True)):
        mine = select(rows, score=score)
        relative = mine[0]["unit"] == "percent"
        _regrets(axes, mine, rules, sets, relative)
        than = "over that of" if relative else "lost to"
        axes.set_xlabel(f"{titles[score]}:\n{than} the best fixed ratio\n(left: better)")
        name_rows(axes, rules if number == 0 else [""] * len(rules), float(relative))
    marks = {name: mark for axes in panels_of for mark, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = [name for name in (*sets, _AVERAGE) if name in marks]
    figure.legend([marks[name] for name in names], names, fontsize=7, loc="outside right upper")
    return figure


def _regrets(axes: Axes, rows: Sequence[TableRow], rules: Sequence[str], sets: Sequence[str], relative: bool) -> None:
    """Draw regrets; those in percent of an error as quotients of errors, whose axis is logarithmic."""
    above = 0.22 if select(rows, set=SETS) else 0.0  # room for the average
    for row in rows:
        place = rules.index(row["rule"])
        low, middle, high = (1 + row[key] / 100 if relative else row[key] for key in ("low", "regret", "high"))
        if row["set"] == SETS:
            interval(axes, middle, low, high, place, fmt="D", color=BLACK, markersize=5, label=_AVERAGE)
            count = f"{row['sets']} sets"
            axes.annotate(count, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=6)
        else:
            number = sets.index(row["set"])
            colour, mark = COLOURS[number % len(COLOURS)], "os^v"[number // len(COLOURS) % 4]
            axes.plot(middle, place - above, mark, color=colour, markersize=3.5, label=row["set"])
    if relative:
        quotient_axis(axes)
    else:
        axes.locator_params(axis="x", nbins=4)
