"""Figures: they show the comparison's numbers, and are the same files every time."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from r2mae.compare.analysis import analyse
from r2mae.compare.comparison import Comparison
from r2mae.compare.figures import (
    colours_of,
    comparison_figures,
    inline_svg,
    lines_with_bands,
    loss_panels,
    paired_differences,
    ratio_panels,
    save_figures,
    scheme_colours,
)
from r2mae.compare.style import figure_bytes, svg
from r2mae.evaluation.examples import Examples
from r2mae.masking.schemes import scheme_names

pytestmark = pytest.mark.slow

Make = Callable[..., Comparison]
COLOURS = scheme_colours()


def lines(figure: Figure, **properties: object) -> list[Line2D]:
    """Lines of the first axes with these properties."""
    return [
        line
        for line in figure.axes[0].get_lines()
        if all(getattr(line, f"get_{k}")() == v for k, v in properties.items())
    ]


def named(comparison: Comparison, name: str) -> Figure:
    """The figure of this name."""
    return next(one for one in comparison_figures(comparison, analyse(comparison)) if one.name == name).draw()


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_scheme_has_a_colour_of_its_own() -> None:
    assert list(COLOURS) == scheme_names()
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_colours_do_not_depend_on_the_company(make_comparison: Make) -> None:
    alone, together = colours_of(make_comparison(schemes=("r2mae",), ratios=())), colours_of(make_comparison())
    assert alone["r2mae"] == together["r2mae"]
    shades = [together[f"fixed {p}"][0] for p in ("0.50", "0.70", "0.90")]
    assert shades == sorted(shades, reverse=True)


def test_the_forest_plot_has_the_paired_differences_and_its_zero_line(comparison: Comparison) -> None:
    asked = tuple(replace(one, question=word) for one, word in zip(comparison.metrics, ("a", "b", "", ""), strict=True))
    far = comparison.table[comparison.table["label"] == "mdlm"].assign(label="untrained", scheme="baseline")
    far["probe_accuracy"] -= 0.9
    table = pd.concat([comparison.table, far.assign(ratio=np.nan)], ignore_index=True)
    comparison = replace(comparison, metrics=asked, table=table)
    found = analyse(comparison)
    figure = paired_differences(comparison, found)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["A", "B"]
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == comparison.labels
    assert axes.yaxis_inverted() and axes.get_xlabel() == "linear probe accuracy, minus best fixed (better: right)"
    rows = {label: found.difference(label, "probe_accuracy") for label in comparison.labels}
    points = {round(line.get_ydata()[0]): line for line in lines(figure, marker="D")}
    assert len(points) == len(comparison.labels) - 1, "a baseline far away is an arrow at the edge"
    (arrow,) = lines(figure, marker="<")
    assert arrow.get_xdata()[0] == axes.get_xlim()[0] > -0.1
    for place, label in enumerate(comparison.labels[:-1]):
        row = rows[label]
        assert row is not None and points[place].get_xdata()[0] == pytest.approx(row["mean"])
        decided = row["verdict"] == "same" or found.decided(label, "probe_accuracy") != "undecided"
        assert (points[place].get_markerfacecolor() != "white") == decided
        bars = [line for line in lines(figure, linestyle="-") if [*line.get_ydata()] == [place, place]]
        assert (
            [*bars[0].get_xdata()] == pytest.approx([row["low"], row["high"]]) if row["verdict"] != "same" else not bars
        )
    assert any([*line.get_xdata()] == [0, 0] for line in lines(figure, color="#333333"))


def test_without_intervals_or_a_reference_neither_is_drawn(make_comparison: Make) -> None:
    one, bare = make_comparison(seeds=1), make_comparison(ratios=())
    figure = paired_differences(one, analyse(one))
    assert not lines(figure, linewidth=2.0) and len(lines(figure, marker="D")) == len(one.labels)
    assert "differences" not in [named.name for named in comparison_figures(bare, analyse(bare))]


def test_loss_curves_average_over_seeds(comparison: Comparison) -> None:
    figure = lines_with_bands(comparison, loss_panels(comparison))
    training, validation = figure.axes
    assert training.get_title(loc="left") == "Training loss"
    assert (training.get_yscale(), validation.get_yscale()) == ("log", "linear")
    assert legend(figure) == comparison.labels
    place = comparison.labels.index("r2mae")
    mean = comparison.curves.query("label == 'r2mae'").groupby("step")["loss"].mean()
    np.testing.assert_allclose(training.get_lines()[place].get_ydata(), mean)
    np.testing.assert_allclose(training.get_lines()[place].get_xdata(), mean.index)
    held_out = comparison.curves.query("label == 'r2mae'").dropna().groupby("step")["validation_loss"]
    np.testing.assert_allclose(validation.get_lines()[place].get_ydata(), held_out.mean())
    band = training.collections[place].get_paths()[0].get_extents()
    rows = comparison.curves.query("label == 'r2mae'")
    np.testing.assert_allclose([band.y0, band.y1], [rows["loss"].min(), rows["loss"].max()])


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_reconstructions_are_the_images(make_comparison: Make, channels: int) -> None:
    comparison = make_comparison(channels=channels)
    examples = comparison.reconstructions["cl"]
    axes = named(comparison, "reconstructions").axes[0]
    mosaic = np.asarray(axes.get_images()[0].get_array())
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["original", "70% hidden", *comparison.labels]
    assert mosaic.shape == (10 * 9 - 1, 8 * 9 - 1, 4)
    np.testing.assert_allclose(mosaic[:8, 9:17, 0], examples.original[1, :, :, 0])
    np.testing.assert_allclose(mosaic[9:17, :8, 0], examples.masked[0, :, :, 0])
    row = 9 * (2 + comparison.labels.index("cl"))
    shown = np.clip(examples.prediction[7], 0, 1)
    if channels == 3:
        np.testing.assert_allclose(mosaic[row : row + 8, 63:71, :3], shown)
    assert (mosaic[8] == 0).all()  # gaps are clear


def test_large_images_are_drawn_small(comparison: Comparison) -> None:
    examples = comparison.reconstructions

    def enlarge(images: np.ndarray) -> np.ndarray:
        return images[:2].repeat(25, axis=1).repeat(20, axis=2)  # 200 x 160

    large = {
        label: Examples(enlarge(one.original), enlarge(one.masked), enlarge(one.prediction), one.ratio)
        for label, one in examples.items()
    }
    figure = named(replace(comparison, reconstructions=large), "reconstructions")
    mosaic = np.asarray(figure.axes[0].get_images()[0].get_array())
    assert mosaic.shape[1] == 2 * 53 + 4  # blocks of three
    np.testing.assert_allclose(mosaic[:66, :53, 0].mean(), examples["cl"].original[0].mean(), atol=0.02)


def test_a_long_path_keeps_its_end(comparison: Comparison) -> None:
    comparison = replace(comparison, title="/somewhere/" + "deep/" * 20 + "faces.npz")
    title = named(comparison, "reconstructions").axes[0].get_title(loc="left")
    assert len(title) == 40
    assert title.endswith("deep/faces.npz")


def test_figures_are_skipped_without_data(comparison: Comparison) -> None:
    names = [named.name for named in comparison_figures(comparison, analyse(comparison))]
    assert names == ["reconstructions", "differences", "loss_curves"]
    bare = replace(comparison, reconstructions={}, curves=comparison.curves.iloc[:0])
    left = [named.name for named in comparison_figures(bare, analyse(bare))]
    assert left == ["differences"]


def test_saved_files_are_complete_and_the_same_every_time(make_comparison: Make, tmp_path: Path) -> None:
    comparison = make_comparison(schemes=("r2mae",))
    comparison = replace(comparison, metrics=comparison.metrics[:1])
    written = save_figures(comparison_figures(comparison, analyse(comparison)), tmp_path / "a")
    names = ("reconstructions", "differences", "loss_curves")
    assert [path.name for path in written] == [f"{name}.{suffix}" for name in names for suffix in ("png", "svg")]
    assert sorted((tmp_path / "a").iterdir()) == sorted(written)  # no temporary file is left
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):  # a user's own taste
        again = save_figures(comparison_figures(comparison, analyse(comparison)), tmp_path / "b")
    for one, two in zip(written, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
    with Image.open(written[2]) as image:
        assert image.size[0] == 1024
    text = written[3].read_text()
    assert ">fixed 0.70</text>" in text  # text stays text


def test_scores_at_several_ratios_are_drawn(comparison: Comparison, tmp_path: Path) -> None:
    table = comparison.table.assign(**{"masked_mse_0.5": 0.02, "masked_mse_0.9": 0.03})
    table["masked_mse_0.5"] += 0.001 * table["seed"]
    table.loc[table["label"] == "cl", "masked_mse_0.9"] = np.nan
    with_ratios = replace(comparison, table=table)
    analysis = analyse(with_ratios)
    figure = lines_with_bands(with_ratios, ratio_panels(with_ratios, analysis))
    (axes,) = figure.axes
    lines = dict(zip(comparison.labels, axes.lines, strict=True))
    np.testing.assert_allclose(lines["r2mae"].get_xydata(), [[0.1, 0.01], [0.5, 0.021], [0.9, 0.03]])
    np.testing.assert_allclose(lines["cl"].get_xydata(), [[0.1, 0.01], [0.5, 0.021]])  # the third is missing
    assert [text.get_text() for text in figure.legends[0].get_texts()] == comparison.labels
    assert "scores_by_ratio.svg" in [
        path.name for path in save_figures(comparison_figures(with_ratios, analysis), tmp_path)
    ]


def test_drawing_leaves_global_settings_and_pyplot_alone(comparison: Comparison) -> None:
    before = dict(mpl.rcParams)
    figure_bytes(paired_differences(comparison, analyse(comparison)), ".png")
    assert dict(mpl.rcParams) == before


def test_labels_are_text_and_not_formulas(comparison: Comparison) -> None:
    odd = comparison.table.replace({"label": {"mdlm": "$\\broken$"}})
    comparison = replace(comparison, table=odd, title="$x_{$ & <b>")
    drawn = {one.name: svg(one.draw()) for one in comparison_figures(comparison, analyse(comparison))}
    assert all(ET.fromstring(text).tag.endswith("svg") for text in drawn.values())
    assert "$\\broken$" in drawn["differences"] and "&lt;b&gt;" in drawn["reconstructions"]


def test_inlined_figures_share_no_ids_and_keep_their_references(comparison: Comparison) -> None:
    seen: set[str] = set()
    for named in comparison_figures(comparison, analyse(comparison)):
        text = inline_svg(named.svg, named.name)
        assert text.startswith('<svg class="plot"')
        assert "http" not in text
        ids = re.findall(r'\sid="([^"]+)"', text)
        assert len(ids) == len(set(ids))
        assert all(name.startswith(f"{named.name}-") for name in ids)
        assert not seen & set(ids)
        seen |= set(ids)
        references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text)
        assert {a or b for a, b in references} <= set(ids)


def test_unfinished_rows_are_left_out(comparison: Comparison) -> None:
    table = comparison.table.copy()
    table.loc[table["label"] == "cl", "probe_accuracy"] = np.nan
    comparison = replace(comparison, table=table, curves=pd.DataFrame(comparison.curves.query("label != 'cl'")))
    shown = [tick.get_text() for tick in paired_differences(comparison, analyse(comparison)).axes[0].get_yticklabels()]
    assert shown == [label for label in comparison.labels if label != "cl"]
    assert "cl" not in legend(lines_with_bands(comparison, loss_panels(comparison)))


@pytest.mark.parametrize("ends", [(0.02, 0.9), (1e-6, 3.0), (0.31, 0.38)])
def test_logarithmic_axes_read_as_plain_numbers(ends: tuple[float, float]) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([1, 2], ends)
    axes.set_yscale("log")
    axes.set_ylim(*ends)
    drawn = svg(figure)
    assert "mathdefault" not in drawn
    assert "$" not in drawn
    shown = [tick.get_text() for tick in axes.get_yticklabels(which="both") if tick.get_text()]
    assert shown
    assert all(float(text) > 0 for text in shown)
