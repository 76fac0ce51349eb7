"""The facade: the scverse verbs, saving and loading, new data."""

import json
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import torch
from scipy.sparse import csr_matrix

from r2mae.cells import CellsConfig, MaskedAutoencoder
from r2mae.cells.api import _NOT_OF_TRAINING
from r2mae.cells.config import LEAST_STEPS
from r2mae.errors import UserError
from r2mae.training.config import RunConfig

pytestmark = pytest.mark.slow

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


def train(adata: anndata.AnnData, epochs: float | None = 4, **options: object) -> MaskedAutoencoder:
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
    MaskedAutoencoder.setup_anndata(adata, batch_key="bath")
    with pytest.raises(UserError, match="AnnData: obs has no column 'bath': did you mean 'batch'"):
        MaskedAutoencoder(adata)
    MaskedAutoencoder.setup_anndata(adata, layer="rav")
    with pytest.raises(UserError, match="has no layer 'rav': did you mean 'raw'"):
        MaskedAutoencoder(adata)
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    assert repr(model) == "MaskedAutoencoder(120 cells of 40 genes, scheme 'r2mae-per-sample', not trained)"
    with pytest.raises(UserError, match=r"not trained: call train\(\)"):
        model.get_latent_representation()
    with pytest.raises(UserError, match="unknown field 'max_epoch'"):
        model.train(max_epoch=3)


def test_training_learns_and_is_a_function_of_the_seed(adata: anndata.AnnData, model: MaskedAutoencoder) -> None:
    assert model.is_trained
    assert repr(model).endswith(", trained)")
    assert model.history is not None
    assert model.history["ratio"].between(0.1, 0.5).all()
    assert model.history["loss"].iloc[-4:].mean() < model.history["loss"].iloc[:4].mean()
    again = train(adata, EPOCHS)
    np.testing.assert_array_equal(again.get_latent_representation(), model.get_latent_representation())


def test_few_cells_are_trained_for_500_steps_by_default(adata: anndata.AnnData) -> None:
    assert len(train(adata, None).history) == LEAST_STEPS  # 50 epochs of 108 cells are 180 steps of 30
    assert len(train(adata, 2).history) == 7


@pytest.mark.parametrize(("scheme", "statistics"), [("r2mae-per-sample", "no"), ("r2mae", "yes")])
def test_a_model_of_mixed_ratios_is_measured_as_it_was_trained(
    adata: anndata.AnnData, caplog: pytest.LogCaptureFixture, scheme: str, statistics: str
) -> None:
    model = MaskedAutoencoder(adata, n_hidden=8, n_latent=4, scheme=scheme)
    model.train(1, progress=False, threads=1)
    assert model._config.evaluation.bn_statistics == statistics
    assert not caplog.messages


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
    names = {"config.yaml", "metrics.csv", "model.json", "model.safetensors", "statistics.safetensors"}
    assert {path.name for path in (tmp_path / "m").iterdir()} == names
    loaded = MaskedAutoencoder.load(tmp_path / "m", adata)
    np.testing.assert_array_equal(loaded.get_latent_representation(), model.get_latent_representation())
    pd.testing.assert_frame_equal(loaded.history, model.history)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="exists: name another folder, or pass overwrite=True"):
        model.save(tmp_path / "m")
    model.save(tmp_path / "m", overwrite=True)


def test_names_of_scvi_tools_mean_the_same(adata: anndata.AnnData, model: MaskedAutoencoder, tmp_path: Path) -> None:
    genes = ["gene3", "gene1"]
    model.save(dir_path=tmp_path / "m")
    loaded = MaskedAutoencoder.load(dir_path=tmp_path / "m", adata=adata)
    for call in (loaded.impute, loaded.get_normalized_expression):
        pd.testing.assert_frame_equal(call(gene_list=genes), call(genes=genes))
        with pytest.raises(UserError, match="genes and gene_list are the same"):
            call(genes=genes, gene_list=genes)
    with pytest.raises(UserError, match="genes is missing"):
        model.impute()
    with pytest.raises(UserError, match="folder is missing"):
        model.save()
    with pytest.raises(UserError, match="a saved model has no cells"):
        MaskedAutoencoder.load(tmp_path / "m")


def test_damaged_models_are_told(adata: anndata.AnnData, model: MaskedAutoencoder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run folder"):
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


def test_the_encoder_takes_the_own_batch_and_the_decoder_the_other(
    adata: anndata.AnnData, model: MaskedAutoencoder
) -> None:
    """What scvi-tools does: get_normalized_expression(transform_batch=...) changes the decoder's batch alone."""
    network = model._require_trained().model
    counts = torch.from_numpy(adata.layers["raw"].toarray()).float()
    own = torch.from_numpy((adata.obs["batch"] == "b").to_numpy().astype(np.int64))
    with torch.no_grad():
        latent = network.encode(counts.log1p(), own)
        share = network.decode(latent, torch.ones_like(own)).softmax(1).numpy()
        hidden = counts.log1p()
        hidden[:, 7] = 0
        alone = network.decode(network.encode(hidden, own), torch.ones_like(own)).softmax(1)[:, 7].numpy()
    found = model.get_normalized_expression(transform_batch="b")
    np.testing.assert_allclose(found, share, rtol=1e-4)
    assert not np.allclose(found, model.get_normalized_expression(), rtol=1e-2)
    np.testing.assert_allclose(
        model.impute("gene7", transform_batch="b")["gene7"], alone * counts.sum(1).numpy(), rtol=1e-4
    )
    np.testing.assert_allclose(model.get_latent_representation(transform_batch="b"), latent, atol=1e-5)


def test_only_cells_of_new_batches_are_encoded_as_of_another(model: MaskedAutoencoder) -> None:
    other = make_adata()
    own = model.get_latent_representation(other)
    other.obs["batch"] = np.where(np.arange(120) < 10, "new", other.obs["batch"])
    other.obs.loc["cell11", "batch"] = None
    new = np.isin(np.arange(120), [*range(10), 11])
    found = model.get_latent_representation(other, transform_batch="b")
    np.testing.assert_allclose(found[~new], own[~new], atol=1e-6)
    del other.obs["batch"]
    np.testing.assert_allclose(found[new], model.get_latent_representation(other, transform_batch="b")[new], atol=1e-6)


def test_the_model_keeps_its_own_counts() -> None:
    adata = make_adata()
    adata.X = adata.X.astype(np.float32)
    MaskedAutoencoder.setup_anndata(adata, batch_key="batch")
    model = MaskedAutoencoder(adata, n_hidden=16, n_latent=4)
    undisturbed = make_adata()
    MaskedAutoencoder.setup_anndata(undisturbed, batch_key="batch")
    other = MaskedAutoencoder(undisturbed, n_hidden=16, n_latent=4)
    sc.pp.log1p(adata)
    adata.obs["batch"] = "a"
    for one in (model, other):
        one.train(2, batch_size=30, progress=False, threads=1, device="cpu")
    np.testing.assert_array_equal(model.get_latent_representation(), other.get_latent_representation())
    sc.pp.log1p(adata)
    np.testing.assert_array_equal(model.get_latent_representation(), other.get_latent_representation())
    with pytest.raises(UserError, match="counts are whole numbers"):  # what is passed is taken as it is now
        model.get_latent_representation(adata)


def test_cells_that_change_their_places_are_noticed() -> None:
    adata = make_adata()
    MaskedAutoencoder.setup_anndata(adata, batch_key="batch")
    model, untrained = train(adata, 2), MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    before = pd.DataFrame(model.get_latent_representation(), index=adata.obs_names)
    for kept in (np.random.default_rng(0).permutation(120), np.arange(0, 120, 3)):
        adata._inplace_subset_obs(kept)  # as scanpy.pp.filter_cells and its kin do
        for call in (model.get_latent_representation, lambda: model.impute("gene1"), lambda: untrained.train(1)):
            with pytest.raises(UserError, match=r"adata has other cells .* or another order: pass adata=adata"):
                call()
        np.testing.assert_allclose(model.get_latent_representation(adata), before.loc[adata.obs_names], atol=1e-6)
        assert list(model.impute("gene1", adata).index) == list(adata.obs_names)


@pytest.mark.parametrize(
    ("name", "hint"), [("epochs", "max_epochs"), ("labels", "it to Masked"), ("norm", "it to Mask")]
)
def test_options_that_are_not_of_training_are_refused(adata: anndata.AnnData, name: str, hint: str) -> None:
    with pytest.raises(UserError, match=rf"^train\(\) does not take {name}: pass {hint}"):
        MaskedAutoencoder(adata, n_hidden=4, n_latent=2).train(1, progress=False, **{name: 3})


def test_fields_of_the_data_are_all_refused() -> None:
    """Every field of a configuration of cells that concerns data or probes, and none that concerns training."""
    own = set(CellsConfig.names()) - set(RunConfig.names())
    assert own - {"timing", "bn_statistics", "init"} <= _NOT_OF_TRAINING
    assert _NOT_OF_TRAINING - own == {"data", "model", "preset", "epochs", "validation", "mask_input"}


def test_a_trained_model_is_not_trained_over(adata: anndata.AnnData, tmp_path: Path) -> None:
    model = train(adata, 2)
    with pytest.raises(UserError, match="trained already: make a new model"):
        model.train(1, progress=False)
    model.save(tmp_path / "m")
    with pytest.raises(UserError, match="trained already"):
        MaskedAutoencoder.load(tmp_path / "m", adata).train(1, progress=False)


def test_one_gene_or_more(model: MaskedAutoencoder) -> None:
    pd.testing.assert_frame_equal(model.impute("gene3"), model.impute(["gene3"]))
    one = model.get_normalized_expression(genes="gene3")
    pd.testing.assert_frame_equal(one, model.get_normalized_expression()[["gene3"]])
    assert list(model.impute(pd.Index(["gene3", "gene1"])).columns) == ["gene3", "gene1"]
    for call in (model.impute, lambda genes: model.get_normalized_expression(genes=genes)):
        with pytest.raises(UserError, match="genes is empty: name one gene or more"):
            call([])


def test_a_model_that_is_told_what_is_hidden(adata: anndata.AnnData, tmp_path: Path) -> None:
    model = MaskedAutoencoder(adata, n_hidden=16, n_latent=4, mask_input=True)
    model.train(2, batch_size=30, progress=False, threads=1)
    model.save(tmp_path / "told")
    again = MaskedAutoencoder.load(tmp_path / "told", adata)
    weights = again._require_trained().model.state_dict()["mask_weight"]
    assert torch.equal(weights, model._require_trained().model.state_dict()["mask_weight"])
    found = [one.impute(["gene3", "gene4"]) for one in (model, again)]
    pd.testing.assert_frame_equal(*found)
    with torch.no_grad():
        again._require_trained().model.get_parameter("mask_weight").zero_()
    assert not np.allclose(again.impute(["gene3", "gene4"]), found[0], rtol=1e-6)
    np.testing.assert_array_equal(again.get_latent_representation(), model.get_latent_representation())


def test_a_model_with_layer_normalisation(adata: anndata.AnnData, tmp_path: Path) -> None:
    model = MaskedAutoencoder(adata, n_hidden=16, n_latent=4, norm="layer")
    model.train(2, batch_size=30, progress=False, threads=1)
    model.save(tmp_path / "model")
    again = MaskedAutoencoder.load(tmp_path / "model", adata)
    assert not any("running" in name for name in again._require_trained().model.state_dict())
    np.testing.assert_array_equal(again.get_latent_representation(), model.get_latent_representation())
