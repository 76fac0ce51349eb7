"""Grids of variants."""

from r2mae.images.config import ImagesConfig
from r2mae_paper.bases import fixed, grid


def test_a_grid_of_presets_and_ratios() -> None:
    presets = {name: {"preset": name} for name in ("mlp-512-16", "mlp-512-64")}
    base = ImagesConfig.make(data="digits", scheme="fixed")
    rows = grid(base, {"preset": presets, "ratio": fixed([0.1, 0.125])})
    labels = ["mlp-512-16 0.10", "mlp-512-16 0.125", "mlp-512-64 0.10", "mlp-512-64 0.125"]
    assert [row.label for row in rows] == labels
    assert [(row.config.model.latent, row.config.scheme.options["ratio"]) for row in rows] == [
        (16, 0.1),
        (16, 0.125),
        (64, 0.1),
        (64, 0.125),
    ]
    assert rows[1].values == {"preset": "mlp-512-16", "ratio": "0.125"}
    assert grid(base, {"row": {}}) == []
