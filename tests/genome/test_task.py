"""Hiding bases, and what hidden ones count in the loss."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genome.made import network, task, windows
from r2mae.genome.store.tokens import BASES, MASK
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key
from r2mae.masking.masks import hidden_count
from r2mae.masking.schemes import make_scheme

RATIOS = st.floats(0, 1)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), ratio=RATIOS, exact=st.booleans(), corruption=st.sampled_from(["mask", "80-10-10"]))
def test_only_bases_are_hidden(seed: int, ratio: float, exact: bool, corruption: str) -> None:
    batch = windows(seed=seed)
    found = task(exact=exact, corruption=corruption).corrupt(batch, ratio, Key.root(seed))
    hidden, clean = found.hidden.view(5, 24), batch["target"].long()
    assert not (hidden & (clean >= BASES)).any()
    assert torch.equal(found.inputs[~hidden], clean[~hidden])
    assert not (found.inputs[~hidden] == MASK).any()
    assert (found.inputs[hidden] == MASK).all() or corruption == "80-10-10"
    assert ((found.inputs[hidden] < BASES) | (found.inputs[hidden] == MASK)).all()
    assert torch.equal(found.aligned, batch["aligned"])
    assert found.entries == int((clean < BASES).sum())
    for row in range(5):
        bases = int((clean[row] < BASES).sum())
        if exact and bases > 1:
            assert int(hidden[row].sum()) == hidden_count(bases, ratio)
        columns, real = found.columns[row], found.real[row]
        assert columns[real].tolist() == hidden[row].nonzero()[:, 0].tolist()
        assert torch.equal(found.targets[row][real], clean[row][columns[real]])
    assert sorted(found.places[found.real.flatten()].tolist()) == found.hidden.nonzero()[:, 0].tolist()


def test_shares_of_the_three_corruptions() -> None:
    batch = windows(200, 100, 1, plain=True)
    found = task(corruption="80-10-10").corrupt(batch, 0.5, Key.root(0))
    seen, clean = found.inputs[found.hidden.view(200, 100)], batch["target"].long()[found.hidden.view(200, 100)]
    assert (seen == MASK).double().mean() == pytest.approx(0.8, abs=0.02)
    # A quarter of the random bases happen to be the right one.
    assert (seen == clean).double().mean() == pytest.approx(0.125, abs=0.02)


def test_rows_hang_on_their_place_alone() -> None:
    batch = windows(6)
    whole = task().corrupt(batch, 0.3, Key.root(3))
    part = task().corrupt({name: value[2:] for name, value in batch.items()}, 0.3, Key.root(3).rows(2))  # type: ignore[typeddict-item, misc, attr-defined]
    assert torch.equal(part.inputs, whole.inputs[2:])


def test_labels_of_bases_that_are_not_conserved_are_flipped() -> None:
    batch = windows(200, 100, 1, plain=True)
    plain, flipped = (task(flip=flip).corrupt(batch, 0.5, Key.root(0)) for flip in (0.0, 0.5))
    assert torch.equal(plain.inputs, flipped.inputs)
    neutral, same = batch["neutral"].gather(1, plain.columns), plain.targets == flipped.targets
    assert same[plain.real & ~neutral].all()
    # A quarter of the random labels happen to be the right one.
    assert same[plain.real & neutral].double().mean() == pytest.approx(0.5 + 0.125, abs=0.02)
    counts = torch.bincount(flipped.targets[plain.real & neutral & ~same], minlength=4)
    assert len(counts) == 4
    assert counts.min() > 0.8 * counts.max()
    rest = {name: value[50:] for name, value in batch.items()}  # type: ignore[attr-defined]
    part = task(flip=0.5).corrupt(rest, 0.5, Key.root(0).rows(50))  # type: ignore[arg-type]
    assert torch.equal(part.targets, flipped.targets[50:])


def test_repeats_and_tracks_weigh_the_loss() -> None:
    batch, model = windows(), network().eval()
    batch["weights"][0, 0] = -2.0
    corrupted = task(repeat_weight=0.1).corrupt(batch, 0.4, Key.root(0))
    expected = batch["weights"].clamp(min=0) * torch.where(batch["soft"], 0.1, 1.0)
    torch.testing.assert_close(corrupted.weights, expected.flatten(), atol=2e-6, rtol=0)
    assert (corrupted.weights > 0).all()
    losses = task().losses(task().forward(model, corrupted), corrupted)
    assert losses.shape == corrupted.weights.shape == corrupted.hidden.shape
    plain = task(repeat_weight=1.0).corrupt(batch, 0.4, Key.root(0))
    torch.testing.assert_close(plain.weights, batch["weights"].clamp(min=1e-6).flatten())


def test_repeats_that_weigh_nothing_have_a_finite_loss() -> None:
    """A batch may hide repeats alone."""
    batch, model, own = windows(), network().eval(), task(repeat_weight=0.0)
    batch["weights"][0] = 0.0
    some = own.corrupt(batch, 0.4, Key.root(0)).weights.view(5, 24)
    assert (some[batch["soft"]] <= 1e-6).all()
    assert torch.equal(some[~batch["soft"]], batch["weights"].clamp(min=1e-6)[~batch["soft"]])
    batch["soft"][:] = True
    corrupted = own.corrupt(batch, 0.4, Key.root(0))
    weighted = own.losses(own.forward(model, corrupted), corrupted) * corrupted.weights
    loss = weighted.sum() / (corrupted.weights * corrupted.hidden).sum()
    assert torch.isfinite(loss)
    assert 0 < loss < 20


@pytest.mark.parametrize("repeat_weight", [1e-9, 0.1, 2.0])
def test_other_weights_of_repeats_are_taken_as_they_are(repeat_weight: float) -> None:
    batch = windows()
    batch["weights"][0, 0] = -2.0
    least = batch["weights"].clamp(min=1e-6)
    found = task(repeat_weight=repeat_weight).corrupt(batch, 0.4, Key.root(0))
    assert torch.equal(found.weights, torch.where(batch["soft"], least * repeat_weight, least).flatten())


def test_learned_weights_keep_the_weighted_mean() -> None:
    numbers = SchemeDefaults(ratio=0.15, low=0.05, high=0.3)
    curriculum = make_scheme("r2mae-cl", numbers).bind(10).curriculum
    assert curriculum is not None
    batch, model, own = windows(), network(), task(repeat_weight=0.1)
    corrupted = own.corrupt(batch, 0.4, Key.root(0))
    output = own.forward(model, corrupted)
    found = own.learned_weights(own.weight_network(curriculum), corrupted, output)
    assert found.shape == (len(corrupted.hidden), len(curriculum.grid.values))
    assert not found[~corrupted.hidden].any()
    weights = corrupted.weights[corrupted.hidden][:, None]
    # The network's own weights have mean one over the hidden bases.
    learned = found[corrupted.hidden] / (weights / weights.mean())
    torch.testing.assert_close(learned.mean(0), torch.ones(found.shape[1]), atol=1e-4, rtol=0)
    found.sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_embedding_is_the_mean_over_bases() -> None:
    batch, model = windows(), network().eval()
    found = task().embed(model, batch)
    states = model.encode(batch["target"].long(), batch["aligned"])
    for row in range(5):
        bases = batch["target"][row] < BASES
        torch.testing.assert_close(found[row], states[row][bases].mean(0), atol=1e-5, rtol=1e-4)
