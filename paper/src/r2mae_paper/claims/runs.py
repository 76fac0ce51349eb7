"""Tables with a line a run: differences between rows that are paired by seed."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy import stats

from r2mae.evaluation.pooled import pooled_effect
from r2mae.evaluation.statistics import AVERAGE_RANK, best_fixed, rank_table
from r2mae_paper.by_ratio import best_ratios, by_seed
from r2mae_paper.claims.claim import typeset
from r2mae_paper.claims.judging import Interval, over
from r2mae_paper.claims.results import MissingRowsError, UnavailableError

if TYPE_CHECKING:
    import pandas as pd

Differences = dict[int, float]
"""By seed."""


def scores_of(runs: "pd.DataFrame", score: str) -> "pd.DataFrame":
    """Return a score with a line a seed and a column a row of the comparison; runs without the score are left out.

    Raises
    ------
    UnavailableError
        If no run has it.
    """
    if score not in runs or runs[score].dtype.kind not in "fi" or not runs[score].notna().any():
        raise UnavailableError(f"the runs have no {score}")
    return runs.dropna(subset=[score]).pivot_table(index="seed", columns="label", values=score)


def fixed_ratios(runs: "pd.DataFrame") -> list[str]:
    """Return the labels of fixed ratios."""
    return [str(label) for label in dict.fromkeys(runs.loc[runs["scheme"] == "fixed", "label"])]


def between(runs: "pd.DataFrame", first: str, second: str, score: str, *, higher: bool = True) -> Differences:
    """Return how much better one row is than another under each seed that both have.

    Raises
    ------
    UnavailableError
        If they share no seed.
    """
    table = scores_of(runs, score)
    for label in (first, second):
        if label not in table:
            raise MissingRowsError(f"there are no runs of {label}")
    both = table[[first, second]].dropna()
    if both.empty:
        raise UnavailableError(f"{first} and {second} share no seed")
    gaps = (both[first] - both[second]) * (1 if higher else -1)
    return dict(zip((int(seed) for seed in both.index), map(float, gaps), strict=True))


def over_best(
    runs: "pd.DataFrame", label: str, others: Sequence[str], score: str, *, higher: bool = True
) -> Differences:
    """Return how much better a row is than the best of others.

    The best is chosen for each seed by the mean over the other seeds, and the differences spread as this choice does:
    see :class:`r2mae.evaluation.statistics.BestFixed`.

    Raises
    ------
    UnavailableError
        If a row has no runs, or fewer than two seeds have all rows.
    """
    table = scores_of(runs, score)
    missing = [other for other in (label, *others) if other not in table]
    if missing or not others:
        raise MissingRowsError(f"there are no runs of {', '.join(missing) or 'rows to compare with'}")
    whole = table[[label, *others]].dropna()
    if len(whole) < 2:
        raise UnavailableError(f"{score}: fewer than two seeds have every row")
    best = best_fixed(whole[list(others)].to_numpy(float), higher_is_better=higher)
    mine = whole[label].to_numpy(float)
    gaps = (mine - best.partner(mine)) * (1 if higher else -1)
    return dict(zip((int(seed) for seed in whole.index), map(float, gaps), strict=True))


def ranks_of(runs: "pd.DataFrame", scores: Sequence[str]) -> "pd.DataFrame":
    """Return the average rank of every row under every seed; a row without one of the scores is left out."""
    import pandas as pd

    found = []
    for seed, rows in runs.dropna(subset=scores).groupby("seed"):
        ranked = rank_table(rows.set_index("label")[list(scores)], dict.fromkeys(scores, True))
        found += [{"label": label, "seed": seed, "rank": rank} for label, rank in ranked[AVERAGE_RANK].items()]
    return pd.DataFrame(found)


def over_seeds(differences: Differences) -> Interval:
    """Return the mean over seeds with its interval."""
    return over(list(differences.values()))


def over_sets(by_set: Mapping[str, Differences], comparisons: int = 1) -> Interval:
    """Return the average over sets, for sets that were not measured, too (a random-effects model).

    Of one set it is the interval over its seeds. It is corrected for the worst or the best of several comparisons.

    See Also
    --------
    r2mae.evaluation.pooled.pooled_effect : The model.
    """
    values = [np.array(list(one.values())) for one in by_set.values()]
    if len(values) == 1:
        return over(values[0], comparisons)
    means = [float(one.mean()) for one in values]
    if min(map(len, values)) < 2 or max(map(np.ptp, values)) <= 0:
        return float(np.mean(means)), math.nan, math.nan
    errors = [float(one.std(ddof=1)) / math.sqrt(len(one)) for one in values]
    found = pooled_effect(means, errors, confidence=1 - 0.05 / comparisons)
    return found.mean, found.low, found.high


def over_models(by_model: Mapping[str, Differences]) -> Interval:
    """Return the mean over models, with the t interval from the spread of each over its seeds (Welch, Satterthwaite).

    It speaks of these models alone, which the paper names. Of one model it is the interval over its seeds.
    """
    values = [np.array(list(one.values())) for one in by_model.values()]
    if len(values) == 1:
        return over(values[0])
    mean = float(np.mean([one.mean() for one in values]))
    if min(map(len, values)) < 2:
        return mean, math.nan, math.nan
    parts = np.array([one.var(ddof=1) / len(one) for one in values]) / len(values) ** 2
    if parts.sum() <= 0:
        return mean, math.nan, math.nan
    freedom = parts.sum() ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, values, strict=True))
    half = float(stats.t.ppf(0.975, freedom) * math.sqrt(parts.sum()))
    return mean, mean - half, mean + half


def each_in_words(by_set: Mapping[str, Differences]) -> str:
    """Return the mean of every set as words."""
    means = ((name, round(float(np.mean(list(one.values()))), 3)) for name, one in by_set.items())
    return typeset(", ".join(f"{name} {mean:+.3f}" if mean else f"{name} 0.000" for name, mean in means))


def by_ratio(
    runs: "pd.DataFrame", score: str
) -> tuple[Float[np.ndarray, " ratios"], Float[np.ndarray, "seeds ratios"], "pd.Index[int]"]:
    """Return the fixed ratios of some runs, a score of each seed and ratio, and the seeds, which have all of them.

    Raises
    ------
    UnavailableError
        If there is no such score, fewer than two seeds, or fewer than three ratios.
    """
    if score not in runs or runs[score].dtype.kind not in "fi":
        raise UnavailableError(f"the runs have no {score}")
    values, ratios, seeds = by_seed(runs, score)
    if len(seeds) < 2 or len(ratios) < 3:
        raise UnavailableError(f"{score}: {len(seeds)} seeds of {len(ratios)} ratios decide nothing")
    return np.array(ratios), values, seeds


def best_of_seeds(runs: "pd.DataFrame", score: str, *, higher: bool) -> "pd.Series[float]":
    """Return the best ratio under each seed that has a score at every ratio.

    Raises
    ------
    UnavailableError
        As :func:`by_ratio`.
    """
    import pandas as pd

    ratios, scores, seeds = by_ratio(runs, score)
    return pd.Series(best_ratios(scores, list(ratios), higher=higher), index=seeds)


def minus(first: "pd.Series[float]", second: "pd.Series[float]") -> Float[np.ndarray, " seeds"]:
    """Return the difference under the seeds that both have.

    Raises
    ------
    UnavailableError
        If there is none.
    """
    gaps = (first - second).dropna().to_numpy(float)
    if not len(gaps):
        raise UnavailableError("no seed has both scores at every ratio")
    return np.asarray(gaps)


def grid_step(runs: "pd.DataFrame") -> float:
    """Return how far apart the ratios lie that a best one was chosen from."""
    return float(np.diff(sorted(runs["ratio"].unique())).max())


def on_grid(values: Float[np.ndarray, " seeds"], allowed: float, comparisons: int = 1) -> Interval:
    """Return the mean of ratios that were chosen from a grid; the interval is wider by what the grid leaves open."""
    mean, low, high = over(values, comparisons)
    return mean, low - allowed, high + allowed
