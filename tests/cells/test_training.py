"""Runs on cells through the real loop: every scheme, cut-off runs, counts on disk, workers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

from r2mae.cells import table
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.masking.schemes import scheme_names
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.loop import Fitted, fit

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
SMALL = {"n_hidden": 16, "n_latent": 4, "batch_size": 30, "threads": 1, "device": "cpu"}


def structured(cells: int = 150, genes: int = 40) -> anndata.AnnData:
    """Three kinds of cells with genes of their own, in two batches."""
    rng = np.random.default_rng(0)
    kind = np.arange(cells) % 3
    counts = rng.poisson(rng.gamma(0.3, 6.0, (3, genes))[kind])
    counts[np.arange(cells), np.arange(cells) % genes] += 1
    obs = pd.DataFrame(
        {"kind": np.array(["B", "NK", "T"])[kind], "batch": np.where(np.arange(cells) % 2, "a", "b")},
        index=[f"c{i}" for i in range(cells)],
    )
    var = pd.DataFrame(index=[f"g{i}" for i in range(genes)])
    return anndata.AnnData(csr_matrix(counts.astype(np.float32)), obs, var)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cells") / "cells.h5ad"
    structured().write_h5ad(path)
    return path


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Interrupted(Exception):
    """Stands for whatever cuts a run off."""


class InterruptAt:
    """A reporter that cuts the run off at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def start(self, step: int, total: int) -> None:
        return

    def update(self, pace: Any) -> None:
        if pace.step >= self.step:
            raise Interrupted

    def stop(self) -> None:
        return


def train(data: Path, out: Path, *, cut: int | None = None, **options: Any) -> Fitted:
    config = CellsConfig.make(data=str(data), **{**SMALL, **options})
    return fit(config, DOMAIN, out, reporter=None if cut is None else InterruptAt(cut))


def assert_same_run(one: Path, other: Path) -> None:
    """Weights and metrics byte for byte; in the last checkpoint also the weight network and the optimiser."""
    for name in ("model.safetensors", "metrics.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    first, second = (read_checkpoint(RunFolder(path).checkpoint) for path in (one, other))
    assert first["state_dict"].keys() == second["state_dict"].keys()
    for name, value in first["state_dict"].items():
        assert torch.equal(value, second["state_dict"][name]), name
    moments = [checkpoint["optimizer"]["state"] for checkpoint in (first, second)]
    for number, state in moments[0].items():
        assert all(torch.equal(value, moments[1][number][name]) for name, value in state.items())


@pytest.mark.parametrize("scheme", scheme_names())
def test_every_scheme_learns(cells: Path, tmp_path: Path, scheme: str) -> None:
    options = {"batch_key": "batch", "lr": 3e-3, "weight_decay": 1e-4, "validation": 0.1, "validate_every": 20}
    train(cells, tmp_path, scheme=scheme, steps=120, **options)
    metrics = pd.read_csv(tmp_path / "metrics.csv")
    assert np.isfinite(metrics["loss"]).all()
    assert metrics["ratio"].between(0, 1).all()
    # A step's loss depends on its genes, ratio and learned weights; the held-out ones are all at the same masks.
    assert metrics["loss"].iloc[-40:].mean() < metrics["loss"].iloc[:40].mean()
    held_out = metrics["validation_loss"].dropna()
    assert held_out.iloc[-1] < 0.9 * held_out.iloc[0]


CUTS: list[dict[str, Any]] = [
    {"scheme": "r2mae", "batch_key": "batch", "validation": 0.2, "validate_every": 4},
    {"scheme": "r2mae-cl", "cl_warmup": 0.15, "cl_start": 0.3, "cl_end": 0.75},
    {"scheme": "r2mae-cl", "accumulate": 2, "cl_warmup": 0.15, "cl_start": 0.3, "cl_end": 0.75, "clip": 0.5},
    {"scheme": "r2mae", "accumulate": 2, "ema": 0.9},
]


@pytest.mark.parametrize("options", CUTS, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_a_run_cut_off_anywhere_ends_with_the_same_bytes(cells: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    options = {**options, "steps": 20, "save_every": 6}
    train(cells, tmp_path / "whole", **options)
    if options["scheme"] == "r2mae-cl":
        state = read_checkpoint(RunFolder(tmp_path / "whole").checkpoint)["state_dict"]
        assert any(name.startswith("weights.") for name in state)
    for cut in (2, 13):
        out = tmp_path / f"cut-{cut}"
        with pytest.raises(Interrupted):
            train(cells, out, cut=cut, **options)
        assert not RunFolder(out).trained
        train(cells, out, **options)
        assert_same_run(tmp_path / "whole", out)


@pytest.mark.parametrize("kind", ["plain", "gzip", "chosen"])
def test_counts_on_disk_train_to_the_bytes_of_memory(
    cells: Path, tmp_path: Path, write: Write, kind: str, own_data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cells.h5ad"
    write(structured(), path, **({"compression": "gzip"} if kind == "gzip" else {}))
    options: dict[str, Any] = {"steps": 12, "validation": 0.1, "validate_every": 6, "batch_key": "batch"}
    if kind == "chosen":
        options |= {"n_top_genes": 12, "min_genes": 3}
    train(path, tmp_path / "memory", **options)
    monkeypatch.setattr(table, "ENTRY", 1 << 40)
    loaded = DOMAIN.load(CellsConfig.make(data=str(path), **{**SMALL, **options}))
    assert loaded.table.counts.places is not None
    train(path, tmp_path / "disk", **options)
    train(path, tmp_path / "workers", workers=2, **options)
    for name in ("disk", "workers"):
        assert_same_run(tmp_path / "memory", tmp_path / name)


def test_the_finished_run_embeds_alike_wherever_its_cells_lie(
    cells: Path, tmp_path: Path, own_data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from r2mae.training.saving import load_model

    train(cells, tmp_path / "run", steps=4, batch_key="batch")
    loaded = load_model(tmp_path / "run", DOMAIN)
    memory = DOMAIN.embed(*loaded, str(cells))  # type: ignore[arg-type]
    monkeypatch.setattr(table, "ENTRY", 1 << 40)
    disk = DOMAIN.embed(*loaded, str(cells))  # type: ignore[arg-type]
    np.testing.assert_array_equal(memory["embedding"], disk["embedding"])
    assert list(disk["cells"]) == [f"c{i}" for i in range(150)]
