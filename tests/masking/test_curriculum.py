import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.masking.curriculum import FeatureWeights, UnitWeights, scale_gradient, select_weights, sinkhorn
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.ratios import Grid
from r2mae.masking.schemes import Curriculum, make_scheme

GRID = Grid.spaced(0.1, 0.5)


@given(st.integers(2, 40), st.integers(2, 12), st.integers(0, 10**6))
def test_sinkhorn_brings_rows_to_l_and_columns_to_d(d: int, ratios: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(d, ratios, generator=generator, dtype=torch.float64) + 0.05
    out = sinkhorn(matrix, 200)
    torch.testing.assert_close(out.sum(0), torch.full((ratios,), float(d), dtype=torch.float64))
    torch.testing.assert_close(out.sum(1), torch.full((d,), float(ratios), dtype=torch.float64), atol=1e-6, rtol=1e-6)
    few = sinkhorn(matrix, 4)
    torch.testing.assert_close(few.sum(0), torch.full((ratios,), float(d), dtype=torch.float64))
    assert (few > 0).all()


def test_sinkhorn_scales_rows_and_columns_only() -> None:
    """The result is diag(a) M diag(b): cross ratios of entries do not change."""
    matrix = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    out = sinkhorn(matrix, 7)
    before = matrix[0, 0] * matrix[1, 1] / (matrix[0, 1] * matrix[1, 0])
    after = out[0, 0] * out[1, 1] / (out[0, 1] * out[1, 0])
    torch.testing.assert_close(before, after)
    with pytest.raises(ValueError, match="at least one"):
        sinkhorn(matrix, 0)


def test_half_precision_keeps_the_mean_of_one() -> None:
    matrix = torch.rand(784, 9, generator=torch.Generator().manual_seed(0)).bfloat16() + 0.1
    torch.testing.assert_close(sinkhorn(matrix, 4).mean(0), torch.ones(9))


def test_sinkhorn_is_differentiable() -> None:
    matrix = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.1
    assert torch.autograd.gradcheck(lambda m: sinkhorn(m, 3), matrix.requires_grad_())


@pytest.mark.parametrize("factor", [1.0, 0.0, -0.5, -1.0])
def test_scaled_gradients(factor: float) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = scale_gradient(x, factor)
    torch.testing.assert_close(y, x)
    (y * torch.tensor([3.0, 4.0])).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, factor * torch.tensor([3.0, 4.0]))


def test_feature_weights_are_positive_with_mean_one() -> None:
    network = FeatureWeights(30, Curriculum(GRID))
    weights = network(torch.rand(16, 30, generator=torch.Generator().manual_seed(0)))
    assert weights.shape == (30, 9)
    assert (weights > 0).all()
    torch.testing.assert_close(weights.mean(0), torch.ones(9))


def test_unit_weights_teach_only_themselves() -> None:
    network = UnitWeights(8, Curriculum(GRID, iterations=10, floor=0.5))
    representation = torch.rand(20, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weights = network(representation)
    assert weights.shape == (20, 9)
    torch.testing.assert_close(weights.mean(0), torch.ones(9))
    (weights[:, 2] * torch.arange(20.0)).sum().backward()
    assert representation.grad is None
    assert all(p.grad is not None for p in network.parameters())


def train(multiplier: str, steps: int = 60) -> torch.Tensor:
    """Let a weight network alone face constant losses, and return its weights of one ratio."""
    torch.manual_seed(0)
    curriculum = Curriculum(GRID, multiplier, warmup=0, start=0, end=0).bind(steps)  # type: ignore[arg-type]
    network = FeatureWeights(12, curriculum, channels=8)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    clean, losses = torch.rand(4, 12), torch.linspace(0.1, 2, 12)
    for step in range(steps):
        optimiser.zero_grad()
        (select_weights(network(clean), curriculum, 0.25, step) * losses).mean().backward()
        optimiser.step()
    return network(clean).detach()[:, curriculum.grid.nearest_column(0.25)]


def test_constant_multiplier_prefers_the_easy_and_negative_the_hard() -> None:
    losses = torch.linspace(0.1, 2, 12)
    easy, hard = train("constant"), train("falling")
    assert float((easy * losses).mean()) < float(losses.mean()) - 0.05
    assert float((hard * losses).mean()) > float(losses.mean()) + 0.05


def test_frozen_means_frozen() -> None:
    curriculum = Curriculum(GRID, warmup=0.5).bind(10)
    network = FeatureWeights(6, curriculum, channels=4)
    clean = torch.rand(4, 6)
    for step, frozen in ((0, True), (4, True), (5, False)):
        weights = select_weights(network(clean), curriculum, 0.25, step)
        assert weights.requires_grad is not frozen


def test_times_in_a_wrong_order_are_refused() -> None:
    default = make_scheme("cl", SchemeDefaults(ratio=0.5, low=0.2, high=0.8)).curriculum
    assert default is not None
    with pytest.raises(ValueError, match=r"cl_start \(0\.6\) is after cl_end \(0\.49"):
        replace(default, start=0.6)
    replace(default, start=0.6, multiplier="constant")


@given(st.integers(1, 5000), st.data())
def test_times_are_fractions_of_the_run(steps: int, data: st.DataObject) -> None:
    """So that k / N of N steps are k, and 1 and 1.0 are the whole run."""
    count = data.draw(st.integers(0, steps))
    curriculum = Curriculum(GRID, warmup=count / steps).bind(steps)
    assert sum(curriculum.frozen(step) for step in range(count + 2)) == count
    assert Curriculum(GRID, warmup=1) == Curriculum(GRID, warmup=1.0)
    for name in ("warmup", "start", "end"):
        for time in (2, 500, 1.5, -0.1, math.nan):
            with pytest.raises(
                ValueError, match=rf"cl_{name} (must be 0 to 1 \(a fraction of the run\)|takes a finite)"
            ):
                replace(curriculum, **{name: time})
