"""Attention with its own gradient against torch's, in 64 bits."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from r2mae.images.models.vit_mae import build, kernels, layers
from r2mae.images.models.vit_mae.kernels import short_attention, use_short_attention
from r2mae.masking.keys import Key


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_torch(queries: Tensor, others: Tensor | None, rows: int, heads: int) -> Tensor:
    if others is None:
        asking, keys, values = queries.view(rows, -1, 3, heads, queries.shape[1] // 3 // heads).unbind(2)
    else:
        asking = queries.view(rows, -1, heads, queries.shape[1] // heads)
        keys, values = others.view(rows, -1, 2, heads, queries.shape[1] // heads).unbind(2)
    found = scaled_dot_product_attention(*(part.transpose(1, 2) for part in (asking, keys, values)))
    return found.transpose(1, 2).reshape(len(queries), -1)


def compare(queries: Tensor, others: Tensor | None, rows: int, heads: int, near: float) -> None:
    ours = [one.clone().requires_grad_() for one in (queries, others) if one is not None]
    exact = [one.double().requires_grad_() for one in (queries, others) if one is not None]
    found = short_attention(ours[0], ours[1] if len(ours) > 1 else None, rows, heads)
    expected = by_torch(exact[0], exact[1] if len(exact) > 1 else None, rows, heads)
    assert found.dtype == queries.dtype
    torch.testing.assert_close(found.double(), expected, rtol=near, atol=near)
    upper = drawn(*found.shape, seed=2).to(queries.dtype)
    found.backward(upper)
    expected.backward(upper.double())
    for one, other in zip(ours, exact, strict=True):
        assert one.grad.dtype == queries.dtype
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=near, atol=near * float(queries.abs().max() + 1))


@settings(deadline=None, max_examples=25)
@given(
    rows=st.integers(1, 4), asking=st.integers(1, 20), more=st.integers(0, 20), heads=st.integers(1, 3),
    share=st.sampled_from([1, 4, 16]), own=st.booleans(), bits=st.sampled_from([16, 32]),
)  # fmt: skip
def test_it_equals_attention_in_64_bits(
    rows: int, asking: int, more: int, heads: int, share: int, own: bool, bits: int
) -> None:
    kind, near = (torch.float32, 2e-5) if bits == 32 else (torch.bfloat16, 3e-2)
    width = heads * share
    queries = drawn(rows * asking, (3 if own else 1) * width, seed=0).to(kind)
    others = None if own else drawn(rows * (asking + more), 2 * width, seed=1).to(kind)
    compare(queries, others, rows, heads, near)


def test_large_scores_do_not_overflow() -> None:
    compare(drawn(6 * 5, 3 * 8, seed=0) * 100, None, 6, 2, 1e-3)


def test_it_is_taken_only_where_it_is_faster_and_knows_how() -> None:
    short = torch.zeros(2, 6, dtype=torch.bfloat16, requires_grad=True)
    assert use_short_attention(short, 17)
    assert use_short_attention(short, 197)
    assert not use_short_attention(short, 577)
    assert not use_short_attention(short.float(), 17)
    assert not use_short_attention(short.detach(), 17)
    assert not use_short_attention(short.to("meta"), 17)
    with torch.no_grad():
        assert not use_short_attention(short, 17)


def test_second_derivatives_are_refused() -> None:
    queries = drawn(6, 12, seed=0).requires_grad_()
    found = short_attention(queries, None, 2, 2)
    (first,) = torch.autograd.grad(found.square().sum(), queries, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_model_has_the_gradients_that_it_has_with_torchs_attention(
    monkeypatch: pytest.MonkeyPatch, kind: torch.dtype
) -> None:
    torch.manual_seed(0)
    sizes = {"width": 48, "layers": 2, "heads": 3, "decoder_width": 32, "decoder_layers": 3, "decoder_heads": 2}
    task, model = build({"model": "vit-mae", "shape": [32, 32, 3], "patch": 8, **sizes})
    batch = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    corrupted = task.corrupt(batch, 0.75, Key.root(0))
    made, calls = [], []

    def counted(*arguments: Any) -> Tensor:
        calls.append(arguments)
        return short_attention(*arguments)

    monkeypatch.setattr(layers, "short_attention", counted)
    for longest in ({kind: 256}, {}):
        monkeypatch.setattr(kernels, "LONGEST", longest)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
            loss = task.losses(task.forward(model, corrupted), corrupted).sum() / corrupted.count
        loss.backward()
        gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
        made.append({"loss": loss.detach(), **gradients})
    assert len(calls) == 5  # in every layer, and once
    for name, one in made[0].items():
        other = made[1][name]
        distance = float((one - other).norm() / other.norm())
        assert distance < (0.05 if kind == torch.bfloat16 else 1e-5), name
