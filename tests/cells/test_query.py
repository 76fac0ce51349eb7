"""Models that begin with the weights of others: `init` of a run, and queries of new batches."""

import json
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

import anndata
import numpy as np
import pytest
import torch

from cells.conftest import make_cells
from r2mae.cells import CellsConfig, MaskedAutoencoder
from r2mae.cells.domain import DOMAIN
from r2mae.cells.models.mlp import CountAutoencoder
from r2mae.cells.task import copy_weights
from r2mae.cli.main import main
from r2mae.errors import UserError

Make = Callable[..., anndata.AnnData]


def network(genes: tuple[str, ...], batches: tuple[str, ...], **options: bool) -> CountAutoencoder:
    model = CountAutoencoder(len(genes), len(batches), 6, 3, **options)
    model.gene_names, model.batch_names = genes, batches
    return model.eval()


@torch.no_grad()
def logits(model: CountAutoencoder, counts: torch.Tensor, batch: int) -> torch.Tensor:
    return model(counts, torch.full((len(counts),), batch))[0]


@pytest.mark.parametrize("mask_input", [False, True])
def test_genes_and_batches_are_mapped_by_name(mask_input: bool) -> None:
    other = network(("a", "b", "c"), ("x", "y"), mask_input=mask_input)
    model = network(("c", "new", "a"), ("y", "z", "x"), mask_input=mask_input)
    fresh = {name: values.clone() for name, values in model.state_dict().items()}
    copy_weights(model, other)
    counts = torch.rand(4, 3)
    counts[:, 1] = 0  # b of the one model, new of the other
    for own, theirs in ((0, 1), (2, 0)):
        expected = logits(other, counts[:, [2, 1, 0]], theirs)[:, [2, 0]]
        torch.testing.assert_close(logits(model, counts, own)[:, [0, 2]], expected)
    for name in set(model.gene_rows) & fresh.keys():
        assert torch.equal(model.state_dict()[name][1], fresh[name][1])
    torch.testing.assert_close(model.first.batch[1], other.first.batch.mean(0))


def test_a_single_batch_has_its_weights_in_the_bias() -> None:
    several, counts = network(("a", "b"), ("x", "y")), torch.rand(4, 2)
    one = network(("a", "b"), ("y",))
    copy_weights(one, several)
    torch.testing.assert_close(logits(one, counts, 0), logits(several, counts, 1))
    copy_weights(several, one)
    for batch in (0, 1):
        torch.testing.assert_close(logits(several, counts, batch), logits(one, counts, 0))


SIZES = ["--n-hidden", "8", "--n-latent", "4", "--batch-size", "20", "--threads", "1"]


@pytest.fixture
def run(make: Make, write: Callable[..., Path], tmp_path: Path) -> Path:
    """A run on 12 genes and two batches."""
    adata = make()
    adata.obs["batch"] = np.where(np.arange(30) % 2, "a", "b")
    data = str(write(adata, tmp_path / "reference.h5ad"))
    words = ["pretrain", "cells", data, "--batch-key", "batch", *SIZES, "--steps", "3", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    return tmp_path / "run"


@pytest.mark.slow
def test_a_run_begins_with_the_weights_of_another(
    run: Path,
    make: Make,
    write: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = make(30, 14)[:, 2:].copy()
    other.obs["batch"] = np.where(np.arange(30) % 2, "a", "c")
    data = str(write(other, tmp_path / "other.h5ad"))
    words = ["pretrain", "cells", data, "--batch-key", "batch", "--steps", "2", "--init", str(run)]
    with caplog.at_level(logging.WARNING, "r2mae"):
        assert main([*words, *SIZES, "--out", str(tmp_path / "next")]) == 0
    assert (
        "it has 10 of the run's 12 genes; new genes, with random weights: g12, g13; new batches, with the"
        in caplog.text
    )
    record = json.loads((tmp_path / "next" / "data.json").read_text())["init"]
    assert record["path"] == str(run)
    assert main([*words, "--n-hidden", "9", "--n-latent", "4", "--out", str(tmp_path / "wide")]) == 2
    assert "(init) has another n_hidden than the run (8, here 9): give the run that of the weights (--n-hidden)" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_what_no_run_can_begin_with(run: Path, tmp_path: Path) -> None:
    config = CellsConfig.make(data="x", init=str(run), n_hidden=8, n_latent=4)
    with pytest.raises(UserError, match=r"has none of the run's genes \(its first is 'g0', the first here 'z'\)"):
        DOMAIN.load_initial_weights(config, network(("z", "y"), ("a",)))
    with pytest.raises(UserError, match="there is no run folder"):
        DOMAIN.load_initial_weights(config.replace(init=str(tmp_path / "none")), network(("g0", "g1"), ("a",)))
    with pytest.raises(UserError, match=r"another mask_input than the run \(False, here True\)"):
        DOMAIN.load_initial_weights(config.replace(mask_input=True), network(("g0", "g1"), ("a",)))
    (run / "model.json").unlink()
    with pytest.raises(UserError, match=r"\(init\) is not finished: rerun its command to resume, then start from it"):
        DOMAIN.check(config.replace(data=str(tmp_path / "reference.h5ad")))


def cells(batches: list[str], genes: int = 12, shift: float = 0.0) -> anndata.AnnData:
    """Cells of these batches in turn; the first half of the genes of batch "new" is higher by `shift`."""
    adata = make_cells(120, genes)
    adata.obs["batch"] = np.array(batches)[np.arange(120) % len(batches)]
    counts = adata.X.toarray()
    counts[np.ix_((adata.obs["batch"] == "new").to_numpy(), np.arange(genes // 2))] += shift
    adata.X = counts
    return adata


@cache
def reference(mask_input: bool = False) -> MaskedAutoencoder:
    adata = cells(["a", "b"])
    MaskedAutoencoder.setup_anndata(adata, batch_key="batch")
    model = MaskedAutoencoder(adata, n_hidden=16, n_latent=4, mask_input=mask_input)
    model.train(20, batch_size=30, lr=0.01, progress=False, threads=1)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("mask_input", [False, True])
def test_only_the_weights_of_new_batches_are_trained(
    mask_input: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = reference(mask_input)
    adata = cells(["a", "new"], shift=5)[:, 1:].copy()  # without g0
    query = MaskedAutoencoder.load_query_data(adata, known)
    with pytest.raises(UserError, match=r"not trained: call train\(\)"):
        query.get_latent_representation()
    with caplog.at_level(logging.WARNING, "r2mae"):
        query.train(80, batch_size=30, progress=False, threads=1, lr=0.1)
    assert "only the decoder's weights of new batches are trained: new (60 cells)" in caplog.text
    before, after = (one._require_trained().model for one in (known, query))
    assert after.batch_names == ("a", "b", "new")
    for name, values in before.state_dict().items():
        assert torch.equal(values, after.state_dict()[name][: len(values)] if values.ndim else after.state_dict()[name])
    old, new = (adata[adata.obs["batch"] == name].copy() for name in ("a", "new"))
    np.testing.assert_array_equal(known.get_latent_representation(old), query.get_latent_representation(old))
    share = np.asarray(new.X / new.X.sum(1, keepdims=True)).mean(0)
    errors = [
        np.abs(model.get_normalized_expression(new, genes=new.var_names, **options).mean() - share).sum()
        for model, options in ((known, {"transform_batch": "a"}), (query, {}))
    ]
    assert errors[1] < 0.5 * errors[0]
    query.save(tmp_path / "query")
    again = MaskedAutoencoder.load(tmp_path / "query", adata)
    np.testing.assert_array_equal(again.get_latent_representation(), query.get_latent_representation())


@pytest.mark.slow
def test_queries_without_anything_to_train(make: Make, tmp_path: Path) -> None:
    known = reference()
    with pytest.raises(UserError, match="knows the batches a, b: there is nothing to train; use Masked"):
        MaskedAutoencoder.load_query_data(cells(["a", "b"]), known)
    with pytest.raises(UserError, match=r"two cells of new batches and two of the model's genes, not 1 and 12"):
        MaskedAutoencoder.load_query_data(cells(["a"] * 119 + ["new"]), known)
    query = MaskedAutoencoder.load_query_data(cells(["new"]), known)
    with pytest.raises(UserError, match="a query is trained in memory, from its reference: omit run and init"):
        query.train(1, run=tmp_path / "run")
    adata = make()
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    model.train(1, batch_size=30, progress=False, threads=1)
    model.save(tmp_path / "model")
    with pytest.raises(UserError, match="the model has no batch covariate: there is nothing to train"):
        MaskedAutoencoder.load_query_data(adata, tmp_path / "model")


@pytest.mark.slow
def test_denoised_expression_does_not_depend_on_the_own_count() -> None:
    model = reference()
    adata = cells(["a", "b"])[:, 2:].copy()  # g0 and g1 are hidden in any case
    whole = model.get_normalized_expression(adata)
    assert whole.attrs["hidden"] == pytest.approx(2 / 12)
    denoised = model.get_normalized_expression(adata, mask_ratio=0.3)
    assert denoised.attrs["hidden"] == pytest.approx(5 / 12)
    assert denoised.shape == whole.shape
    np.testing.assert_allclose(denoised.sum(1), 1, atol=0.2)
    for gene in ("g2", "g7", "g11"):
        changed = adata.copy()
        changed.X[:, changed.var_names.get_loc(gene)] = 50
        found = model.get_normalized_expression(changed, mask_ratio=0.3)
        np.testing.assert_allclose(found[gene], denoised[gene], rtol=1e-4)
        assert not np.allclose(model.get_normalized_expression(changed)[gene], whole[gene], rtol=0.01)
    imputed = model.impute(["g2", "g3"])
    assert imputed.attrs["hidden"] == pytest.approx(2 / 12)
    with pytest.raises(UserError, match="mask_ratio must be 0 or more and below 1, not 1"):
        model.get_normalized_expression(mask_ratio=1)
