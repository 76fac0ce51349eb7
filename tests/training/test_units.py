"""Layers that are listened to, and layers that are computed again: with the numbers that they have without."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.training.units import listen, recompute_activations, units_of, within


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(width, width), nn.Linear(width, width), nn.Dropout(0.3)
        self.calls = 0

    def forward(self, states: Tensor) -> Tensor:
        self.calls += 1
        return states + self.drop(self.second(self.first(states).relu()))


class Stack(nn.Module):
    """The last layer is never called: its first half alone is used."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def units(self) -> list[nn.Module]:
        return [*self.layers]

    def forward(self, states: Tensor) -> Tensor:
        for layer in list(self.layers)[:-1]:
            states = layer(states)
        return within(self.layers[-1], self._half, self.layers[-1], states)

    def _half(self, layer: Any, states: Tensor) -> Tensor:
        layer.calls += 1
        return layer.drop(layer.first(states).relu())


def gradients(model: nn.Module, states: Tensor, seed: int) -> tuple[Tensor, list[Tensor | None]]:
    torch.manual_seed(seed)
    model.zero_grad()
    loss = model(states).square().sum()
    loss.backward()
    return loss.detach(), [None if one.grad is None else one.grad.clone() for one in model.parameters()]


@given(layers=st.integers(1, 3), width=st.integers(1, 6), rows=st.integers(1, 4), seed=st.integers(0, 100))
def test_what_is_computed_again_has_the_same_gradient(layers: int, width: int, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    model, states = Stack(layers, width), torch.randn(rows, width)
    before = gradients(model, states, seed)
    recompute_activations(model)
    again = gradients(model, states, seed)
    assert torch.equal(before[0], again[0])
    for mine, theirs in zip(before[1], again[1], strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs is None or torch.equal(mine, theirs)
    assert [layer.calls for layer in model.layers] == [3] * layers  # once, then twice
    with torch.no_grad():
        model(states)
    assert [layer.calls for layer in model.layers] == [4] * layers


def test_a_unit_is_called_only_if_somebody_listens() -> None:
    model, heard = Stack(2, 3), []
    unit = model.layers[-1]
    unit.register_forward_pre_hook(lambda module, given: heard.append("before"))
    unit.register_forward_hook(lambda module, given, found: heard.append("after"))
    states = torch.ones(1, 3)
    model(states)
    assert heard == []
    listen(unit)
    model(states)
    assert heard == ["before", "after"]
    assert "forward" not in unit.__dict__
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        within(unit, lambda: unit.first(torch.ones(2, 2)))
    assert unit(states).shape == (1, 3)  # its own forward is there again


def test_what_would_save_nothing_or_count_twice_is_refused() -> None:
    assert units_of(nn.Linear(2, 2)) == []
    with pytest.raises(UserError, match="no stack of layers"):
        recompute_activations(nn.Linear(2, 2))
    model = Stack(1, 3)
    model.layers[0].first = nn.BatchNorm1d(3)
    with pytest.raises(UserError, match="batch normalisation"):
        recompute_activations(model)
