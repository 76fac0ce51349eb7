"""Cutting images into patches and putting them together, and their pixels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.images.patches import (
    as_pixels,
    check_patch,
    normalised,
    patchify,
    standardised,
    standardised_patches,
    unpatchify,
)

SIZES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))


@given(SIZES)
def test_putting_together_is_the_inverse_of_cutting(sizes: tuple[int, int, int, int, int]) -> None:
    batch, down, across, patch, channels = sizes
    if down * across < 2:
        return
    shape = (batch, down * patch, across * patch, channels)
    images = torch.arange(int(np.prod(shape)), dtype=torch.int32).view(shape)
    patches = patchify(images, patch)
    assert patches.shape == (batch, down * across, patch * patch * channels)
    assert torch.equal(unpatchify(patches, patch, *shape[1:3]), images)
    last = images[:, -patch:, -patch:].flatten(1)  # row, column, channel
    assert torch.equal(patches[:, -1], last)
    if across > 1:
        assert torch.equal(patches[:, 1], images[:, :patch, patch : 2 * patch].flatten(1))


def test_normalised_patches_have_mean_zero_and_variance_one() -> None:
    patches = torch.rand(4, 5, 12)
    mean, deviation = patches.mean(-1, keepdim=True), patches.var(-1, keepdim=True)
    torch.testing.assert_close(normalised(patches), (patches - mean) / (deviation + 1e-6).sqrt())
    flat = torch.full((1, 12), 0.3)
    assert torch.isfinite(normalised(flat)).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_standardised_pixels_come_back(channels: int) -> None:
    images = torch.randint(0, 256, (2, 4, 6, channels), dtype=torch.uint8)
    floats = images.float() / 255
    torch.testing.assert_close(standardised(images), standardised(floats), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(as_pixels(standardised(images)), floats, rtol=1e-5, atol=1e-5)
    patches = standardised_patches(patchify(images, 2), channels)
    torch.testing.assert_close(patches, patchify(standardised(images), 2))
    if channels == 3:
        expected = (floats - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
        torch.testing.assert_close(standardised(images), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "patch"), [((64, 64), 7), ((64, 64), 100), ((60, 90), 16), ((7, 7), 7), ((1, 1), 1), ((4, 4), 0)]
)
def test_a_patch_that_does_not_divide_is_refused(size: tuple[int, int], patch: int) -> None:
    with pytest.raises(UserError, match=f"patches of {patch} x {patch} do not divide .* give another --model.patch"):
        check_patch(*size, patch)
