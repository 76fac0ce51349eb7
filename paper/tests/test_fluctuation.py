"""The jumps of a loss: noise is found again next to a trend and a ratio's share."""

import numpy as np
import pytest

from r2mae_paper.fluctuation import loss_fluctuation

STEPS = 2000


def curve(noise: float, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A falling loss with noise, and a share of the ratio, which is drawn for every step."""
    rng = np.random.default_rng(seed)
    step, ratio = np.arange(STEPS), rng.uniform(0.6, 0.9, STEPS)
    explained = share * (ratio - 0.75) ** 3 + share * ratio
    return 1 / np.sqrt(1 + step / 50) + explained + noise * rng.normal(size=STEPS), ratio


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_noise_is_separated_from_trend_and_ratio(share: float) -> None:
    loss, ratio = curve(0.02, share)
    around_trend, around_both = loss_fluctuation(loss, ratio)
    assert around_both == pytest.approx(0.02, rel=0.1)
    if share:
        assert around_trend == pytest.approx(np.hypot(0.02, 0.3 / np.sqrt(12)), rel=0.1)
    else:
        assert around_trend == pytest.approx(around_both, rel=0.02)


def test_one_ratio_explains_nothing() -> None:
    loss, _ = curve(0.02, 0.0)
    around_trend, around_both = loss_fluctuation(loss, np.full(STEPS, 0.75))
    assert around_both == pytest.approx(around_trend)


def test_the_result_scales_with_the_loss() -> None:
    loss, ratio = curve(0.02, 0.5)
    once, twice = loss_fluctuation(loss, ratio), loss_fluctuation(2 * loss + 3, ratio)
    assert twice == pytest.approx([2 * value for value in once])


@pytest.mark.parametrize(
    ("loss", "ratio", "message"),
    [
        (np.ones(40), np.ones(40), "50 or more"),
        (np.full(100, np.nan), np.ones(100), "finite"),
    ],
)
def test_curves_that_cannot_be_measured_are_refused(loss: np.ndarray, ratio: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss_fluctuation(loss, ratio)
