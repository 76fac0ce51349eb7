"""Dropout from few random bits: what it drops, keeps and adds, in 32 bits and in bf16."""

import pytest
import torch
from torch.nn.functional import dropout as torch_dropout

from r2mae.genome.models import gpn_msa
from r2mae.genome.models.gpn_msa import add_dropped, drop, keep_factors

KINDS = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_dropout_keeps_its_share_and_the_mean(rate: float, kind: torch.dtype) -> None:
    torch.manual_seed(0)
    ones = torch.ones(301, 999, requires_grad=True, dtype=kind)
    dropped = drop(ones, rate)
    assert dropped.dtype == kind
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.005)
    kept = dropped.detach()[dropped != 0]
    torch.testing.assert_close(
        kept, torch.full_like(kept, 1 / (1 - rate)), rtol=1e-4 if kind == torch.float32 else 2**-8, atol=0
    )
    dropped.sum().backward()
    assert ones.grad is not None
    assert torch.equal(ones.grad, dropped.detach()), "what is dropped has no gradient"


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
    assert (kept & again).float().mean().item() == pytest.approx(0.01, abs=0.001), "each call draws again"


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


def test_half_states_are_added_to_a_residual_of_32_bits() -> None:
    residual, states = torch.randn(50, 40), torch.randn(50, 40).bfloat16()
    torch.manual_seed(2)
    found = add_dropped(residual, states, 0.3)
    torch.manual_seed(2)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, residual + drop(states, 0.3))


def test_other_devices_take_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.randn(2, 5, 4)
    monkeypatch.setattr(gpn_msa, "uses_cpu_kernels", lambda tensor: False)
    torch.manual_seed(7)
    dropped = drop(states, 0.5)
    torch.manual_seed(7)
    assert torch.equal(dropped, torch_dropout(states, 0.5))
    torch.manual_seed(7)
    assert torch.equal(add_dropped(states, states, 0.5), states + dropped)


def test_autocast_is_no_reason_for_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpn_msa, "dropout", None)
    with torch.autocast("cpu", torch.bfloat16):
        assert drop(torch.ones(30, 30), 0.5).dtype == torch.float32
        assert drop(torch.ones(30, 30).bfloat16(), 0.5).dtype == torch.bfloat16
