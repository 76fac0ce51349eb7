"""Optimisers descend; learning rates rise and fall as they should; the moving average is what is kept."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.loop import fit
from r2mae.training.step import SCALE, learning_rate_factor, make_optimizer
from r2mae.training.task import ParameterGroup, Task

from .conftest import ToyConfig, ToyDomain


def test_groups_of_a_task_have_their_share_of_the_rate() -> None:
    one, other = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))
    groups = [ParameterGroup([one]), ParameterGroup([other], scale=0.5, decayed=False)]
    made = make_optimizer(groups, RunConfig.make(data="", optimizer="adamw", lr=0.1, weight_decay=0.05))
    assert [(group["lr"], group["weight_decay"], group[SCALE]) for group in made.param_groups] == [
        (0.1, 0.05, 1.0),
        (0.05, 0.0, 0.5),
    ]


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_every_optimizer_descends(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1, bias=False)
    config = RunConfig.make(data="", optimizer=name, base_lr=0.02)
    made = make_optimizer(Task().parameter_groups(model, config), config)
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        loss = (model(x) - y).square().mean()
        made.zero_grad()
        loss.backward()
        made.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_betas_of_an_optimizer_without_them_are_refused() -> None:
    with pytest.raises(UserError, match="betas"):
        RunConfig.make(data="", optimizer="sgd", betas=(0.9, 0.95))


@given(st.integers(1, 500), st.sampled_from(["constant", "linear", "cosine"]), st.floats(0, 0.99))
def test_rises_to_one_and_never_leaves_the_unit_interval(total: int, shape: str, warmup: float) -> None:
    factors = [learning_rate_factor(step, total, shape, warmup) for step in range(total)]  # type: ignore[arg-type]
    assert all(0 < factor <= 1 for factor in factors)
    top = int(np.argmax(factors))
    assert (np.diff(factors[: top + 1]) >= 0).all()
    assert (np.diff(factors[top:]) <= 1e-12).all()


def test_values_by_hand() -> None:
    assert [learning_rate_factor(step, 10, "constant", 0.4) for step in (0, 1, 3, 4, 9)] == [0.25, 0.5, 1, 1, 1]
    assert [learning_rate_factor(step, 10, "linear", 0.0) for step in (0, 5, 9)] == pytest.approx([1, 0.5, 0.1])
    assert [learning_rate_factor(step, 8, "cosine", 0.0) for step in (0, 4)] == pytest.approx([1, 0.5])


def test_cosine_equals_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=50)
    for step in range(50):
        assert optimiser.param_groups[0]["lr"] == pytest.approx(learning_rate_factor(step, 50, "cosine", 0.0), abs=1e-9)
        optimiser.step()
        schedule.step()


@pytest.mark.slow
def test_the_metrics_tell_the_rate(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=20, schedule="linear", warmup=0.25), domain, tmp_path)
    rates = pd.read_csv(tmp_path / "metrics.csv")["lr"] / 0.01
    expected = [learning_rate_factor(step, 20, "linear", 0.25) for step in range(20)]
    assert rates.to_numpy() == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_the_moving_average_is_what_is_kept(
    tmp_path: Path, domain: ToyDomain, weights_of: Callable[[Path], dict[str, torch.Tensor]]
) -> None:
    paths = []
    for steps in (1, 2, 3):
        paths.append(tmp_path / f"plain-{steps}")
        fit(ToyConfig.make(steps=steps), domain, paths[-1])
    fit(ToyConfig.make(steps=3, ema=0.75), domain, tmp_path / "ema")
    first, second, third = (weights_of(path)["decoder.weight"] for path in paths)
    # torch begins the average at the weights after the first step.
    expected = 0.75 * (0.75 * first + 0.25 * second) + 0.25 * third
    torch.testing.assert_close(weights_of(tmp_path / "ema")["decoder.weight"], expected)
