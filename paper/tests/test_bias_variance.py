"""Bias and variance of drawn designs: by the formula, none where the features are independent and fewer than rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae_paper.rows import TableRow, joined
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study
from r2mae_paper.validation import MODELS, TALL, WIDE, parts_of_estimators

pytestmark = pytest.mark.slow

TINY = entry_of("bias-variance").size(wide=(40, 160), tall=(240, 12), ratios=(0.3, 0.8), draws=4)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[TableRow]:
    folder = tmp_path_factory.mktemp("bias")
    counted = []
    size = TINY
    study = get_study("bias-variance")
    run = run_study(study, folder, size=size, progress=lambda done, total: counted.append((done, total)), jobs=1)
    assert {"bias-variance.csv", "bias-variance.png"} <= {file.name for file in run.files}
    assert counted[-1][0] == counted[-1][1] == 2 * len(MODELS)
    found: list[TableRow] = pd.read_csv(folder / "bias-variance.csv").to_dict("records")
    return found


def test_every_covariance_has_both_sides(rows: list[TableRow]) -> None:
    assert {(row["side"], row["model"]) for row in rows} == {(side, name) for side in (WIDE, TALL) for name in MODELS}
    assert all(row["n"] * row["ratio"] > row["d"] for row in rows if row["side"] == TALL)
    assert all(row["n"] < row["d"] for row in rows if row["side"] == WIDE)


@pytest.mark.parametrize("part", ["bias", "variance"])
def test_drawn_designs_follow_the_formula(rows: list[TableRow], part: str) -> None:
    for row in rows:
        off = abs(row[part] - row[f"{part}_formula"])
        # Tall data have few features, where the formula, which is of many, is off by some per cent.
        assert off < 4 * row[f"{part}_error"] + 0.35 * row[f"{part}_formula"] + 1e-9, row


def test_tall_data_of_independent_features_have_no_bias_and_others_do(rows: list[TableRow]) -> None:
    tall = [row for row in rows if row["side"] == TALL]
    for row in tall:
        if row["model"] == "identity":
            assert abs(row["bias"]) < 1e-12
        else:
            assert row["bias"] > 4 * row["bias_error"] > 0
        assert abs(row["bias_whole"]) < 1e-6, "whole rows have none"
    for name in set(MODELS) - {"identity"}:
        low, high = (row["bias"] for row in tall if row["model"] == name)
        assert low < high


def test_three_ways_to_one_estimate(tmp_path: Path) -> None:
    size = entry_of("estimators").size(n=40, d=120, ratios=(0.2, 0.5, 0.8), repetitions=4)
    parts = parts_of_estimators(size)
    rows = joined({name: compute(1) for name, compute in parts.items()})
    assert len(rows) == 3 * (len(MODELS) + 1)
    assert {row["d"] / row["n"] for row in rows} == {3, 0.5}
    assert all(row["range_minus_ratio"] == 0 for row in rows)
    changes = np.array([[row["ridge_changes_percent"], row["ridge_changes_at_most"]] for row in rows])
    assert (changes > 0).all(), "another estimator"
    assert (changes[:, 0] <= changes[:, 1]).all()
    assert np.median(changes) < 1e-4
