"""A test that trains and is not marked slow is stopped, and told what to do."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from no_training import STEPS, Trains


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train() -> Line:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    line = Line()
    Trainer(max_steps=2, accelerator="cpu", **quiet).fit(line, DataLoader(torch.ones(4, 1)))
    return line


def test_lightning_is_stopped() -> None:
    with pytest.raises(Trains, match="mark the test slow"):
        train()


def take(steps: int) -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([weight])
    for _ in range(steps):
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()


def test_loops_of_our_own_are_stopped() -> None:
    take(STEPS)
    with pytest.raises(Trains, match="mark the test slow"):
        take(1)


@pytest.fixture(scope="module")
def trained() -> type[Exception] | None:
    try:
        take(STEPS + 1)
    except Trains as stopped:
        return type(stopped)
    return None


def test_fixtures_are_stopped(trained: type[Exception] | None) -> None:
    assert trained is Trains


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
def test_a_slow_test_may_train() -> None:
    assert train().global_step == 2
    take(2 * STEPS)
