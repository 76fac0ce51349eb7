from pathlib import Path

import numpy as np
import pytest

from r2mae_paper import validation
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study

pytestmark = pytest.mark.slow

TINY = entry_of("validation").size(d=60, wide=30, tall=180, repetitions=4, growth=(20, 40), work=160, signals=3)


def test_it_writes_grid_growth_and_slopes(tmp_path: Path) -> None:
    counted = []
    files = run_study(
        get_study("validation"), tmp_path, size=TINY, progress=lambda done, total: counted.append((done, total))
    ).files
    assert [file.name for file in files] == [
        "validation.csv", "validation-growth.csv", "validation-slopes.csv", "validation.png", "validation.svg"
    ]  # fmt: skip
    assert len(files[0].read_text().splitlines()) == 1 + 9 * (1 + 5 * 3 + 4)
    assert len(files[1].read_text().splitlines()) == 1 + 5 * 2
    assert counted[-1][0] == counted[-1][1]


def test_a_cell_agrees_within_three_standard_errors_or_one_percent() -> None:
    rows = [row for model in validation.MODELS_OF_GRID for row in validation.grid(TINY, model, 1)]
    for row in rows:
        near = abs(row["standard_errors"]) <= 3 or abs(row["simulated"] - row["formula"]) <= 0.01 * row["simulated"]
        assert row["agrees"] == near
        assert np.isclose(row["relative"], row["simulated"] / row["formula"] - 1)
    assert {row["signal"] for row in rows if row["model"] == "identity"} == {"random"}


def test_the_fit_finds_the_power_and_leaves_out_what_is_not_resolved() -> None:
    rows = [{"d": d, "relative": -3.0 / d, "relative_error": 0.1 / d} for d in (50, 100, 200)]
    found = validation.fit("x", rows)
    assert np.isclose(found["slope"], -1.0)
    assert np.isclose(np.exp(found["intercept"]), 3.0)
    noise = [{"d": 400, "relative": 0.1, "relative_error": 0.2}]
    assert validation.fit("x", rows + noise) == found
    assert "slope" not in validation.fit("x", rows[:1] + noise)


def test_the_error_falls_as_the_size_grows() -> None:
    size = entry_of("validation").size(growth=(25, 100), work=10_000, signals=10)
    rows = validation.growth(size, "Beta, ñ = 1.5 d", 1)
    assert abs(rows[1]["relative"]) < 0.5 * abs(rows[0]["relative"])
