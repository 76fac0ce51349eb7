"""Hiding genes and predicting their counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from cells.plain_likelihood import nb_log_likelihood
from r2mae.cells.models.mlp import CountAutoencoder
from r2mae.cells.task import GeneTask, dense, hidden_losses
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key
from r2mae.masking.masks import column_mask, hidden_count
from r2mae.masking.schemes import make_scheme
from r2mae.training.task import Batches, Task
from r2mae.training.validation import masked_losses

GENES, CELLS = 40, 16
KEY = Key.root(3)


@pytest.fixture
def counts() -> np.ndarray:
    return np.random.default_rng(0).poisson(0.5, (CELLS, GENES)).astype(np.float32)


def batch_of(counts: np.ndarray, batches: int = 2) -> dict[str, torch.Tensor]:
    rows = sparse.csr_matrix(counts)
    return {
        "indptr": torch.from_numpy(rows.indptr.astype(np.int64)),
        "indices": torch.from_numpy(rows.indices),
        "values": torch.from_numpy(rows.data),
        "batch": torch.arange(len(counts)) % batches,
    }


@pytest.fixture
def model() -> CountAutoencoder:
    torch.manual_seed(0)
    return CountAutoencoder(GENES, 2, 32, 8)


def plain_loss(model: CountAutoencoder, counts: torch.Tensor, batch: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The paper's objective, written down densely."""
    logits, _ = model((counts * ~mask).log1p(), batch)
    log_mean = logits.log_softmax(1) + counts.sum(1, keepdim=True).log()
    values = -nb_log_likelihood(counts, log_mean, model.log_theta)
    return (values * mask).sum() / (mask.sum() * len(counts))


def test_protocol() -> None:
    assert isinstance(GeneTask(GENES), Task)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_loss_and_gradients_equal_the_plain_ones(counts: np.ndarray, model: CountAutoencoder, ratio: float) -> None:
    task, batch = GeneTask(GENES), batch_of(counts)
    mask = column_mask(GENES, ratio, KEY)
    corrupted = task.corrupt(batch, ratio, KEY)
    output = task.forward(model, corrupted)
    loss = task.losses(output, corrupted).sum() / corrupted.count
    plain = plain_loss(model, torch.from_numpy(counts), batch["batch"], mask)
    torch.testing.assert_close(loss, plain, rtol=1e-5, atol=1e-5)
    parameters = list(model.parameters())
    ours, theirs = torch.autograd.grad(loss, parameters), torch.autograd.grad(plain, parameters)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_hidden_is_what_the_loss_counts(counts: np.ndarray) -> None:
    corrupted = GeneTask(GENES).corrupt(batch_of(counts), 0.3, KEY)
    assert corrupted.count == int(corrupted.hidden.sum()) == CELLS * 12
    assert corrupted.entries == counts.size
    assert (corrupted.hidden == corrupted.hidden[0]).all()  # whole columns


def test_all_micro_batches_share_the_columns(counts: np.ndarray) -> None:
    task = GeneTask(GENES)
    first, later = (task.corrupt(batch_of(counts), 0.3, KEY.rows(row)) for row in (0, 200))
    assert torch.equal(first.hidden, later.hidden)


RATIOS = np.linspace(0.0, 1.0, CELLS)


def test_every_cell_may_hide_genes_of_its_own(counts: np.ndarray, model: CountAutoencoder) -> None:
    """Exact counts; loss and gradients are the plain ones."""
    counts[3] = 0
    task, batch = GeneTask(GENES), batch_of(counts)
    corrupted = task.corrupt(batch, RATIOS, KEY)
    assert corrupted.hidden.sum(1).tolist() == [hidden_count(GENES, ratio) for ratio in RATIOS]
    assert corrupted.count == int(corrupted.hidden.sum())
    losses = task.losses(task.forward(model, corrupted), corrupted)
    assert losses.shape == corrupted.hidden.shape
    assert bool((losses[~corrupted.hidden] == 0).all())
    x = torch.from_numpy(counts)
    logits, _ = model((x * ~corrupted.hidden).log1p(), batch["batch"])
    log_mean = logits.log_softmax(1) + x.sum(1, keepdim=True).clamp(min=1).log()
    plain = -nb_log_likelihood(x, log_mean, model.log_theta) * corrupted.hidden
    torch.testing.assert_close(losses, plain, rtol=1e-5, atol=1e-5)
    weights = torch.linspace(0.5, 2, CELLS)[:, None]  # a sample may count more than another
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad((one * weights).sum(), parameters) for one in (losses, plain))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_genes_of_single_cells_are_keyed_by_the_row(counts: np.ndarray) -> None:
    task = GeneTask(GENES)
    whole = task.corrupt(batch_of(counts), RATIOS, KEY).hidden
    part = task.corrupt(batch_of(counts[10:]), RATIOS[10:], KEY.rows(10)).hidden
    assert torch.equal(part, whole[10:])
    same = task.corrupt(batch_of(counts), np.full(CELLS, 0.3), KEY).hidden
    assert not (same == same[0]).all()


def test_losses_of_all_genes_are_those_of_all_columns(counts: np.ndarray, model: CountAutoencoder) -> None:
    batch, every = batch_of(counts), torch.arange(GENES)
    logits = torch.randn(CELLS, GENES, generator=torch.Generator().manual_seed(1)).requires_grad_()
    places = torch.from_numpy(np.flatnonzero(counts))
    found = []
    for columns in (None, every):
        library = torch.from_numpy(counts.sum(1))
        losses = hidden_losses(logits, model.log_theta, library, columns, places, batch["values"])
        found.append((losses, *torch.autograd.grad(losses.square().sum(), [logits, model.log_theta])))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_the_model_is_told_what_each_cell_hides(counts: np.ndarray) -> None:
    torch.manual_seed(0)
    model = CountAutoencoder(GENES, 2, 32, 8, mask_input=True).eval()
    task, batch = GeneTask(GENES, mask_input=True), batch_of(counts)
    corrupted = task.corrupt(batch, 0.3, KEY)
    assert corrupted.columns is not None
    log_counts = (torch.from_numpy(counts) * ~corrupted.hidden).log1p()
    rows = replace(corrupted, columns=None, inputs=(log_counts, batch["batch"], None))
    with torch.no_grad():
        together, each = (task.forward(model, one).prediction for one in (corrupted, rows))
        torch.testing.assert_close(each, together)
        own = task.corrupt(batch, RATIOS, KEY)
        assert not torch.allclose(
            task.forward(model, own).prediction, task.forward(model, replace(own, hidden=~own.hidden)).prediction
        )


def test_library_size_is_that_of_the_whole_cell(counts: np.ndarray, model: CountAutoencoder) -> None:
    task, hidden = GeneTask(GENES), torch.tensor([2, 5, 30])
    model.eval()
    for columns in (None, hidden):
        share, library = task.expected(model, batch_of(counts), hidden=columns)
        torch.testing.assert_close((share * library[:, None]).sum(1), torch.from_numpy(counts.sum(1)))
    changed = counts.copy()
    changed[:, 2] = 0  # what is imputed looks at the total alone, not at the gene
    share = [task.expected(model, batch_of(c), hidden=hidden)[0] for c in (counts, changed)]
    assert torch.equal(*share)


def test_dense_undoes_the_sparse_form(counts: np.ndarray) -> None:
    assert np.array_equal(dense(batch_of(counts), GENES).numpy(), counts)


def test_embedding_is_that_of_whole_cells(counts: np.ndarray, model: CountAutoencoder) -> None:
    model.eval()
    batch = batch_of(counts)
    latent = GeneTask(GENES).embed(model, batch)
    torch.testing.assert_close(latent, model.encode(torch.from_numpy(counts).log1p(), batch["batch"]))
    assert not latent.requires_grad


def test_a_cell_without_counts_has_a_finite_loss(counts: np.ndarray, model: CountAutoencoder) -> None:
    counts[3] = 0
    task = GeneTask(GENES)
    corrupted = task.corrupt(batch_of(counts), 0.3, KEY)
    assert torch.isfinite(task.losses(task.forward(model, corrupted), corrupted)).all()


def test_learned_weights(counts: np.ndarray, model: CountAutoencoder) -> None:
    scheme = make_scheme("r2mae-cl", SchemeDefaults(ratio=0.25, low=0.1, high=0.5)).bind(10)
    assert scheme.curriculum is not None
    task = GeneTask(GENES)
    network = task.weight_network(scheme.curriculum)
    corrupted = task.corrupt(batch_of(counts), 0.3, KEY)
    output = task.forward(model, corrupted)
    weights = task.learned_weights(network, corrupted, output)
    mean = torch.from_numpy(counts).div(20).log1p().mean(0, keepdim=True)
    torch.testing.assert_close(weights, network(mean)[corrupted.hidden[0]])
    losses = task.losses(output, corrupted) * weights[:, 0]
    assert losses.shape == (CELLS, 12)


class _Batches(Batches):
    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts

    def __len__(self) -> int:
        return len(self.counts)

    def batch(self, indices: np.ndarray, key: Key) -> dict[str, torch.Tensor]:
        return batch_of(self.counts[indices])


def test_validation_loss_is_the_mean_over_hidden_counts(counts: np.ndarray, model: CountAutoencoder) -> None:
    task = GeneTask(GENES)
    (loss,) = masked_losses(task, model, _Batches(counts), (0.25,))
    model.eval()
    mask = column_mask(GENES, 0.25, Key.root(0).fold("evaluation masks").fold(0))
    with torch.no_grad():
        plain = plain_loss(model, torch.from_numpy(counts), torch.arange(CELLS) % 2, mask)
    assert loss == pytest.approx(float(plain), rel=1e-5)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_a_device_is_given_what_the_host_makes(counts: np.ndarray, model: CountAutoencoder, ratio: float) -> None:
    """The two ways of hiding: shapes that are known beforehand, and shapes that follow the counts."""
    counts[3] = 0
    task, batch = GeneTask(GENES), batch_of(counts)
    mask = column_mask(GENES, ratio, KEY)
    order = torch.sort(mask.to(torch.uint8), stable=True).indices
    kept = GENES - int(mask.sum())
    found = []
    for on_host in (True, False):
        corrupted = task._hide(batch, mask, order[:kept], order[kept:], on_host=on_host)
        losses = task.losses(task.forward(model, corrupted), corrupted)
        gradients = torch.autograd.grad(losses.sum(), list(model.parameters()))
        found.append((corrupted, losses, gradients))
    (host, host_losses, host_gradients), (device, device_losses, device_gradients) = found
    torch.testing.assert_close(device_losses, host_losses, rtol=1e-5, atol=1e-6)
    for a, b in zip(device_gradients, host_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert torch.equal(device.inputs[0], host.inputs[0])
    assert torch.equal(device.library, host.library)
    assert torch.equal(device.hidden, host.hidden)
    assert (device.count, device.entries) == (host.count, host.entries)
    assert len(device.targets) == len(batch["values"]) >= len(host.targets)


def test_the_decoder_may_be_told_another_batch(counts: np.ndarray, model: CountAutoencoder) -> None:
    model.eval()
    batch, other = batch_of(counts), torch.ones(CELLS, dtype=torch.int64)
    share, library = GeneTask(GENES).expected(model, batch, decoder_batch=other)
    with torch.no_grad():
        latent = model.encode(torch.from_numpy(counts).log1p(), batch["batch"])
        torch.testing.assert_close(share, model.decode(latent, other).softmax(1))
    torch.testing.assert_close(library, torch.from_numpy(counts.sum(1)))
    own, _ = GeneTask(GENES).expected(model, batch)
    assert torch.equal(share[1::2], own[1::2])
    assert not torch.isclose(share[::2], own[::2]).all()


def test_the_model_is_told_which_genes_are_hidden(counts: np.ndarray) -> None:
    torch.manual_seed(0)
    model = CountAutoencoder(GENES, 2, 32, 8, mask_input=True).eval()
    task, batch = GeneTask(GENES, mask_input=True), batch_of(counts)
    corrupted = task.corrupt(batch, 0.3, KEY)
    with torch.no_grad():
        kept_alone = task.forward(model, corrupted).prediction.softmax(1)
        untold = GeneTask(GENES).forward(model, corrupted).prediction.softmax(1)
        flipped = replace(corrupted, columns=corrupted.inputs[2])
        assert not torch.allclose(task.forward(model, flipped).prediction.softmax(1), kept_alone)
    assert not torch.allclose(kept_alone, untold)
    # Hidden as in training, or as in evaluation, where all genes are in the input.
    share, _ = task.expected(model, batch, hidden=corrupted.columns)
    torch.testing.assert_close(share, kept_alone)
    # With nothing hidden the mask is zero.
    for whole in (task, GeneTask(GENES)):
        torch.testing.assert_close(whole.expected(model, batch)[0], task.expected(model, batch)[0])
        torch.testing.assert_close(whole.embed(model, batch), model.encode(dense(batch, GENES).log1p(), batch["batch"]))
