"""GPN-MSA against transformers' RoFormer and plainly written parts."""

import pytest
import torch
from benchmarks.genome_step import Plain
from torch.nn.functional import cross_entropy

from genome.made import network, task, windows
from r2mae.genome.models.gpn_msa import build
from r2mae.genome.store.tokens import BASES
from r2mae.masking.keys import Key


@pytest.mark.parametrize("others", [3, 0])
def test_it_is_roformer_over_one_hot_vectors(others: int) -> None:
    model, batch = network(others).eval(), windows(others=others)
    corrupted = task().corrupt(batch, 0.3, Key.root(1))
    whole = Plain(model).eval()(corrupted.inputs, corrupted.aligned)
    assert whole.std() > 0.1
    torch.testing.assert_close(
        model.head(model.encode(corrupted.inputs, corrupted.aligned)), whole, atol=2e-5, rtol=1e-4
    )
    places = corrupted.columns[:, :, None].expand(-1, -1, BASES)
    torch.testing.assert_close(
        task().forward(model, corrupted).prediction, whole.gather(1, places), atol=2e-5, rtol=1e-4
    )


def test_losses_and_gradients_are_those_of_logits_everywhere() -> None:
    model, batch = network(), windows()
    corrupted = task().corrupt(batch, 0.3, Key.root(2))
    losses = task().losses(task().forward(model, corrupted), corrupted)
    losses.sum().backward()
    narrow = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    logits = model.head(model.encode(corrupted.inputs, corrupted.aligned)).flatten(0, 1)
    plain = cross_entropy(
        logits[corrupted.hidden], batch["target"].flatten()[corrupted.hidden].long(), reduction="none"
    )
    torch.testing.assert_close(losses[corrupted.hidden], plain, atol=1e-5, rtol=1e-5)
    assert not losses[~corrupted.hidden].any()
    plain.sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(narrow[name], parameter.grad, atol=1e-4, rtol=1e-4)


def test_the_columns_of_all_species_are_used_and_their_order_matters() -> None:
    model, batch = network().eval(), windows(plain=True)
    seen = model.encode(batch["target"].long(), batch["aligned"])
    for species in range(3):
        other = batch["aligned"].clone()
        other[:, :, species] = (other[:, :, species] + 1) % 6
        assert not torch.allclose(model.encode(batch["target"].long(), other), seen, atol=1e-3)
    assert not torch.allclose(model.encode(batch["target"].long(), batch["aligned"].flip(2)), seen, atol=1e-3)


def test_what_does_not_fit_is_refused() -> None:
    model, batch = network(), windows(length=25)
    with pytest.raises(ValueError, match="windows have 25 positions, and the model takes at most 24"):
        model.encode(batch["target"].long(), batch["aligned"])
    batch = windows(others=2)
    with pytest.raises(ValueError, match="2 aligned species, and the model takes 3"):
        model.encode(batch["target"].long(), batch["aligned"])


def test_shorter_windows_fit() -> None:
    model, batch = network().eval(), windows(length=9)
    assert model.encode(batch["target"].long(), batch["aligned"]).shape == (5, 9, 16)


def test_building_from_plain_values() -> None:
    made = {
        "model": "gpn-msa", "width": 16, "layers": 1, "heads": 2, "inner": None, "dropout": 0.1, "window": 24,
        "reference": "ref", "species": ["a", "b"], "corruption": "mask", "exact": False,
        "repeat_weight": 0.5, "flip": 0.25,
    }  # fmt: skip
    built, model = build(made)
    assert model.species == ("a", "b")
    assert model.layers[0].inner.out_features == 64
    assert (built.corruption, built.exact, built.repeat_weight, built.width) == ("mask", False, 0.5, 16)
    with pytest.raises(ValueError, match="layers must be 1 to"):
        build({**made, "layers": 0})


def test_dropout_is_for_training_alone() -> None:
    model, batch = network(dropout=0.5), windows()
    outputs = {}
    for training in (True, False):
        model.train(training)
        outputs[training] = [model.encode(batch["target"].long(), batch["aligned"]) for _ in range(2)]
    assert torch.equal(*outputs[False])
    assert not torch.allclose(*outputs[True])
