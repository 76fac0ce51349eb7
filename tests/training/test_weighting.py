"""Samples that count alike whatever they hide: the objective of per-sample ratios, and what it equals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.images.task import PixelTask
from r2mae.masking.masks import hidden_count
from r2mae.training.step import Pretraining, sum_of_sample_means
from r2mae.training.task import Corrupted

from .conftest import ToyConfig, ToyModel

PIXELS, ROWS = 12, 20
PER_SAMPLE = {"scheme": "r2mae-per-sample", "low": 0.1, "high": 0.9}


class KeptShare(nn.Module):
    """Predicts the share of white pixels that it sees: the loss of white images is (hidden share)²."""

    def forward(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        return flat.mean(1, keepdim=True).expand_as(flat), flat


def module_for(model: nn.Module, *, exact: bool = False, **options: Any) -> Pretraining:
    config = ToyConfig.make(batch_size=ROWS, **options)
    scheme = config.scheme.bind(100, 5.0, ROWS)
    return Pretraining(PixelTask(PIXELS, exact=exact), model, scheme, config, 100)


def losses_of(module: Pretraining, batch: Tensor, steps: int) -> Iterator[float]:
    for step in range(steps):
        yield float(module(batch, step, 0))


def images() -> Tensor:
    return torch.randint(0, 256, (ROWS, PIXELS), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> ToyModel:
    torch.manual_seed(0)
    return ToyModel(PIXELS, 0.0)


def test_the_expected_loss_is_that_of_one_ratio_for_each_mini_batch() -> None:
    """Over U(low, high) the mean of (count / pixels)²; where samples weigh by what they hide, it is larger."""
    white = torch.full((ROWS, PIXELS), 255, dtype=torch.uint8)
    p = np.linspace(0.1, 0.9, 200_001)
    counts = np.array([hidden_count(PIXELS, ratio) for ratio in np.unique(p)])
    expected = float(np.mean((counts / PIXELS) ** 2))
    spread = list(losses_of(module_for(KeptShare(), **PER_SAMPLE), white, 60))
    assert np.mean(spread) == pytest.approx(expected, rel=5e-3)
    one = list(losses_of(module_for(KeptShare(), exact=True, **{**PER_SAMPLE, "scheme": "r2mae"}), white, 300))
    assert np.mean(one) == pytest.approx(expected, abs=5 * np.std(one) / np.sqrt(300))
    heavy = {**PER_SAMPLE, "scheme": "r2mae", "per": "sample"}
    assert np.mean(list(losses_of(module_for(KeptShare(), exact=True, **heavy), white, 60))) > 1.2 * expected
    assert np.std(spread) < np.std(one) / 10  # and it hardly jumps


def test_of_a_model_that_looks_at_its_images_too(model: ToyModel) -> None:
    with torch.no_grad():
        spread = np.array(list(losses_of(module_for(model, **PER_SAMPLE), images(), 150)))
        one = np.array(
            list(losses_of(module_for(model, exact=True, **{**PER_SAMPLE, "scheme": "r2mae"}), images(), 150))
        )
    error = np.sqrt((spread.var() + one.var()) / 150)
    assert spread.mean() == pytest.approx(one.mean(), abs=5 * error)


def test_the_loss_of_a_step_is_the_mean_of_the_means_of_its_samples(model: ToyModel) -> None:
    module = module_for(model, **PER_SAMPLE)
    loss = module(images(), 0, 0)
    assert module.scheme is not None
    key = module.config.key
    ratios = module.scheme.ratio.draw(0, key.fold("ratio"), ROWS)
    assert module.ratio == pytest.approx(float(np.mean(ratios)))
    task = PixelTask(PIXELS, exact=True)  # although the run's own task hides each pixel by itself
    assert module.task == PixelTask(PIXELS)
    corrupted = task.corrupt(images(), ratios, key.fold("mask").fold(0))
    assert isinstance(ratios, np.ndarray)
    assert corrupted.hidden.sum(1).tolist() == [hidden_count(PIXELS, ratio) for ratio in ratios]
    errors = (model(corrupted.inputs)[0] - images() / 255).square()
    means = [errors[row][corrupted.hidden[row]].mean() for row in range(ROWS)]
    torch.testing.assert_close(loss, torch.stack(means).mean())


@pytest.mark.parametrize("weighting", ["mean", "sum"])
def test_micro_batches_make_the_same_step(model: ToyModel, weighting: str) -> None:
    whole = module_for(model, weighting=weighting, **PER_SAMPLE)
    loss = whole(images(), 0, 0)
    parts = module_for(model, weighting=weighting, accumulate=4, **PER_SAMPLE)
    totals = [parts(part, 0, number) for number, part in enumerate(images().split(ROWS // 4))]
    normaliser = torch.as_tensor(parts._denominators).sum()
    torch.testing.assert_close(torch.stack(totals).sum() / normaliser, loss)
    assert parts.ratio == whole.ratio
    if weighting == "sum":
        assert float(normaliser) == ROWS


def test_a_single_sample_of_each_micro_batch(model: ToyModel) -> None:
    parts = module_for(model, accumulate=ROWS, **PER_SAMPLE)
    for number in range(ROWS):
        parts(images()[number : number + 1], 0, number)
    torch.testing.assert_close(
        torch.stack(parts._sums).sum() / ROWS, module_for(model, **PER_SAMPLE)(images(), 0, 0).detach()
    )


def test_a_normaliser_of_a_single_ratio_is_refused() -> None:
    for options in (PER_SAMPLE, {"scheme": "r2mae", "per": "sample", "sampling": "stratified"}):
        with pytest.raises(UserError, match="needs one ratio for the mini-batch"):
            ToyConfig.make(weighting="inverse-ratio", **options)


HIDDEN = torch.tensor([[True, False, True, True], [False, False, False, False], [False, True, False, False]])
LOSSES = torch.tensor([[1.0, 0, 2, 6], [0, 0, 0, 0], [0, 5, 0, 0]])


@dataclass(frozen=True)
class Placed(Corrupted):
    """The losses of hidden entries alone, last sample first."""

    def loss_rows(self) -> Tensor:
        return torch.tensor([2, 0, 0, 0])


def test_a_sample_in_which_nothing_is_hidden_does_not_count() -> None:
    plain = Corrupted(None, HIDDEN, LOSSES, 12)
    assert [float(one) for one in sum_of_sample_means(LOSSES, plain, 3)] == pytest.approx([8.0, 2.0])
    flat = replace(plain, hidden=HIDDEN.flatten())
    assert [float(one) for one in sum_of_sample_means(LOSSES.flatten(), flat, 3)] == pytest.approx([8.0, 2.0])
    last = torch.tensor([5.0, 1, 2, 6])
    placed = Placed(None, HIDDEN, LOSSES, 12)
    assert [float(one) for one in sum_of_sample_means(last, placed, 3)] == pytest.approx([8.0, 2.0])
    with pytest.raises(TypeError, match="Corrupted does not assign losses to samples"):
        sum_of_sample_means(last, plain, 3)


def test_weights_of_the_task_weigh_within_and_between_samples() -> None:
    weights = torch.tensor([[1.0, 1, 4, 1], [1, 1, 1, 1], [0, 0.5, 0, 0]])
    corrupted = Corrupted(None, HIDDEN, LOSSES, 12, weights)
    total, normaliser = sum_of_sample_means(LOSSES * weights, corrupted, 3)
    assert float(total) == pytest.approx((1 + 8 + 6) / 3 + 2.5)
    assert float(normaliser) == pytest.approx((1 + 4 + 1) / 3 + 0.5)
