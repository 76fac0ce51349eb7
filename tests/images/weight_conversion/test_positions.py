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


@pytest.mark.parametrize(("tokens", "grid"), [(17, (6, 6)), (17, (2, 8)), (16, (2, 2))])
def test_other_positions_are_refused(tokens: int, grid: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=f"is learned for {tokens - 1} patches, and the images have {grid[0]}"):
        fitted_positions(torch.randn(1, tokens, 8), positions(8, grid), grid, "pos_embed")
