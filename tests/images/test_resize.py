"""Images that are not square are cropped."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from r2mae.images.config import ImagesConfig
from r2mae.images.data import load_images, load_splits
from r2mae.images.domain import DOMAIN
from r2mae.images.files import to_square


def stripes(width, height):
    """Return an image of 0, 100 and 200 in three equal parts along its longer side."""
    values = np.repeat(np.array([0, 100, 200], np.uint8), max(width, height) // 3)
    return np.tile(values, (height, 1)) if width > height else np.tile(values[:, None], (1, width))


@pytest.mark.parametrize("size", [(12, 4), (4, 12)])
def test_the_middle_is_kept(tmp_path, size):
    Image.fromarray(stripes(*size)).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", stripes(*size)[None])
    for source in (tmp_path, tmp_path / "a.npy"):
        cropped = load_images(source, resize=4)[0].images
        assert cropped.shape == (1, 4, 4, 1)
        assert (cropped == 100).all()


def test_the_shorter_side_is_scaled(tmp_path):
    image = np.kron(np.eye(4, 6, dtype=np.uint8) * 200, np.ones((2, 2), np.uint8))
    np.save(tmp_path / "a.npy", image[None])
    cropped = load_images(tmp_path / "a.npy", resize=4)[0].images[0, ..., 0]
    scaled = np.asarray(Image.fromarray(image).resize((6, 4), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(cropped, scaled[:, 1:5], atol=1)


def test_a_run_and_its_embedding_crop_alike(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.integers(0, 255, (20, 6, 9), np.uint8))
    config = ImagesConfig.make(data=str(tmp_path / "a.npy"), resize=4, hidden=32, latent=32)
    data = DOMAIN.load(config)
    assert data.splits.train.shape == (4, 4, 1)
    wanted = load_splits(config.data.source, resize=4)
    np.testing.assert_array_equal(data.splits.train.images, wanted.train.images)
    task, model = DOMAIN.build(data.architecture)
    made = DOMAIN.embed(config, task, model.eval(), config.data.source)
    assert (made["embedding"].shape, made["split"].sum()) == ((20, 32), len(wanted.test))


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_the_colours_of_arrays_are_resized_by_themselves(kind: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = (rng.random((5, 7, 9, 3)) * (255 if kind is np.uint8 else 1)).astype(kind)
    np.save(tmp_path / "x.npy", images)
    squares = load_images(tmp_path / "x.npy", resize=4)[0].images
    assert (squares.shape, squares.dtype) == ((5, 4, 4, 3), images.dtype)
    for image, square in zip(images, squares, strict=True):
        for channel in range(3):
            one = to_square(Image.fromarray(np.ascontiguousarray(image[..., channel])), 4)
            np.testing.assert_array_equal(square[..., channel], np.asarray(one))
