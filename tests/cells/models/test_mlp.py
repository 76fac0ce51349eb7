"""The paper's MLP for counts."""

import pytest
import torch

from r2mae.cells.config import CellsConfig
from r2mae.cells.models.mlp import CountAutoencoder, build
from r2mae.errors import UserError
from r2mae.training.validation import batch_norms


def test_layers_and_size_of_the_paper() -> None:
    with torch.device("meta"):
        model = CountAutoencoder(5000, 1)
    linear = 5000 * 2000 + 2000 + 2000 * 2000 + 2000 + 2000 * 1000 + 1000 + 1000 * 2000 + 2000 + 2000 * 5000 + 5000
    norms = 3 * 2 * 2000
    assert sum(p.numel() for p in model.parameters()) == linear + norms + 5000  # one θ per gene


def test_hidden_columns_may_be_left_out() -> None:
    torch.manual_seed(0)
    model = CountAutoencoder(10, 3, 16, 4)
    x, batch, kept = torch.rand(6, 10), torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 2, 3, 7, 9])
    zeros = torch.zeros_like(x)
    zeros[:, kept] = x[:, kept]
    whole, part = model(zeros, batch)[0], model(x[:, kept], batch, kept)[0]
    torch.testing.assert_close(whole, part)
    parameters = [p for name, p in model.named_parameters() if name != "log_theta"]
    for a, b in zip(
        torch.autograd.grad(whole.square().sum(), parameters),
        torch.autograd.grad(part.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_encoder_and_decoder_know_the_batch() -> None:
    torch.manual_seed(0)
    model = CountAutoencoder(10, 2, 16, 4).eval()
    x, first, second = torch.rand(3, 10), torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)
    assert not torch.allclose(model.encode(x, first), model.encode(x, second))
    latent = model.encode(x, first)
    assert not torch.allclose(model.decode(latent, first), model.decode(latent, second))


def test_one_hot_columns_are_rows_that_are_added() -> None:
    torch.manual_seed(0)
    layer = CountAutoencoder(10, 3, 16, 4).first
    x, batch = torch.rand(5, 10), torch.tensor([2, 0, 1, 2, 2])
    joined = torch.cat([x, torch.nn.functional.one_hot(batch, 3).float()], 1)
    dense = joined @ torch.cat([layer.weight, layer.batch]) + layer.bias
    torch.testing.assert_close(layer(x, batch), dense)


def test_a_single_batch_is_no_covariate() -> None:
    names = [name for name, _ in CountAutoencoder(10, 1, 16, 4).named_parameters()]
    assert not any("batch" in name for name in names)


def test_the_decoder_may_be_told_another_batch() -> None:
    torch.manual_seed(0)
    model = CountAutoencoder(10, 2, 16, 4).eval()
    x, own, other = torch.rand(3, 10), torch.tensor([0, 1, 0]), torch.tensor([1, 1, 1])
    logits, latent = model(x, own, decoder_batch=other)
    torch.testing.assert_close(latent, model.encode(x, own))
    torch.testing.assert_close(logits, model.decode(latent, other))
    torch.testing.assert_close(model(x, own)[0], model.decode(latent, own))


def test_the_mask_is_an_input_of_each_gene_after_the_first_batch_norm() -> None:
    """The rows of hidden genes are summed once; that is the mask of each cell times the weights."""
    torch.manual_seed(0)
    model = CountAutoencoder(10, 2, 16, 4, mask_input=True)
    assert model.mask_weight is not None
    x, batch, hidden = torch.rand(6, 10), torch.tensor([0, 1] * 3), torch.tensor([1, 4, 8])
    masks = torch.zeros(6, 10)
    masks[:, hidden] = 1
    norm, *others = model.encoder
    latent = torch.nn.Sequential(*others)(norm(model.first(x, batch)) + masks @ model.mask_weight)
    torch.testing.assert_close(model(x, batch, hidden=hidden)[1], latent)
    twice = torch.tensor([8, 1, 4, 1])  # a set, not a list
    torch.testing.assert_close(model.encode(x, batch, hidden=twice), latent)
    none = torch.tensor([], dtype=torch.int64)
    torch.testing.assert_close(model.encode(x, batch, hidden=none), model.encode(x, batch))


def test_batch_norm_would_take_the_mask_away_before_it() -> None:
    """Why its inputs are added behind: all cells of a mini-batch hide the same genes."""
    torch.manual_seed(0)
    model = CountAutoencoder(10, 1, 16, 4)
    x, batch = torch.rand(6, 10), torch.zeros(6, dtype=torch.int64)
    states = model.first(x, batch)
    torch.testing.assert_close(model.encoder(states + torch.randn(16)), model.encoder(states), rtol=1e-4, atol=1e-5)


def test_layer_normalisation_knows_each_cell_alone() -> None:
    torch.manual_seed(0)
    names = [f"g{number}" for number in range(10)]
    made = {"genes": names, "batches": ["a", "b"], "n_hidden": 16, "n_latent": 4, "norm": "layer"}
    model = build(made)[1].train()
    assert not batch_norms(model) and sum(isinstance(one, torch.nn.LayerNorm) for one in model.modules()) == 3
    x, batch = torch.rand(3, 10), torch.tensor([0, 1, 0])
    torch.testing.assert_close(model(x, batch)[0][:1], model(x[:1], batch[:1])[0])
    assert batch_norms(build({name: value for name, value in made.items() if name != "norm"})[1])  # of older folders


def test_without_batch_statistics_none_are_chosen() -> None:
    config = CellsConfig.make(data="csle", norm="layer", batch_size=1)
    assert not config.re_estimates_statistics and "statistics" not in config.measured_in_words()
    with pytest.raises(UserError, match="bn_statistics has no effect"):
        CellsConfig.make(data="csle", norm="layer", bn_statistics="no")
