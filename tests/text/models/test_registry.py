"""Models by name: an unknown one, and a new one by a module and a line."""

import sys
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.text.config import MODELS, RobertaSettings, TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.task import TokenModel, TokenTask

ARCHITECTURE: dict[str, Any] = {
    "vocab_size": 40, "special_ids": [0, 1, 2, 3, 4], "mask_id": 4, "pad_id": 1, "bos_id": 0, "eos_id": 2,
    "length": 12, "hidden_size": 8, "corruption": "mask", "exact": True,
}  # fmt: skip


def test_a_model_is_a_module_with_settings_and_build() -> None:
    for name in MODELS.values():
        module = import_module(name)
        assert callable(module.build)
        assert fields(module.Settings)


def test_settings_of_the_default_model() -> None:
    config = TextConfig.make(data="x", layers=3, heads=2, hidden_size=10)
    assert config.model == RobertaSettings(layers=3, heads=2, hidden_size=10)
    for change in ({"layers": 0}, {"layers": 1001}, {"heads": 3}, {"dropout": 1.0}, {"batch_size": 0}):
        with pytest.raises(UserError):
            TextConfig.make(data="x", **change)
    with pytest.raises(UserError, match="is not a multiple of heads 3"):
        RobertaSettings(hidden_size=10, heads=3)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown model 'bert'"):
        DOMAIN.build({"model": "bert"})
    with pytest.raises(UserError, match=r"unknown model .bert.: did you mean 'roberta'"):
        TextConfig.make(data="x", model="bert")


def test_a_new_model_is_a_module_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bag(TokenModel):
        """Each token by itself."""

        def __init__(self, words: int, width: int) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(words, width), nn.Linear(width, words)

        def encode(
            self, input_ids: Tensor, *, columns: Tensor | None = None, attention_mask: Tensor | None = None
        ) -> Tensor:
            return self.table(input_ids if columns is None else input_ids.gather(1, columns))

        def logits(self, states: Tensor) -> Tensor:
            return self.out(states)

    def made(architecture: Mapping[str, Any]) -> tuple[TokenTask, Bag]:
        return TokenTask.from_architecture(architecture), Bag(architecture["vocab_size"], architecture["hidden_size"])

    module = ModuleType("bag")
    module.build = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bag", module)
    monkeypatch.setitem(MODELS, "bag", "bag")
    task, model = DOMAIN.build({**ARCHITECTURE, "model": "bag"})
    batch = torch.randint(5, 40, (3, 12), generator=torch.Generator().manual_seed(0))
    corrupted = task.corrupt(batch, 0.4, Key.root(0))
    output = task.forward(model, corrupted)
    losses = task.losses(output, corrupted)
    assert losses.shape == output.prediction.shape[:1] == corrupted.targets.shape
    assert task.embed(model, batch).shape == (3, 8)
