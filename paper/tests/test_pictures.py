"""Figs. 8 and 9: the runs, the tables, and the pictures of a small run."""

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from r2mae_paper import networks
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study

RATIOS = [round(0.1 * k, 1) for k in range(1, 10)]


def test_full_sizes_are_those_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", "/somewhere")
    digits = [run.config for run in networks.runs_of_pictures(entry_of("fig8").size("full"), tmp_path)]
    faces = [run.config for run in networks.runs_of_pictures(entry_of("fig9").size("full"), tmp_path)]
    for configs in (digits, faces):
        assert [config.scheme.options["ratio"] for config in configs] == RATIOS
        assert {(config.scheme.name, config.seed, config.optimizer.steps) for config in configs} == {("fixed", 0, None)}
        assert {config["bn_statistics"] for config in configs} == {"no"}
    one = digits[0]
    assert (one.data.source, one.model.name, one.model.hidden, one.model.latent) == ("mnist", "mlp", 512, 256)
    assert (one["lr"], one["batch_size"], one["epochs"], one["resize"]) == (3e-3, 128, 15, None)
    one = faces[0]
    assert (one.data.source, one.model.name, one.model.channels) == ("/somewhere/celeba-aligned", "unet", 16)
    assert [one[name] for name in ("lr", "batch_size", "epochs", "resize")] == [1e-3, 256, 10, 128]


def test_faces_are_those_of_fig2b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", "/somewhere")
    mine = {run.folder: run.config for run in networks.runs_of_pictures(entry_of("fig9").size(), tmp_path)}
    others = {run.folder: run.config for run in networks.runs_of_unets(entry_of("fig2b").size(), tmp_path)}
    for folder, config in mine.items():
        assert others[folder].replace(bn_statistics="no") == config


def test_tables_have_the_errors_of_every_model() -> None:
    results = pd.DataFrame(
        {"ratio": ["0.10", "0.90"], "clean_mse": [0.1, 0.2], "masked_mse_0.5": [0.3, 0.4], "probe_accuracy": [0.5, 0.6]}
    )
    assert networks.table_of_pictures(results, name="fig8")["fig8"] == [
        {"training_ratio": 0.1, "clean_mse": 0.1, "masked_mse_0.5": 0.3},
        {"training_ratio": 0.9, "clean_mse": 0.2, "masked_mse_0.5": 0.4},
    ]


@pytest.mark.slow
def test_they_run_on_any_images(tmp_path: Path) -> None:
    small = {"preset": "mlp-16-16"}, {"data": "digits", "side": 8}
    for size, name in (
        (entry_of("fig8").size("smoke", **small[0]), "fig8"),  # type: ignore[arg-type]
        (entry_of("fig9").size("smoke", **small[1]), "fig9"),  # type: ignore[arg-type]
    ):
        done = run_study(get_study(name), tmp_path / name, size=size, console=Console(file=StringIO()))
        assert done.parts == 2
        assert list(pd.read_csv(tmp_path / name / f"{name}.csv")["training_ratio"]) == [0.3, 0.7]
        text = (tmp_path / name / f"{name}.svg").read_text()
        assert all(f"{word}<" in text for word in (">original", " hidden", ">trained at 0.30", ">trained at 0.70"))
