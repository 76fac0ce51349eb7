"""The kernels against torch's own operations: values, gradients, and what they are in bf16."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

from r2mae.text import kernels
from r2mae.text.kernels import (
    self_attention,
    summed_cross_entropy,
    vocabulary_losses,
)
from r2mae.training import dropout
from r2mae.training.dropout import keep_factors


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
    monkeypatch.setattr(dropout, "keep_factors", lambda shape, rate: kept)
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
    monkeypatch.setattr(kernels, "uses_cpu_kernels", lambda tensor: False)
    torch.manual_seed(7)
    found = self_attention(states, states + 1, states * 2, 2, rate=0.3)
    torch.manual_seed(7)
    parts = (heads_of(part, 2) for part in (states, states + 1, states * 2))
    expected = scaled_dot_product_attention(*parts, dropout_p=0.3)
    assert torch.equal(found, expected.transpose(1, 2).flatten(2))


def test_dropout_in_attention_keeps_its_mean() -> None:
    torch.manual_seed(0)
    parts = torch.randn(3, 2, 6, 16).unbind(0)
    exact = self_attention(*parts, 2)
    many = [part.repeat(4000, 1, 1) for part in parts]  # at once: each row draws for itself
    mean = self_attention(*many, 2, rate=0.2).unflatten(0, (4000, 2)).mean(0)
    torch.testing.assert_close(mean, exact, rtol=0, atol=0.05)


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


def test_vocabulary_losses_in_bf16_are_those_of_autocast() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(300, 64, generator=generator, requires_grad=True)
    weight = (torch.randn(1000, 64, generator=generator) / 4).requires_grad_()
    bias = torch.randn(1000, generator=generator, requires_grad=True)
    targets = torch.randint(0, 1000, (300,), generator=generator)
    parts = (features, weight, bias)
    upstream = torch.rand(300, generator=generator)
    exact = cross_entropy(linear(*parts), targets, reduction="none")
    found = {}
    for name, losses in (("ours", vocabulary_losses), ("stock", stock_losses)):
        with torch.autocast("cpu", torch.bfloat16):
            values = losses(*parts, targets)
        assert values.dtype == torch.float32
        found[name] = [values.detach(), *torch.autograd.grad(values, parts, upstream)]
    wanted = [exact.detach(), *torch.autograd.grad(exact, parts, upstream)]
    for place, want in enumerate(wanted):
        ours, stock = (found[name][place] for name in ("ours", "stock"))
        assert ours.dtype == want.dtype
        errors = [float((one - want).norm() / want.norm()) for one in (ours, stock)]
        assert errors[0] < 0.02
        assert errors[0] < 1.5 * errors[1] + 1e-4, "as close to 32 bits as torch's own"


def stock_losses(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Take torch's own way under autocast."""
    return cross_entropy(linear(features, weight, bias).float(), targets, reduction="none")


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_attention_in_bf16_is_that_of_32_bits_but_for_rounding(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    parts = [torch.randn(2, 7, 8, requires_grad=True) for _ in range(3)]
    zeros_and_ones = (torch.rand(4, 7, 7) > rate).float()
    monkeypatch.setattr(
        dropout, "_draw_keep_mask", lambda shape, rate, kind: zeros_and_ones.flatten().to(kind, copy=True)
    )
    exact = self_attention(*parts, 2, rate=rate)
    with torch.autocast("cpu", torch.bfloat16):
        halves = [part.bfloat16() for part in parts]
        half = self_attention(*halves, 2, rate=rate)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.03, atol=0.03)
    upstream = torch.randn_like(exact)
    ours = torch.autograd.grad(half, parts, upstream.bfloat16())
    theirs = torch.autograd.grad(exact, parts, upstream)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
