from pathlib import Path

import numpy as np
import pytest

from r2mae.theory import Rotated, beta_spectrum, direction_risk
from r2mae_paper import simulated
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import NOISE, get_study

pytestmark = pytest.mark.slow


def test_it_writes_curves_thresholds_and_spectra(tmp_path: Path) -> None:
    size = entry_of("fig1e").size(n=40, d=120, repetitions=3, threshold_n=40)
    files = run_study(get_study("fig1e"), tmp_path, size=size).files
    assert [file.name for file in files] == [
        "fig1e.csv", "fig1e-thresholds.csv", "fig1e-spectra.csv", "fig1e.png", "fig1e.svg"
    ]  # fmt: skip
    assert len(files[0].read_text().splitlines()) == 1 + 3 * 6 * 19
    assert len(files[1].read_text().splitlines()) == 1 + 3 * 5


@pytest.mark.parametrize("name", simulated.MODELS)
def test_simulation_follows_the_formula(name: str) -> None:
    size = entry_of("fig1e").size(n=100, d=500, repetitions=10)
    measured = simulated.measure_spectrum(name, simulated.MODELS[name](500), size, 1)
    rows = [row for row in measured if row["ratio"] <= 0.6]
    gap = np.array([row["normalised_risk"] - row["formula"] for row in rows])
    assert np.abs(gap).max() < 0.12  # one design
    assert np.abs(gap.mean()) < 0.03


@pytest.mark.parametrize("gamma", [2, 10])
def test_the_threshold_parts_signals_that_pay_and_is_near_the_law(gamma: int) -> None:
    cov = beta_spectrum(200 * gamma, 1)
    found = simulated.threshold(cov.eigenvalues, 200)
    best = direction_risk(cov, 200, np.arange(1, 100) / 100, NOISE).normalised.min(axis=0)
    assert (best[cov.eigenvalues > 1.01 * found["threshold"]] < 1).all()
    assert (best[cov.eigenvalues < 0.99 * found["threshold"]] >= 1).all()
    assert abs(found["threshold"] / found["law"] - 1) < 0.02
    square, mean = (cov.eigenvalues**2).mean(), cov.eigenvalues.mean()
    assert np.isclose(found["law"], (1 + NOISE / found["law"]) * square / (2 * mean))


def test_the_law_is_the_slope_at_ratio_0() -> None:
    """Far from d = ñ, the first kept rows move the risk as the docstring says."""
    values = np.linspace(10, 1, 4000)
    n, p = 400, 0.005
    got = direction_risk(Rotated(values), n, p, NOISE).normalised
    trace, square = values.sum(), (values**2).sum()
    slope = (2 * values - (1 + NOISE / values) * square / trace) * n * p / trace
    np.testing.assert_allclose(1 - got, slope, atol=0.02 * np.abs(slope).max())


def test_there_is_no_threshold_where_every_signal_pays() -> None:
    assert np.isnan(simulated.threshold(np.ones(200), 100)["threshold"])
