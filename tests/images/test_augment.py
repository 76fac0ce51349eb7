"""Crops and flips: what Pillow makes of the same rectangles, and the same for a row wherever it is drawn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from r2mae.images import augment
from r2mae.images.augment import (
    crop_flip,
    draw_flips,
    random_boxes,
    random_flip,
    resize,
)
from r2mae.images.batches import ImageBatches, load_data
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.images.evaluate import evaluate
from r2mae.masking.keys import Key
from r2mae.training.order import BatchOrder, make_loader
from r2mae.training.validation import estimate_statistics

KEY = Key.root(3)
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 20, 15, 3), np.uint8)


def by_pillow(image: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bring a rectangle to (height, width) in floats, which Pillow does not round."""
    left, top, wide, tall = map(int, box)
    planes = [
        Image.fromarray(plane.astype(np.float32)).resize(
            size[::-1], Image.Resampling.BICUBIC, box=(left, top, left + wide, top + tall)
        )
        for plane in np.moveaxis(image, -1, 0)
    ]
    made: np.ndarray = np.stack([np.asarray(plane) for plane in planes], axis=-1)
    return made


@settings(max_examples=60)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), st.integers(1, 50), st.sampled_from([1, 3]), st.data()
)
def test_resizing_is_pillows(height: int, width: int, tall: int, wide: int, channels: int, data: st.DataObject) -> None:
    images = np.random.default_rng(height * 41 + width).integers(0, 256, (3, height, width, channels), np.uint8)
    corners = [
        (data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))) for _ in range(len(images))
    ]
    boxes = np.array(
        [(x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))) for x, y in corners]
    )
    made = resize(torch.from_numpy(images), (tall, wide), boxes).numpy()
    assert made.dtype == np.float32
    for image, box, mine in zip(images, boxes, made, strict=True):
        expected = by_pillow(image, box, (tall, wide)) / 255
        np.testing.assert_allclose(mine, expected.clip(0, 1), atol=5e-6)


def test_resizing_of_bytes_differs_from_pillows_by_its_rounding_alone() -> None:
    """Pillow rounds to whole levels after each axis; without overshooting this is one level at most."""
    smooth = np.linspace(40, 200, 48 * 48 * 3).reshape(48, 48, 3).astype(np.uint8)
    made = resize(torch.from_numpy(smooth[None]), (20, 20), np.array([[5, 3, 31, 40]])).numpy()[0]
    expected = Image.fromarray(smooth).resize((20, 20), Image.Resampling.BICUBIC, box=(5, 3, 36, 43))
    assert np.abs(made * 255 - np.asarray(expected)).max() <= 1


def test_an_image_brought_to_its_own_size_stays() -> None:
    whole = np.tile([0, 0, 15, 20], (24, 1))
    np.testing.assert_allclose(resize(torch.from_numpy(PIXELS), (20, 15), whole).numpy() * 255, PIXELS, atol=1e-3)


def test_floats_are_taken_as_they_are() -> None:
    floats = torch.from_numpy(PIXELS).float() / 255
    crops = [crop_flip(images, KEY, flip=False) for images in (floats, torch.from_numpy(PIXELS))]
    torch.testing.assert_close(*crops, atol=1e-6, rtol=0)
    assert all(crop.min() >= 0 and crop.max() <= 1 for crop in crops)


def test_dense_products_give_what_sparse_ones_do() -> None:
    """On an accelerator the same crops are made by whole matrices."""
    images, boxes = torch.from_numpy(PIXELS), random_boxes(24, (20, 15), KEY)
    lines, columns = (
        augment._kernel_taps(boxes[:, 1], boxes[:, 3], 20, 8),
        augment._kernel_taps(boxes[:, 0], boxes[:, 2], 15, 9),
    )
    torch.testing.assert_close(
        augment._resize_dense(images, lines, columns), augment._resize_sparse(images, lines, columns), atol=1e-3, rtol=0
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_crops_are_the_same_on_a_gpu() -> None:
    images = torch.from_numpy(PIXELS)
    torch.testing.assert_close(crop_flip(images.cuda(), KEY).cpu(), crop_flip(images, KEY), atol=1e-5, rtol=0)


@given(st.integers(0, 2**63), st.integers(0, 20), st.integers(1, 4))
def test_a_row_is_cut_alike_wherever_it_is_drawn(seed: int, first: int, count: int) -> None:
    key, images = Key.root(seed), torch.from_numpy(PIXELS)
    part = crop_flip(images[first : first + count], key.rows(first))
    torch.testing.assert_close(part, crop_flip(images, key)[first : first + count], atol=0, rtol=0)


def test_the_number_of_threads_changes_nothing() -> None:
    images, threads = torch.from_numpy(np.repeat(PIXELS, 4, axis=0)), torch.get_num_threads()
    made = []
    for number in (1, 2):
        torch.set_num_threads(number)
        made.append(crop_flip(images, KEY))
    torch.set_num_threads(threads)
    assert torch.equal(*made)


def test_both_in_one_go_are_one_after_the_other() -> None:
    images = torch.from_numpy(PIXELS)
    assert torch.equal(crop_flip(images, KEY), random_flip(crop_flip(images, KEY, flip=False), KEY))


def test_flips_turn_left_to_right_half_the_time() -> None:
    images, chosen = torch.from_numpy(PIXELS), draw_flips(24, KEY)
    made = random_flip(images, KEY).numpy()
    np.testing.assert_array_equal(made[chosen], PIXELS[chosen][:, :, ::-1])
    np.testing.assert_array_equal(made[~chosen], PIXELS[~chosen])
    assert abs(draw_flips(10_000, KEY).mean() - 0.5) < 0.03


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
    assert (made.dtype, made.shape) == (torch.float32, (3, 20, 15, 3))
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
