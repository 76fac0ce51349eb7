"""The figure of tables of schemes: which rows each line of panels names, and how many ticks an axis has."""

from itertools import pairwise

import pytest

from r2mae_paper.rows import TableRow
from r2mae_paper.scheme_tables import dots


def row(label: str, score: str, mean: float, half: float) -> TableRow:
    return {"label": label, "score": score, "mean": mean, "low": mean - half, "high": mean + half}


def test_each_line_of_panels_names_the_rows_that_have_values_in_it() -> None:
    rows = [row(label, score, 0.5, 0.1) for label in ("fixed", "r2mae", "pca") for score in ("a", "b", "c")]
    rows = [one for one in rows if (one["label"], one["score"]) != ("pca", "c")]
    figure = dots(rows, {"a": "A", "b": "B", "c": "C"}, "pca", columns=2)
    names = {axes.get_title(): [tick.get_text() for tick in axes.get_yticklabels()] for axes in figure.axes}
    assert names["A"] == ["fixed", "r2mae", "pca"]
    assert names["B"] == ["", "", ""]
    assert names["C"] == ["fixed", "r2mae"]


@pytest.mark.parametrize("width", [3e-5, 6e-5, 0.0003, 0.0004, 0.0008, 0.003, 0.05, 0.24])
def test_labels_of_a_narrow_range_have_room(width: float) -> None:
    rows = [row(label, score, 0.6, width) for label in ("a row with a long name", "r2mae") for score in "abcdef"]
    figure = dots(rows, {score: score for score in "abcdef"}, "none", columns=6)
    figure.canvas.draw()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        boxes = [label.get_window_extent() for at, label in ticks if low <= at <= high]
        assert 2 <= len(boxes) <= 5
        assert all(left.x1 + left.height / 2 < right.x0 for left, right in pairwise(boxes))
