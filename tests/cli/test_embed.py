"""`r2mae embed`."""

import json
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells import DOMAIN as CELLS
from r2mae.cells import CellsConfig
from r2mae.images import DOMAIN as IMAGES
from r2mae.images.config import ImagesConfig
from r2mae.training.loop import fit

from .conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cells with a run, and a run on digits."""
    folder = tmp_path_factory.mktemp("embed")
    rng, cells = np.random.default_rng(0), 40
    counts = rng.poisson(1.0, (cells, 12)).astype(np.float32) + np.eye(cells, 12, dtype=np.float32)
    counts[:, 0] += 1
    obs = pd.DataFrame(
        {
            "donor": [f"d{i % 4}" for i in range(cells)],
            "cell_type": pd.Categorical([f"type {i % 2}" for i in range(cells)]),
            "age": np.arange(cells) % 4 + 20,
            "phase": ["G1", "S"] * (cells // 2),
        },
        index=[f"c{i}" for i in range(cells)],
    )
    adata = anndata.AnnData(csr_matrix(counts), obs=obs, var=pd.DataFrame(index=[f"g{i}" for i in range(12)]))
    adata.write_h5ad(folder / "data.h5ad")
    config = CellsConfig.make(
        data=str(folder / "data.h5ad"), donor_key="donor", labels=("cell_type",), regress=("age",), n_hidden=8,
        n_latent=4, epochs=1, batch_size=20, threads=1,
    )  # fmt: skip
    fit(config, CELLS, folder / "run")
    fit(ImagesConfig.make(data="digits", hidden=8, latent=8, epochs=1, threads=1), IMAGES, folder / "digits")
    return folder


def test_cells_are_written_with_their_annotations(run: Run, folder: Path) -> None:
    assert run("embed run data.h5ad -o a.h5ad")[0] == 0
    written = anndata.read_h5ad(folder / "a.h5ad")
    assert written.obsm["X_r2mae"].shape == (40, 4)
    assert list(written.obs) == ["donor", "cell_type", "age", "phase"]


@pytest.mark.parametrize("words", [["--help"], ["embed", "--help"]])
def test_help_needs_no_library(words: list[str]) -> None:
    lines = ("import sys", "from r2mae.cli.main import main", "try:", f"    main({words})", "finally:", "    print()")
    code = "\n".join([*lines, "    print(*sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "r2mae" in loaded
    assert not loaded & {"umap", "numba", "torch", "matplotlib", "anndata"}


def test_the_layer_and_the_batch_of_another_file(run: Run, folder: Path) -> None:
    adata = anndata.read_h5ad(folder / "data.h5ad")
    adata.obs["plate"] = np.where(np.arange(40) % 2, "p", "q")
    adata.write_h5ad(folder / "plates.h5ad")
    config = CellsConfig.make(
        data=str(folder / "plates.h5ad"),
        batch_key="plate",
        n_hidden=8,
        n_latent=4,
        steps=1,
        batch_size=20,
        threads=1,
    )
    fit(config, CELLS, folder / "plates")
    adata.layers["counts"], adata.X = adata.X, adata.X / 2
    del adata.obs["plate"]
    adata.write_h5ad(folder / "other.h5ad")
    code, _, err = run("embed plates other.h5ad -o o.npz --device cpu")
    assert code == 2
    assert err.startswith(
        "r2mae: other.h5ad: batch_key: obs has no column 'plate', and the model tells batches apart: "
    )
    assert "such as transform_batch='p' (--transform-batch)" in err
    assert err.count("\n") == 1
    code, _, err = run("embed plates other.h5ad -o o.npz --device cpu --transform-batch p")
    assert code == 2
    assert "--layer counts" in err
    assert run("embed plates other.h5ad -o o.npz --device cpu --transform-batch p --layer counts")[0] == 0
    assert run("embed plates data.h5ad -o d.npz --device cpu --transform-batch p --layer X")[0] == 0
    with np.load(folder / "o.npz") as other, np.load(folder / "d.npz") as same:
        np.testing.assert_array_equal(other["embedding"], same["embedding"])
    code, _, err = run("embed digits digits -o x.npz --layer counts")
    assert code == 2
    assert "a run of the domain images, which has no --layer: omit it" in err


def test_rows_of_cells_are_in_the_order_of_obs_whatever_their_names(
    run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those of the same name, and one without counts, which is counted."""
    adata = anndata.read_h5ad(folder / "data.h5ad")[::-1].copy()
    counts = adata.X.tolil()
    counts[5] = 0
    adata.X, adata.obs_names = counts.tocsr(), ["same"] * 20 + [f"ä{row}" for row in range(20)]
    adata.write_h5ad(folder / "names.h5ad")
    assert run("embed run names.h5ad -o n.npz --device cpu")[0] == 0
    assert "1 cell without a count in the model's genes" in caplog.text
    assert run("embed run data.h5ad -o own.npz --device cpu")[0] == 0
    with np.load(folder / "n.npz") as found, np.load(folder / "own.npz") as own:
        assert found["index"].tolist() == list(range(40))
        assert found["cells"].tolist() == list(adata.obs_names)
        rest = np.delete(np.arange(40), 5)
        np.testing.assert_allclose(found["embedding"][rest], own["embedding"][::-1][rest], atol=1e-6)


def test_a_run_is_measured_with_other_columns(run: Run, folder: Path) -> None:
    before = {path: path.read_bytes() for path in (folder / "run").iterdir() if path.is_file()}
    code, out, err = run("evaluate run --labels phase --regress age --donor-key donor --json --device cpu")
    found = json.loads(out)
    assert (code, found["measured"]["labels"], found["measured"]["donor_key"]) == (0, ["phase"], "donor")
    assert {"phase_bacc", "age_spearman_cell"} <= found["scores"].keys()
    assert not any(name.startswith("cell_type") for name in found["scores"])
    own = json.loads(run("evaluate run --json --device cpu")[1])
    assert "labels" not in own["measured"]
    assert own["scores"]["masked_loss"] == found["scores"]["masked_loss"]
    for words in ("--labels none", "--donor-key none", "--regress none"):
        code, _, err = run(f"evaluate run {words} --device cpu")
        assert (code, "obs has no column 'none'" in err) == (2, True)
    assert {path: path.read_bytes() for path in before} == before
