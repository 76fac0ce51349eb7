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

_ROUNDS = 4  # in which further words are looked for that fit into a row's count
_SIGNED = {16: torch.int16, 32: torch.int32, 64: torch.int64}
_ON_HOST = ("cpu", "mps")
"""Devices whose masks NumPy draws: it multiplies words faster than torch, and Apple's GPU lacks 64-bit kernels."""


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
    if not exact:
        return _bernoulli_mask(key, batch, width, ratio, device).view(shape)
    counts = hidden_count(width, float(ratio)) if np.ndim(ratio) == 0 else _hidden_counts(np.full(batch, width), ratio)
    return _mask_of_smallest(key, batch, width, counts, device).view(shape)


def column_mask(width: int, ratio: float, key: Key, *, device: Device = None) -> Bool[Tensor, " width"]:
    """Hide the same columns (genes) in all rows of a mini-batch: the rounded count.

    ``key.row`` is ignored, so that all ranks and micro-batches of a step hide the same columns.
    """
    _check_width_and_ratio(width, ratio, None)
    return _mask_of_smallest(key.rows(0), 1, width, hidden_count(width, ratio), device)[0]


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
    mask = _mask_of_smallest(key, batch, length, count, device)
    if mask.device.type == "cpu":
        return _flagged_columns(~mask.numpy()), _flagged_columns(mask.numpy())
    # A stable sort has a known shape: with nonzero the host would wait for the device.
    order = torch.sort(mask.to(torch.uint8), dim=1, stable=True).indices
    return order[:, : length - count], order[:, length - count :]


def token_mask(
    special: Bool[Tensor, "batch length"],
    ratio: RatioLike,
    key: Key,
    *,
    exact: bool = True,
    starts: Bool[Tensor, "batch length"] | None = None,
    cut: bool = False,
) -> Bool[Tensor, "batch length"]:
    """Hide tokens, or whole words or spans of them, but never special tokens or padding.

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
    starts : Bool tensor, shape (batch, length), optional
        True where a word or span begins; it ends before the next one. Whole words are then hidden, in random order, if
        they fit into the count. If no word of a row fits, single tokens are hidden.
    cut : bool
        With `starts`, hide the exact count: in every row one word or span may be hidden in part.

    Returns
    -------
    Bool tensor, shape (batch, length), on the device of `special`
        A row with two or more ordinary tokens has at least one hidden and one kept. A single ordinary token is hidden:
        the special tokens are its context. A row without ordinary tokens has no hidden one.
    """
    batch, width = special.shape
    _check_width_and_ratio(max(width, 2), ratio, batch)
    device, candidates = special.device, ~special
    scores, lengths = _scores(key, batch, width, device), candidates.sum(1)
    if exact:
        where = "cpu" if device.type == "mps" else device  # Apple's GPU has no 64-bit floats
        share = ratio if isinstance(ratio, float | int) else torch.as_tensor(ratio, device=where)
        counts = torch.floor(lengths.to(where).double() * share + 0.5 + 1e-9).long().to(device)
    else:  # hiding as many of the smallest scores as are below the ratio hides each token independently
        info = torch.iinfo(scores.dtype)
        top = (scores.long() - info.min) >> (info.bits - 32) & 0xFFFFFFFF
        counts = ((top < _threshold(ratio, 32, device)) & candidates).sum(1)
    counts = torch.where(lengths > 1, counts.clamp(min=1).minimum((lengths - 1).clamp(min=1)), lengths)
    single = torch.where(candidates, scores, torch.iinfo(scores.dtype).max)
    hidden = _up_to_rank(single, counts) & candidates
    if starts is None:
        return hidden
    units = starts.long().cumsum(1) - starts[:, :1].long()  # each has the score of one column
    sizes = torch.zeros_like(units).scatter_add_(1, units, candidates.long())
    order = torch.where(sizes > 0, scores, torch.iinfo(scores.dtype).max).argsort(dim=1, stable=True)
    if cut:
        column = torch.arange(width, device=device)
        place = order.argsort(dim=1).gather(1, units) * width + column
        return _up_to_rank(torch.where(candidates, place, width * width), counts) & candidates
    sizes = sizes.gather(1, order)
    taken, left = torch.zeros_like(candidates), counts[:, None]
    for _ in range(_ROUNDS):
        fits = ~taken & (sizes > 0) & (sizes <= left)
        taken |= fits & ((sizes * fits).cumsum(1) <= left)
        left = counts[:, None] - (sizes * taken).sum(1, keepdim=True)
    whole = torch.zeros_like(taken).scatter_(1, order, taken).gather(1, units) & candidates
    return torch.where(taken.any(1, keepdim=True), whole, hidden)


def span_starts(
    shape: tuple[int, int], key: Key, *, mean: float = 3.8, device: Device = None
) -> Bool[Tensor, "batch length"]:
    """Return where spans of random length begin, for :func:`token_mask`: the lengths are geometric.

    Parameters
    ----------
    shape : (batch, length)
    key : Key
        ``key.row`` is the row of the first sequence in the global batch. Use another stream than for the mask.
    mean : float
        Mean length of a span; that of SpanBERT by default.
    device : device, optional
        Device of the result; by default the CPU.
    """
    values = _in_order(_random_bits(key, *shape, 16, device)).long() + (1 << 15)
    return values < round((1 << 16) / mean)


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
    kind, pick = (bits >> 48) & 0xFFFF, bits & ((1 << 31) - 1)
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


def _random_bits(key: Key, rows: int, width: int, bits: int, device: Device) -> Tensor:
    """Return draws of `bits` bits, shape (rows, width), as signed integers."""
    per_row, device = -(-width * bits // 64), torch.device(device or "cpu")
    if device.type not in _ON_HOST:
        return device_words(key, rows, per_row, device).view(_SIGNED[bits])[:, :width]
    drawn = torch.from_numpy(words(key, rows, per_row).view(np.int64))
    return drawn.view(_SIGNED[bits])[:, :width].to(device)


def _bernoulli_mask(key: Key, rows: int, width: int, ratio: RatioLike, device: Device) -> Tensor:
    """Hide the entries whose 16 bits are below the ratio.

    The first smallest draw of a row without a hidden entry is hidden, the first largest of a row without a kept one is
    kept.
    """
    values = _in_order(_random_bits(key, rows, width, 16, device))
    limit = _threshold(ratio, 16, values.device)
    if isinstance(limit, int) and limit == 1 << 16:  # is above all values of this type
        hidden = torch.ones_like(values, dtype=torch.bool)
    elif isinstance(limit, int) and values.device.type == "cpu":  # where NumPy compares eight times as fast
        hidden = torch.from_numpy(values.numpy() < np.int16(limit - (1 << 15)))
    else:
        hidden = values < limit - (1 << 15)
    if hidden.device.type == "cpu":  # on a device the host would wait for the answer
        flags = hidden.numpy()
        if flags.any(1).all() and not flags.all(1).any():
            return hidden
    counts = hidden.sum(1)
    column, wide = torch.arange(width, device=hidden.device), values.to(torch.int64) * width
    hidden = hidden | ((column == (wide + column).argmin(1, keepdim=True)) & (counts == 0)[:, None])
    return hidden & ~((column == (wide - column).argmax(1, keepdim=True)) & (counts == width)[:, None])


def _flagged_columns(flags: np.ndarray) -> Int64[Tensor, "batch each"]:
    """Return the columns of the true flags, equally many in every row; one search of the flattened array is fastest."""
    batch, length = flags.shape
    columns = np.flatnonzero(flags).reshape(batch, -1)
    columns -= np.arange(0, batch * length, length)[:, None]
    return torch.from_numpy(columns)


def _threshold(ratio: RatioLike, bits: int, device: torch.device) -> int | Int64[Tensor, "batch 1"]:
    """Return the ratio as a bound on random integers of so many bits: integers compare equally on host and device."""
    limit = np.rint(np.asarray(ratio, dtype=np.float64) * 2.0**bits).astype(np.int64)
    # A single number is an argument of the kernel; an array must be copied to the device.
    return torch.as_tensor(limit, device=device)[:, None] if limit.ndim else int(limit)


def _in_order(bits: Tensor) -> Tensor:
    """Return signed integers in the order of the same bits without a sign."""
    return bits ^ torch.iinfo(bits.dtype).min


def _scores(key: Key, rows: int, width: int, device: Device) -> Tensor:
    """Return random scores without ties: the low bits are the column."""
    low = (1 << (width - 1).bit_length()) - 1
    values = _in_order(_random_bits(key, rows, width, 32 if width <= 4096 else 64, device))
    return (values & ~low) | torch.arange(width, device=values.device, dtype=values.dtype)


def _mask_of_smallest(key: Key, rows: int, width: int, counts: int | np.ndarray, device: Device) -> Tensor:
    """Hide the `counts` entries of every row with the smallest scores."""
    scores = _scores(key, rows, width, device)
    if isinstance(counts, int) and scores.device.type == "cpu":
        edge = np.partition(scores.numpy(), counts - 1, axis=1)[:, counts - 1, None]
        return torch.from_numpy(scores.numpy() <= edge)
    if isinstance(counts, int):
        each = torch.full((rows,), counts, device=scores.device)
    else:
        each = torch.from_numpy(counts).to(scores.device)
    return _up_to_rank(scores, each)


def _up_to_rank(scores: Tensor, counts: Int64[Tensor, " rows"]) -> Tensor:
    on_host = scores.device.type == "cpu"  # where NumPy sorts ten times as fast
    ordered = torch.from_numpy(np.sort(scores.numpy(), axis=1)) if on_host else scores.sort(dim=1).values
    edge = ordered.gather(1, (counts - 1).clamp(min=0)[:, None])
    return (scores <= edge) & (counts > 0)[:, None]


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
