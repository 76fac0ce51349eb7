"""Panels: means and bands of curves and of scores by ratio, on axes that suit them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from r2mae.compare.analysis import analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.figures import lines_with_bands, loss_panels, ratio_panels
from r2mae.compare.style import figure_bytes
from r2mae.evaluation.statistics import mean_interval


def test_losses_are_means_over_seeds_between_their_extremes(comparison: Comparison) -> None:
    panels = loss_panels(comparison)
    assert [panel.x_label for panel in panels] == ["optimiser step"] * 2
    for panel, column in zip(panels, ("loss", "validation_loss"), strict=True):
        curves = comparison.curves.dropna(subset=[column])
        assert list(panel.lines) == comparison.labels
        for label, line in panel.lines.items():
            by_step = curves[curves["label"] == label].groupby("step")[column]
            np.testing.assert_array_equal(panel.x, by_step.mean().index)
            np.testing.assert_allclose(line, by_step.agg(["mean", "min", "max"]))


def test_scores_at_several_ratios_become_a_panel(comparison: Comparison) -> None:
    table = comparison.table.assign(**{"masked_mse_0.5": 0.02, "masked_mse_0.9": 0.03, "top_1": 0.9, "top_0": 0.5})
    table["masked_mse_0.5"] += 0.001 * table["seed"]
    table.loc[table["label"] == "cl", "masked_mse_0.9"] = np.nan
    with_ratios = replace(comparison, table=table)
    (panel,) = ratio_panels(with_ratios, analyse(with_ratios))  # top_1 is no ratio
    assert panel.title == "Masked reconstruction error"
    np.testing.assert_array_equal(panel.x, [0.1, 0.5, 0.9])
    assert list(panel.lines) == comparison.labels
    np.testing.assert_allclose(panel.lines["r2mae"][:, 0], [0.01, 0.021, 0.03])
    expected = mean_interval(np.array([0.02, 0.021, 0.022]), confidence=0.95)
    np.testing.assert_allclose(panel.lines["r2mae"][1, 1:], [expected.low, expected.high])
    assert math.isnan(panel.lines["cl"][2, 0])


def test_a_loss_that_explodes_or_vanishes_does_not_flatten_the_rest(comparison: Comparison) -> None:
    curves = comparison.curves.copy()
    curves.loc[curves["label"] == "cl", "loss"] *= 1e-12
    curves.loc[(curves["label"] == "mdlm") & (curves["step"] > 100), "loss"] = np.inf
    panels = loss_panels(replace(comparison, curves=curves))
    assert np.isfinite(panels[0].lines["mdlm"]).all(axis=1).sum() == 25
    axes = lines_with_bands(comparison, panels).axes[0]
    assert axes.get_yscale() == "log"
    assert 1e-4 < axes.get_ylim()[0] < axes.get_ylim()[1] < 1  # what falls far leaves the axis below
    assert loss_panels(replace(comparison, curves=curves.assign(loss=np.inf, validation_loss=np.nan))) == []


@pytest.mark.parametrize(("change", "scale"), [(0.0, "log"), (-0.05, "linear")])
def test_axes_are_logarithmic_only_where_values_fall_far_and_stay_positive(
    comparison: Comparison, change: float, scale: str
) -> None:
    curves = comparison.curves.assign(loss=comparison.curves["loss"] + change)
    moved = replace(comparison, curves=curves)
    assert lines_with_bands(moved, loss_panels(moved)).axes[0].get_yscale() == scale
    flat = replace(comparison, curves=curves.assign(loss=1.0, validation_loss=np.nan))
    (axes,) = lines_with_bands(flat, loss_panels(flat)).axes
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] < 1 < axes.get_ylim()[1]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_ticks_say_what_they_are(comparison: Comparison, scale: float) -> None:
    curves = comparison.curves.assign(loss=comparison.curves["loss"] * scale)
    scaled = replace(comparison, curves=curves)
    figure = lines_with_bands(scaled, loss_panels(scaled))
    figure_bytes(figure, ".png")
    for axes in figure.axes:
        low, high = axes.get_ylim()
        ticks = [
            (tick.get_loc(), tick.label1.get_text())
            for which in (axes.yaxis.get_major_ticks(), axes.yaxis.get_minor_ticks())
            for tick in which
        ]
        shown = [(value, text) for value, text in ticks if low <= value <= high and text]
        assert len(shown) >= 3
        for value, text in shown:
            assert float(text.replace("\N{MINUS SIGN}", "-")) == pytest.approx(value)
