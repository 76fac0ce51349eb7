"""Charts of the page: paths where the axes say, numbers as they are, colours that follow the page."""

import re
from dataclasses import replace

import numpy as np

from r2mae.report.charts import chart, inks_of, themed
from r2mae.report.comparison import Comparison
from r2mae.report.panels import loss_panels


def test_paths_lie_where_the_axes_say(comparison: Comparison) -> None:
    panel = loss_panels(comparison)[1]
    line = panel.lines[0]
    (area,) = chart("loss", "", "", [panel], inks_of(comparison)).areas
    places = np.array(re.findall(r"([-\d.]+) ([-\d.]+)", area.series[0].line), dtype=float)
    low, high = panel.y_range
    share = np.log(high / line.mean) / np.log(high / low) if panel.log else (high - line.mean) / (high - low)
    np.testing.assert_allclose(places[:, 1], 1000 * share, atol=0.06)
    left, right = panel.x_range
    np.testing.assert_allclose(places[:, 0], 1000 * (panel.x - left) / (right - left), atol=0.06)
    np.testing.assert_allclose(area.data["across"], places[:, 0], atol=0.06)
    np.testing.assert_allclose(area.data["lines"][0]["down"], places[:, 1], atol=0.06)
    assert area.series[0].dots.count("h0") == len(panel.x)  # few points are marked
    assert all(0 <= place <= 100 for place, _ in [*area.x_ticks, *area.y_ticks])
    assert len(area.x_ticks) >= 3 <= len(area.y_ticks)


def test_holes_are_passed_over(comparison: Comparison) -> None:
    curves = comparison.curves.copy()
    curves.loc[curves["label"] == "cl", "loss"] *= 1e-12
    curves.loc[(curves["label"] == "mdlm") & (curves["step"] > 100), "loss"] = np.inf
    (area, _) = chart("", "", "", loss_panels(replace(comparison, curves=curves)), inks_of(comparison)).areas
    by_label = {series.line_style.label: series for series in area.series}
    assert by_label["mdlm"].line.count("L") == 24
    assert not re.search("nan|inf", by_label["mdlm"].line + by_label["mdlm"].band)
    places = re.findall(r" ([-\d.]+)", by_label["cl"].line)
    assert min(map(float, places)) > 1000  # below the frame, which cuts it
    (data,) = (line for line in area.data["lines"] if line["label"] == "mdlm")
    assert data["mean"][25:] == [None] * 175 == data["down"][25:]


def test_long_curves_are_thinned_and_keep_their_ends(comparison: Comparison) -> None:
    (panel, _) = loss_panels(comparison)
    long = replace(panel, x=np.arange(1000.0), lines=tuple(
        replace(line, mean=np.resize(line.mean, 1000), low=np.resize(line.low, 1000), high=np.resize(line.high, 1000))
        for line in panel.lines
    ))  # fmt: skip
    (area,) = chart("", "", "", [long], inks_of(comparison)).areas
    assert len(area.data["x"]) == 400 == len(area.data["lines"][0]["mean"])
    assert (area.data["x"][0], area.data["x"][-1]) == (0, 999)


def test_colours_of_figures_follow_the_page() -> None:
    svg = '<svg class="plot"><path style="fill: #ffffff; stroke: #332288"/><path style="fill: #1f1f1f"/></svg>'
    changed = themed(svg)
    assert 'style="fill: var(--page); stroke: var(--c332288)"' in changed
    light, dark = re.findall(r"--c1f1f1f:(#\w+);", changed)
    assert (light, dark) == ("#1f1f1f", "#e6e6e6")  # a dark grey turns over
    assert changed.count("#332288") == 1
