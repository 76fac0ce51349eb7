"""A disk that fills while something is saved: one line that names the file, and what was there before is whole."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anndata
import pytest

from r2mae.cells import MaskedAutoencoder
from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]
SMALL: dict[str, Any] = {"n_hidden": 32, "n_latent": 8, "batch_size": 10, "threads": 1, "device": "cpu"}


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    """Fail writes beyond a size, in the middle of a file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_saving_a_model(make: Make, tmp_path: Path) -> None:
    adata = make()
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=32, n_latent=8)
    model.train(1, batch_size=10, progress=False, threads=1)
    model.save(tmp_path / "m")
    before = contents(tmp_path)
    model = MaskedAutoencoder(adata, n_hidden=32, n_latent=8)
    sizes = {name: len(value) for name, value in before.items()}
    model.train(2, batch_size=10, progress=False, threads=1)
    for limit in (0, sizes["m/model.json"] // 2, sizes["m/model.safetensors"] // 2, sizes["m/model.safetensors"] - 1):
        with pytest.raises(OSError, match="File too large"), file_size(limit):
            model.save(tmp_path / "m", overwrite=True)
        assert contents(tmp_path) == before
    MaskedAutoencoder.load(tmp_path / "m", adata)


def test_weights_and_their_description_change_together(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights fit, and the text after them no longer."""
    adata = make()
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    model.train(1, batch_size=10, progress=False, threads=1)
    model.save(tmp_path / "m")
    before = contents(tmp_path)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    model.train(2, batch_size=10, progress=False, threads=1)
    weights = len(before["m/model.safetensors"])
    model._config = model._config.replace(labels=("x" * 2 * weights,))  # a description that is longer than the weights
    with pytest.raises(OSError, match="File too large"), file_size(weights + 1):
        model.save(tmp_path / "m", overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("suffix", ["h5ad", "npz"])
def test_embedding(make: Make, write: Write, tmp_path: Path, suffix: str) -> None:
    """In a process of its own: the HDF5 library used to end it when it could not close a file."""
    path = write(make(300, 40), tmp_path / "a.h5ad")
    config = CellsConfig.make(data=str(path), steps=2, **SMALL)
    fit(config, DOMAIN, tmp_path / "run")
    output = tmp_path / f"out.{suffix}"
    output.write_bytes(b"before")
    before = contents(tmp_path)
    limit = path.stat().st_size + 1000 if suffix == "h5ad" else 3000  # amid the embedding
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "from r2mae.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["embed", str(tmp_path / "run"), str(path), "-o", str(output), "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], check=False, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert (
        done.stderr == f"r2mae: {output}: File too large; free some space, and run the same command again to resume\n"
    )
    assert contents(tmp_path) == before
