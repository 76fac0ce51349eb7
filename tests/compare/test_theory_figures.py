from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from r2mae.compare.style import svg
from r2mae.compare.theory_figures import advice_figure, risk_figure
from r2mae.theory import Range, Rotated, advise
from r2mae.theory.problem import Problem

P = np.array([0.2, 0.4, 0.6, 0.8])
RISK = np.array([0.8, 0.5, 0.6, 1.2])
PROBLEM = Problem(Rotated(np.ones(50)), None, np.ones(50), "model $x", 40, 0.04, 0.0, P, None)
PEAKED = replace(PROBLEM, n=100)


def rows(risk: np.ndarray, more: float | None = None, **parts: np.ndarray) -> list[dict[str, Any]]:
    """Rows of a table, over a null risk of 2; the last may be of a range."""
    columns = {"risk": risk, **(parts or {"bias": risk / 4, "variance": risk * 3 / 4})}
    found = [{name: 2 * float(column[index]) for name, column in columns.items()} for index in range(len(risk))]
    return found if more is None else [*found, dict.fromkeys(columns, 2 * more)]


def lines(figure: object) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = figure.axes[0].get_lines()  # type: ignore[attr-defined]
    return {line.get_label(): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in found}


def test_risk_figure() -> None:
    problem = replace(PROBLEM, range=Range(0.5, 0.7))
    figure = risk_figure(problem, rows(RISK, 0.55), 2.0)
    drawn = lines(figure)
    np.testing.assert_array_equal(drawn["risk"][1], RISK)
    np.testing.assert_array_equal(drawn["bias"][1], RISK / 4)
    np.testing.assert_array_equal(drawn["variance"][1], RISK * 3 / 4)
    assert drawn["best ratio, 0.4"][1] == pytest.approx([0.5])
    np.testing.assert_array_equal(drawn["R²MAE 0.5–0.7"], ([0.5, 0.7], [0.55, 0.55]))  # noqa: RUF001
    assert figure.axes[0].get_ylim() == pytest.approx((0, 1.26))
    text = svg(figure)
    assert "model $x" in text
    assert "as many rows as features" not in text
    assert text == svg(risk_figure(problem, rows(RISK, 0.55), 2.0))


@pytest.mark.parametrize("risk", [RISK, np.array([0.8, np.inf, 0.6, 1.2])])
def test_curves_break_where_the_risk_diverges(risk: np.ndarray) -> None:
    figure = risk_figure(PEAKED, rows(risk), 2.0)
    at, drawn = lines(figure)["risk"]
    assert np.isnan(drawn[(at > 0.35) & (at < 0.55)]).any()
    assert np.isfinite(drawn[[0, -1]]).all()
    assert "as many rows as features" in svg(figure)


@pytest.mark.parametrize(("factor", "top"), [(1, 3), (1000, 1800)])
def test_a_divergence_does_not_stretch_the_axis(factor: float, top: float) -> None:
    huge = factor * np.array([0.8, 0.5, 0.6, 1e6])
    parts = {"formula": huge, "sd": np.zeros(4)}
    assert risk_figure(PROBLEM, rows(huge, **parts), 2.0).axes[0].get_ylim() == pytest.approx((0, top), rel=0.05)


def test_simulation_figure() -> None:
    deviation = np.array([0.1, 0.2, 0.1, 0.3])
    figure = risk_figure(PROBLEM, rows(RISK + 0.05, formula=RISK, sd=deviation), 2.0)
    (bars,) = figure.axes[0].containers
    np.testing.assert_allclose(bars[0].get_ydata(), RISK + 0.05)
    ends = [segment[:, 1] for segment in bars[2][0].get_segments()]
    np.testing.assert_allclose(ends, np.stack([RISK + 0.05 - deviation, RISK + 0.05 + deviation], axis=1))
    np.testing.assert_array_equal(lines(figure)["formula"][1], RISK)
    assert "simulation, mean ± sd" in svg(figure)


def test_one_repetition_and_one_ratio() -> None:
    one, problem = np.array([0.5]), replace(PROBLEM, fixed=np.array([0.5]))
    figure = risk_figure(problem, rows(one, formula=one, sd=np.array([np.nan])), 2.0)
    assert "mean ± sd" not in svg(figure)
    assert risk_figure(problem, rows(one), 2.0).axes[0].get_lines()[0].get_marker() == "o"


def test_nothing_finite() -> None:
    problem = replace(PEAKED, fixed=np.array([0.5]))
    assert "predicting zero" in svg(risk_figure(problem, rows(np.array([np.inf])), 2.0))


@pytest.mark.parametrize(("n", "holds"), [(20, True), (300, True), (300, False)])
def test_advice_figure(n: int, holds: bool) -> None:
    advice = advise(Rotated(1 / np.arange(1, 61)), n, directions=7, ratios=np.arange(1, 99) / 99)
    figure = advice_figure(advice, "data", holds=holds)
    top, bottom = figure.axes
    lead = advice.directions
    curves = [line.get_data() for line in top.lines if line.get_label().startswith("_child") and line.get_lw() == 1]
    assert len(curves) == 7
    for index, (x, y) in enumerate(curves):
        np.testing.assert_array_equal(np.asarray(y)[np.isin(x, lead.ratios)], lead.normalised[:, index])
        if advice.peak is not None:
            assert np.isnan(np.asarray(y)[np.searchsorted(x, advice.peak)])
    words = svg(figure)
    assert "data: masked linear regression" in words
    assert advice.suggested is not None
    for text in ("best for the mean direction", "best for the mean feature", "range for linear regression"):
        assert words.count(text) == holds
    assert len(top.patches) == len(bottom.patches) == int(holds)
