from pathlib import Path

import pytest

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.wing import WING
from r2mae.sweep.cells import Axis, cells_of, grid

BASE = ImagesConfig(data="digits", scheme="fixed")


def test_a_grid_of_presets_and_ratios() -> None:
    presets = Axis("preset", {name: WING.presets[name] for name in ("mlp-512-16", "mlp-512-64")})
    rows = grid(BASE, [presets, Axis.over("ratio", [0.1, 0.5])])
    labels = ["mlp-512-16 0.10", "mlp-512-16 0.50", "mlp-512-64 0.10", "mlp-512-64 0.50"]
    assert [row.label for row in rows] == labels
    assert [(row.config.latent, row.config.ratio) for row in rows] == [(16, 0.1), (16, 0.5), (64, 0.1), (64, 0.5)]
    assert rows[1].values == {"preset": "mlp-512-16", "ratio": "0.50"}
    cells = cells_of(rows, [2, 3], Path("out"))
    assert len({cell.folder for cell in cells}) == 8
    assert [cell.config.seed for cell in cells] == [2] * 4 + [3] * 4


def test_an_axis_that_changes_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no points"):
        grid(BASE, [Axis("ratio", {})])
    with pytest.raises(UserError, match="another sets"):
        grid(BASE, [Axis.over("ratio", [0.1]), Axis.over("ratio", [0.2])])
