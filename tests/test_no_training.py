"""A test that trains and is not marked slow is stopped, and told what to do."""

from pathlib import Path

import pytest
import torch
from torch import nn

from no_training import STEPS, Trains
from r2mae.training.loop import fit
from training.conftest import ToyConfig, ToyDomain


def test_the_training_loop_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(Trains, match="mark the test slow"):
        fit(ToyConfig.make(steps=2, device="cpu"), ToyDomain(), tmp_path)


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
def test_a_slow_test_may_train(tmp_path: Path) -> None:
    assert fit(ToyConfig.make(steps=2, device="cpu"), ToyDomain(), tmp_path).steps == 2
    take(2 * STEPS)
