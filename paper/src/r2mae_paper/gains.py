"""What rows of runs gain over others: paired over seeds on each set of data, and pooled over sets."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from r2mae.evaluation.pooled import Pooled, pooled_effect
from r2mae.evaluation.statistics import best_fixed, paired_difference
from r2mae_paper.rows import TableRow, difference_columns, mean_columns

if TYPE_CHECKING:
    Scores: TypeAlias = Mapping[str, pd.Series[float]]
    """A score by seed, of each row by its label."""

    References: TypeAlias = Callable[[Scores, str], Mapping[str, pd.Series[float]]]
    """Takes the score of all rows of a set, and a label; returns what that row is compared with, by name."""

BEST_FIXED, BLIND = "best_fixed", "blind"
"""What rows are compared with: the best of the fixed ratios, and one that was chosen blindly."""

Gains: TypeAlias = dict[tuple[str, str], dict[str, "pd.Series[float]"]]
"""By row and by what it is compared with: for each set of data the gain under each seed, higher is better."""


def by_label(results: pd.DataFrame, score: str) -> "dict[str, pd.Series[float]]":
    """Return a score by seed for each row of a table of runs that has it."""
    found = {
        str(label): group.set_index("seed")[score].dropna() for label, group in results.groupby("label", sort=False)
    }
    return {label: values for label, values in found.items() if len(values)}


def best_of(
    fixed: "Sequence[pd.Series[float]]", mine: "pd.Series[float]", *, higher: bool
) -> "pd.Series[float] | None":
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
    rows: "Scores", label: str, *, fixed: Sequence[str], blind: str, higher: bool = True
) -> "dict[str, pd.Series[float]]":
    """Return what a row is compared with: the best of the fixed ratios, and one of them, which is chosen blindly."""
    best = best_of([rows[name] for name in fixed if name in rows], rows[label], higher=higher)
    found = {} if best is None else {BEST_FIXED: best}
    return found | ({BLIND: rows[blind]} if blind in rows and blind != label else {})


def compared_rows(
    results: pd.DataFrame, score: str, references: "References", *, higher: bool, counted: bool = False
) -> list[TableRow]:
    """Return for each row of a set its mean with its interval, and its differences from its references.

    Differences are paired over seeds, in columns that begin with ``vs_`` and the name of the reference.

    Parameters
    ----------
    results : DataFrame
        A line a run, with its `label` and `seed`.
    score : str
        Of the results.
    references : callable
    higher : bool
        Whether a higher score is better.
    counted : bool
        Whether there are columns with the number of pairs.
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


def gains_by_set(results: pd.DataFrame, score: str, references: "References", *, higher: bool = True) -> Gains:
    """Return what every row gains over its references on each set, paired over seeds.

    Parameters
    ----------
    results : DataFrame
        A line a run, with its `set`, `label` and `seed`.
    score : str
        Of the results; where there is none, there are no gains.
    references : callable
    higher : bool
        Whether a higher score is better.
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


def pooled(by_set: Sequence[Any]) -> Pooled:
    """Return the average over sets (a random-effects model), each with the mean of its seeds and its standard error."""
    errors = [float(np.std(values, ddof=1) / np.sqrt(len(values))) for values in by_set]
    return pooled_effect([float(np.mean(values)) for values in by_set], errors)


def pooled_rows(gains: "Mapping[tuple[str, str], Mapping[str, Any]]") -> list[TableRow]:
    """Return for each row and what it is compared with the average gain over sets, or that on the only set there is.

    Over sets it is that of a random-effects model. On a single set the interval is over its seeds, which says nothing
    of other sets, and `between_sets` is NaN. Verdicts are not corrected for their number. Sets with fewer than two
    seeds have no error, and are left out.
    """
    rows: list[TableRow] = []
    for (label, against), by_set in gains.items():
        usable = [np.asarray(gain, dtype=float) for gain in by_set.values() if len(gain) > 1]
        if not usable:
            continue
        found = pooled(usable)
        low, high = found.low, found.high
        verdict = "better" if low > 0 else "worse" if high < 0 else "undecided"
        if found.sets == 1:
            alone = paired_difference(usable[0], np.zeros(len(usable[0])))
            low, high, verdict = alone.low, alone.high, alone.verdict
        row: TableRow = {"label": label, "against": against, "sets": found.sets, "gain": found.mean, "low": low}
        rows.append({**row, "high": high, "between_sets": found.between, "is": verdict})
    return rows


def gains_over_fixed(results: pd.DataFrame, score: str, fixed: Sequence[str], blind: str) -> Gains:
    """Return what every row gains over the best fixed ratio and over a blind one; of the score higher is better."""
    return gains_by_set(results, score, partial(best_and_blind, fixed=fixed, blind=blind))
