"""How often the intervals that the package prints hold the truth: ``python -m tests.evaluation.coverage``.

Every kind of interval is simulated where the truth is known. A case states between which limits its true coverage is:
the nominal one, or what is known to differ from it. The command prints the table of ``docs/comparison.md``, and fails
if a measured coverage is outside its limits; ``test_coverage.py`` does the same with fewer draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
from scipy import stats

from r2mae.cells.predictions import cluster_bootstrap
from r2mae.evaluation import best_fixed, corrected_p_values, detectable, mean_interval, paired_difference
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.pairing import compare_paired, components_of
from r2mae_paper.gains import pooled

SHARES = ((0.0, 0.0), (0.0, 0.5), (0.0, 0.95), (0.1, 0.1), (0.3, 0.6), (0.5, 0.25), (0.9, 0.05))
"""Shares of seeds and of items in the variance of the mean."""
SEED_SDS = (0.190, 0.074, 0.053, 0.025, 0.005, 0.003)
"""Standard deviations of the average score between seeds, on six sets of cells. The last one is at its ceiling."""

Draws = Callable[[np.random.Generator, int], Sequence[float] | np.ndarray]
"""Takes the number of draws; returns for each how far it holds the truth: yes or no, or a probability."""


@dataclass(frozen=True)
class Case:
    """An interval and a world in which it is drawn.

    Parameters
    ----------
    kind, world : str
        In words.
    held : callable
        Returns for each draw whether the interval holds the truth.
    low, high : float
        Limits of the true coverage.
    nominal : float
        What the interval promises.
    """

    kind: str
    world: str
    held: Draws
    low: float = 0.95
    high: float = 0.95
    nominal: float = 0.95

    def coverage(self, draws: int) -> tuple[float, float]:
        """Return the share of draws that hold the truth, and its standard error at the limit that is nearest."""
        found = np.asarray(self.held(np.random.default_rng(0), draws), dtype=float)
        share = float(found.mean())
        limit = min(max(share, self.low), self.high)
        return share, float(np.sqrt(limit * (1 - limit) / len(found)))

    def is_within(self, share: float, error: float) -> bool:
        """Return whether a measured coverage agrees with the limits, within four standard errors."""
        return self.low - 4 * error <= share <= self.high + 4 * error


def _of_mean(seeds: int, rng: np.random.Generator, draws: int, *, skewed: bool = False) -> list[bool]:
    values = rng.exponential(size=(draws, seeds)) - 1 if skewed else rng.normal(size=(draws, seeds))
    return [found.low <= 0 <= found.high for found in map(mean_interval, values)]


def _of_pairs(seeds: int, rng: np.random.Generator, draws: int) -> list[bool]:
    shared = rng.normal(size=(draws, seeds, 1))
    pairs = 3 * shared + rng.normal(size=(draws, seeds, 2)) * [1.0, 0.3]
    return [found.low <= 0 <= found.high for found in (paired_difference(*pair.T) for pair in pairs)]


def _of_best_fixed(
    seeds: int, means: Sequence[float], rng: np.random.Generator, draws: int, *, truly: bool = False
) -> list[bool]:
    """The difference of a scheme from best fixed; the truth is about the chosen ratio, or the `truly` best one."""
    tables = rng.normal(size=(draws, seeds, len(means))) + np.asarray(means)
    truth = max(means) if truly else expected_of_choice(seeds, means)
    held = []
    for table, mine in zip(tables, rng.normal(size=(draws, seeds)), strict=True):
        found = paired_difference(mine, best_fixed(table).partner(mine))
        held.append(found.low <= -truth <= found.high)
    return held


def _of_best_fixed_on_items(
    seeds: int, means: Sequence[float], rng: np.random.Generator, draws: int, *, items: int = 100, own: float = 0.0
) -> list[bool]:
    """The same over seeds and items that all runs share; `own`: share of items in the variance of a variant's mean."""
    held, truth = [], expected_of_choice(seeds, means, 20_000)
    sds = [np.sqrt(0.9 - own), *np.sqrt(np.array([own, 0.1]) * items)]  # of seeds, of a variant's items, and the rest
    for _ in range(draws):
        shared, parts = 3 * rng.normal(size=items), ((seeds, 1), (1, items), (seeds, items))
        by_item = shared + sum(
            sd * rng.normal(size=(len(means) + 1, *shape)) for sd, shape in zip(sds, parts, strict=True)
        )
        by_item[1:] += np.asarray(means)[:, None, None]
        mine, *table = by_item.mean(axis=2)
        choice = best_fixed(np.transpose(table))
        runs = by_item[0], by_item[1 + choice.chosen, np.arange(seeds)]
        kept = ([ItemScores("", items, {"score": row.astype(np.float32)}) for row in run] for run in runs)
        partner = choice.partner(mine)
        compared = compare_paired(mine, partner, *kept, "score", higher_is_better=True, scores_b=choice.scores)
        held.append(compared.difference.low <= -truth <= compared.difference.high)
    return held


def expected_of_choice(seeds: int, means: Sequence[float], draws: int = 200_000) -> float:
    """Return the expected score of the ratio that the other seeds choose; scores have these means, deviation 1."""
    true = np.asarray(means, dtype=float)
    others = true + np.random.default_rng(1).normal(size=(draws, len(true))) / np.sqrt(seeds - 1)
    return float(true[others.argmax(axis=1)].mean())


def shortfall_of_choice(seeds: int, ratios: int) -> float:
    """Return by how much the choice may miss the best ratio, in standard deviations of a seed: one ratio is better."""
    steps = np.linspace(0.1, 3, 30)
    return max(step - expected_of_choice(seeds, [step, *[0.0] * (ratios - 1)], 20_000) for step in steps)


def coverage_of_t(seeds: int, items: int, share: tuple[float, float], draws: int) -> dict[str, tuple[float, float]]:
    """Return coverage, and half-width in units of the true standard error, over seeds only and crossed.

    Scores are those of two-way random effects, x = μ + a_seed + b_item + e, of which seeds and items make given shares
    of the variance of the mean. The mean squares of such a table are independent chi-squares, so no table is drawn.
    """
    rng = np.random.default_rng([seeds, items, *(int(100 * part) for part in share)])
    of_seeds, of_items = share
    rest = (1 - of_seeds - of_items) * seeds * items  # the variance of the mean is 1
    expected = {"a": rest + items * seeds * of_seeds, "b": rest + seeds * items * of_items, "e": rest}
    df = {"a": seeds - 1, "b": items - 1, "e": (seeds - 1) * (items - 1)}
    squares = {name: expected[name] * rng.chisquare(df[name], draws) / df[name] for name in df}
    error = np.abs(rng.normal(size=draws))
    parts = [components_of(*one, seeds, items) for one in zip(*squares.values(), strict=True)]
    crossed = stats.t.ppf(0.975, [part.df for part in parts]) * np.sqrt([part.variance for part in parts])
    alone = stats.t.ppf(0.975, seeds - 1) * np.sqrt(squares["a"] / (seeds * items))
    return {
        name: (float((error <= half).mean()), float(np.median(half)))
        for name, half in (("seeds only", alone), ("crossed t", crossed))
    }


def _crossed(seeds: int, share: tuple[float, float], rng: np.random.Generator, draws: int) -> np.ndarray:
    share_held, _ = coverage_of_t(seeds, 1000, share, draws)["crossed t"]
    return np.arange(draws) < round(share_held * draws)


def _pooled(sds: Sequence[float], rng: np.random.Generator, draws: int, *, equal: bool = False) -> list[bool]:
    """An average over sets with ten seeds each, whose true effects have a standard deviation of 0.008 between sets."""
    held, seeds = [], 10
    for _ in range(draws):
        effects = 0.008 * rng.normal(size=len(sds))
        by_set = effects[:, None] + np.asarray(sds)[:, None] * rng.normal(size=(len(sds), seeds))
        found = mean_interval(by_set.mean(axis=1)) if equal else pooled(list(by_set))
        held.append(found.low <= 0 <= found.high)
    return held


def _no_verdict(schemes: int, looks: Sequence[int], rng: np.random.Generator, draws: int, *, corrected: bool) -> list:
    """Schemes that are all as good as their reference get no verdict, while seeds are added until they do."""
    differences = rng.normal(size=(draws, schemes, looks[-1])) - rng.normal(size=(draws, 1, looks[-1]))
    chances = [stats.ttest_1samp(differences[:, :, :seeds], 0, axis=2).pvalue for seeds in looks]
    if not corrected:
        return list(~np.any([(p <= 0.05).any(axis=1) for p in chances], axis=0))
    return [
        not any((corrected_p_values(p[draw], looks=look) <= 0.05).any() for look, p in enumerate(chances, 1))
        for draw in range(draws)
    ]


def _planned(seeds: int, pilot: int | None, rng: np.random.Generator, draws: int) -> np.ndarray:
    """Whether planned seeds decide the difference that they "decide", by the true deviation or that of a pilot."""
    sds = np.ones(draws) if pilot is None else rng.normal(size=(draws, pilot)).std(axis=1, ddof=1)
    differences = rng.normal(size=(draws, seeds)) + detectable(1.0, seeds) * sds[:, None]
    return np.asarray(stats.ttest_1samp(differences, 0, axis=1).pvalue <= 0.05)


def _bootstrap(donors: int, rng: np.random.Generator, draws: int) -> list[bool]:
    held = []
    for values in rng.normal(size=(draws, donors)):
        weighted = partial(_weighted_mean, values)
        mean = SimpleNamespace(donors=np.arange(donors), weighted=weighted)
        low, high = cluster_bootstrap([mean], resamples=1000)["score"]
        held.append(low <= 0 <= high)
    return held


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    return {"score": weights @ values / weights.sum(axis=1)}


_MEAN, _PAIRED, _BEST = "mean over seeds", "paired difference", "minus best fixed"
_BEST_ITEMS = f"{_BEST}, over seeds and items"
_CROSSED, _MODEL, _EQUAL = "over seeds and items", "over sets, model-weighted", "over sets, equal weights"
_ERRORS, _POWER, _DONORS = "verdicts of a comparison", "planned seeds: power", "bootstrap over donors"
_LOOKS = (3, 4, 5, 7, 10)
CASES = (
    Case(_MEAN, "3 seeds", partial(_of_mean, 3)),
    Case(_MEAN, "10 seeds", partial(_of_mean, 10)),
    Case(_MEAN, "5 seeds, skewed (exponential)", partial(_of_mean, 5, skewed=True), 0.85, 0.92),
    Case(_PAIRED, "3 seeds", partial(_of_pairs, 3)),
    Case(_PAIRED, "10 seeds", partial(_of_pairs, 10)),
    Case(_BEST, "3 seeds, 3 equal ratios", partial(_of_best_fixed, 3, [0.0] * 3), 0.93, 0.99),
    Case(_BEST, "3 seeds, 9 equal ratios", partial(_of_best_fixed, 3, [0.0] * 9), 0.93, 0.99),
    Case(_BEST, "10 seeds, 9 equal ratios", partial(_of_best_fixed, 10, [0.0] * 9), 0.95, 0.99),
    Case(_BEST, "5 seeds, a clear winner", partial(_of_best_fixed, 5, [9.0, 0.0, 0.0])),
    Case(_BEST, "10 seeds, 9 ratios, one 0.5 sd better", partial(_of_best_fixed, 10, [0.5] + [0.0] * 8), 0.95, 0.99),
    Case(
        f"{_BEST}, of the truly best", "the same",
        partial(_of_best_fixed, 10, [0.5] + [0.0] * 8, truly=True), 0.95, 0.99,
    ),
    *(
        Case(_BEST_ITEMS, f"{seeds} seeds, {world}", partial(_of_best_fixed_on_items, seeds, means, own=own), low, high)
        for world, means, own, low, high, counts in (
            ("5 equal ratios", [0.0] * 5, 0.0, 0.95, 0.99, (3, 5, 10)),
            ("5 ratios, a clear winner", [9.0, *[0.0] * 4], 0.0, 0.94, 0.955, (3, 5, 10)),
            ("5 equal ratios that differ by items", [0.0] * 5, 0.6, 0.9, 0.94, (3, 10)),
        )
        for seeds in counts
    ),
    *(
        Case(_CROSSED, f"{seeds} seeds; seeds and items make {share[0]:g} and {share[1]:g} of the variance",
             partial(_crossed, seeds, share), 0.92 if seeds < 5 else 0.94, 0.985)
        for seeds in (3, 5) for share in ((0.0, 0.0), (0.3, 0.6), (0.9, 0.05))
    ),
    Case(_MODEL, "6 sets with equal deviations", partial(_pooled, [0.05] * 6), 0.95, 0.98),
    Case(_MODEL, "6 sets of cells, one at its ceiling", partial(_pooled, SEED_SDS), 0.78, 0.88),
    Case(_MODEL, "the same without that one", partial(_pooled, SEED_SDS[:-1]), 0.75, 0.85),
    Case(_EQUAL, "6 sets with equal deviations", partial(_pooled, [0.05] * 6, equal=True)),
    Case(_EQUAL, "6 sets of cells, one at its ceiling", partial(_pooled, SEED_SDS, equal=True), 0.95, 0.99),
    Case(_EQUAL, "the same without that one", partial(_pooled, SEED_SDS[:-1], equal=True), 0.95, 0.99),
    Case(_ERRORS, "5 equal schemes, 5 looks, corrected", partial(_no_verdict, 5, _LOOKS, corrected=True), 0.95, 1.0),
    Case(_ERRORS, "the same, not corrected", partial(_no_verdict, 5, _LOOKS, corrected=False), 0.45, 0.55),
    Case(_POWER, "10 seeds, the deviation is known", partial(_planned, 10, None), 0.8, 0.8, 0.8),
    Case(_POWER, "10 seeds, a pilot of 3", partial(_planned, 10, 3), 0.55, 0.65, 0.8),
    Case(_POWER, "10 seeds, a pilot of 10", partial(_planned, 10, 10), 0.7, 0.78, 0.8),
    Case(_DONORS, "5 donors", partial(_bootstrap, 5), 0.78, 0.86),
    Case(_DONORS, "10 donors", partial(_bootstrap, 10), 0.88, 0.93),
    Case(_DONORS, "30 donors", partial(_bootstrap, 30), 0.91, 0.94),
)  # fmt: skip


def crossed_table(counts: Sequence[int] = (3, 4, 5, 10), items: int = 1000) -> None:
    """Print coverage and width of crossed intervals, as Markdown."""
    print("| seeds | share of seeds, items | seeds only | crossed t | its width, of seeds only |")
    print("|---|---|---|---|---|")
    for seeds in counts:
        for share in SHARES:
            found = coverage_of_t(seeds, items, share, 20_000)
            (alone, wide), (crossed, half) = found["seeds only"], found["crossed t"]
            shares = f"{share[0]:g}, {share[1]:g}"
            values = (seeds, shares, f"{alone:.3f}", f"{crossed:.3f}", f"{half / wide:.2f}")
            print(f"| {' | '.join(map(str, values))} |")


def main(draws: int = 5000) -> int:
    """Print the tables, as Markdown; return 1 if a coverage is outside its limits."""
    wrong = 0
    print("| interval | where | nominal | measured |")
    print("|---|---|---|---|")
    for case in CASES:
        share, error = case.coverage(draws)
        wrong += not case.is_within(share, error)
        mark = "" if case.is_within(share, error) else f" (not {case.low:g} to {case.high:g})"
        print(f"| {case.kind} | {case.world} | {case.nominal:g} | {share:.3f}{mark} |", flush=True)
    print("\nHow far the chosen ratio may fall short of the best one, in standard deviations of a seed:\n")
    print("| seeds | 3 ratios | 5 ratios | 9 ratios |")
    print("|---|---|---|---|")
    for seeds in (3, 5, 10):
        print(f"| {seeds} | {' | '.join(f'{shortfall_of_choice(seeds, ratios):.2f}' for ratios in (3, 5, 9))} |")
    print()
    crossed_table()
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
