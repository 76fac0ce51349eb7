import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.theory import from_data
from r2mae_paper.realdata import fit_risks, leave_out_fit, measure, parts, summarise
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study

pytestmark = pytest.mark.slow

WIDE: dict[str, Any] = {"data": "digits", "standardised": True, "wide": True, "max_features": 40}


@pytest.fixture(scope="module")
def outcome() -> pd.DataFrame:
    return measure(**WIDE, repetitions=100)


@settings(max_examples=40)
@given(kept=st.integers(1, 40), d=st.integers(5, 20), seed=st.integers(0, 1000))
def test_downdates_equal_fits_without_the_feature(kept: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((kept, d)), rng.standard_normal((kept, 4))
    if abs(kept - d) <= 2:  # without the feature the design is square: the solution is unstable, whoever computes it
        return
    excluded = np.array([0, d - 1])
    b = leave_out_fit(x, y, excluded)
    np.testing.assert_allclose(b[:, :2], np.linalg.pinv(x) @ y[:, :2], rtol=1e-4, atol=1e-5)
    for column, j in ((2, 0), (3, d - 1)):
        rest = np.delete(x, j, axis=1)
        np.testing.assert_allclose(
            np.delete(b[:, column], j), np.linalg.pinv(rest) @ y[:, column], rtol=1e-4, atol=1e-5
        )
        assert b[j, column] == 0


def test_columns_of_zeros_have_no_coefficient() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 6))
    x[:, 2] = 0
    y = rng.standard_normal((30, 2))
    b = leave_out_fit(x, y, np.array([5]))
    assert abs(b[2]).max() < 1e-6
    np.testing.assert_allclose(b[:, 0], np.linalg.pinv(x) @ y[:, 0], atol=1e-6)
    assert not leave_out_fit(x[:0], y[:0], np.array([5])).any()


def test_risks_are_those_of_test_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 8)) @ rng.standard_normal((8, 8))
    x -= x.mean(axis=0)
    cov = from_data(x, "plain")
    targets = np.hstack([cov.eigenvectors(np.array([0])), np.eye(8)[:, [3]]])
    keep, entries = rng.random(60), rng.random((60, 8), dtype=np.float32)
    risks = fit_risks(cov, x[:60], keep, entries, targets, np.array([3]))
    rows = np.flatnonzero(keep < 0.6)
    masked = x[rows] * (entries[rows] >= 0.6)
    for column in range(2):
        inputs = masked if column == 0 else np.delete(masked, 3, axis=1)
        b = np.linalg.pinv(inputs) @ (x[rows] @ targets[:, column])
        clean = x if column == 0 else np.delete(x, 3, axis=1)
        y = x @ targets[:, column]
        assert risks[5, column] == pytest.approx(((clean @ b - y) ** 2).mean() / y.var(), rel=1e-6)


def test_the_formula_holds_on_pixels_that_vary(outcome: pd.DataFrame) -> None:
    assert set(zip(outcome["n"], outcome["d"], strict=True)) == {(10, 40)}
    middle = outcome[outcome["ratio"].between(0.15, 0.65)]  # two to six rows kept, hence 15 %
    np.testing.assert_allclose(middle["gaussian"], middle["predicted"], rtol=0.3)
    errors = [float(row["formula_vs_real"]) for row in summarise(outcome.assign(data="digits"))]
    assert max(errors) < 0.15


def test_it_fails_where_pixels_are_empty_in_nearly_all_images() -> None:
    """The finding of the study of real data: not finite size, for Gaussian rows agree; not scaling either."""
    found = measure("digits", standardised=False, wide=False, max_features=64, repetitions=10)
    direction = summarise(found.assign(data="digits"))[0]
    assert float(direction["formula_vs_real"]) > 5
    assert float(direction["formula_vs_gaussian"]) < 0.5


def test_results_do_not_depend_on_threads(outcome: pd.DataFrame) -> None:
    again = measure(**WIDE, repetitions=100, jobs=3)
    pd.testing.assert_frame_equal(again, outcome, check_exact=True)


def test_near_the_peak() -> None:
    tall = measure("digits", standardised=True, wide=False, max_features=40, repetitions=2)
    assert set(tall.loc[tall["near_peak"] == 1, "ratio"].round(1)) == {0.3, 0.4}


def test_the_full_size_has_every_set_on_both_sides() -> None:
    sets = entry_of("realdata").size().sets
    assert {data.rsplit("/")[-1] for data, *_ in sets} == {
        "mnist", "digits", "perez_tcells_7donors.h5ad", "covid_tcell_15donors.h5ad",
    }  # fmt: skip
    assert len(parts(entry_of("realdata").size())) == 4 * len(sets)


def test_it_writes_tables_and_the_figure(tmp_path: Path) -> None:
    run_study(get_study("realdata"), tmp_path, scale="small")
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert {row["data"] for row in rows} == {"digits, all pixels", "digits, 40 pixels"}
    assert len(rows) == 4 * 9 * (5 + 20) + 4 * 9 * (4 + 20)
    assert all(float(row["predicted"]) > 0 and float(row["real_se"]) >= 0 for row in rows)
    for name in (
        "summary.csv",
        "by-direction.csv",
        "by-ratio.csv",
        "measured_vs_predicted.png",
        "measured_vs_predicted.svg",
    ):
        assert (tmp_path / name).stat().st_size > 500
