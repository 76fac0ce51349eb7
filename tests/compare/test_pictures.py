"""Examples of several models next to each other."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2mae.compare.pictures import check_alike, draw_pictures
from r2mae.compare.style import figure_style
from r2mae.errors import UserError
from r2mae.evaluation.examples import Examples


def examples(seed: int = 0, *, ratio: float = 0.7, count: int = 3, side: int = 8, channels: int = 3) -> Examples:
    """Examples whose predictions depend on the seed, and whose images and masks do not."""
    shape = (count, side, side + 2, channels)
    images, drawn, made = (np.random.default_rng(one).random(shape, dtype=np.float32) for one in (99, 98, seed))
    return Examples(images, images * (drawn > ratio), made, ratio, tuple(range(0, 1000 * count, 1000)))


def test_models_are_rows_under_their_names() -> None:
    axes = draw_pictures({"a": examples(1), "b": examples(2)}, title="set").axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["original", "70% hidden", "a", "b"]
    assert axes.get_title(loc="left") == "set"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1000", "2000"]


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 4), models=st.integers(1, 4), side=st.integers(2, 40), channels=st.sampled_from([1, 2, 3]))
def test_every_image_has_its_place(count: int, models: int, side: int, channels: int) -> None:
    many = {f"model {i}": examples(i, count=count, side=side, channels=channels) for i in range(models)}
    drawn = np.asarray(draw_pictures(many).axes[0].get_images()[0].get_array())
    high, wide, gap = side, side + 2, max(1, round(0.06 * (side + 2)))
    assert drawn.shape == ((models + 2) * (high + gap) - gap, count * (wide + gap) - gap, 4)
    first = next(iter(many.values()))
    for line, images in enumerate([first.original, first.masked, *(one.prediction for one in many.values())]):
        for number, image in enumerate(images):
            found = drawn[line * (high + gap) :][:high, number * (wide + gap) :][:, :wide, :3]
            shown = image if channels == 3 else np.repeat(image.mean(2, keepdims=True), 3, axis=2)
            np.testing.assert_allclose(found, shown, atol=1e-6)


def test_names_are_in_the_figure_and_apart() -> None:
    for names in (["fixed 0.10", "fixed 0.90"], [f"runs/somewhere/{i}" for i in range(12)]):
        figure = draw_pictures({name: examples(i) for i, name in enumerate(names)})
        with figure_style():
            figure.draw_without_rendering()
        boxes = [tick.get_window_extent() for tick in figure.axes[0].get_yticklabels()]
        assert all(a.y0 >= b.y1 or b.y0 >= a.y1 for a, b in pairwise(boxes)), names
        assert all(box.x0 >= 0 and box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes), names


def test_other_images_and_other_masks_are_refused() -> None:
    one = examples()
    with pytest.raises(UserError, match="a and b have different test images"):
        check_alike({"a": one, "b": replace(one, original=one.original / 2)})
    with pytest.raises(UserError, match="different test images"):
        check_alike({"a": one, "b": examples(side=9)})
    with pytest.raises(UserError, match="a and b mask different parts"):
        draw_pictures({"a": one, "b": replace(one, masked=one.original)})
