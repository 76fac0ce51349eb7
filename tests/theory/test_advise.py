import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from r2mae.theory import Dense, Rotated, direction_risk, feature_risk, from_data, identity, isotropic_risk
from r2mae.theory.advise import Advice, advise
from r2mae.theory.ranges import Range


@pytest.fixture(scope="module")
def digits() -> Dense:
    x = load_digits().data
    return from_data(x[:, np.ptp(x, axis=0) > 0], scale=True)


@pytest.fixture(scope="module")
def wide(digits: Dense) -> Advice:
    """Fewer rows than features."""
    return advise(digits, 40)


def test_curves_are_those_of_the_formula(digits: Dense, wide: Advice) -> None:
    np.testing.assert_allclose(wide.ratios, np.arange(1, 50) / 50)
    assert not wide.usable[0] and wide.usable[1:].all()  # 40 rows at 0.02: less than one is kept
    kept = wide.ratios[wide.usable]
    expected = direction_risk(digits, 40, kept, which=np.arange(20)).normalised
    np.testing.assert_allclose(wide.directions.normalised[wide.usable], expected)
    np.testing.assert_allclose(wide.features.normalised[wide.usable], feature_risk(digits, 40, kept).normalised)
    assert np.isnan(wide.directions.normalised[~wide.usable]).all()
    np.testing.assert_allclose(wide.features.weighted, wide.features.mean, equal_nan=True)  # standardised
    assert wide.peak is None
    assert wide.share == pytest.approx(digits.eigenvalues[:20].sum() / digits.d)


def test_isotropic_data_have_one_best_ratio_that_theorem_1_gives() -> None:
    d, n = 500, 100
    found = advise(identity(d), n, directions=5, tolerance=0.01)
    theorem = isotropic_risk(found.ratios, d / n, 0.0).risk
    np.testing.assert_allclose(found.directions.mean, theorem, rtol=1e-6)
    best = found.ratios[int(np.argmin(theorem))]
    assert (found.directions.best_ratio == best).all()
    assert found.minimax == pytest.approx(0, abs=1e-9)
    assert found.minimax_ratio == best
    np.testing.assert_array_equal(found.within, theorem <= theorem.min() + 0.01)


def test_minimax_and_range_by_their_definitions(wide: Advice) -> None:
    lead = wide.directions
    excess = np.array(
        [column - np.nanmin(column) for column in lead.normalised.T if np.nanmin(column) < 0.95],
    )
    assert len(excess) == lead.learnable.sum()
    worst = excess.max(axis=0)
    assert wide.minimax == pytest.approx(np.nanmin(worst))
    assert wide.minimax_ratio == wide.ratios[np.nanargmin(worst)]
    assert wide.allowed == pytest.approx(max(0.05, wide.minimax + 0.025))
    assert isinstance(wide.suggested, Range)
    inside = (wide.ratios >= wide.suggested.low) & (wide.ratios <= wide.suggested.high)
    assert (worst[inside] <= wide.allowed).all()
    assert wide.suggested.low <= wide.minimax_ratio <= wide.suggested.high


def test_stakes_are_risks_of_the_range_and_of_its_ratios(digits: Dense, wide: Advice) -> None:
    found, stakes = wide.suggested, wide.direction_stakes
    assert found is not None and stakes is not None
    drawn = direction_risk(digits, 40, found, which=np.arange(20)).normalised.mean()
    assert stakes.drawn == pytest.approx(drawn)
    many = np.linspace(found.low, found.high, 401)
    blind = direction_risk(digits, 40, many, which=np.arange(20)).normalised.mean(axis=1)
    assert stakes.blind == pytest.approx(np.trapezoid(blind, many) / (found.high - found.low), rel=1e-4)
    assert stakes.best <= stakes.blind <= stakes.blind_worst <= blind.max() + 1e-9


@pytest.mark.parametrize("n", [40, 200, 1797])
@pytest.mark.parametrize("what", ["direction_stakes", "feature_stakes"])
def test_no_range_beats_the_best_fixed_ratio(digits: Dense, n: int, what: str) -> None:
    stakes = getattr(advise(digits, n), what)
    assert stakes.best <= stakes.drawn * (1 + 1e-3)  # the grid's best is a hair above the true one


def test_with_more_rows_than_features_the_peak_is_left_out(digits: Dense) -> None:
    n = 3 * digits.d
    found = advise(digits, n, ratios=np.arange(1, 100) / 100)
    assert found.peak == pytest.approx(1 / 3)
    out = found.ratios[~found.usable]
    np.testing.assert_allclose(out, [0.32, 0.33, 0.34, 0.35])
    assert found.suggested is not None
    assert not found.suggested.low < found.peak < found.suggested.high
    assert advise(digits, n, ridge=1.0).usable.all()  # a ridge takes the divergence away


def test_a_range_never_crosses_a_peak_between_two_ratios_of_the_grid(digits: Dense) -> None:
    # At these two ratios every risk is large and alike, so both sides are "fine" with a tolerance this large.
    found = advise(digits, 20 * digits.d, ratios=np.array([0.02, 0.045, 0.056, 0.2]), tolerance=0.9)
    assert found.usable.all()
    assert found.suggested is not None and found.peak == pytest.approx(0.05)
    assert not found.suggested.low < found.peak < found.suggested.high


def test_nothing_to_learn_gives_no_range() -> None:
    found = advise(identity(500), 4)
    assert not found.directions.learnable.any()
    assert found.suggested is None and found.direction_stakes is None and found.feature_stakes is None
    assert (found.directions.mean_excess[found.usable] == 0).all()


def test_directions_without_variance_are_none() -> None:
    x = np.random.default_rng(0).standard_normal((4, 9))
    assert len(advise(from_data(x, "plain"), 40).directions.variance) == 3


def test_raw_features_count_by_their_variance() -> None:
    x = load_digits().data[:, 20:32]
    cov = from_data(x, "plain")
    found = advise(cov, 60, ratios=np.array([0.3, 0.6]), directions=3)
    risk = feature_risk(cov, 60, [0.3, 0.6])
    np.testing.assert_allclose(found.features.weighted, risk.risk.sum(axis=1) / cov.diagonal.sum())
    np.testing.assert_allclose(found.features.quantiles(np.array([0.5]))[0], np.median(risk.normalised, axis=1))


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=40).map(np.array),
    st.integers(5, 400),
    st.floats(0.01, 0.5),
)
def test_whatever_the_spectrum_the_advice_is_consistent(spectrum: np.ndarray, n: int, tolerance: float) -> None:
    found = advise(Rotated(spectrum), n, tolerance=tolerance, directions=7, ratios=np.arange(1, 10) / 10)
    lead = found.directions
    assert (lead.excess[found.usable] >= 0).all()
    assert (lead.mean_excess[found.usable] <= lead.worst_excess[found.usable] + 1e-9).all()
    assert found.within.any() == (found.minimax <= tolerance)
    if found.suggested is not None:
        assert found.suggested.low in found.ratios and found.suggested.high in found.ratios


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("n must be at least 2", {"n": 1}),
        ("directions must be 1 or more", {"directions": 0}),
        ("tolerance must be above 0", {"tolerance": 0.0}),
        ("tolerance must be above 0", {"tolerance": float("nan")}),
        ("increasing numbers", {"ratios": np.array([0.5, 0.4])}),
        ("increasing numbers", {"ratios": np.array([0.5, 1.0])}),
        ("increasing numbers", {"ratios": np.array([])}),
        ("at none of them", {"ratios": np.array([0.01])}),
        ("ridge must be", {"ridge": -1.0}),
    ],
)
def test_mistakes_name_the_argument(words: str, change: dict) -> None:
    with pytest.raises(ValueError, match=words):
        advise(identity(50), **{"n": 40, **change})
