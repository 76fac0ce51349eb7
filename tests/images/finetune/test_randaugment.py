import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from r2mae.images.augment import OPERATIONS, changed, rand_augment
from r2mae.masking.keys import Key

PIXELS = np.random.default_rng(0).integers(0, 200, (64, 24, 20, 3), np.uint8)
PICTURE = Image.fromarray(PIXELS[0])

# As timm's "increasing" set: more magnitude, more change.
EXPECTED = {
    "auto-contrast": (1.0, ImageOps.autocontrast),
    "posterize": (0.5, lambda picture: ImageOps.posterize(picture, 2)),
    "solarize": (0.5, lambda picture: ImageOps.solarize(picture, 128)),
    "solarize-add": (-0.5, lambda picture: picture.point(lambda level: level + 55 * (level < 128))),
    "color": (0.5, lambda picture: ImageEnhance.Color(picture).enhance(1.45)),
    "sharpness": (-0.5, lambda picture: ImageEnhance.Sharpness(picture).enhance(0.55)),
    "translate-x": (
        0.5,
        lambda picture: picture.transform(
            picture.size,
            Image.Transform.AFFINE,
            (1, 0, 0.225 * 20, 0, 1, 0),
            Image.Resampling.BILINEAR,
            fillcolor=(124, 116, 104),
        ),
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_changes_are_those_of_timm(name: str) -> None:
    amount, expected = EXPECTED[name]
    np.testing.assert_array_equal(np.asarray(OPERATIONS[name](PICTURE, amount)), np.asarray(expected(PICTURE)))


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_change_keeps_size_and_mode(name: str, mode: str) -> None:
    picture = PICTURE.convert(mode)
    for amount in (-1.0, -0.4, 0.0, 1.0):
        made = OPERATIONS[name](picture, amount)
        assert (made.size, made.mode) == (picture.size, mode)


def test_half_of_the_changes_are_made_by_the_numbers_alone() -> None:
    none, one = np.array([0.2, 0.5, 0.5, 0.5]), np.array([0.15, 0.4, 0.5, 0.5])
    assert rand_augment(PICTURE, [none, none]) is PICTURE
    np.testing.assert_array_equal(np.asarray(rand_augment(PICTURE, [one, none])), 255 - PIXELS[0])  # invert
    made = changed(PIXELS, np.arange(64), Key.root(1), scale=(1.0, 1.0), flip=False, magnitude=9.0)
    unchanged = (made == PIXELS).all((1, 2, 3)).mean()
    assert 0.1 < unchanged < 0.6  # two changes, each made half of the time, some of them without effect
