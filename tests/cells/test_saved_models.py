"""Saved models with other cells: other genes, batches, types and processes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np
import pytest
import torch
from scipy.sparse import csc_matrix, csr_array, csr_matrix

from r2mae.cells import DOMAIN, CellsConfig, MaskedAutoencoder
from r2mae.errors import UserError
from r2mae.images import DOMAIN as IMAGES
from r2mae.images.config import ImagesConfig
from r2mae.training.loop import fit
from r2mae.training.saving import load_model

pytestmark = pytest.mark.slow

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]

_TRAIN = """
import sys
import anndata, numpy as np
from r2mae.cells import MaskedAutoencoder
adata = anndata.read_h5ad(sys.argv[1])
MaskedAutoencoder.setup_anndata(adata, batch_key="donor")
model = MaskedAutoencoder(adata, n_hidden=16, n_latent=4, scheme="r2mae-cl")
model.train(3, batch_size=30, progress=False, threads=1, device="cpu")
model.save(sys.argv[2])
np.savez(sys.argv[3], latent=model.get_latent_representation(), imputed=model.impute(["g3", "g1"]))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that another process has filled: data a.h5ad, model m, what it computed z.npz."""
    from cells.conftest import make_cells, write_cells

    folder = tmp_path_factory.mktemp("saved")
    write_cells(make_cells(90, 20), folder / "a.h5ad")
    words = [str(folder / name) for name in ("a.h5ad", "m", "z.npz")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", _TRAIN, *words], check=True, capture_output=True, env=environment)
    return folder


@pytest.fixture
def adata(saved: Path) -> anndata.AnnData:
    return anndata.read_h5ad(saved / "a.h5ad")


@pytest.fixture
def latent(saved: Path) -> np.ndarray:
    with np.load(saved / "z.npz") as arrays:
        return arrays["latent"]


def test_another_process_computes_the_same(saved: Path, adata: anndata.AnnData, latent: np.ndarray) -> None:
    model = MaskedAutoencoder.load(saved / "m", adata)
    np.testing.assert_allclose(model.get_latent_representation(), latent, rtol=0, atol=1e-6)
    with np.load(saved / "z.npz") as arrays:
        np.testing.assert_allclose(model.impute(["g3", "g1"]), arrays["imputed"], rtol=1e-5)
    assert model.history is not None
    assert len(model.history) == 8  # 81 cells, 3 epochs, 30 at a time


@pytest.mark.parametrize("kind", ["int32", "uint16", "float64", "bool of ones", "csc", "dense", "csr_array"])
def test_counts_of_other_types(saved: Path, adata: anndata.AnnData, latent: np.ndarray, kind: str) -> None:
    if kind == "bool of ones":
        adata.X = csr_matrix(adata.X > 0)
        ones = adata.copy()
        ones.X = adata.X.astype(np.float32)
        latent = MaskedAutoencoder.load(saved / "m", ones).get_latent_representation()
    elif kind in ("csc", "dense", "csr_array"):
        adata.X = {"csc": csc_matrix, "csr_array": csr_array, "dense": lambda x: x.toarray()}[kind](adata.X)
    else:
        adata.X = adata.X.astype(kind)
    found = MaskedAutoencoder.load(saved / "m", adata).get_latent_representation()
    np.testing.assert_allclose(found, latent, rtol=0, atol=1e-6)


def test_genes_in_any_order_and_more_of_them(saved: Path, adata: anndata.AnnData, latent: np.ndarray) -> None:
    more = anndata.concat([adata, make_more(adata)], axis=1, merge="first")
    shuffled = more[:, np.random.default_rng(1).permutation(more.n_vars)].copy()
    model = MaskedAutoencoder.load(saved / "m", shuffled)
    np.testing.assert_allclose(model.get_latent_representation(), latent, rtol=0, atol=1e-6)
    assert list(model.get_normalized_expression().columns) == list(adata.var_names)
    with pytest.raises(UserError, match="unknown gene 'more1'"):
        model.impute(["more1"])


def make_more(adata: anndata.AnnData) -> anndata.AnnData:
    other = adata.copy()
    other.var_names = [f"more{i}" for i in range(adata.n_vars)]
    return other


def test_fewer_genes_count_as_zero(saved: Path, adata: anndata.AnnData, caplog: pytest.LogCaptureFixture) -> None:
    zeroed = adata.copy()
    counts = adata.X.toarray()
    counts[:, 15:] = 0
    zeroed.X = csr_matrix(counts)
    whole = MaskedAutoencoder.load(saved / "m", zeroed).get_latent_representation()
    caplog.clear()
    model = MaskedAutoencoder.load(saved / "m", adata[:, :15].copy())
    assert caplog.messages == ["AnnData: 15 of the model's 20 genes are there, 5 missing (hidden), 0 others ignored"]
    np.testing.assert_allclose(model.get_latent_representation(), whole, rtol=0, atol=1e-6)
    with pytest.raises(UserError, match=r"only 1 of the model's 20 genes are there .* name genes in var_names as in"):
        MaskedAutoencoder.load(saved / "m", anndata.concat([adata[:, :1], make_more(adata)], axis=1, merge="first"))


def test_batches_that_are_new_or_unknown(saved: Path, adata: anndata.AnnData, latent: np.ndarray) -> None:
    new = adata.copy()
    new.obs["donor"] = "new"
    model = MaskedAutoencoder.load(saved / "m", new)
    with pytest.raises(
        UserError, match=r"never seen the batches new, .*transform_batch='d0'.* or add .*load_query_data .*--init\)"
    ):
        model.get_latent_representation()
    as_d0 = model.get_latent_representation(transform_batch="d0")
    own = (adata.obs["donor"] == "d0").to_numpy()
    np.testing.assert_allclose(as_d0[own], latent[own], rtol=0, atol=1e-6)
    del new.obs["donor"]  # whoever names a batch needs no column
    bare = MaskedAutoencoder.load(saved / "m", new)
    np.testing.assert_array_equal(bare.get_latent_representation(transform_batch="d0"), as_d0)
    np.testing.assert_array_equal(model.get_latent_representation(new.copy(), transform_batch="d0"), as_d0)
    with pytest.raises(UserError, match="AnnData: batch_key: obs has no column 'donor'"):
        bare.get_latent_representation()
    new.obs["donor"] = adata.obs["donor"]
    np.testing.assert_allclose(bare.get_latent_representation(new), latent, rtol=0, atol=1e-6)


def test_a_single_cell(saved: Path, adata: anndata.AnnData, latent: np.ndarray) -> None:
    one = adata[4:5].copy()
    np.testing.assert_allclose(
        MaskedAutoencoder.load(saved / "m", one).get_latent_representation(), latent[4:5], rtol=0, atol=1e-6
    )
    few = adata[4:5, [3, 2, 1]].copy()
    assert MaskedAutoencoder.load(saved / "m", few).get_latent_representation().shape == (1, 4)


SMALL = {"n_hidden": 16, "n_latent": 4}
TRAINING = {"batch_size": 30, "threads": 1, "device": "cpu"}


def test_a_run_of_the_command_line_has_the_verbs(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make(90, 20)
    path = write(adata, tmp_path / "a.h5ad")
    config = CellsConfig.make(
        data=str(path), layer="raw", batch_key="donor", labels=("kind",), epochs=3, validation=0, **SMALL, **TRAINING
    )
    adata.obs["kind"] = ["x", "y"] * 45
    write(adata, path)
    fit(config, DOMAIN, tmp_path / "run")
    expected = DOMAIN.embed(*load_model(tmp_path / "run", DOMAIN, unmasked=True), str(path))["embedding"]  # type: ignore[arg-type]
    adata.X = adata.X / 2  # the counts are those of the layer, as in the run
    model = MaskedAutoencoder.load(tmp_path / "run", adata)
    np.testing.assert_array_equal(model.get_latent_representation(), expected)
    assert model.history is not None
    assert len(model.history) == 9
    assert model.impute("g3").shape == (90, 1)
    model.save(tmp_path / "saved")
    again = MaskedAutoencoder.load(tmp_path / "saved", adata)
    np.testing.assert_array_equal(again.get_latent_representation(), expected)
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"run is a run folder, .* name another folder"):
            model.save(tmp_path / "run", overwrite=overwrite)
    np.testing.assert_array_equal(MaskedAutoencoder.load(tmp_path / "run", adata).get_latent_representation(), expected)


def test_what_is_no_model_of_cells_is_told_and_never_deleted(
    saved: Path, adata: anndata.AnnData, make: Make, write: Write, tmp_path: Path
) -> None:
    fit(ImagesConfig.make(data="digits", hidden=8, latent=8, steps=1, threads=1), IMAGES, tmp_path / "digits")
    with pytest.raises(UserError, match="is a run of the domain images, not cells: name one of cells"):
        MaskedAutoencoder.load(tmp_path / "digits", adata)
    path = write(make(90, 20), tmp_path / "a.h5ad")
    fit(CellsConfig.make(data=str(path), steps=1, **SMALL, **TRAINING), DOMAIN, tmp_path / "run")
    (tmp_path / "run" / "config.yaml").unlink()
    with pytest.raises(UserError, match=r"is not a run folder: it has no config\.yaml"):
        MaskedAutoencoder.load(tmp_path / "run", adata)
    description = json.loads((saved / "m" / "model.json").read_text())
    shutil.copytree(saved / "m", tmp_path / "m")
    for change in ({"architecture": {}}, {"architecture": {**description["architecture"], "n_hidden": 5}}):
        (tmp_path / "m" / "model.json").write_text(json.dumps({**description, **change}))
        with pytest.raises(UserError, match=r"delete .*m and rerun the command that made it"):
            MaskedAutoencoder.load(tmp_path / "m", adata)


def test_runs_of_the_facade_serve_the_command_line(
    make: Make, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from r2mae.cli.main import main

    adata = make(90, 20)
    adata.X = adata.X / 2  # counts are in the layer alone
    MaskedAutoencoder.setup_anndata(adata, layer="raw", batch_key="donor")
    model = MaskedAutoencoder(adata, **SMALL)
    model.train(2, run=tmp_path / "run", progress=False, **TRAINING)
    path = write(adata, tmp_path / "a.h5ad")
    assert main(["embed", str(tmp_path / "run"), str(path), "-o", str(tmp_path / "z.npz"), "--device", "cpu"]) == 0
    with np.load(tmp_path / "z.npz") as arrays:
        np.testing.assert_allclose(arrays["embedding"], model.get_latent_representation(), rtol=0, atol=1e-6)
    capsys.readouterr()
    for words in (["evaluate", str(tmp_path / "run")], ["evaluate", str(tmp_path / "run"), "--baselines", "pca"]):
        assert main(words) == 2
        told = capsys.readouterr().err
        assert "the run was trained on an AnnData object in memory" in told
        assert "MaskedAutoencoder.load(RUN, adata)" in told
        assert told.count("\n") == 1
    model.save(tmp_path / "m")
    assert main(["embed", str(tmp_path / "m"), str(path), "-o", str(tmp_path / "m.npz"), "--device", "cpu"]) == 0
    with np.load(tmp_path / "m.npz") as arrays:
        np.testing.assert_allclose(arrays["embedding"], model.get_latent_representation(), rtol=0, atol=1e-6)
    kept = [json.loads((tmp_path / folder / "model.json").read_text())["architecture"] for folder in ("run", "m")]
    assert kept[0] == kept[1]


def test_counts_of_other_cells_may_be_elsewhere(
    saved: Path, adata: anndata.AnnData, latent: np.ndarray, tmp_path: Path
) -> None:
    adata.layers["counts"], adata.X = adata.X.copy(), adata.X / 2
    with pytest.raises(UserError, match="counts are whole numbers"):
        MaskedAutoencoder.load(saved / "m", adata)
    model = MaskedAutoencoder.load(saved / "m", adata, layer="counts")
    np.testing.assert_allclose(model.get_latent_representation(), latent, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.get_latent_representation(adata.copy()), latent, rtol=0, atol=1e-6)
    model.save(tmp_path / "m")
    adata.X = adata.layers.pop("counts")
    with pytest.raises(UserError, match="has no layer 'counts'"):
        MaskedAutoencoder.load(tmp_path / "m", adata)
    again = MaskedAutoencoder.load(tmp_path / "m", adata, layer="X")
    np.testing.assert_allclose(again.get_latent_representation(), latent, rtol=0, atol=1e-6)


def test_a_mask_aware_model_knows_which_genes_other_cells_lack(adata: anndata.AnnData) -> None:
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, **SMALL, mask_input=True)
    model.train(1, progress=False, **TRAINING)
    fewer = adata[:, 5:].copy()
    trained = model._require_trained()
    counts = torch.from_numpy(adata.X.toarray())
    counts[:, :5] = 0
    with torch.no_grad():
        expected = trained.model.encode(counts.log1p(), torch.zeros(90, dtype=torch.int64), hidden=torch.arange(5))
    np.testing.assert_allclose(model.get_latent_representation(fewer), expected, rtol=0, atol=1e-5)
