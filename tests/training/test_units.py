"""A layer's parameters are read in a call of the layer where it is sharded, and only there."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from r2mae.training.task import units_of, within


class Layer(nn.Linear):
    def unshard(self) -> None:
        """As of a layer of FSDP2."""


def test_a_sharded_unit_is_called() -> None:
    heard: list[str] = []

    def half(unit: Any, states: Tensor) -> Tensor:
        return states @ unit.weight[:1].T

    for kind, expected in ((nn.Linear, []), (Layer, ["before", "after"])):
        heard.clear()
        unit = kind(3, 3)
        unit.register_forward_pre_hook(lambda module, given: heard.append("before"))
        unit.register_forward_hook(lambda module, given, found: heard.append("after"))
        assert within(unit, half, unit, torch.ones(1, 3)).shape == (1, 1)
        assert heard == expected
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            within(unit, half, unit, torch.ones(2, 2))
        assert unit(torch.ones(1, 3)).shape == (1, 3)  # its own forward is there again


def test_a_model_without_layers_is_one_piece() -> None:
    assert units_of(nn.Linear(2, 2)) == []
