"""What the paper says of single cells: Tables 4 and 6 (probes), 7 and 8 (reconstruction), and the curricula."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from r2mae.reproduce.claims.claim import Check, Claim, Found
from r2mae.reproduce.claims.judging import of_difference, of_none
from r2mae.reproduce.claims.results import Results, UnavailableError
from r2mae.reproduce.claims.runs import Differences, between, each_in_words, over_best, over_sets

if TYPE_CHECKING:
    import pandas as pd

    Sets = dict[str, pd.DataFrame]
    Difference = Callable[[pd.DataFrame], Differences]

_OURS = "r2mae"
_FIXED = ("fixed 0.10", "fixed 0.25", "fixed 0.50")
_OTHERS = (*_FIXED, "mdlm", "dynamic", "cl", "cl-k0")
_RANGE = (0.1, 0.2, 0.3, 0.5)  # of the ratios that are evaluated, those in R²MAE's range
_PAPERS = {"table4": "sea-ad", "table6": "hlca"}
_TYPE, _CEILING, _NOTHING = "cell_type_bacc", 0.97, 0.01  # no clear advantage: less than a point; the number is ours
_COLUMNS = {"score", "reconstruction_r", "label", "scheme", "seed"}


def by_set(results: Results, target: str = "") -> "Sets":
    """Return the runs on each set of cells; sets of a target come before comparisons on the same set.

    Parameters
    ----------
    results : Results
    target : {"", "table4", "table6"}
        With "table4" only sets whose donors have a condition, with "table6" only others.

    Raises
    ------
    UnavailableError
        If there are none.
    """
    sets: Sets = {}
    reasons = []
    for name in ("table4", "table6"):
        try:
            runs = results.table(name, "set", "label", "scheme", "seed", "score", name=f"{name}-runs")
        except UnavailableError as error:
            reasons.append(str(error))
            continue
        sets |= {str(one): group for one, group in runs.groupby("set", sort=False) if str(one) not in sets}
    for folder in results.comparisons:
        table = results.read(folder / "results.csv", "seed")
        if set(table) >= _COLUMNS and folder.name not in sets:
            sets[folder.name] = table
    if target:
        wanted = target == "table4"
        sets = {name: runs for name, runs in sets.items() if _has_condition(runs) == wanted}
        papers = _PAPERS[target]
        sets = {papers: sets[papers]} if papers in sets else sets
    if not sets:
        raise UnavailableError("; ".join(reasons))
    return sets


def _has_condition(runs: "pd.DataFrame") -> bool:
    return any(str(column).startswith("condition") and runs[column].notna().any() for column in runs)


def _judge(results: Results, claim: Claim, target: str, difference: "Difference", reason: str = "") -> Found:
    """Judge the mean of a difference over the sets that have it; the paper's own set alone, where it is there."""
    gaps, same = _differences(results, target, difference)
    return of_difference(over_sets(gaps), f"{reason} {each_in_words(gaps)}.".strip(), paper=claim.paper, same=same)


def _differences(results: Results, target: str, difference: "Difference") -> tuple[dict[str, Differences], bool]:
    gaps: dict[str, Differences] = {}
    missing = []
    for name, runs in by_set(results, target).items():
        try:
            gaps[name] = difference(runs)
        except UnavailableError as error:
            missing.append(f"{name}: {error}")
    if not gaps:
        raise UnavailableError("; ".join(missing))
    return gaps, set(gaps) <= set(_PAPERS.values())


def _best(results: Results, claim: Claim, others: Sequence[str]) -> Found:
    reason = "The best of the others is chosen on the other seeds."
    return _judge(results, claim, claim.target, partial(over_best, label=_OURS, others=others, score="score"), reason)


def _better_than(results: Results, claim: Claim, other: str) -> Found:
    return _judge(results, claim, claim.target, partial(between, first=_OURS, second=other, score="score"))


def _types(results: Results, claim: Claim) -> Found:
    """Judge that R²MAE's balanced accuracy of cell types is that of the best fixed ratio."""

    def difference(runs: "pd.DataFrame") -> Differences:
        if _TYPE not in runs or not runs[_TYPE].notna().any():
            raise UnavailableError(f"the runs have no {_TYPE}")
        if runs.loc[runs["scheme"] == "fixed", _TYPE].mean() > _CEILING:
            raise UnavailableError(f"all rows have a balanced accuracy above {_CEILING:g}")
        return over_best(runs, _OURS, _FIXED, _TYPE)

    gaps, same = _differences(results, claim.target, difference)
    said = f"{each_in_words(gaps)}. Sets on which all are above {_CEILING:g} are left out."
    return of_none(over_sets(gaps), said, margin=_NOTHING, same=same)


def _over_easy(results: Results, claim: Claim, better: str, score: str) -> Found:
    """Judge by how much a row is better than the easy curriculum at one ratio, over all sets."""
    return _judge(results, claim, "", partial(between, first=better, second="cl-k0", score=score))


def _in_range(runs: "pd.DataFrame") -> Differences:
    names = [f"reconstruction_r_{ratio:g}" for ratio in _RANGE]
    missing = [name for name in names if name not in runs]
    if missing:
        raise UnavailableError(f"the runs have no {missing[0]}")
    whole = runs.assign(reconstruction_in_range=runs[names].mean(axis=1, skipna=False))
    return over_best(whole, _OURS, _FIXED, "reconstruction_in_range")


def _reconstruction(results: Results, claim: Claim) -> Found:
    reason = "Mean of ratios 0.1, 0.2, 0.3 and 0.5; the best fixed ratio is chosen on the other seeds."
    return _judge(results, claim, claim.target, _in_range, reason)


def _at_lowest(results: Results, claim: Claim) -> Found:
    lowest = partial(between, first=_OURS, second="fixed 0.10", score="reconstruction_r_0.1")
    return _judge(results, claim, claim.target, lowest)


_OF_A_SET: dict[str, Check] = {
    "best": partial(_best, others=_FIXED),
    "schemes": partial(_best, others=_OTHERS),
    "scvi": partial(_better_than, other="scvi"),
    "expression": partial(_better_than, other="expression"),
    "types": _types,
    "dynamic": partial(_better_than, other="r2mae-dynamic"),
    "curriculum": partial(_better_than, other="r2mae-cl"),
    "range": _reconstruction,
    "lowest": _at_lowest,
}

CHECKS: dict[str, Check] = {
    **{f"{name}-{short}": check for name in _PAPERS.values() for short, check in _OF_A_SET.items()},
    "degenerates": partial(_over_easy, better="fixed 0.25", score="reconstruction_r"),
    "hampers": partial(_over_easy, better="fixed 0.25", score="score"),
    "resolved": partial(_over_easy, better="r2mae-cl-k0", score="reconstruction_r"),
}
