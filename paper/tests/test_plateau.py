from pathlib import Path

import numpy as np
import pytest

from r2mae.theory import plateau, risk
from r2mae_paper.runner import run_study
from r2mae_paper.simulated import describe, noisy, plateaus
from r2mae_paper.studies import entry_of
from r2mae_paper.study import compared, get_study

pytestmark = pytest.mark.slow

SMALL = entry_of("fig1g").size(n=100, d=1000, q=20)
TINY = entry_of("fig1g").size(n=24, d=200, q=12, samples=3, repetitions=3, step=0.05)


def test_plateaus_of_a_curve() -> None:
    ratios = np.arange(1, 9) / 10
    found = plateaus(ratios, np.array([1.0, 0.99, 0.95, 0.5, 0.1, 0.05, 0.07, 0.6]))
    assert found["first_until"] == 0.3
    assert (found["near_best_from"], found["near_best_until"]) == (0.5, 0.7)
    assert (found["best_ratio"], found["best_risk"]) == (0.6, 0.05)


def test_a_curve_that_only_rises_has_its_best_first() -> None:
    found = plateaus(np.array([0.1, 0.2, 0.3]), np.array([1.0, 1.1, 1.2]))
    assert found["first_until"] == found["best_ratio"] == found["near_best_until"] == 0.1


@pytest.mark.parametrize("name", ["fig1g", "fig4"])
def test_each_figure_writes_what_it_draws(name: str, tmp_path: Path) -> None:
    files = run_study(get_study(name), tmp_path, size=TINY).files
    assert {f"{name}.csv", f"{name}-plateaus.csv", f"{name}.png", f"{name}.svg"} <= {file.name for file in files}
    rows = files[0].read_text().splitlines()
    samples = 2 if name == "fig4" else 3
    assert len(rows) == 1 + 2 * samples * 19


def test_the_start_is_flat_where_the_noise_is_as_strong_as_the_signal() -> None:
    rows = [row for row in noisy(SMALL) if row["reading"] == "D"]
    start = {}
    for share in (0.0, 1.0, 1.5):
        own = [row["formula"] for row in rows if abs(row["noise_over_null"] - share) < 0.01]
        start[share] = own[1] - own[0]  # one kept row more
    assert start[0.0] < -0.03
    assert abs(start[1.0]) < 0.3 * abs(start[0.0])
    assert start[1.5] > 0.3 * abs(start[0.0])


def test_risk_is_affine_in_the_noise() -> None:
    rows = [row for row in noisy(TINY) if row["reading"] == "WW" and row["ratio"] == 0.5]
    cov, beta = plateau(TINY.d, TINY.q, 0, of="WW")
    for row in rows:
        with compared():
            assert np.isclose(row["formula"], risk(cov, beta, TINY.n, 0.5, row["noise"]).normalised)
    assert len(rows) == 4


def test_samples_are_described_beside_the_formula() -> None:
    rows = [
        {"reading": "D", "sample": s, "ratio": p, "normalised_risk": v + s, "formula": v}
        for s in (0, 1)
        for p, v in ((0.2, 1.0), (0.5, 0.4), (0.8, 0.9))
    ]
    assert [row["sample"] for row in describe(rows)] == [0, "formula", 1]
