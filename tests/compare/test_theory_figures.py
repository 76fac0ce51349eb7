import numpy as np
import pytest

from r2mae.compare.style import svg
from r2mae.compare.theory_figures import advice_figure
from r2mae.theory import Rotated, advise


@pytest.mark.parametrize(("n", "holds"), [(20, True), (300, True), (300, False)])
def test_advice_figure(n: int, holds: bool) -> None:
    advice = advise(Rotated(1 / np.arange(1, 61)), n, directions=7, ratios=np.arange(1, 99) / 99)
    figure = advice_figure(advice, "data", holds=holds)
    top = figure.axes[0]
    lead = advice.directions
    curves = [line.get_data() for line in top.lines if line.get_label().startswith("_child") and line.get_lw() == 1]
    assert len(curves) == 7
    for index, (x, y) in enumerate(curves):
        np.testing.assert_array_equal(np.asarray(y)[np.isin(x, lead.ratios)], lead.normalised[:, index])
        if advice.peak is not None:
            assert np.isnan(np.asarray(y)[np.searchsorted(x, advice.peak)])
    words = svg(figure)
    assert "data: masked linear regression" in words
    for text in ("best for the mean direction", "best for the mean feature"):
        assert words.count(text) == holds
