import csv
from pathlib import Path

import numpy as np
import pytest

from r2mae_paper.rows import column, select
from r2mae_paper.runner import run_study
from r2mae_paper.simulated import magnitude_ratios, measure, plot_strengths, with_corollary
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study

pytestmark = pytest.mark.slow

TINY = entry_of("fig1b").size(n=40, d=120, deltas=(1.0, 10.0), repetitions=3, fresh=4, step=0.05)


@pytest.mark.parametrize("name", ["fig1b", "fig1c", "fig1d", "fig3"])
def test_each_figure_writes_what_it_draws(name: str, tmp_path: Path) -> None:
    counted = []
    study = get_study(name)
    files = run_study(study, tmp_path, size=TINY, progress=lambda done, total: counted.append((done, total))).files
    assert {f"{name}.csv", f"{name}.png", f"{name}.svg"} <= {file.name for file in files}
    assert all(file.stat().st_size for file in files)
    assert counted[-1][0] == counted[-1][1] == (1 if name == "fig1b" else 2)


def test_the_legend_says_what_dots_and_lines_are() -> None:
    rows = [row for delta in (1.0, 10.0) for row in measure(TINY, "uniform", delta, (0.0, 1.0), 1)]
    tables = {"fig3": rows, "fig3-magnitude": magnitude_ratios(rows)}
    figure = plot_strengths(tables, TINY, name="fig3", risks="fig3", magnitudes="fig3-magnitude", width=3.5)["fig3"]
    for one in figure.axes:
        legend = one.get_legend()
        assert legend is not None
        assert {"formula", "simulation, one design"} <= {text.get_text() for text in legend.get_texts()}


def test_formula_corollary_and_simulation_agree() -> None:
    size = entry_of("fig1b").size(n=100, d=500, repetitions=2, fresh=60, step=0.05)
    rows = with_corollary(size, 1.0, measure(size, "uniform", 1.0, (0.0, 1.0), 1))
    for cosine in (0.0, 1.0):
        own = [row for row in select(rows, cosine=cosine) if row["ratio"] <= 0.7]
        formula = column(own, "formula")
        np.testing.assert_allclose(column(own, "corollary1"), formula, rtol=0.02)
        distance = np.abs(column(own, "fresh_risk") - formula)
        assert (distance <= np.maximum(4 * column(own, "fresh_error"), 0.03 * formula)).all()


def test_the_formula_is_finer_than_the_simulation() -> None:
    size = entry_of("fig1b").size(n=50, d=100, repetitions=2, fresh=2, step=0.01)
    rows = measure(size, "ones", 1.0, (0.0, 1.0), 1)
    assert len(rows) == 2 * 98  # from 0.02, where a row is kept
    assert np.isfinite(column(rows, "risk")).sum() == 2 * 19
    assert np.isfinite(column(rows, "formula")).all()


def test_the_magnitude_ratio_is_cosine_0_over_cosine_1() -> None:
    rows = [
        {"v": "ones", "delta": 1.0, "cosine": cosine, "ratio": 0.5, "null": null, "formula_magnitude": size, **more}
        for cosine, null, size, more in (
            (0.0, 1.0, 3.0, {"magnitude": 2.0, "fresh_magnitude": 1.0}),
            (1.0, 2.0, 4.0, {"magnitude": 8.0, "fresh_magnitude": 10.0}),
        )
    ]
    (found,) = magnitude_ratios(rows)
    assert found["truth"] == 0.5
    assert found["formula_magnitude_ratio"] == 0.75
    assert found["magnitude_ratio"] == 0.25
    assert found["fresh_magnitude_ratio"] == 0.1


def test_fig3_is_of_the_spike_of_ones(tmp_path: Path) -> None:
    with run_study(get_study("fig3"), tmp_path, size=TINY).files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["v"] for row in rows} == {"ones"}
    assert {float(row["null"]) for row in rows} == {1.0, 2.0, 11.0}
