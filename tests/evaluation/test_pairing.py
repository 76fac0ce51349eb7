"""The choice of the interval of a paired difference, and its values."""

import numpy as np
import pytest
from tests.evaluation.coverage import coverage_of_t

from r2mae.evaluation import best_fixed, crossed_difference, detectable, paired_difference
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.pairing import (
    MIN_SEEDS_FOR_ITEMS,
    REASONS,
    PairedComparison,
    compare_paired,
    components,
    components_of,
    pairing_reason,
)
from r2mae.evaluation.power import detectable_with_error

ITEMS = 60


def runs(table: np.ndarray, total: int | None = None, names: str = "") -> list[ItemScores | None]:
    """Return item scores of runs, one row per seed; `names` are their fingerprints."""
    given = names or "x" * len(table)
    return [
        ItemScores(name, total or len(row), {"error": row.astype(np.float32)})
        for name, row in zip(given, table, strict=True)
    ]


def tables(seeds: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    items = rng.normal(size=ITEMS)
    b = items + 0.1 * rng.normal(size=(seeds, ITEMS))
    a = b - 0.05 + 0.05 * rng.normal(size=(seeds, ITEMS)) + 0.01 * rng.normal(size=(seeds, 1))
    return tuple(table.astype(np.float32).astype(np.float64) for table in (a, b))  # type: ignore[return-value]


def compared(
    a: np.ndarray, b: np.ndarray, of_a: list[ItemScores | None], of_b: list[ItemScores | None]
) -> PairedComparison:
    return compare_paired(a.mean(1), b.mean(1), of_a, of_b, "error", higher_is_better=False)


@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_shared_items_give_the_crossed_interval_at_any_number_of_seeds(seeds: int) -> None:
    a, b = tables(seeds)
    found = compared(a, b, runs(a), runs(b))
    expected = crossed_difference(a, b, higher_is_better=False)
    assert (found.over, found.reason, found.items) == ("seeds and items", "shared", ITEMS)
    assert (found.difference.method, found.difference.n) == ("crossed t", seeds)
    assert found.difference.verdict == expected.verdict == "better"
    for name in ("mean", "low", "high"):
        assert getattr(found.difference, name) == pytest.approx(getattr(expected, name))
    assert 0 < found.smallest_detectable < np.inf


def test_otherwise_the_interval_is_over_seeds_only_and_has_a_reason() -> None:
    a, b = tables(3)
    of_a, of_b = runs(a), runs(b)
    alone = paired_difference(a.mean(1), b.mean(1), higher_is_better=False)
    other = [ItemScores("x", ITEMS, {"accuracy": one.scores["error"]}) for one in of_b if one]
    cases = {
        "not kept": (of_a, [None, *of_b[1:]]),
        "split": (runs(a, names="012"), runs(b, names="012")),
        "other items": (runs(a, names="xxx"), runs(b, names="xxy")),
        "no items": (other, other),
    }
    for reason, (first, second) in cases.items():
        found = compared(a, b, first, list(second))
        assert (found.over, found.reason, found.items) == ("seeds", reason, 0)
        assert found.difference == alone
        assert found.smallest_detectable == pytest.approx(detectable(float((a - b).mean(1).std(ddof=1)), 3))
    assert pairing_reason(of_a, other, "error") == "not kept"
    few = MIN_SEEDS_FOR_ITEMS - 1
    assert compared(a[:few], b[:few], of_a[:few], of_b[:few]).reason == "few seeds"
    assert {*cases, "few seeds", "shared"} == set(REASONS)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("lead", [0.0, 9.0])
def test_the_choice_of_a_ratio_is_in_the_mean_square_of_seeds(seeds: int, lead: float) -> None:
    rng, wider = np.random.default_rng(0), 0
    for _ in range(30):
        seed_effects, items = rng.normal(size=(4, seeds, 1)), 0.3 * rng.normal(size=(4, seeds, ITEMS))
        a, *ratios = (seed_effects + items + lead * (np.arange(4) == 2)[:, None, None]).astype(np.float32).astype(float)
        mine, choice = a.mean(1), best_fixed(np.transpose(ratios).mean(0), higher_is_better=True)
        b = np.stack(ratios)[choice.chosen, np.arange(seeds)]
        partner = choice.partner(mine)
        found = compare_paired(
            mine, partner, runs(a), runs(b), "error", higher_is_better=True, scores_b=choice.scores
        ).difference
        plain, parts = crossed_difference(a, b), components(a - b)
        of_seeds = ITEMS * max(np.var(mine - choice.scores, ddof=1), np.var(mine - partner, ddof=1))
        count = seeds * ITEMS
        expected = components_of(of_seeds, count * (parts.items + parts.rest), count * parts.rest, seeds, ITEMS)
        assert found.mean == pytest.approx(plain.mean)
        if parts.items > 0:
            assert (found.error**2, found.df) == pytest.approx((expected.variance, expected.df))
        if lead:
            assert found == plain
        assert found.error >= plain.error * (1 - 1e-9)
        wider += found.error > 1.01 * plain.error
    assert wider == 0 if lead else wider > 10


def test_two_seeds_would_be_too_few() -> None:
    """In the worst case of the coverage study, three seeds reach the nominal coverage, and two do not."""
    worst = {
        seeds: coverage_of_t(seeds, 1000, (0.9, 0.05), 6000)["crossed t"][0]
        for seeds in (MIN_SEEDS_FOR_ITEMS - 1, MIN_SEEDS_FOR_ITEMS)
    }
    assert worst[MIN_SEEDS_FOR_ITEMS - 1] < 0.9 < 0.92 < worst[MIN_SEEDS_FOR_ITEMS]


def test_the_detectable_difference_follows_from_error_and_degrees_of_freedom() -> None:
    assert detectable_with_error(0.3 / np.sqrt(5), 4.0) == pytest.approx(detectable(0.3, 5))
    assert detectable_with_error(1.0, 5000.0) == pytest.approx(2.80, abs=0.01)  # 1.96 + 0.84 of a normal error
    assert np.isnan(detectable_with_error(0.0, 4.0))
    rng = np.random.default_rng(3)
    sds, decided, draws = (0.002, 1.0, 0.5), 0, 400
    seeds, items = sds[0] * rng.normal(size=(draws, 3, 1)), sds[1] * rng.normal(size=(draws, 1, 500))
    noise = sds[2] * rng.normal(size=(draws, 3, 500))
    error = np.sqrt(sds[0] ** 2 / 3 + sds[1] ** 2 / 500 + sds[2] ** 2 / 1500)
    for table in seeds + items + noise + detectable_with_error(float(error), 499.0):
        decided += crossed_difference(table, np.zeros_like(table)).verdict == "better"
    assert 0.7 < decided / draws < 0.9
