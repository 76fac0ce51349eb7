"""What the paper says of single cells: Tables 4 and 6 (probes), 7 and 8 (reconstruction), and the curricula."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from r2mae.reproduce.claims.claim import Claim, Found
from r2mae.reproduce.claims.judging import Interval, of_difference, of_none
from r2mae.reproduce.claims.results import Results, Unavailable
from r2mae.reproduce.claims.runs import Differences, between, each_in_words, over_best, over_sets

if TYPE_CHECKING:
    import pandas as pd

    Sets = dict[str, pd.DataFrame]

_OURS = "r2mae"
_FIXED = ("fixed 0.10", "fixed 0.25", "fixed 0.50")
_OTHERS = (*_FIXED, "mdlm", "dynamic", "cl", "cl-k0")
_RANGE = (0.1, 0.2, 0.3, 0.5)  # of the ratios that are evaluated, those in R²MAE's range
_PAPERS = {"table4": "sea-ad", "table6": "hlca"}
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
    Unavailable
        If there are none.
    """
    sets: Sets = {}
    reasons = []
    for name in ("table4", "table6"):
        try:
            runs = results.table(name, "seed", "score", name=f"{name}-runs")
        except Unavailable as error:
            reasons.append(str(error))
            continue
        sets |= {str(one): group for one, group in runs.groupby("set", sort=False) if str(one) not in sets}
    for folder in results.comparisons:
        table = results.read(folder / "results.csv")
        if set(table) >= _COLUMNS and folder.name not in sets:
            sets[folder.name] = table
    if target:
        wanted = target == "table4"
        sets = {name: runs for name, runs in sets.items() if _has_condition(runs) == wanted}
        papers = _PAPERS[target]
        sets = {papers: sets[papers]} if papers in sets else sets
    if not sets:
        raise Unavailable("; ".join(reasons))
    return sets


def _has_condition(runs: "pd.DataFrame") -> bool:
    return any(column.startswith("condition") and runs[column].notna().any() for column in runs)


def _judge(
    results: Results, target: str, difference: "Callable[[pd.DataFrame], Differences]", reason: str, paper: float | None
) -> Found:
    """Judge the mean of a difference over the sets that have it; the paper's own set alone, where it is there."""
    gaps, same = _differences(results, target, difference)
    said = f"{reason} {each_in_words(gaps)}."
    return of_difference(over_sets(gaps), said.strip(), paper=paper, same=same)


def _differences(
    results: Results, target: str, difference: "Callable[[pd.DataFrame], Differences]"
) -> tuple[dict[str, Differences], bool]:
    gaps: dict[str, Differences] = {}
    missing = []
    sets = by_set(results, target)
    for name, runs in sets.items():
        try:
            gaps[name] = difference(runs)
        except Unavailable as error:
            missing.append(f"{name}: {error}")
    if not gaps:
        raise Unavailable("; ".join(missing))
    return gaps, set(gaps) <= set(_PAPERS.values())


def _best(runs: "pd.DataFrame", others: Sequence[str], score: str) -> Differences:
    return over_best(runs, _OURS, others, score)


def _score(results: Results, target: str, others: Sequence[str], paper: float) -> Found:
    known = "The best of the others is chosen on the other seeds."
    return _judge(results, target, partial(_best, others=others, score="score"), known, paper)


def _baseline(results: Results, target: str, other: str, paper: float) -> Found:
    return _judge(results, target, lambda runs: between(runs, _OURS, other, "score"), "", paper)


def _types(results: Results, target: str, paper: float) -> Found:
    gaps, same = _differences(results, target, partial(_best, others=_FIXED, score="cell_type_bacc"))
    said = f"Balanced accuracy: {each_in_words(gaps)}. The paper: {paper:+.3f}.".replace("-0.", "−0.")
    return of_none(over_sets(gaps), said, margin=0.01, same=same)


def _combined(results: Results, target: str, other: str, paper: float) -> Found:
    return _judge(results, target, lambda runs: between(runs, _OURS, other, "score"), "", paper)


def _degenerates(results: Results, score: str, paper: float | None) -> Found:
    return _judge(results, "", lambda runs: between(runs, "fixed 0.25", "cl-k0", score), "", paper)


def _resolved(results: Results) -> Found:
    return _judge(results, "", lambda runs: between(runs, "r2mae-cl-k0", "cl-k0", "reconstruction_r"), "", 0.646)


def _in_range(runs: "pd.DataFrame") -> Differences:
    names = [f"reconstruction_r_{ratio:g}" for ratio in _RANGE]
    missing = [name for name in names if name not in runs]
    if missing:
        raise Unavailable(f"the runs have no {missing[0]}")
    whole = runs.assign(reconstruction_in_range=runs[names].mean(axis=1, skipna=False))
    return over_best(whole, _OURS, _FIXED, "reconstruction_in_range")


def _reconstruction(results: Results, target: str, paper: float) -> Found:
    reason = "Pearson's r, mean of ratios 0.1, 0.2, 0.3 and 0.5; the best fixed ratio is chosen on the other seeds."
    return _judge(results, target, _in_range, reason, paper)


def _at_lowest(results: Results, target: str, paper: float) -> Found:
    return _judge(results, target, lambda runs: between(runs, _OURS, "fixed 0.10", "reconstruction_r_0.1"), "", paper)


_SETS = (("table4", "Sec. 4.2, Table 4", "SEA-AD"), ("table6", "Sec. 4.2, Table 6", "HLCA"))
_FULL = {
    "table4": {"best": 0.030, "schemes": 0.019, "scvi": 0.092, "expression": 0.137, "type": -0.001, "r2mae-dynamic": 0.032,
               "r2mae-cl": 0.014, "range": 0.001, "lowest": 0.004},
    "table6": {"best": 0.012, "schemes": 0.003, "scvi": 0.033, "expression": 0.108, "type": 0.000, "r2mae-dynamic": 0.000,
               "r2mae-cl": 0.015, "range": 0.0013, "lowest": 0.013},
}  # fmt: skip


def _of_set(target: str, place: str, name: str, paper: Mapping[str, float]) -> list[Claim]:
    def claim(short: str, says: str, measure: str, check: Callable[..., Found], number: float) -> Claim:
        bound = partial(check, target=target, paper=number)
        return Claim(f"{name.lower()}-{short}", place, f"{name}: {says}", measure, target, bound, number)

    score = "average score, R²MAE minus "
    return [
        claim("best", "R²MAE has a better average score than the best fixed ratio.", f"{score}the best fixed ratio",
              partial(_score, others=_FIXED), paper["best"]),
        claim("schemes", "R²MAE has the best average score of all schemes that are not combined with it.", f"{score}the best other scheme",
              partial(_score, others=_OTHERS), paper["schemes"]),
        claim("scvi", "R²MAE is better than scVI.", f"{score}scVI", partial(_baseline, other="scvi"), paper["scvi"]),
        claim("expression", "R²MAE is better than normalised expression.", f"{score}expression", partial(_baseline, other="expression"),
              paper["expression"]),
        claim("types", "In cell types R²MAE has no clear advantage.", "balanced accuracy, R²MAE minus the best fixed ratio", _types,
              paper["type"]),
        claim("dynamic", "Combined with dynamic ratios R²MAE is worse than alone.", f"{score}its combination",
              partial(_combined, other="r2mae-dynamic"), paper["r2mae-dynamic"]),
        claim("curriculum", "Combined with a curriculum R²MAE is worse than alone.", f"{score}its combination",
              partial(_combined, other="r2mae-cl"), paper["r2mae-cl"]),
    ]  # fmt: skip


_FOUNDATION = Claim(
    "foundation-models", "Sec. 4.2, Tables 4, 6", "R²MAE is better than zero-shot embeddings of scGPT and UCE.", "average score",
    why="Weights of scGPT and UCE are not here.",
)  # fmt: skip

_CURRICULA = (
    Claim(
        "degenerates", "App. A.3, Table 8", "An easy-only curriculum at one ratio (k = 0) degenerates: reconstruction fails.",
        "Pearson's r, fixed 0.25 minus cl-k0", "table6", partial(_degenerates, score="reconstruction_r", paper=0.646),
        0.646,
    ),
    Claim(
        "hampers", "App. A.3, Table 6", "And its representations are worse.", "average score, fixed 0.25 minus cl-k0", "table6",
        partial(_degenerates, score="score", paper=0.093), 0.093,
    ),
    Claim(
        "resolved", "App. A.3, Table 8", "A grid of ratios with balanced weights resolves the degeneration.",
        "Pearson's r, r2mae-cl-k0 minus cl-k0", "table6", _resolved, 0.646,
    ),
)  # fmt: skip

CLAIMS = (
    *(claim for target, place, name in _SETS for claim in _of_set(target, place, name, _FULL[target])),
    _FOUNDATION,
    *_CURRICULA,
)

RECONSTRUCTION = tuple(
    claim
    for (target, _, name), place in zip(_SETS, ("Sec. 4.3, Table 7", "Sec. 4.3, Table 8"), strict=True)
    for paper in [_FULL[target]]
    for claim in (
        Claim(
            f"{name.lower()}-range", place, f"{name}: R²MAE reconstructs nearly best at all ratios of its range; each fixed ratio only near its own.",
            "Pearson's r over the range, R²MAE minus the best fixed ratio", target,
            partial(_reconstruction, target=target, paper=paper["range"]), paper["range"], 4,
        ),
        Claim(
            f"{name.lower()}-lowest", place, f"{name}: at ratio 0.1 R²MAE reconstructs better than a model trained at that ratio.",
            "Pearson's r at 0.1, R²MAE minus fixed 0.10", target,
            partial(_at_lowest, target=target, paper=paper["lowest"]), paper["lowest"],
        ),
    )
)  # fmt: skip
