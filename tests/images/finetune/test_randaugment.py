import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from r2mae.images.augment import OPERATIONS, rand_augment
from r2mae.masking.keys import Key


def picture(channels: int = 3, count: int = 4, side: int = 24) -> torch.Tensor:
    made = np.random.default_rng(0).integers(0, 200, (count, side, side, channels))
    return torch.from_numpy(made).float() / 255


def changed(name: str, image: torch.Tensor, amount: float) -> np.ndarray:
    """One image as bytes, changed by one operation."""
    made = OPERATIONS[name](image.permute(2, 0, 1)[None], torch.full((1, 1, 1, 1), amount)).clamp(0, 1)
    return (made[0].permute(1, 2, 0) * 255).round().byte().numpy()


def pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().numpy())


REFERENCES = {
    "auto-contrast": (1.0, ImageOps.autocontrast),
    "equalize": (1.0, ImageOps.equalize),
    "invert": (1.0, ImageOps.invert),
    "posterize": (0.5, lambda image: ImageOps.posterize(image, 2)),
    "solarize": (0.5, lambda image: ImageOps.solarize(image, 128)),
    "color": (0.5, lambda image: ImageEnhance.Color(image).enhance(1.45)),
    "brightness": (0.5, lambda image: ImageEnhance.Brightness(image).enhance(1.45)),
    "contrast": (-0.5, lambda image: ImageEnhance.Contrast(image).enhance(0.55)),
    "sharpness": (-0.5, lambda image: ImageEnhance.Sharpness(image).enhance(0.55)),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_colours_change_as_in_pillow(name: str) -> None:
    amount, reference = REFERENCES[name]
    image = picture(side=128)[0]
    ours, theirs = changed(name, image, amount), np.asarray(reference(pillow(image)))
    # Pillow rounds to bytes on the way; its equalisation rounds the width of a level, too.
    assert np.abs(ours.astype(int) - theirs).max() <= (12 if name == "equalize" else 2)


@pytest.mark.parametrize("name", ["shear-x", "shear-y", "translate-x", "translate-y", "rotate"])
def test_shapes_change_as_in_pillow(name: str) -> None:
    image = picture(side=20)[0, :, :16]  # not a square
    height, width = image.shape[:2]
    middle = (width / 2, height / 2)
    level = 0.5
    matrix = {
        "shear-x": (1, 0.3 * level, -0.3 * level * middle[1], 0, 1, 0),
        "shear-y": (1, 0, 0, 0.3 * level, 1, -0.3 * level * middle[0]),
        "translate-x": (1, 0, 0.45 * level * width, 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, 0.45 * level * height),
    }
    if name == "rotate":
        theirs = pillow(image).rotate(30 * level, Image.Resampling.BILINEAR, fillcolor=(124, 116, 104))
    else:
        theirs = pillow(image).transform(
            (width, height), Image.Transform.AFFINE, matrix[name], Image.Resampling.BILINEAR, fillcolor=(124, 116, 104)
        )
    difference = np.abs(changed(name, image, level).astype(int) - np.asarray(theirs)).max(2)
    # At the border we mix with the colour outside, and Pillow does not.
    assert (difference <= 2).mean() > 0.8
    assert difference[5:-5, 5:-5].max() <= 2


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_changed_by_its_row_alone(channels: int) -> None:
    images, key = picture(channels, count=64), Key.root(1).fold(5)
    before = images.clone()
    whole = rand_augment(images, key)
    assert torch.equal(images, before)
    assert whole.shape == images.shape
    assert 0 <= float(whole.min()) <= float(whole.max()) <= 1
    # Numbers of a row may round otherwise in a batch of another size.
    assert torch.allclose(whole[40:48], rand_augment(images[40:48], key.rows(40)), atol=1e-5)
    assert torch.equal(whole, rand_augment(images, key))
    unchanged = (whole == images).flatten(1).all(1).double().mean()
    assert 0.05 < float(unchanged) < 0.6  # two changes, each made half of the time, some of them without effect
