"""Masks: pure functions of (shape, ratio, key). True = hidden = an entry of the loss.

Counts round to the nearest integer (halves up). Every row has at least one hidden and one kept entry, so that any
ratio in [0, 1] is valid. Equal keys give equal masks on any device, rank and worker: the draws are integers
(:mod:`r2mae.masking.keys`), and a row's draws depend only on its position in the global batch.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from r2mae.masking.keys import INCREMENT, MULTIPLIER_1, MULTIPLIER_2, Key, words

RatioLike = float | Float[np.ndarray, " batch"]
Device = torch.device | str | None

_UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNED = {16: torch.int16, 32: torch.int32, 64: torch.int64}


def hidden_count(length: int, ratio: float) -> int:
    """Return how many of `length` entries are hidden: the nearest count, at least 1 and at most ``length - 1``.

    Before rounding, 1e-9 is added against binary round-off, so that ``hidden_count(100, 1 - 0.8) == 20``.

    Raises
    ------
    ValueError
        If `length` is below 2, so that a row cannot have a hidden and a kept entry.
    """
    if length < 2:
        raise ValueError(f"masking needs at least two entries in a row, not {length}")
    return int(_hidden_counts(np.array([length]), ratio)[0])


def element_mask(
    shape: tuple[int, ...], ratio: RatioLike, key: Key, *, exact: bool = False, device: Device = None
) -> Bool[Tensor, "batch ..."]:
    """Hide single entries (such as pixels), independently in every row.

    Parameters
    ----------
    shape : tuple of int
        (batch, …): the axes after the first form one row.
    ratio : float or ndarray of shape (batch,)
        Probability that an entry is hidden (Bernoulli, to 16 bits), or fraction hidden (`exact`).
    key : Key
        ``key.row`` is the row of the first sample in the global batch.
    exact : bool
        Hide the rounded count of every row, instead of independent Bernoulli draws.
    device : device, optional
        Device of the mask; by default the CPU.

    Returns
    -------
    Bool tensor of shape `shape`
    """
    batch, width = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    _check_width_and_ratio(width, ratio, batch)
    if exact:
        counts = _hidden_counts(np.full(batch, width), ratio)
        mask = _mask_of_smallest(key, batch, width, counts, device)
    else:
        mask = _bernoulli_mask(key, batch, width, ratio, device)
    return mask.view(shape)


def column_mask(width: int, ratio: float, key: Key, *, device: Device = None) -> Bool[Tensor, " width"]:
    """Hide the same columns (genes) in all rows of a mini-batch: the rounded count.

    ``key.row`` is ignored, so that all ranks and micro-batches of a step hide the same columns.
    """
    _check_width_and_ratio(width, ratio, None)
    count = np.array([hidden_count(width, ratio)])
    return _mask_of_smallest(key.rows(0), 1, width, count, device)[0]


def patch_mask(
    batch: int, length: int, ratio: float, key: Key, *, device: Device = None
) -> tuple[Int64[Tensor, "batch kept"], Int64[Tensor, "batch hidden"]]:
    """Split `length` patches of every image into kept and hidden ones.

    Parameters
    ----------
    batch, length : int
        Number of images, and of patches in each.
    ratio : float
        Fraction hidden: one number, because all rows of an index tensor have the same length.
    key : Key
        ``key.row`` is the row of the first image in the global batch.
    device : device, optional
        Device of the indices; by default the CPU.

    Returns
    -------
    keep, hidden : int64 tensors, shapes (batch, length − h) and (batch, h)
        Indices in increasing order; h is :func:`hidden_count`.
    """
    _check_width_and_ratio(length, ratio, None)
    count = hidden_count(length, ratio)
    mask = _mask_of_smallest(key, batch, length, np.full(batch, count), device)
    if mask.device.type == "cpu":
        return _flagged_columns(~mask.numpy(), length - count), _flagged_columns(mask.numpy(), count)
    return _split_by_sort(mask, count)


def token_mask(
    special: Bool[Tensor, "batch length"], ratio: RatioLike, key: Key, *, exact: bool = True
) -> Bool[Tensor, "batch length"]:
    """Hide tokens, but never special tokens or padding.

    Parameters
    ----------
    special : Bool tensor, shape (batch, length)
        True where a token must not be hidden (classification and separator tokens, padding).
    ratio : float or ndarray of shape (batch,)
        Fraction of the ordinary (not special) tokens that is hidden.
    key : Key
        ``key.row`` is the row of the first sequence in the global batch.
    exact : bool
        Hide the rounded count of every row, or make independent Bernoulli draws.

    Returns
    -------
    Bool tensor, shape (batch, length), on the device of `special`
        A row with two or more ordinary tokens has at least one hidden and one kept. A single ordinary token is hidden:
        the special tokens are its context. A row without ordinary tokens has no hidden one.
    """
    batch, length = special.shape
    _check_width_and_ratio(max(length, 2), ratio, batch)
    if special.device.type == "cpu":
        return torch.from_numpy(_host_token_mask(~special.numpy(), ratio, key, exact))
    return _device_token_mask(~special, ratio, key, exact)


def corrupt_tokens(
    ids: Int64[Tensor, "batch length"],
    hidden: Bool[Tensor, "batch length"],
    key: Key,
    *,
    mask_id: int,
    vocabulary: Int64[Tensor, " words"] | int,
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> Int64[Tensor, "batch length"]:
    """Replace each hidden token by the mask token or a random token, or leave it unchanged (80/10/10 in BERT).

    Parameters
    ----------
    ids : int64 tensor, shape (batch, length)
        Token ids.
    hidden : Bool tensor, shape (batch, length)
        The result of :func:`token_mask`.
    key : Key
        ``key.row`` is the row of the first sequence in the global batch. Use another stream than for the mask.
    mask_id : int
        Id of the mask token.
    vocabulary : int or int64 tensor
        The tokens from which a random replacement is drawn: ``range(n)``, or the given ids.
    shares : (mask, random, unchanged)
        Shares of the three replacements, which sum to 1.

    Returns
    -------
    int64 tensor, shape (batch, length)
        A new tensor; `ids` is not changed.
    """
    if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"the shares of mask, random and unchanged tokens must sum to 1, not {shares}")
    batch, length = ids.shape
    bits = _random_bits(key, batch, length, 64, ids.device)
    if isinstance(bits, np.ndarray):
        kind = torch.from_numpy((bits >> np.uint64(48)).astype(np.int32))
        pick = torch.from_numpy((bits & np.uint64((1 << 31) - 1)).astype(np.int64))
    else:
        kind, pick = ((bits >> 48) & 0xFFFF).int(), bits & ((1 << 31) - 1)
    size = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    chosen = (pick * size) >> 31
    if not isinstance(vocabulary, int):
        chosen = vocabulary.to(ids.device)[chosen]
    to_mask, to_random = round(shares[0] * 65536), round((shares[0] + shares[1]) * 65536)
    out = torch.where(hidden & (kind < to_random), chosen, ids)
    return torch.where(hidden & (kind < to_mask), mask_id, out)


def device_words(key: Key, rows: int, per_row: int, device: torch.device) -> Int64[Tensor, "rows per_row"]:
    """Draw the words of :func:`r2mae.masking.keys.words` on a device: the same 64 bits, as signed integers."""
    first = key.row * per_row + 1
    x = torch.arange(first, first + rows * per_row, dtype=torch.int64, device=device)
    x.mul_(_as_signed(INCREMENT)).add_(_as_signed(key.state))
    # torch shifts signed integers arithmetically; the masks make the shifts logical.
    x ^= (x >> 30) & ((1 << 34) - 1)
    x *= _as_signed(MULTIPLIER_1)
    x ^= (x >> 27) & ((1 << 37) - 1)
    x *= _as_signed(MULTIPLIER_2)
    x ^= (x >> 31) & ((1 << 33) - 1)
    return x.view(rows, per_row)


def _check_width_and_ratio(width: int, ratio: RatioLike, batch: int | None) -> None:
    if width < 2:
        raise ValueError(f"masking needs at least two entries in a row, not {width}")
    values = np.asarray(ratio)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"ratio must be between 0 and 1, not {ratio}")
    if values.ndim and values.shape != (batch,):
        raise ValueError(
            "this mask takes one ratio for all rows"
            if batch is None
            else f"{values.shape} ratios for {batch} rows: give one number, or one for every row"
        )


def _hidden_counts(lengths: np.ndarray, ratio: RatioLike) -> np.ndarray:
    """Round to the nearest count with at least one hidden and one kept (a single entry is hidden: token_mask)."""
    counts = np.floor(lengths * np.asarray(ratio, dtype=np.float64) + 0.5 + 1e-9).astype(np.int64)
    return np.where(lengths > 1, np.clip(counts, 1, np.maximum(lengths - 1, 1)), lengths)


def _random_bits(key: Key, rows: int, width: int, bits: int, device: Device) -> np.ndarray | Tensor:
    """Return draws of `bits` bits, shape (rows, width): unsigned NumPy on the host, signed torch on a device."""
    per_row = -(-width * bits // 64)
    device = torch.device(device or "cpu")
    if device.type == "cpu":
        return words(key, rows, per_row).view(_UNSIGNED[bits])[:, :width]
    return device_words(key, rows, per_row, device).view(_SIGNED[bits])[:, :width]


def _bernoulli_mask(key: Key, rows: int, width: int, ratio: RatioLike, device: Device) -> Tensor:
    limit = np.asarray(np.rint(np.asarray(ratio, dtype=np.float64) * 65536), dtype=np.int64)
    bits = _random_bits(key, rows, width, 16, device)
    if isinstance(bits, np.ndarray):
        if limit.ndim:
            mask = bits < limit[:, None]
        else:  # comparing values of one type, uint16, is ten times faster
            mask = bits < np.uint16(limit) if limit < 65536 else np.ones_like(bits, dtype=bool)
        for row in np.flatnonzero(~mask.any(1)):
            mask[row, np.argmin(bits[row])] = True
        for row in np.flatnonzero(mask.all(1)):
            mask[row, np.argmax(bits[row])] = False
        return torch.from_numpy(mask)
    values = bits.to(torch.int32) & 0xFFFF
    # A single number is an argument of the kernel; an array of ratios must be copied to the device.
    hidden = values < (torch.as_tensor(limit, device=bits.device)[:, None] if limit.ndim else int(limit))
    return _at_least_one_of_each(hidden, values)


def _flagged_columns(flags: np.ndarray, count: int) -> Tensor:
    """Return the columns of the `count` true flags of every row; one search of the flattened array is fastest."""
    batch, length = flags.shape
    columns = np.flatnonzero(flags).reshape(batch, count)
    columns -= np.arange(0, batch * length, length)[:, None]
    return torch.from_numpy(columns)


def _split_by_sort(mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Split by a stable sort, whose output shape is known: with nonzero the host would wait for the device."""
    order = torch.sort(mask.to(torch.uint8), dim=1, stable=True).indices
    kept = mask.shape[1] - count
    return order[:, :kept], order[:, kept:]


def _at_least_one_of_each(hidden: Tensor, values: Tensor) -> Tensor:
    """Hide the first smallest draw of a row without a hidden entry; keep the first largest of a row without a kept one.

    The rule of the host, in operations for which the host need not wait for the device.
    """
    width = hidden.shape[1]
    column = torch.arange(width, device=hidden.device)
    wide = values.to(torch.int64) * width
    first = (wide + column).argmin(1, keepdim=True)
    last = (wide - column).argmax(1, keepdim=True)
    hidden = hidden | ((column == first) & ~hidden.any(1, keepdim=True))
    return hidden & ~((column == last) & hidden.all(1, keepdim=True))


def _scores(key: Key, rows: int, width: int, device: Device) -> np.ndarray | Tensor:
    """Return random scores without ties (the low bits are the column), in the same order on host and device."""
    bits = 32 if width <= 4096 else 64
    low = (1 << (width - 1).bit_length()) - 1
    raw = _random_bits(key, rows, width, bits, device)
    if isinstance(raw, np.ndarray):
        raw &= ~raw.dtype.type(low)
        raw |= np.arange(width, dtype=raw.dtype)
        return raw
    column = torch.arange(width, device=raw.device, dtype=raw.dtype)
    flipped = raw ^ torch.iinfo(raw.dtype).min  # signed order of the flipped bits is the unsigned order
    return (flipped & ~low) | column


def _mask_of_smallest(key: Key, rows: int, width: int, counts: np.ndarray, device: Device) -> Tensor:
    """Hide the `counts` entries of every row with the smallest scores."""
    scores = _scores(key, rows, width, device)
    if isinstance(scores, np.ndarray):
        return torch.from_numpy(_up_to_rank(scores, counts))
    if len(np.unique(counts)) == 1:
        return _device_up_to_rank(scores, torch.full((rows,), int(counts[0]), device=scores.device))
    return _device_up_to_rank(scores, torch.as_tensor(counts, device=scores.device))


def _up_to_rank(scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
    ranks = np.unique(counts[counts > 0])
    if len(ranks) == 1 and (counts > 0).all():
        edge = np.partition(scores, ranks[0] - 1, axis=1)[:, ranks[0] - 1, None]
        return scores <= edge
    ordered = np.sort(scores, axis=1)
    edge = np.take_along_axis(ordered, np.maximum(counts - 1, 0)[:, None], axis=1)
    return (scores <= edge) & (counts > 0)[:, None]


def _device_up_to_rank(scores: Tensor, counts: Tensor) -> Tensor:
    ordered = scores.sort(dim=1).values
    edge = ordered.gather(1, (counts - 1).clamp(min=0)[:, None])
    return (scores <= edge) & (counts > 0)[:, None]


def _host_token_mask(candidates: np.ndarray, ratio: RatioLike, key: Key, exact: bool) -> np.ndarray:
    rows, width = candidates.shape
    scores = _scores(key, rows, width, None)
    assert isinstance(scores, np.ndarray)
    scores = np.where(candidates, scores, np.iinfo(scores.dtype).max)
    lengths = candidates.sum(1)
    if exact:
        counts = _hidden_counts(lengths, ratio)
    else:
        counts = _counts_below_ratio(scores, candidates, ratio)
        counts = np.where(lengths > 1, np.clip(counts, 1, np.maximum(lengths - 1, 1)), lengths)
    mask: np.ndarray = _up_to_rank(scores, counts) & candidates
    return mask


def _counts_below_ratio(scores: np.ndarray, candidates: np.ndarray, ratio: RatioLike) -> np.ndarray:
    """Count the scores below the ratio: hiding that many smallest scores hides each token independently."""
    top = (scores >> scores.dtype.type(np.iinfo(scores.dtype).bits - 32)).astype(np.int64)
    limit = _ratio_in_32_bits(ratio)
    counts: np.ndarray = ((top < (limit[:, None] if limit.ndim else limit)) & candidates).sum(1)
    return counts


def _ratio_in_32_bits(ratio: RatioLike) -> np.ndarray:
    """Return the ratio as a bound on 32 random bits: an integer, which compares equally on host and device."""
    return np.asarray(np.rint(np.asarray(ratio, dtype=np.float64) * 2.0**32), dtype=np.int64)


def _device_token_mask(candidates: Tensor, ratio: RatioLike, key: Key, exact: bool) -> Tensor:
    """Return the mask of :func:`_host_token_mask`, computed on the device without reading data back to the host."""
    rows, width = candidates.shape
    scores = _scores(key, rows, width, candidates.device)
    assert isinstance(scores, Tensor)
    info = torch.iinfo(scores.dtype)
    lengths = candidates.sum(1)
    if exact:
        share = ratio if isinstance(ratio, float | int) else torch.as_tensor(ratio, device=scores.device)
        counts = torch.floor(lengths.double() * share + 0.5 + 1e-9).long()
    else:
        limit = _ratio_in_32_bits(ratio)
        top = ((scores.long() - info.min) >> (info.bits - 32)) & 0xFFFFFFFF
        bound = torch.as_tensor(limit, device=scores.device)[:, None] if limit.ndim else int(limit)
        counts = ((top < bound) & candidates).sum(1)
    counts = torch.where(lengths > 1, counts.clamp(min=1).minimum((lengths - 1).clamp(min=1)), lengths)
    scores = torch.where(candidates, scores, info.max)
    return _device_up_to_rank(scores, counts) & candidates


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
