"""The kernels against torch's own operations: values, gradients, and what dropout leaves on average."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout, linear, scaled_dot_product_attention

from r2mae.text import kernels
from r2mae.text.kernels import (
    add_dropped,
    drop,
    keep_factors,
    self_attention,
    summed_cross_entropy,
    vocabulary_losses,
)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_dropout_keeps_its_share_and_the_mean(rate: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(301, 999, requires_grad=True)
    dropped = drop(ones, rate)
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.005)
    kept = dropped.detach()[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)), rtol=1e-4, atol=0)
    dropped.sum().backward()
    assert ones.grad is not None
    assert torch.equal(ones.grad, dropped.detach()), "what is dropped has no gradient"


def heads_of(states: Tensor, heads: int) -> Tensor:
    return states.unflatten(2, (heads, -1)).transpose(1, 2)


def plain_attention(parts: list[Tensor], heads: int, mask: Tensor | None, kept: Tensor | None) -> Tensor:
    """Write attention with given dropout factors in torch's own operations."""
    query, key, value = (heads_of(part, heads) for part in parts)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    probabilities = scores.softmax(-1)
    if kept is not None:
        probabilities = probabilities * kept.view(probabilities.shape)
    return (probabilities @ value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("places", [None, 3, 9])
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_attention_is_softmax_of_scores_times_values(
    places: int | None, masked: bool, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    batch, length, heads, width = 2, 7, 2, 8
    query = torch.randn(batch, places or length, width, requires_grad=True)
    key, value = (torch.randn(batch, length, width, requires_grad=True) for _ in range(2))
    mask = None
    if masked:
        mask = torch.ones(batch, 1, 1, length, dtype=torch.bool)
        mask[0, ..., 4:] = False
    kept = keep_factors(torch.Size((batch * heads, places or length, length)), rate) if rate else None
    monkeypatch.setattr(kernels, "keep_factors", lambda shape, rate: kept)
    given = [query, key, value]
    found = self_attention(query, key, value, heads, mask=mask, rate=rate)
    expected = plain_attention(given, heads, mask, kept)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    upstream = torch.randn_like(found)
    ours, theirs = torch.autograd.grad(found, given, upstream), torch.autograd.grad(expected, given, upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_attention_on_other_devices_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(kernels, "plain_cpu", lambda tensor: False)
    torch.manual_seed(7)
    found = self_attention(states, states + 1, states * 2, 2, rate=0.3)
    torch.manual_seed(7)
    parts = (heads_of(part, 2) for part in (states, states + 1, states * 2))
    expected = scaled_dot_product_attention(*parts, dropout_p=0.3)
    assert torch.equal(found, expected.transpose(1, 2).flatten(2))
    torch.manual_seed(7)
    dropped = drop(states, 0.5)
    torch.manual_seed(7)
    assert torch.equal(dropped, dropout(states, 0.5))
    torch.manual_seed(7)
    assert torch.equal(add_dropped(states, states, 0.5), states + dropped)


def test_dropout_in_attention_keeps_its_mean() -> None:
    torch.manual_seed(0)
    parts = torch.randn(3, 2, 6, 16).unbind(0)
    exact = self_attention(*parts, 2)
    many = [part.repeat(4000, 1, 1) for part in parts]  # at once: each row draws for itself
    mean = self_attention(*many, 2, rate=0.2).unflatten(0, (4000, 2)).mean(0)
    torch.testing.assert_close(mean, exact, rtol=0, atol=0.05)


def test_dropout_is_added_to_what_it_is_given() -> None:
    residual, states = torch.randn(2, 50, 40, generator=torch.Generator().manual_seed(1)).unbind(0)
    residual.requires_grad_()
    states.requires_grad_()
    torch.manual_seed(2)
    found = add_dropped(residual, states, 0.3)
    torch.manual_seed(2)
    expected = residual + drop(states, 0.3)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(50, 40, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad(found, (residual, states), upstream)
    theirs = torch.autograd.grad(expected, (residual, states), upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_dropped_entries_are_independent() -> None:
    torch.manual_seed(4)
    kept = keep_factors(torch.Size((400, 1000)), 0.1) == 0
    for shift in (1, 2, 3, 4, 1000):  # neighbours share a random word of 64 bits
        both = (kept.flatten()[shift:] & kept.flatten()[:-shift]).float().mean().item()
        assert both == pytest.approx(0.01, abs=0.001), shift
    again = keep_factors(torch.Size((400, 1000)), 0.1) == 0
    assert (kept & again).float().mean().item() == pytest.approx(0.01, abs=0.001), "each call draws anew"


def test_rates_of_none_and_all() -> None:
    states = torch.ones(3, 5)
    assert torch.equal(drop(states, 0.0), states)
    assert torch.equal(drop(states, 1.0), states * 0)
    assert torch.equal(add_dropped(states, states, 1.0), states)


def test_rates_close_to_all_and_other_defaults() -> None:
    assert not drop(torch.ones(50), 0.999999).isnan().any()
    torch.set_default_dtype(torch.float64)
    try:
        assert drop(torch.ones(5, dtype=torch.float32), 0.1).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@settings(max_examples=30)
@given(st.integers(0, 40), st.integers(2, 50), st.floats(0, 200), st.floats(0.01, 3), st.integers(0, 2**31))
def test_summed_losses_are_cross_entropies(units: int, words: int, scale: float, factor: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(units, words, generator=generator) * scale).requires_grad_()
    targets = torch.randint(0, words, (units,), generator=generator)
    before = logits.detach().clone()
    found = summed_cross_entropy(logits, targets, factor)
    expected = cross_entropy(logits, targets, reduction="sum") * factor
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    for upstream in (1.0, -2.5):
        ours = torch.autograd.grad(found, logits, torch.tensor(upstream), retain_graph=True)[0]
        theirs = torch.autograd.grad(expected, logits, torch.tensor(upstream), retain_graph=True)[0]
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert torch.equal(logits, before), "the logits stay as they are"
    with torch.no_grad():
        torch.testing.assert_close(summed_cross_entropy(logits, targets, factor), expected.detach())


@settings(max_examples=30)
@given(st.integers(0, 40), st.integers(2, 50), st.floats(0, 60), st.integers(0, 2**31))
def test_vocabulary_losses_are_cross_entropies(units: int, words: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = (torch.randn(units, 8, generator=generator) * scale).requires_grad_()
    weight = torch.randn(words, 8, generator=generator, requires_grad=True)
    bias = torch.randn(words, generator=generator, requires_grad=True)
    targets = torch.randint(0, words, (units,), generator=generator)
    parts = (features, weight, bias)
    losses = vocabulary_losses(features, weight, bias, targets)
    expected = cross_entropy(linear(features, weight, bias), targets, reduction="none")
    assert losses.isfinite().all(), "however improbable the target"
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-3 if scale > 10 else 1e-5)
    upstream = torch.randn(units, generator=generator)
    ours = torch.autograd.grad(losses, parts, upstream)
    theirs = torch.autograd.grad(expected, parts, upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(vocabulary_losses(features, weight, bias, targets), expected.detach())
