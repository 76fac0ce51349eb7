"""Examples of several models next to each other."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.compare.pictures import draw_pictures
from r2mae.compare.style import figure_style
from r2mae.errors import UserError
from r2mae.evaluation.examples import Examples


def examples(seed: int = 0, *, ratio: float = 0.7, count: int = 3, side: int = 8, channels: int = 3) -> Examples:
    """Examples whose predictions depend on the seed, and whose images and masks do not."""
    shape = (count, side, side + 2, channels)
    images, drawn, made = (np.random.default_rng(one).random(shape, dtype=np.float32) for one in (99, 98, seed))
    return Examples(images, images * (drawn > ratio), made, ratio)


def mosaic_of(found: dict[str, Examples], **how: str) -> np.ndarray:
    return np.asarray(draw_pictures(found, **how).axes[0].get_images()[0].get_array())  # type: ignore[arg-type]


def test_models_stand_beside_each_other_under_their_names() -> None:
    found = {"a": examples(1), "b": examples(2)}
    axes = draw_pictures(found, along="columns").axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["original", "70%\nhidden", "a", "b"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == []
    rows = draw_pictures(found, title="set").axes[0]
    assert [tick.get_text() for tick in rows.get_yticklabels()] == ["original", "70% hidden", "a", "b"]
    assert rows.get_title(loc="left") == "set"


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 4), models=st.integers(1, 4), side=st.integers(2, 40), channels=st.sampled_from([1, 2, 3]))
def test_columns_are_the_rows_turned(count: int, models: int, side: int, channels: int) -> None:
    many = {f"model {i}": examples(i, count=count, side=side, channels=channels) for i in range(models)}
    rows, columns = mosaic_of(many, along="rows"), mosaic_of(many, along="columns")
    high, wide, gap = side, side + 2, max(1, round(0.06 * (side + 2)))
    for line in range(models + 2):
        for example in range(count):
            across = rows[line * (high + gap) :][:high, example * (wide + gap) :][:, :wide]
            down = columns[example * (high + gap) :][:high, line * (wide + gap) :][:, :wide]
            np.testing.assert_array_equal(across, down)
    assert columns.shape == (count * (high + gap) - gap, (models + 2) * (wide + gap) - gap, 4)


def test_names_never_run_into_each_other() -> None:
    """Long ones are broken into lines, or turned where a word is too long, so that columns stay as wide as images."""
    for names in (["fixed 0.10", "fixed 0.90"], [f"runs/somewhere/{i}" for i in range(12)]):
        figure = draw_pictures({name: examples(i) for i, name in enumerate(names)}, along="columns")
        with figure_style():
            figure.canvas.draw()
        boxes = [tick.get_window_extent() for tick in figure.axes[0].get_xticklabels()]
        assert all(a.x1 <= b.x0 for a, b in pairwise(boxes)), names
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes), names


def test_other_images_and_other_masks_are_refused() -> None:
    one = examples()
    with pytest.raises(UserError, match="hides 70% of its examples, and b 50%"):
        draw_pictures({"a": one, "b": replace(one, ratio=0.5)})
    with pytest.raises(UserError, match="a and b have different test images"):
        draw_pictures({"a": one, "b": replace(one, original=one.original / 2)})
    with pytest.raises(UserError, match="different test images"):
        draw_pictures({"a": one, "b": examples(side=9)})
    with pytest.raises(UserError, match="a and b mask different parts"):
        draw_pictures({"a": one, "b": replace(one, masked=one.original)})
