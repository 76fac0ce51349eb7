"""Mask functions with the signatures of other libraries: MAE, timm, lightly, BEiT and VideoMAE.

Each takes a `key` in place of a generator. Masks are then the same on every device and after a resume:
``Key.root(seed).fold("mask", step)``, and ``.rows(first_row)`` for the rows of a process. Counts are rounded to the
nearest, with at least one hidden and one kept token.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from r2mae.masking.keys import Key
from r2mae.masking.masks import patch_mask


def random_masking(
    x: Float[Tensor, "batch tokens width"], mask_ratio: float, key: Key
) -> tuple[Float[Tensor, "batch kept width"], Float[Tensor, "batch tokens"], Int64[Tensor, "batch tokens"]]:
    """Hide tokens as ``random_masking`` of MAE's code and of models that are made after it does.

    Parameters
    ----------
    x : tensor (batch, tokens, width)
    mask_ratio : float
    key : Key

    Returns
    -------
    x_masked : tensor (batch, kept, width)
        The kept tokens, in the order of the input.
    mask : tensor (batch, tokens)
        1 where a token is hidden, 0 where it is kept.
    ids_restore : tensor (batch, tokens)
        Where each token is in the concatenation of kept and hidden tokens.
    """
    batch, tokens, width = x.shape
    keep, hidden = patch_mask(batch, tokens, mask_ratio, key, device=x.device)
    mask = torch.ones(batch, tokens, device=x.device).scatter(1, keep, 0.0)
    ids_restore = torch.cat([keep, hidden], dim=1).argsort(dim=1)
    return x.gather(1, keep[..., None].expand(-1, -1, width)), mask, ids_restore


def random_token_mask(
    size: tuple[int, int], mask_ratio: float, key: Key, *, device: torch.device | str | None = None
) -> tuple[Int64[Tensor, "batch kept"], Int64[Tensor, "batch hidden"]]:
    """Return the indices of kept and hidden tokens, as lightly's ``random_token_mask`` does.

    The first token is the class token, which is kept. The ratio is of the others; lightly's is of all tokens.

    Parameters
    ----------
    size : (int, int)
        Batch size and sequence length, with the class token.
    mask_ratio : float
    key : Key
    device : device, optional

    Returns
    -------
    idx_keep, idx_mask : tensors (batch, kept) and (batch, hidden)
        Increasing indices.
    """
    batch, length = size
    keep, hidden = patch_mask(batch, length - 1, mask_ratio, key, device=device)
    return torch.cat([torch.zeros_like(keep[:, :1]), keep + 1], dim=1), hidden + 1


def boolean_mask(
    batch: int, tokens: int, mask_ratio: float, key: Key, *, device: torch.device | str | None = None
) -> Bool[Tensor, "batch tokens"]:
    """Return a mask that is true at hidden tokens: ``bool_masked_pos`` of BEiT, SimMIM and transformers.

    VideoMAE's, which hides the same patches in every frame, is that of a frame with ``.repeat(1, frames)``.

    Parameters
    ----------
    batch, tokens : int
    mask_ratio : float
    key : Key
    device : device, optional
    """
    keep, _ = patch_mask(batch, tokens, mask_ratio, key, device=device)
    return torch.ones(batch, tokens, dtype=torch.bool, device=keep.device).scatter(1, keep, False)
