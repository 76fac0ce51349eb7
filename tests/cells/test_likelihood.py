import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nbinom, poisson

from cells.plain_likelihood import nb_log_likelihood
from r2mae.cells.task import hidden_losses

COUNTS = np.array([0, 1, 2, 7, 60, 4000])


def ours(x: np.ndarray, mean: np.ndarray, theta: np.ndarray, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """One gene for every entry."""
    log_mean, log_theta = (torch.from_numpy(np.log(values)).to(dtype) for values in (mean, theta))
    return nb_log_likelihood(torch.from_numpy(x).to(dtype)[None], log_mean[None], log_theta).numpy()[0]


def grid(*axes: np.ndarray) -> list[np.ndarray]:
    return [part.ravel() for part in np.meshgrid(*axes, indexing="ij")]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.float64, 1e-9)])
def test_it_is_scipys(dtype: torch.dtype, tolerance: float) -> None:
    x, mean, theta = grid(COUNTS, np.array([1e-3, 0.1, 3.0, 500.0]), np.array([0.01, 0.7, 20.0, 3000.0]))
    expected = nbinom.logpmf(x, theta, theta / (theta + mean))
    # 32-bit logarithms of mean and dispersion are themselves uncertain by an ulp, which counts x times
    scale = np.maximum(1, np.maximum(np.abs(expected), x * 3))
    assert (np.abs(ours(x, mean, theta, dtype) - expected) / scale).max() < tolerance


def test_it_is_scvi_tools() -> None:
    distributions = pytest.importorskip("scvi.distributions")
    x, mean, theta = grid(np.array([0, 1, 5, 40]), np.array([0.02, 1.0, 30.0]), np.array([0.1, 1.0, 50.0]))
    theirs = distributions.NegativeBinomial(mu=torch.from_numpy(mean), theta=torch.from_numpy(theta))
    np.testing.assert_allclose(
        ours(x, mean, theta, torch.float64), theirs.log_prob(torch.from_numpy(x).double()).numpy(), atol=1e-5
    )


@pytest.mark.parametrize("theta", [1e6, 1e12, 1e30])
def test_a_great_dispersion_is_the_poisson_distribution(theta: float) -> None:
    x, mean = grid(np.array([0, 1, 2, 7, 60]), np.array([0.01, 1.0, 30.0]))
    found = ours(x, mean, np.full(x.shape, theta), torch.float64)
    np.testing.assert_allclose(found, poisson.logpmf(x, mean), atol=2e4 / theta + 1e-9)


def test_a_vanishing_mean_loses_no_digits() -> None:
    log_mean, log_theta = torch.full((1, 2), -90.0), torch.zeros(2)
    found = nb_log_likelihood(torch.tensor([[0.0, 3.0]]), log_mean, log_theta)
    torch.testing.assert_close(found, torch.tensor([[0.0, -270.0]]), atol=1e-30, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-3.0, 0.0, 4.0, 11.0, 12.0, 25.0])
def test_its_derivatives_are_those_of_the_formula(exponent: float) -> None:
    """64-bit, against automatic differentiation; where lgamma loses digits, against finite differences."""
    x = torch.tensor([[0.0, 1.0, 9.0, 300.0]], dtype=torch.float64)
    log_mean = torch.tensor([[-1.0, 0.5, 2.0, 6.0]], dtype=torch.float64, requires_grad=True)
    log_theta = torch.full((4,), exponent, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, t: nb_log_likelihood(x, m, t), (log_mean, log_theta), atol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-6, 5), st.floats(-4, 9)), min_size=1, max_size=20))
def test_plain_autograd_gives_the_same_gradients(entries: list[tuple[int, float, float]]) -> None:
    x, m, t = (torch.tensor([values], dtype=torch.float64) for values in zip(*entries, strict=True))
    log_mean, log_theta = m.requires_grad_(), t[0].requires_grad_()

    def plain() -> torch.Tensor:
        mu, theta = log_mean.exp(), log_theta.exp()
        return (
            theta * (log_theta - (theta + mu).log())
            + x * (log_mean - (theta + mu).log())
            + torch.lgamma(x + theta)
            - torch.lgamma(theta)
            - torch.lgamma(x + 1)
        )

    found, expected = nb_log_likelihood(x, log_mean, log_theta), plain()
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)
    for ours_, theirs in zip(
        torch.autograd.grad(found.sum(), (log_mean, log_theta)),
        torch.autograd.grad(expected.sum(), (log_mean, log_theta)),
        strict=True,
    ):
        torch.testing.assert_close(ours_, theirs, rtol=1e-6, atol=1e-6)


def test_it_is_a_distribution() -> None:
    x = np.arange(2000)
    total = np.exp(ours(x, np.full(2000, 9.0), np.full(2000, 1.3), torch.float64)).sum()
    assert total == pytest.approx(1, abs=1e-9)


def test_zeros_may_be_listed_or_not() -> None:
    """On a device all counts are, so that the host need not wait to know how many there are."""
    x = torch.tensor([[0.0, 2.0, 0.0], [5.0, 0.0, 1.0]])
    logits, log_theta = torch.randn(2, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    columns, library = torch.tensor([3, 0, 1]), torch.tensor([9.0, 20.0])
    above = torch.tensor([1, 3, 5])
    few = hidden_losses(logits, log_theta, library, columns, above, x.flatten()[above])
    every = hidden_losses(logits, log_theta, library, columns, torch.arange(6), x.flatten())
    log_mean = torch.log_softmax(logits, 1)[:, columns] + library.log()[:, None]
    plain = -nb_log_likelihood(x, log_mean, log_theta[columns])
    torch.testing.assert_close(few, every)
    torch.testing.assert_close(few, plain)
    gradients = [torch.autograd.grad(value.sum(), (logits, log_theta)) for value in (few, every, plain)]
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], gradients[2], atol=1e-5, rtol=1e-5)


@given(log_mean=st.floats(-80, 12), log_theta=st.floats(-12, 60), count=st.integers(0, 100_000))
def test_finite_and_no_more_than_certain(log_mean: float, log_theta: float, count: int) -> None:
    mean = torch.full((1, 1), log_mean, requires_grad=True)
    theta = torch.full((1,), log_theta, requires_grad=True)
    value = nb_log_likelihood(torch.tensor([[float(count)]]), mean, theta)
    value.sum().backward()
    assert float(value.detach()) <= 1e-6 * (1 + count) * (1 + abs(log_theta) + abs(log_mean))
    assert torch.isfinite(torch.stack([value[0, 0], mean.grad[0, 0], theta.grad[0]])).all()
