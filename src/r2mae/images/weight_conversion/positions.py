"""Embeddings of positions for another grid of patches than the one they were made for."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from r2mae.errors import UserError
from r2mae.images.models.vit_mae.model import positions

_CLOSE = 5e-3  # what storing sines in 16 bits may change
Table = Float[Tensor, "1 tokens width"]
Found = Float[Tensor, "1 others width"]


def fitted_positions(
    table: Table, grid: tuple[int, int], *, there: tuple[int, int] | None = None, name: str = "pos_embed"
) -> tuple[Found, str]:
    """Return embeddings of positions for a grid, and how they were made.

    Parameters
    ----------
    table : tensor, shape (1, 1 + patches, width)
        Those of the file, the class token's first.
    grid : (int, int)
        Patches down and across that are wanted.
    there : (int, int), optional
        Those of the file; without it, its patches are taken to be a square.
    name : str
        For errors.

    Returns
    -------
    tensor, shape (1, 1 + down · across, width)
        The same tensor for the same grid. For another one: sines and cosines again if the file's are those of its own
        grid, otherwise the file's after bicubic interpolation; the class token's stays as it is.
    told : str
        What was done; empty for the same grid.

    Raises
    ------
    UserError
        If the file's number of patches is no square, and nothing says which rectangle it is.
    """
    count = table.shape[1] - 1
    if there is None or math.prod(there) != count:
        side = math.isqrt(max(count, 0))
        there = (side, side)
    if count == math.prod(grid) and (there == grid or math.prod(there) != count):
        return table, ""
    if count < 1 or math.prod(there) != count:
        raise UserError(
            f"{name} has {table.shape[1]} positions, which are not those of a square of patches and a class token: "
            f"take images that are cut into {count} patches, or other weights"
        )
    sizes = f"{grid[0]} x {grid[1]} patches from {there[0]} x {there[1]}"
    if _sines(table, there):
        return positions(table.shape[2], grid).to(table.dtype), f"{name} computed again for {sizes} (sines and cosines)"
    return _interpolated(table, there, grid), f"{name} interpolated for {sizes} (bicubic; it holds no sines)"


def _sines(table: Table, grid: tuple[int, int]) -> bool:
    """Return whether a table holds the sines and cosines of its grid."""
    if table.shape[2] % 4:
        return False
    return bool(torch.allclose(table.float(), positions(table.shape[2], grid), rtol=0, atol=_CLOSE))


def _interpolated(table: Table, there: tuple[int, int], grid: tuple[int, int]) -> Found:
    first, rest = table[:, :1], table[:, 1:].float()
    image = rest.reshape(1, *there, -1).permute(0, 3, 1, 2)
    made = interpolate(image, size=grid, mode="bicubic", align_corners=False)
    return torch.cat([first, made.flatten(2).transpose(1, 2).to(table.dtype)], 1)
