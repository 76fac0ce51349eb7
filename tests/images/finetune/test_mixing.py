import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.images.augment import ERASED, cut_box, erase, mix, soft_targets
from r2mae.masking.keys import Key

SEEDS = st.integers(0, 2**32)


def rows(count: int = 6, side: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Images that are everywhere their row's number, so that a mixture tells what it is made of."""
    images = torch.arange(count).float()[:, None, None, None].expand(count, side, side, 3).clone() / count
    return images, soft_targets(torch.arange(count) % 3, 3, 0.1)


@given(st.integers(2, 7), st.floats(0, 0.9))
def test_soft_targets_sum_to_one_and_favour_the_label(classes: int, smoothing: float) -> None:
    labels = torch.arange(5) % classes
    made = soft_targets(labels, classes, smoothing)
    assert torch.allclose(made.sum(1), torch.ones(5))
    assert torch.equal(made.argmax(1), labels)
    assert float(made.min()) == pytest.approx(smoothing / classes)


@given(SEEDS, st.sampled_from([(0.8, 1.0), (0.8, 0.0), (0.0, 1.0)]))
def test_targets_are_mixed_as_pixels_are(seed: int, alphas: tuple[float, float]) -> None:
    images, targets = rows()
    mixed, soft = mix(images, targets, Key.root(seed), mixup=alphas[0], cutmix=alphas[1])
    assert torch.allclose(soft.sum(1), torch.ones(6))
    own, other = images.mean((1, 2, 3)), images.view(3, 2, 8, 8, 3).flip(1).reshape(images.shape).mean((1, 2, 3))
    share = (mixed.mean((1, 2, 3)) - other) / (own - other)  # of the own image in the pixels
    partner = targets.view(3, 2, 3).flip(1).reshape(6, 3)
    assert torch.allclose(soft, targets * share[:, None] + partner * (1 - share[:, None]), atol=1e-5)
    assert float(share.max() - share.min()) < 1e-4, "one λ for the whole batch"


@given(SEEDS)
def test_mixtures_do_not_depend_on_how_the_batch_is_divided(seed: int) -> None:
    images, targets = rows(8)
    key = Key.root(seed).fold(3)
    whole = mix(images, targets, key)
    parts = [mix(images[a : a + 4], targets[a : a + 4], key.rows(a)) for a in (0, 4)]
    for place in (0, 1):
        assert torch.equal(whole[place], torch.cat([part[place] for part in parts]))


def test_without_either_nothing_is_mixed() -> None:
    images, targets = rows()
    mixed, soft = mix(images, targets, Key.root(0), mixup=0, cutmix=0)
    assert torch.equal(mixed, images)
    assert torch.equal(soft, targets)


@given(SEEDS, st.floats(0, 1), st.integers(1, 40), st.integers(1, 40))
def test_a_box_takes_its_share_of_the_area_where_it_is_within_the_image(
    seed: int, share: float, height: int, width: int
) -> None:
    top, left, bottom, right = cut_box(height, width, share, Key.root(seed))
    assert 0 <= top <= bottom <= height
    assert 0 <= left <= right <= width
    tall, wide = int(height * (1 - share) ** 0.5), int(width * (1 - share) ** 0.5)
    assert bottom - top <= tall
    assert right - left <= wide
    if top > 0 and bottom < height and left > 0 and right < width:
        assert (bottom - top, right - left) == (tall, wide)


@given(SEEDS)
def test_an_erased_rectangle_has_its_share_of_the_area(seed: int) -> None:
    made = erase(torch.full((4, 64, 48, 1), 2.0), Key.root(seed), probability=1.0)
    for image in made[..., 0] != 2.0:
        rows, columns = (image.any(axis).nonzero() for axis in (1, 0))
        assert image.sum() == len(rows) * len(columns), "a rectangle"
        # Sides are rounded to whole pixels.
        area, slack = len(rows) * len(columns), len(rows) + len(columns)
        assert ERASED[0] * 64 * 48 - slack <= area <= ERASED[1] * 64 * 48 + slack


def test_a_quarter_of_the_images_is_erased_each_by_its_row() -> None:
    images = torch.full((400, 16, 16, 1), 2.0)
    made = erase(images, Key.root(0), probability=0.25)
    erased = (made != images).any(3).flatten(1).sum(1)
    assert float((erased > 0).double().mean()) == pytest.approx(0.25, abs=0.07)
    assert torch.equal(made[100:], erase(images[100:], Key.root(0).rows(100), probability=0.25))
    noise = made[made != 2.0]
    assert float(noise.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(noise.std()) == pytest.approx(0.25, abs=0.02)


def test_images_stay_as_they_were() -> None:
    images, targets = rows()
    before = images.clone()
    mix(images, targets, Key.root(0), mixup=0)
    erase(images, Key.root(0), probability=1.0)
    assert torch.equal(images, before)


def test_boxes_of_neighbouring_rows_share_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other sizes least of all: the noise of a row must not be found in another's, a little later."""
    boxes = np.array([(0, 0, 10, 10), (0, 0, 97, 1)])
    monkeypatch.setattr("r2mae.images.augment._boxes", lambda *ignored: (boxes, np.array([True, True])))
    made = erase(torch.full((2, 12, 99, 1), 2.0), Key.root(0).rows(30), probability=1.0)
    first, second = (image[image != 2.0] for image in made)
    assert (len(first), len(second)) == (100, 97)
    assert not np.isin(first.numpy(), second.numpy()).any()
