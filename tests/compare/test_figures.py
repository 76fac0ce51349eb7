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
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
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
    ratio_panels,
    save_figures,
    scheme_colours,
    score_against_ratio,
    score_by_scheme,
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


def test_score_by_scheme_shows_means_intervals_seeds_and_best_fixed(comparison: Comparison) -> None:
    found = analyse(comparison)
    figure = score_by_scheme(comparison, found, comparison.metrics[0])
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == comparison.labels
    assert axes.yaxis_inverted()
    means = [line.get_xdata()[0] for line in lines(figure, marker="D")]
    np.testing.assert_allclose(means, [found.interval(label, "probe_accuracy")["mean"] for label in comparison.labels])
    bars = [c for c in axes.collections if isinstance(c, LineCollection)]
    row = found.interval("mdlm", "probe_accuracy")
    ends = bars[comparison.labels.index("mdlm")].get_segments()[0][:, 0]
    np.testing.assert_allclose(sorted(ends), [row["low"], row["high"]])
    dots = lines(figure, marker="o")
    assert sum(len(dot.get_xdata()) for dot in dots) == len(comparison.table)
    (dashed,) = lines(figure, linestyle="--")
    np.testing.assert_allclose(dashed.get_xdata()[0], np.mean([*found.best_fixed["probe_accuracy"].scores.values()]))
    assert axes.get_xlabel() == "linear probe accuracy (higher is better)"
    assert f"{row['mean']:.4f}" in [text.get_text() for text in axes.texts]


def test_score_by_scheme_of_another_metric(comparison: Comparison) -> None:
    metric = comparison.metrics[1]
    assert score_by_scheme(comparison, analyse(comparison), metric).axes[0].get_xlabel().endswith("(lower is better)")


def test_without_interval_or_fixed_ratios_neither_is_drawn(make_comparison: Make) -> None:
    comparison = make_comparison(seeds=1, ratios=())
    figure = score_by_scheme(comparison, analyse(comparison), comparison.metrics[0])
    assert len(figure.axes[0].collections) == 0
    assert not lines(figure, linestyle="--")
    assert not lines(figure, marker="o")  # a lone seed is its own mean
    assert len(lines(figure, marker="D")) == len(comparison.labels)


def test_score_against_ratio_has_the_curve_and_the_ranges(make_comparison: Make) -> None:
    ratios = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    comparison = make_comparison(ratios=ratios)
    found = analyse(comparison)
    figure = score_against_ratio(comparison, found, comparison.metrics[0])
    curve = next(line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 9)
    np.testing.assert_allclose(curve.get_xdata(), ratios)
    expected = [found.interval(f"fixed {p:.2f}", "probe_accuracy")["mean"] for p in ratios]
    np.testing.assert_allclose(curve.get_ydata(), expected)
    bars = {to_hex(line.get_color()): line for line in lines(figure, linewidth=3)}
    assert set(bars) == {COLOURS[name] for name in ("dynamic", "mdlm", "r2mae", "r2mae-cl")}  # cl has a single ratio
    np.testing.assert_allclose(bars[COLOURS["mdlm"]].get_xdata(), [0, 1])
    np.testing.assert_allclose(bars[COLOURS["r2mae"]].get_xdata(), [0.5, 0.9])
    np.testing.assert_allclose(bars[COLOURS["r2mae"]].get_ydata(), found.interval("r2mae", "probe_accuracy")["mean"])
    assert legend(figure) == ["fixed ratio", "dynamic", "mdlm", "r2mae", "cl", "r2mae-cl"]
    # Diamonds are those of single ratios, at their ratio: fixed ones, and cl.
    np.testing.assert_allclose([line.get_xdata()[0] for line in lines(figure, marker="D")], [*ratios, 0.7])
    bands = {
        to_hex(band.get_facecolor()[0]): band for band in figure.axes[0].collections if isinstance(band, PolyCollection)
    }
    assert set(bands) == set(bars)
    box, own = bands[COLOURS["r2mae"]].get_paths()[0].get_extents(), found.interval("r2mae", "probe_accuracy")
    np.testing.assert_allclose([box.x0, box.x1, box.y0, box.y1], [0.5, 0.9, own["low"], own["high"]])


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
    title = score_by_scheme(comparison, analyse(comparison), comparison.metrics[0]).axes[0].get_title(loc="left")
    assert len(title) == 40
    assert title.endswith("deep/faces.npz")


def test_captions_keep_capitals(comparison: Comparison) -> None:
    first = replace(comparison.metrics[0], label="k-NN accuracy")
    second = replace(comparison.metrics[1], label="error by AUROC")
    one = replace(comparison, metrics=(first, second, *comparison.metrics[2:]))
    captions = [named.caption for named in comparison_figures(one, analyse(one)) if "against" in named.name]
    assert captions[0].startswith("k-NN accuracy of fixed ratios")
    assert captions[1].startswith("Error by AUROC of fixed ratios")


def test_figures_are_skipped_without_data(comparison: Comparison) -> None:
    names = [named.name for named in comparison_figures(comparison, analyse(comparison))]
    assert names[0] == "score_by_scheme"
    assert names.index("score_by_scheme_effective_rank") < names.index("score_against_ratio")
    assert names[-2:] == ["loss_curves", "reconstructions"]
    bare = replace(comparison, reconstructions={}, curves=comparison.curves.iloc[:0])
    left = [named.name for named in comparison_figures(bare, analyse(bare))]
    assert left == names[:-2]


def test_saved_files_are_complete_and_the_same_every_time(make_comparison: Make, tmp_path: Path) -> None:
    comparison = make_comparison(schemes=("r2mae",))
    comparison = replace(comparison, metrics=comparison.metrics[:1])
    written = save_figures(comparison_figures(comparison, analyse(comparison)), tmp_path / "a")
    names = ("score_by_scheme", "score_against_ratio", "loss_curves", "reconstructions")
    assert [path.name for path in written] == [f"{name}.{suffix}" for name in names for suffix in ("png", "svg")]
    assert sorted((tmp_path / "a").iterdir()) == sorted(written)  # no temporary file is left
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):  # a user's own taste
        again = save_figures(comparison_figures(comparison, analyse(comparison)), tmp_path / "b")
    for one, two in zip(written, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
    with Image.open(written[0]) as image:
        assert image.size[0] == 1024
    text = written[1].read_text()
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
    figure_bytes(score_by_scheme(comparison, analyse(comparison), comparison.metrics[0]), ".png")
    assert dict(mpl.rcParams) == before


def test_labels_are_text_and_not_formulas(comparison: Comparison) -> None:
    odd = comparison.table.replace({"label": {"mdlm": "$\\broken$"}})
    comparison = replace(comparison, table=odd, title="$x_{$ & <b>")
    for named in comparison_figures(comparison, analyse(comparison)):
        root = ET.fromstring(svg(named.draw()))
        assert root.tag.endswith("svg")
    drawn = svg(score_by_scheme(comparison, analyse(comparison), comparison.metrics[0]))
    assert "$\\broken$" in drawn
    assert "&lt;b&gt;" in drawn


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


def test_unfinished_rows_are_drawn_without_their_values(comparison: Comparison) -> None:
    table = comparison.table.copy()
    table.loc[table["label"] == "cl", "probe_accuracy"] = np.nan
    comparison = replace(comparison, table=table, curves=pd.DataFrame(comparison.curves.query("label != 'cl'")))
    figure = score_by_scheme(comparison, analyse(comparison), comparison.metrics[0])
    assert len(lines(figure, marker="D")) == len(comparison.labels) - 1
    assert "cl" not in legend(score_against_ratio(comparison, analyse(comparison), comparison.metrics[0]))
    assert "cl" not in legend(lines_with_bands(comparison, loss_panels(comparison)))


def test_a_baseline_without_the_score_is_left_out_of_its_figure(make_comparison: Make) -> None:
    comparison = make_comparison()
    mean = comparison.table[comparison.table["label"] == "r2mae"].assign(
        label="mean", scheme="baseline", ratio=np.nan, low=np.nan, high=np.nan, probe_accuracy=np.nan
    )
    comparison = replace(comparison, table=pd.concat([comparison.table, mean], ignore_index=True))
    analysis = analyse(comparison)
    for metric in analysis.metrics[:2]:
        rows = [tick.get_text() for tick in score_by_scheme(comparison, analysis, metric).axes[0].get_yticklabels()]
        assert ("mean" in rows) == (metric.name == "masked_mse")
        assert ("mean" in legend(score_against_ratio(comparison, analysis, metric))) == (metric.name == "masked_mse")


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
