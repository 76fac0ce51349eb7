from pathlib import Path

import pytest

from r2mae.compare.runs import SweepParameter, Variant, grid, runs_of
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

BASE = ImagesConfig.make(data="digits", scheme="fixed")


def test_a_grid_of_presets_and_ratios() -> None:
    presets = SweepParameter("preset", {name: DOMAIN.presets[name] for name in ("mlp-512-16", "mlp-512-64")})
    rows = grid(BASE, [presets, SweepParameter.over("ratio", [0.1, 0.5])])
    labels = ["mlp-512-16 0.10", "mlp-512-16 0.50", "mlp-512-64 0.10", "mlp-512-64 0.50"]
    assert [row.label for row in rows] == labels
    assert [(row.config.model.latent, row.config.scheme.options["ratio"]) for row in rows] == [
        (16, 0.1),
        (16, 0.5),
        (64, 0.1),
        (64, 0.5),
    ]
    assert rows[1].values == {"preset": "mlp-512-16", "ratio": "0.50"}
    runs = runs_of(rows, [2, 3], Path("out"))
    assert len({run.folder for run in runs}) == 8
    assert [run.config.seed for run in runs] == [2] * 4 + [3] * 4


def test_a_parameter_that_changes_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no points"):
        grid(BASE, [SweepParameter("ratio", {})])
    with pytest.raises(UserError, match="another parameter sets"):
        grid(BASE, [SweepParameter.over("ratio", [0.1]), SweepParameter.over("ratio", [0.2])])


def test_labels_that_are_no_names_of_folders(tmp_path: Path) -> None:
    """Names of the user's columns: their folders are next to the others, and no two variants share one."""
    labels = ["fixed 0.50", "phyloP/100way", "/etc", "..", "50%2F", 'a:b*"c"']
    runs = runs_of([Variant(label, BASE, {}, baseline=True) for label in labels], [0], tmp_path)
    assert {run.folder.parent.parent.resolve() for run in runs} == {(tmp_path / "runs").resolve()}
    assert len({run.folder.parent.name for run in runs}) == len(labels)
    assert runs[0].folder == tmp_path / "runs" / "fixed-0.50" / "seed-0", "as ever"
    with pytest.raises(UserError, match="'x y' and 'x-y' would share the folder x-y: omit one of them"):
        runs_of([Variant(label, BASE, {}, baseline=True) for label in ("x y", "x-y")], [0], tmp_path)
