"""Positions for another grid of patches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.images.models.vit_mae.model import positions
from r2mae.images.weight_conversion.load import fitted_positions

SIDES = st.integers(1, 5)
GRIDS = st.tuples(SIDES, SIDES)


@given(there=GRIDS, grid=GRIDS, kind=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_sines_are_computed_again(there: tuple[int, int], grid: tuple[int, int], kind: torch.dtype) -> None:
    table = positions(8, there).to(kind)
    found, told = fitted_positions(table, grid, there=there)
    if there == grid:
        assert found is table
        assert not told
    else:
        assert torch.equal(found, positions(8, grid).to(kind))
        assert "computed again" in told
        assert f"{grid[0]} x {grid[1]} patches from {there[0]} x {there[1]}" in told


def test_other_positions_are_interpolated() -> None:
    """As transformers does it for images of another size; the class token's position stays."""
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    stock = ViTEmbeddings(ViTConfig(hidden_size=8, image_size=16, patch_size=4))
    table = stock.position_embeddings.detach()
    found, told = fitted_positions(table, (6, 6))
    expected = stock.interpolate_pos_encoding(torch.zeros(1, 37, 8), 24, 24)
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-6)
    assert "interpolated for 6 x 6 patches from 4 x 4 (bicubic" in told
    assert torch.equal(found[:, 0], table[:, 0])


def test_learned_positions_of_the_same_grid_stay() -> None:
    table = torch.randn(1, 17, 8)
    assert fitted_positions(table, (4, 4))[0] is table
    found, told = fitted_positions(table, (2, 8))  # as many patches, in another rectangle
    assert found.shape == table.shape
    assert "from 4 x 4" in told
    assert fitted_positions(torch.randn(1, 17, 8), (2, 8), there=(2, 8))[1] == ""


def test_patches_that_are_no_square_are_refused() -> None:
    with pytest.raises(UserError, match="pos_embed has 16 positions"):
        fitted_positions(torch.randn(1, 16, 8), (2, 2))
