import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from r2mae.theory import Dense, direction_risk, feature_risk, from_data, identity, isotropic_risk
from r2mae.theory.advise import Advice, advise, caveats


@pytest.fixture(scope="module")
def digits() -> Dense:
    x = load_digits().data
    return from_data(x[:, np.ptp(x, axis=0) > 0], scale=True)


@pytest.fixture(scope="module")
def wide(digits: Dense) -> Advice:
    """Fewer rows than features."""
    return advise(digits, 40)


def test_curves_are_those_of_the_formula(digits: Dense, wide: Advice) -> None:
    ratios, lead, features = wide.directions.ratios, wide.directions, wide.features
    np.testing.assert_allclose(ratios, np.arange(1, 50) / 50)
    expected = direction_risk(digits, 40, ratios[1:], which=np.arange(20)).normalised
    np.testing.assert_allclose(lead.normalised[1:], expected)
    np.testing.assert_allclose(features.normalised[1:], feature_risk(digits, 40, ratios[1:]).normalised)
    assert np.isnan(lead.normalised[0]).all()  # 40 rows at 0.02: less than one is kept
    np.testing.assert_allclose(wide.features.weighted, wide.features.mean, equal_nan=True)  # standardised
    assert wide.peak is None
    assert wide.share == pytest.approx(digits.eigenvalues[:20].sum() / digits.d)


def test_isotropic_data_have_one_best_ratio_that_theorem_1_gives() -> None:
    d, n = 500, 100
    found = advise(identity(d), n, directions=5)
    ratios = found.directions.ratios
    theorem = isotropic_risk(ratios, d / n, 0.0).risk
    np.testing.assert_allclose(found.directions.mean, theorem, rtol=1e-6)
    best = ratios[int(np.argmin(theorem))]
    assert (found.directions.best_ratio == best).all()


def test_the_worst_excess_and_the_ratios_as_good_by_their_definitions(wide: Advice) -> None:
    lead = wide.directions
    excess = np.array([column - np.nanmin(column) for column in lead.normalised.T if np.nanmin(column) < 0.95])
    assert len(excess) == lead.learnable.sum()
    np.testing.assert_array_equal(lead.worst_excess, excess.max(axis=0))
    (low, high), curve = wide.as_good, wide.features.weighted
    assert low <= wide.ratio <= high
    inside = (lead.ratios >= low) & (lead.ratios <= high)
    assert (curve[inside] <= 1.05 * np.nanmin(curve)).all()
    edges = curve[np.flatnonzero(inside)[[0, -1]] + np.array([-1, 1])]
    assert not (edges <= 1.05 * np.nanmin(curve)).any()


def test_with_more_rows_than_features_the_peak_is_left_out(digits: Dense) -> None:
    n = 3 * digits.d
    found = advise(digits, n, ratios=np.arange(1, 100) / 100)
    assert found.peak == pytest.approx(1 / 3)
    lead = found.directions
    np.testing.assert_allclose(lead.ratios[np.isnan(lead.mean)], [0.32, 0.33, 0.34, 0.35])


def test_nothing_to_learn() -> None:
    found = advise(identity(500), 4)
    assert not found.directions.learnable.any()
    assert np.nanmax(found.directions.worst_excess) == 0


def test_directions_without_variance_are_none() -> None:
    x = np.random.default_rng(0).standard_normal((4, 9))
    assert len(advise(from_data(x, "plain"), 40).directions.variance) == 3


def test_raw_features_count_by_their_variance() -> None:
    x = load_digits().data[:, 20:32]
    cov = from_data(x, "plain")
    found = advise(cov, 60, ratios=np.array([0.3, 0.6]), directions=3)
    risk = feature_risk(cov, 60, [0.3, 0.6])
    np.testing.assert_allclose(found.features.weighted, risk.risk.sum(axis=1) / cov.diagonal.sum())


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("n must be at least 2", {"n": 1}),
        ("directions must be 1 or more", {"directions": 0}),
        ("increasing numbers", {"ratios": np.array([0.5, 0.4])}),
        ("increasing numbers", {"ratios": np.array([0.5, 1.0])}),
        ("increasing numbers", {"ratios": np.array([])}),
        ("at none of them", {"ratios": np.array([0.01])}),
    ],
)
def test_mistakes_name_the_argument(words: str, change: dict) -> None:
    with pytest.raises(ValueError, match=words):
        advise(identity(50), **{"n": 40, **change})


def gaussian(rows: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((rows, d)) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d)))


def told(x: np.ndarray, n: int) -> tuple[bool, str]:
    holds, sentences = caveats(x, from_data(x), n)
    return holds, " ".join(sentences)


def test_caveats_know_gaussian_rows_from_rare_pixels() -> None:
    pixels = load_digits().data
    pixels = pixels[:, np.ptp(pixels, axis=0) > 0]
    pixels /= pixels.std(axis=0)
    assert told(gaussian(2000, 40), 400) == (True, "")
    assert told(gaussian(60, 8), 60) == (True, "")  # fewer rows than 20 times a Gaussian's kurtosis
    holds, words = told(pixels, 183)
    assert not holds and "hardly ever vary" in words and "lengths of the rows" in words
    holds, words = told(pixels, 20)
    assert not holds and "fewer than about 1 of 20 rows" in words
    assert "from 1.5 rows a feature" in told(gaussian(60, 40), 60)[1]
    assert "The risks are those of 3,000 rows; their covariance is" in told(gaussian(2000, 40), 3000)[1]


def test_rare_features_and_lengths_by_their_definitions() -> None:
    x = load_digits().data[:, 1:40]
    x = x[:, np.ptp(x, axis=0) > 0]
    cov = from_data(x, "plain")
    centred, sigma = x - x.mean(axis=0), cov.matrix()
    norms = (centred**2).sum(axis=1)
    spread = norms.var() / norms.mean() ** 2 / (2 * np.trace(sigma @ sigma) / np.trace(sigma) ** 2)
    kurtosis = (centred**4).mean(axis=0) / (centred**2).mean(axis=0) ** 2
    rare = int(((183 / kurtosis < 20) & (kurtosis > 10)).sum())
    _, sentences = caveats(x, cov, 183)
    assert sentences[0].startswith(f"{rare} of {x.shape[1]} features hardly ever vary") and rare
    assert (f"vary {spread:,.0f} times" in sentences[-1]) == (spread > 3)


def test_what_the_page_says_of_past_advice_is_what_was_measured() -> None:
    results = Path(__file__).resolve().parents[2] / "paper" / "results"
    page = (results.parents[1] / "docs" / "theory" / "advice.md").read_text()

    def rows(path: str) -> list[dict[str, str]]:
        return list(csv.DictReader((results / path).read_text().splitlines()))

    networks = [
        row
        for row in rows("randomness/randomness/randomness-rules.csv")
        if row["rule"].startswith("closed form") and row["set"] != "all sets" and row["score"] == "error"
    ]
    assert len(networks) == 6 and all(float(row["low"]) > 0 for row in networks)
    regrets = [float(row["regret"]) for row in networks]
    assert f"{min(regrets):.1f} % to {max(regrets):.0f} % above" in page
    fits: dict[tuple[str, ...], list[float]] = {}
    for row in rows("theory/realdata/summary.csv"):
        if "all pixels" not in row["data"]:
            key = (row["data"], row["scaling"], row["n"])
            fits.setdefault(key, []).append(float(row["best_ratio_agrees"]))
    assert len(fits) == 16 and all(agrees == 1 for found in fits.values() for agrees in found)
    assert "features: 16 cases" in page
    probe: dict[str, list[float]] = {}
    for row in rows("mnist/results.csv"):
        if row["scheme"] == "fixed":
            probe.setdefault(row["ratio"], []).append(float(row["probe_accuracy"]))
    mean = {ratio: np.mean(values) for ratio, values in probe.items()}
    assert f"{mean['0.1']:.3f} to {mean['0.2']:.3f} there, {max(mean.values()):.3f} at 0.6 to 0.8" in page
