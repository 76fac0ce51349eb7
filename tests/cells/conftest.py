"""Cells of one's own making."""

from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix


def make_cells(cells: int = 30, genes: int = 12, **changes: float) -> anndata.AnnData:
    """Raw counts in X and in the layer `raw`, no cell or gene without one; ``at3_4=-1`` changes cell 3, gene 4."""
    counts = np.random.default_rng(0).poisson(1.0, (cells, genes)).astype(np.float32)
    counts[np.arange(cells), np.arange(cells) % genes] += 1
    for place, value in changes.items():
        row, column = (int(part) for part in place.removeprefix("at").split("_"))
        counts[row, column] = value
    adata = anndata.AnnData(
        csr_matrix(counts),
        obs=pd.DataFrame({"donor": [f"d{i % 3}" for i in range(cells)]}, index=[f"c{i}" for i in range(cells)]),
        var=pd.DataFrame(index=[f"g{i}" for i in range(genes)]),
    )
    adata.layers["raw"] = adata.X.copy()
    return adata


def write_cells(adata: anndata.AnnData, path: Path, **options: object) -> Path:
    adata.write_h5ad(path, **options)
    return path


@pytest.fixture
def make() -> Callable[..., anndata.AnnData]:
    return make_cells


@pytest.fixture
def write() -> Callable[..., Path]:
    return write_cells


@pytest.fixture
def own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that may be written."""
    folder = tmp_path / "data-folder"
    folder.mkdir()
    monkeypatch.setenv("R2MAE_DATA", str(folder))
    monkeypatch.setenv("R2MAE_CACHE", str(folder))
    return folder
