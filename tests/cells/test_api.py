"""The facade: the scverse verbs, saving and loading, new data."""

import json
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells import MaskedAutoencoder
from r2mae.errors import UserError

EPOCHS = 25.0


def make_adata(cells: int = 120, genes: int = 40, seed: int = 0) -> anndata.AnnData:
    rng = np.random.default_rng(seed)
    rates = np.random.default_rng(9).gamma(0.5, 2.0, (3, genes))[rng.integers(0, 3, cells)]
    counts = rng.poisson(rates)
    counts[np.arange(cells), np.arange(cells) % genes] += 1  # no empty cell or gene
    adata = anndata.AnnData(
        csr_matrix(counts.astype(np.int32)),
        obs=pd.DataFrame({"batch": np.where(np.arange(cells) % 2, "a", "b")}, index=[f"cell{i}" for i in range(cells)]),
        var=pd.DataFrame(index=[f"gene{i}" for i in range(genes)]),
    )
    adata.layers["raw"] = adata.X.copy()
    return adata


def train(adata: anndata.AnnData, epochs: float = 4, **options: object) -> MaskedAutoencoder:
    model = MaskedAutoencoder(adata, n_hidden=16, n_latent=4)
    model.train(epochs, batch_size=30, progress=False, threads=1, **options)
    return model


@pytest.fixture(scope="module")
def adata() -> anndata.AnnData:
    adata = make_adata()
    MaskedAutoencoder.setup_anndata(adata, layer="raw", batch_key="batch")
    return adata


@pytest.fixture(scope="module")
def model(adata: anndata.AnnData) -> MaskedAutoencoder:
    return train(adata, EPOCHS)


def test_setup_says_what_is_wrong() -> None:
    adata = make_adata()
    with pytest.raises(UserError, match=r"call MaskedAutoencoder\.setup_anndata"):
        MaskedAutoencoder(adata)
    with pytest.raises(UserError, match="unknown column of obs 'bath': did you mean 'batch'"):
        MaskedAutoencoder.setup_anndata(adata, batch_key="bath")
    with pytest.raises(UserError, match="unknown layer 'rav': did you mean 'raw'"):
        MaskedAutoencoder.setup_anndata(adata, layer="rav")
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    with pytest.raises(UserError, match=r"not trained: call train\(\)"):
        model.get_latent_representation()
    with pytest.raises(UserError, match="unknown field 'max_epoch'"):
        model.train(max_epoch=3)


def test_training_learns_and_is_a_function_of_the_seed(adata: anndata.AnnData, model: MaskedAutoencoder) -> None:
    assert model.is_trained
    assert model.history is not None
    assert model.history["ratio"].between(0.1, 0.5).all()
    assert model.history["loss"].iloc[-4:].mean() < model.history["loss"].iloc[:4].mean()
    again = train(adata, EPOCHS)
    np.testing.assert_array_equal(again.get_latent_representation(), model.get_latent_representation())


def test_representation_is_deterministic_whatever_the_batch_size(model: MaskedAutoencoder) -> None:
    whole = model.get_latent_representation()
    assert whole.shape == (120, 4)
    np.testing.assert_array_equal(whole, model.get_latent_representation())
    np.testing.assert_allclose(whole, model.get_latent_representation(batch_size=7), atol=1e-5)


def test_expected_expression(adata: anndata.AnnData, model: MaskedAutoencoder) -> None:
    share = model.get_normalized_expression()
    assert list(share.columns) == list(adata.var_names)
    assert list(share.index) == list(adata.obs_names)
    np.testing.assert_allclose(share.sum(axis=1), 1, rtol=1e-4)
    observed = model.get_normalized_expression(genes=["gene3"], library_size="observed")
    library = np.asarray(adata.X.sum(axis=1)).ravel()
    np.testing.assert_allclose(observed["gene3"], share["gene3"] * library, rtol=1e-4)
    with pytest.raises(UserError, match="unknown gene 'gene999'"):
        model.get_normalized_expression(genes=["gene999"])
    with pytest.raises(UserError, match="library_size takes a number or 'observed'"):
        model.get_normalized_expression(library_size="mean")


def test_imputation_does_not_look_at_the_gene(adata: anndata.AnnData, model: MaskedAutoencoder) -> None:
    changed = adata.copy()
    counts = changed.layers["raw"].toarray()
    spent = counts[:, 5].copy()
    counts[:, 5], counts[:, 6] = 0, counts[:, 6] + spent  # the library stays what it was
    changed.layers["raw"] = csr_matrix(counts)
    both = ["gene5", "gene6"]
    keep = counts.sum(axis=1) > 0
    before, after = model.impute(both), model.impute(both, changed)
    np.testing.assert_allclose(before[keep], after[keep], rtol=1e-5)


def test_save_and_load(adata: anndata.AnnData, model: MaskedAutoencoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"model.json", "model.safetensors"}
    loaded = MaskedAutoencoder.load(tmp_path / "m", adata)
    np.testing.assert_array_equal(loaded.get_latent_representation(), model.get_latent_representation())
    pd.testing.assert_frame_equal(loaded.history, model.history)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="exists: name another folder, or pass overwrite=True"):
        model.save(tmp_path / "m")
    model.save(tmp_path / "m", overwrite=True)


def test_load_in_another_process(adata: anndata.AnnData, model: MaskedAutoencoder, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    with anndata.settings.override(allow_write_nullable_strings=True):
        adata.write_h5ad(tmp_path / "a.h5ad")
    code = (
        "import sys, anndata, numpy as np; from r2mae.cells import MaskedAutoencoder; "
        "m = MaskedAutoencoder.load(sys.argv[1], anndata.read_h5ad(sys.argv[2])); "
        "np.save(sys.argv[3], m.get_latent_representation())"
    )
    words = [str(tmp_path / name) for name in ("m", "a.h5ad", "z.npy")]
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), model.get_latent_representation(), atol=1e-5)


def test_damaged_models_are_told(adata: anndata.AnnData, model: MaskedAutoencoder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no saved model: model\.json is missing"):
        MaskedAutoencoder.load(tmp_path / "nothing", adata)
    model.save(tmp_path / "m")
    description = json.loads((tmp_path / "m" / "model.json").read_text())
    (tmp_path / "m" / "model.json").write_text(json.dumps({**description, "format": 99}))
    with pytest.raises(UserError, match="has format 99"):
        MaskedAutoencoder.load(tmp_path / "m", adata)
    (tmp_path / "m" / "model.json").write_text(json.dumps(description))
    (tmp_path / "m" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match="damaged"):
        MaskedAutoencoder.load(tmp_path / "m", adata)


def test_new_cells_are_mapped_by_gene_name(adata: anndata.AnnData, model: MaskedAutoencoder) -> None:
    order = np.random.default_rng(0).permutation(adata.n_vars)
    np.testing.assert_allclose(
        model.get_latent_representation(adata[:, order].copy()), model.get_latent_representation(), atol=1e-6
    )
    other = make_adata(seed=5)
    other.var_names = [f"other{i}" for i in range(other.n_vars)]
    with pytest.raises(UserError, match="genes"):
        model.get_latent_representation(other)


def test_new_batches_are_refused_by_name(model: MaskedAutoencoder) -> None:
    other = make_adata(seed=5)
    other.obs["batch"] = "c"
    with pytest.raises(UserError, match=r"never seen the batch c: .*transform_batch='a'"):
        model.get_latent_representation(other)
    assert model.get_latent_representation(other, transform_batch="b").shape == (120, 4)
    with pytest.raises(UserError, match="unknown batch 'x'"):
        model.get_latent_representation(other, transform_batch="x")


def test_a_run_folder_is_recognised(adata: anndata.AnnData, model: MaskedAutoencoder, tmp_path: Path) -> None:
    first = train(adata, EPOCHS, run=tmp_path / "run")
    np.testing.assert_array_equal(first.get_latent_representation(), model.get_latent_representation())
    stamp = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    train(adata, EPOCHS, run=tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(UserError, match="AnnData has changed since"):
        other = make_adata(seed=7)
        MaskedAutoencoder.setup_anndata(other, layer="raw", batch_key="batch")
        train(other, EPOCHS, run=tmp_path / "run")
