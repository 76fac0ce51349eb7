"""Crops and flips: what Pillow makes of the same rectangles, and the same for a row wherever it is drawn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from r2mae.images.augment import changed, random_boxes
from r2mae.images.batches import ImageBatches, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import evaluate
from r2mae.masking.keys import Key
from r2mae.training.order import BatchOrder, make_loader
from r2mae.training.validation import estimate_statistics

KEY = Key.root(3)
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 20, 15, 3), np.uint8)


ROWS = np.arange(24)


@pytest.mark.parametrize("channels", [1, 3])
def test_crops_are_pillows(channels: int) -> None:
    pixels = np.ascontiguousarray(PIXELS[..., :channels])
    made = changed(pixels, ROWS, KEY, flip=False)
    assert (made.shape, made.dtype) == (pixels.shape, np.uint8)
    for image, (left, top, wide, tall), mine in zip(
        pixels, random_boxes(24, (20, 15), KEY).tolist(), made, strict=True
    ):
        picture = Image.fromarray(image[..., 0] if channels == 1 else image)
        box = (left, top, left + wide, top + tall)
        expected = picture.resize((15, 20), Image.Resampling.BICUBIC, box=box)
        np.testing.assert_array_equal(mine, np.asarray(expected).reshape(mine.shape))


def test_floats_have_256_levels() -> None:
    floats = (PIXELS / 255).astype(np.float32)
    np.testing.assert_array_equal(changed(floats, ROWS, KEY), changed(PIXELS, ROWS, KEY))


@given(st.integers(0, 2**63), st.integers(0, 20), st.integers(1, 4))
def test_a_row_is_changed_alike_wherever_it_is_drawn(seed: int, first: int, count: int) -> None:
    key, some = Key.root(seed), ROWS[first : first + count]
    part = changed(PIXELS, some, key.rows(first), magnitude=9.0)
    np.testing.assert_array_equal(part, changed(PIXELS, ROWS, key, magnitude=9.0)[some])


def test_flips_turn_left_to_right_half_the_time() -> None:
    made = changed(PIXELS, ROWS, KEY, scale=(1.0, 1.0))
    same = (made == PIXELS).all((1, 2, 3))
    np.testing.assert_array_equal(made[~same], PIXELS[~same][:, :, ::-1])
    assert 4 < same.sum() < 20


@settings(max_examples=60)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(0, 2**63))
def test_crops_lie_within_the_image_and_its_limits(height: int, width: int, seed: int) -> None:
    boxes = random_boxes(50, (height, width), Key.root(seed))
    left, top, wide, tall = boxes.T
    assert (boxes[:, 2:] >= 1).all()
    assert (left >= 0).all() and (top >= 0).all()
    assert (left + wide <= width).all() and (top + tall <= height).all()
    # Sides are rounded to whole pixels, so that the limits hold to half a pixel.
    assert ((wide + 0.5) * (tall + 0.5) >= 0.2 * height * width).all() or min(height / width, width / height) < 0.75
    assert (((wide + 0.5) / (tall - 0.5) >= 3 / 4).all() and ((wide - 0.5) / (tall + 0.5) <= 4 / 3).all()) or (
        min(height, width) < 3
    )


def test_shares_and_aspects_are_spread_over_their_ranges() -> None:
    _, _, wide, tall = random_boxes(20_000, (224, 224), KEY).T
    share, aspect = wide * tall / 224**2, np.log(wide / tall)
    assert 0.19 < share.min() < 0.21
    assert 0.95 < share.max() <= 1
    # Of a share s above 3/4 an aspect a fits where |ln a| < -ln s; what does not fit is drawn again.
    shares = np.linspace(0.2, 1, 1001)
    reached = np.minimum(1, -np.log(shares) / np.log(4 / 3)).cumsum()
    expected = np.interp([0.25, 0.5, 0.75], reached / reached[-1], shares)
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), expected, atol=0.01)
    assert abs(aspect.mean()) < 0.01
    assert np.log(4 / 3) - 0.02 < aspect.max() < np.log(4 / 3) + 0.02


def test_a_long_image_gets_its_middle() -> None:
    """No crop of its area has an aspect between 3/4 and 4/3, so that each is the largest one, from the middle."""
    assert {tuple(box) for box in random_boxes(20, (10, 200), KEY, scale=(0.9, 1.0))} == {(93, 0, 13, 10)}
    assert {tuple(box) for box in random_boxes(20, (200, 10), KEY, scale=(0.9, 1.0))} == {(0, 93, 10, 13)}


# --- in a run ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_training_batches_are_augmented(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=PIXELS, labels=np.arange(24) % 2)
    config = ImagesConfig.make(data=str(tmp_path / "x.npz"), augment="crop-flip", validation=0.2)
    data, rows = load_data(config), np.arange(3)
    whole = load_data(config.replace(augment="none"))
    made = data.train.batch(rows, KEY)
    assert (made.dtype, made.shape) == (torch.uint8, (3, 20, 15, 3))
    assert torch.equal(made, data.train.batch(rows, KEY))
    assert not torch.equal(made, data.train.batch(rows, KEY.fold(1)))
    assert data.validation is not None
    assert whole.validation is not None
    assert torch.equal(data.validation.batch(rows, KEY), whole.validation.batch(rows, KEY))
    assert torch.equal(data.train.unaugmented.batch(rows, KEY), whole.train.batch(rows, KEY))
    task, model = DOMAIN.build(data.architecture)
    mine, theirs = (estimate_statistics(task, model, part.train) for part in (data, whole))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert evaluate(config, task, model, data) == evaluate(config, task, model, whole)


def test_workers_and_ranks_cut_alike() -> None:
    images = ImageBatches(PIXELS, augment="crop-flip")

    def batches(workers: int, rank: int = 0, ranks: int = 1) -> list[torch.Tensor]:
        order = BatchOrder(24, 8, 4, KEY, rank=rank, ranks=ranks)
        return list(make_loader(images, order, KEY, workers=workers))

    alone, with_workers = batches(0), batches(2)
    assert all(torch.equal(a, b) for a, b in zip(alone, with_workers, strict=True))
    together = [torch.cat(parts) for parts in zip(batches(0, 0, 2), batches(0, 1, 2), strict=True)]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
