"""Panels: means and bands of curves and of scores by ratio, on axes that suit them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from r2mae.evaluation.statistics import mean_interval
from r2mae.report.analysis import analyse
from r2mae.report.comparison import Comparison
from r2mae.report.panels import loss_panels, ratio_panels


def test_losses_are_means_over_seeds_between_their_extremes(comparison: Comparison) -> None:
    panels = loss_panels(comparison)
    assert [panel.x_label for panel in panels] == ["optimiser step"] * 2
    for panel, column in zip(panels, ("loss", "validation_loss"), strict=True):
        curves = comparison.curves.dropna(subset=[column])
        assert [line.label for line in panel.lines] == comparison.labels
        for line in panel.lines:
            by_step = curves[curves["label"] == line.label].groupby("step")[column]
            np.testing.assert_array_equal(panel.x, by_step.mean().index)
            for values, expected in (
                (line.mean, by_step.mean()),
                (line.low, by_step.min()),
                (line.high, by_step.max()),
            ):
                np.testing.assert_allclose(values, expected)


def test_scores_at_several_ratios_become_a_panel(comparison: Comparison) -> None:
    table = comparison.table.assign(**{"masked_mse_0.5": 0.02, "masked_mse_0.9": 0.03, "top_1": 0.9, "top_0": 0.5})
    table["masked_mse_0.5"] += 0.001 * table["seed"]
    table.loc[table["label"] == "cl", "masked_mse_0.9"] = np.nan
    with_ratios = replace(comparison, table=table)
    (panel,) = ratio_panels(with_ratios, analyse(with_ratios))  # top_1 is no ratio
    assert panel.title == "Masked reconstruction error"
    np.testing.assert_array_equal(panel.x, [0.1, 0.5, 0.9])
    lines = {line.label: line for line in panel.lines}
    assert list(lines) == comparison.labels
    np.testing.assert_allclose(lines["r2mae"].mean, [0.01, 0.021, 0.03])
    expected = mean_interval(np.array([0.02, 0.021, 0.022]), confidence=0.95)
    np.testing.assert_allclose([lines["r2mae"].low[1], lines["r2mae"].high[1]], [expected.low, expected.high])
    assert math.isnan(lines["cl"].mean[2])


def test_a_loss_that_explodes_or_vanishes_does_not_flatten_the_rest(comparison: Comparison) -> None:
    curves = comparison.curves.copy()
    curves.loc[curves["label"] == "cl", "loss"] *= 1e-12
    curves.loc[(curves["label"] == "mdlm") & (curves["step"] > 100), "loss"] = np.inf
    panel = loss_panels(replace(comparison, curves=curves))[0]
    assert panel.log and panel.y_range[0] > 1e-4  # what falls far leaves the axis below
    mdlm = next(line for line in panel.lines if line.label == "mdlm")
    assert np.isfinite(mdlm.mean).sum() == 25
    assert loss_panels(replace(comparison, curves=curves.assign(loss=np.inf, validation_loss=np.nan))) == []


def test_axes_are_logarithmic_only_where_values_fall_far_and_stay_positive(comparison: Comparison) -> None:
    assert loss_panels(comparison)[0].log
    (only,) = loss_panels(replace(comparison, curves=comparison.curves.assign(loss=1.0, validation_loss=np.nan)))
    assert not only.log
    below = comparison.curves.assign(loss=comparison.curves["loss"] - 0.05)
    assert not loss_panels(replace(comparison, curves=below))[0].log


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_ticks_lie_on_the_axes_and_say_what_they_are(comparison: Comparison, scale: float) -> None:
    curves = comparison.curves.assign(loss=comparison.curves["loss"] * scale)
    for panel in loss_panels(replace(comparison, curves=curves)):
        for ticks, (low, high) in ((panel.x_ticks, panel.x_range), (panel.y_ticks, panel.y_range)):
            assert len(ticks) >= 3
            for value, text in ticks:
                assert low <= value <= high
                assert float(text) == pytest.approx(value)
