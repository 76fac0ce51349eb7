from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.training.loop import fit
from r2mae.training.optimizers import learning_rate_factor

from .conftest import ToyConfig, ToyDomain


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
