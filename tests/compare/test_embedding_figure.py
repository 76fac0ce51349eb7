"""The picture of an embedding: what is drawn, in which colours, and what is refused."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.neighbors import KNeighborsClassifier

from r2mae.compare.embedding_figure import (
    embedding_figure,
    import_umap,
    umap_positions,
)
from r2mae.compare.style import write_figure
from r2mae.errors import UserError

pytestmark = pytest.mark.slow

POINTS = 90
KIND = np.arange(POINTS) % 3


@pytest.fixture(scope="module")
def blobs() -> np.ndarray:
    """Three groups in three of sixty dimensions."""
    rng = np.random.default_rng(0)
    return (10 * np.eye(3, 60)[KIND] + 0.3 * rng.normal(size=(POINTS, 60))).astype(np.float32)


def legend_of(figure: Figure, panel: int) -> dict[str, str]:
    """Names and colours."""
    legend = figure.axes[panel].get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    return dict(zip(texts, [to_hex(handle.get_facecolor()[0]) for handle in legend.legend_handles], strict=True))


def drawn(figure: Figure, panel: int) -> Counter[str]:
    """How many dots have which colour."""
    found: Counter[str] = Counter()
    for dots in figure.axes[panel].collections:
        points, colours = len(dots.get_offsets()), [to_hex(colour) for colour in dots.get_facecolors()]
        found.update(colours if len(colours) > 1 else colours * points)  # the legend's have no points
    return found


def test_groups_stay_apart_and_the_seed_says_where(blobs: np.ndarray) -> None:
    places = umap_positions(blobs)
    assert places.shape == (POINTS, 2)
    assert KNeighborsClassifier(3).fit(places[::2], KIND[::2]).score(places[1::2], KIND[1::2]) == 1
    np.testing.assert_array_equal(places, umap_positions(blobs))
    assert not np.array_equal(places, umap_positions(blobs, seed=1))
    np.testing.assert_array_equal(umap_positions(blobs.astype(np.float64)), places)


def test_a_collapsed_embedding_is_drawn() -> None:
    assert np.isfinite(umap_positions(np.ones((20, 4), dtype=np.float32))).all()


def test_every_class_has_its_colour(blobs: np.ndarray) -> None:
    names = np.array(["T10", "_T2", "B"])[KIND]
    names[:4] = ["", "nan", "T2", "$x$"]
    figure = embedding_figure(blobs, {"type": names, "one": np.full(POINTS, "only")}, title="cells")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["type", "one"]
    legend = legend_of(figure, 0)
    assert list(legend) == ["$x$", "B", "T10", "T2", "_T2", "no value"]
    assert len(set(legend.values())) == len(legend)
    counts = Counter(names.tolist())
    expected = {colour: counts[name] for name, colour in legend.items()} | {legend["no value"]: 2}
    assert drawn(figure, 0) == expected
    assert figure.texts[0].get_text() == "cells, 90 points"


@pytest.mark.parametrize(("classes", "named"), [(11, 11), (12, 11), (40, 11)])
def test_many_classes_leave_the_largest(blobs: np.ndarray, classes: int, named: int) -> None:
    # Class 0 is the largest, and so on.
    rank = np.minimum((np.arange(POINTS) * 7919 % POINTS) // 2, np.arange(POINTS) % classes)
    rank[:classes] = np.arange(classes)
    names = np.array([f"c{place}" for place in rank])
    figure = embedding_figure(blobs, {"kind": names}, title="cells")
    legend = legend_of(figure, 0)
    counts = Counter(names.tolist())
    assert len(counts) == classes
    shown = [name for name in legend if not name.startswith("other")]
    assert len(shown) == named
    assert min(counts[name] for name in shown) >= max((counts[name] for name in set(counts) - set(shown)), default=0)
    if classes > named:
        assert list(legend)[-1] == f"other ({classes - named})"
        assert drawn(figure, 0)[legend[f"other ({classes - named})"]] == POINTS - sum(counts[name] for name in shown)


def test_numbers_have_a_bar_and_missing_ones_are_pale(blobs: np.ndarray) -> None:
    age = np.linspace(20.0, 80.0, POINTS)
    age[0], age[1:11] = 1e6, np.nan
    figure = embedding_figure(
        blobs, {"age": age, "constant": np.full(POINTS, 3.0), "none": np.full(POINTS, np.nan)}, title="cells"
    )
    numbers, pale = figure.axes[0].collections[:2]
    assert len(pale.get_offsets()) == 10
    low, high = numbers.get_clim()
    assert (low, high) == pytest.approx(tuple(np.nanquantile(age, [0.01, 0.99])))
    assert list(legend_of(figure, 0)) == ["no value"]
    values = np.sort(np.asarray(numbers.get_array()))
    np.testing.assert_array_equal(values, np.sort(age[np.isfinite(age)]))
    by_title = {axes.get_title(loc="left"): axes for axes in figure.axes}
    (constant,) = by_title["constant"].collections
    assert len(constant.get_offsets()) == POINTS
    (missing,) = by_title["none"].collections
    assert len(missing.get_offsets()) == POINTS
    assert [len(axes.child_axes) for axes in figure.axes] == [1, 1, 0]  # colour bars


def test_at_most_so_many_points(blobs: np.ndarray) -> None:
    names = np.array(["a", "b", "c"])[KIND]
    figure = embedding_figure(blobs, {"kind": names}, title="cells", max_points=30)
    assert sum(drawn(figure, 0).values()) == 30
    assert "30 of 90" in figure.texts[0].get_text()
    # A dot keeps its class: dots of a group lie together.
    dots = figure.axes[0].collections[0]
    kinds = np.array([to_hex(colour) for colour in dots.get_facecolors()])
    places = np.asarray(dots.get_offsets())
    assert KNeighborsClassifier(3).fit(places, kinds).score(places, kinds) == 1


@pytest.mark.parametrize("columns", [0, 1, 5])
def test_panels_have_room(blobs: np.ndarray, columns: int) -> None:
    names = {f"column {place}": np.array(["a", "b", "c"])[KIND] for place in range(columns)}
    figure = embedding_figure(blobs, names, max_points=20, title="a very long title " * 9)
    figure.draw_without_rendering()
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == max(columns, 1)
    assert all(0 < box.x0 < box.x1 < 1 and 0 < box.y0 < box.y1 < 1 for box in boxes)
    title = figure.texts[0].get_window_extent()
    assert 0 <= title.x0 < title.x1 <= figure.bbox.x1
    assert title.y0 > max(axes.get_tightbbox().y1 for axes in figure.axes)


def test_files(blobs: np.ndarray, tmp_path: Path) -> None:
    for suffix, start in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".PDF", b"%PDF")):
        for turn in range(2):
            write_figure(
                embedding_figure(blobs, {"sex & age": np.array(["a", "b", "c"])[KIND]}, title="cells"),
                tmp_path / f"{turn}{suffix}",
            )
        content = (tmp_path / f"0{suffix}").read_bytes()
        assert content.startswith(start)
        assert content == (tmp_path / f"1{suffix}").read_bytes()
    assert "sex &amp; age" in (tmp_path / "0.svg").read_text(encoding="utf-8")


def test_what_cannot_be_drawn(blobs: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = blobs.copy()
    broken[[3, 5], 1] = [np.nan, np.inf]
    with pytest.raises(UserError, match="2 of 90 embeddings hold NaN or infinity: check the training"):
        embedding_figure(broken, {}, title="cells")
    with pytest.raises(UserError, match="UMAP needs 5 points or more, not 4"):
        embedding_figure(blobs[:4], {}, title="cells")
    with pytest.raises(UserError, match=r"not 'without a suffix': --figure umap.svg"):
        write_figure(Figure(), tmp_path / "umap")
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(UserError, match=r"umap-learn, which is not installed: pip install 'r2mae\[cells\]'"):
        import_umap()
