"""Positions for another grid of patches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.images.models.vit_mae.model import positions
from r2mae.images.weights import fitted_positions

SIDES = st.integers(1, 5)


@given(side=SIDES, grid=st.tuples(SIDES, SIDES), kind=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_sines_are_computed_again(side: int, grid: tuple[int, int], kind: torch.dtype) -> None:
    table, own = positions(8, (side, side)).to(kind), positions(8, grid)
    found, told = fitted_positions(table, own, grid, "pos_embed")
    if grid == (side, side):
        assert found is table
        assert not told
    else:
        assert found is own
        assert f"computed again for {grid[0]} x {grid[1]} patches from {side} x {side}" in told


def test_other_positions_are_interpolated() -> None:
    """As transformers does it for images of another size; the class token's position stays."""
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    stock = ViTEmbeddings(ViTConfig(hidden_size=8, image_size=16, patch_size=4))
    table = stock.position_embeddings.detach()
    found, told = fitted_positions(table, positions(8, (6, 6)), (6, 6), "pos_embed")
    expected = stock.interpolate_pos_encoding(torch.zeros(1, 37, 8), 24, 24)
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-6)
    assert "interpolated for 6 x 6 patches from 4 x 4 (bicubic" in told
    assert torch.equal(found[:, 0], table[:, 0])
    assert "interpolated for 2 x 8 patches from 4 x 4" in fitted_positions(table, table, (2, 8), "pos_embed")[1]


def test_patches_that_are_no_square_are_refused() -> None:
    with pytest.raises(UserError, match="pos_embed has 16 positions"):
        fitted_positions(torch.randn(1, 16, 8), positions(8, (2, 2)), (2, 2), "pos_embed")
