"""What rows of runs gain over others, pooled over sets of data: one row a scheme, the average gain and its interval."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from r2mae.evaluation.pooled import pooled_effect
from r2mae.evaluation.statistics import best_fixed, paired_difference
from r2mae_paper.artefact import TableRow

if TYPE_CHECKING:
    import pandas as pd

BEST_FIXED, BLIND = "best_fixed", "blind"
"""What rows are compared with: the best of the fixed ratios, and one that was chosen blindly."""

Gains = Mapping[tuple[str, str], Sequence[Float[np.ndarray, " _"]]]
"""By row and by what it is compared with: for each set of data the gain under each seed, higher is better."""


def by_label(results: "pd.DataFrame", score: str) -> "dict[str, pd.Series[float]]":
    """Return a score by seed for each row of a table of runs that has it."""
    found = {
        str(label): group.set_index("seed")[score].dropna() for label, group in results.groupby("label", sort=False)
    }
    return {label: values for label, values in found.items() if len(values)}


def best_of(
    fixed: "Sequence[pd.Series[float]]", mine: "pd.Series[float]", *, higher: bool
) -> "pd.Series[float] | None":
    """Return what a row is paired with: the best fixed ratio under each of its seeds, chosen on its other seeds.

    None where fewer than two of the seeds have every ratio. See :class:`r2mae.evaluation.statistics.BestFixed`.
    """
    import pandas as pd

    table = pd.concat(fixed, axis=1).dropna()
    table = table[table.index.isin(mine.index)]
    if len(table) < 2:
        return None
    best = best_fixed(table.to_numpy(), higher_is_better=higher)
    return pd.Series(best.partner(mine[table.index].to_numpy(float)), index=table.index)


def gains_by_set(
    results: "pd.DataFrame", score: str, fixed: Sequence[str], blind: str
) -> "dict[tuple[str, str], list[Float[np.ndarray, ' _']]]":
    """Return what every row gains over the best fixed ratio and over a blind one, on each set, paired over seeds.

    Parameters
    ----------
    results : DataFrame
        A line a run, with its `set`, `label` and `seed`.
    score : str
        Higher is better.
    fixed : sequence of str
        The rows of fixed ratios.
    blind : str
        One of them.
    """
    return {
        pair: [gain.to_numpy(float) for gain in by_set.values()]
        for pair, by_set in gains_by_seed(results, score, fixed, blind).items()
    }


def gains_by_seed(
    results: "pd.DataFrame", score: str, fixed: Sequence[str], blind: str
) -> "dict[tuple[str, str], dict[str, pd.Series[float]]]":
    """Return the same as :func:`gains_by_set`, by the name of the set, and with the seeds."""
    gains: dict[tuple[str, str], dict[str, pd.Series[float]]] = {}
    for name, group in results.groupby("set", sort=False):
        rows = by_label(group, score)
        present = [rows[name] for name in fixed if name in rows]
        for label, mine in rows.items():
            best = best_of(present, mine, higher=True) if len(present) > 1 else None
            others = {BEST_FIXED: best, BLIND: rows.get(blind)}
            for against, other in others.items():
                if other is None or (against == BLIND and label == blind):
                    continue
                both = mine.index.intersection(other.index)
                gains.setdefault((label, against), {})[str(name)] = mine[both] - other[both]
    return gains


def pooled_rows(gains: Gains) -> list[TableRow]:
    """Return for each row and what it is compared with the average gain over sets, or that on the only set there is.

    Over sets it is that of a random-effects model. On a single set the interval is over its seeds, which says nothing
    of other sets, and `between_sets` is NaN. Verdicts are not corrected for their number. Sets with fewer than two
    seeds have no error, and are left out.
    """
    rows: list[TableRow] = []
    for (label, against), by_set in gains.items():
        usable = [gain for gain in by_set if len(gain) > 1]
        if not usable:
            continue
        errors = [float(gain.std(ddof=1) / np.sqrt(len(gain))) for gain in usable]
        pooled = pooled_effect([float(gain.mean()) for gain in usable], errors)
        row: TableRow = {"label": label, "against": against, "sets": pooled.sets, "gain": pooled.mean}
        if pooled.sets == 1:
            found = paired_difference(usable[0], np.zeros(len(usable[0])))
            row |= {"low": found.low, "high": found.high, "between_sets": pooled.between, "is": found.verdict}
        else:
            row |= {"low": pooled.low, "high": pooled.high, "between_sets": pooled.between}
            row["is"] = "better" if pooled.low > 0 else "worse" if pooled.high < 0 else "undecided"
        rows.append(row)
    return rows
