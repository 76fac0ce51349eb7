"""Training, validation and test windows: separate parts of a genome."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from r2mae.errors import UserError
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import Intervals, read_regions
from r2mae.genome.store.tokens import TOKEN, UNKNOWN

_STEP = 1 << 22  # positions that are read at a time


class Parts(NamedTuple):
    """Positions to learn from, to choose by, and to test on."""

    train: Intervals
    validation: Intervals
    test: Intervals


def divide(
    store: AlignmentStore,
    window: int,
    *,
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Parts:
    """Divide a store by contigs and intervals.

    Test keeps its positions; validation keeps away from test, and training from both, by a window. A part that is asked
    for and left with nothing raises a UserError.

    Parameters
    ----------
    store : AlignmentStore
    window : int
        Positions of a window.
    validation, test : sequence of str
        Contigs, regions such as ``chr1:1,001-2,000``, or BED files; see
        :func:`r2mae.genome.store.intervals.read_regions`.
    include, exclude : sequence of str
        The only positions that any part takes, and those that none takes; written alike.
    """
    layout = store.layout
    allowed = read_regions(include, layout) if include else Intervals.everywhere(layout)
    allowed = allowed.without(read_regions(exclude, layout))
    tested, validated = read_regions(test, layout), read_regions(validation, layout)
    apart = tested.widened(window, layout)
    validated = validated.without(apart)
    train = allowed.without(apart).without(validated.widened(window, layout))
    parts = Parts(train, validated.within(allowed), tested.within(allowed))
    for name, part, asked in zip(Parts._fields, parts, (True, validation, test), strict=True):
        if asked and not len(part):
            raise UserError(
                f"nothing is left for {name}: other parts, a window's gap around them, or filters take it all"
            )
    return parts


@dataclass(frozen=True)
class WindowStarts:
    """Where windows begin, as arithmetic rows, so that those of a genome need little memory.

    Parameters
    ----------
    contigs, first, counts : int64 ndarray
        Of each row: number of the contig, the first start, and how many windows, each `stride` after the one before.
    stride, length : int
        Positions between starts, and of a window.
    omitted : int
        Windows that are omitted since too much of the reference is unknown.
    """

    contigs: Int64[np.ndarray, " rows"]
    first: Int64[np.ndarray, " rows"]
    counts: Int64[np.ndarray, " rows"]
    stride: int
    length: int
    omitted: int = 0

    @cached_property
    def _bounds(self) -> Int64[np.ndarray, " rows"]:
        found: Int64[np.ndarray, " rows"] = np.cumsum(self.counts)
        return found

    def __len__(self) -> int:
        """Return the number of windows."""
        return int(self.counts.sum())

    def at(
        self, indices: Sequence[int] | np.ndarray
    ) -> tuple[Int64[np.ndarray, " batch"], Int64[np.ndarray, " batch"]]:
        """Return contigs and starts of some windows."""
        chosen = np.asarray(indices, np.int64)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(f"windows {chosen.min()} to {chosen.max()} of {len(self)}")
        row = np.searchsorted(self._bounds, chosen, side="right")
        inside = chosen - (self._bounds[row] - self.counts[row])
        return self.contigs[row], self.first[row] + inside * self.stride

    def only(self, indices: Sequence[int] | np.ndarray) -> "WindowStarts":
        """Return some of the windows."""
        contigs, first = self.at(indices)
        return replace(self, contigs=contigs, first=first, counts=np.ones_like(first))


def window_starts(
    store: AlignmentStore, part: Intervals, length: int, stride: int, *, most_unknown: float = 0.5
) -> WindowStarts:
    """List the windows that are completely within a part, or raise a UserError if there is none.

    Parameters
    ----------
    store : AlignmentStore
    part : Intervals
    length, stride : int
        Positions of a window, and between the starts of two.
    most_unknown : float
        Fraction of a window at which the reference may be unknown; windows with more are omitted.
    """
    if length < 1 or stride < 1:
        raise UserError(f"window and stride must be 1 or more, not {length} and {stride}")
    longest = int(store.lengths.max())
    if length > longest:
        name = store.contigs[int(store.lengths.argmax())]
        raise UserError(f"a window of {length:,} is larger than the longest contig ({name}, {longest:,} positions)")
    rows: list[tuple[int, int, int]] = []
    seen, per_step = 0, max(_STEP // stride, 1)
    for contig, start, end in part.rows():
        offset = store.layout.offsets[contig]
        for first in range(start, end - length + 1, per_step * stride):
            count = min((end - length - first) // stride + 1, per_step)
            bases = store.reference[offset + first : offset + first + (count - 1) * stride + length] & TOKEN
            total = np.cumsum(np.append(0, bases == UNKNOWN))
            places = np.arange(count) * stride
            is_kept = total[places + length] - total[places] <= most_unknown * length
            bounds = np.flatnonzero(np.diff(is_kept, prepend=False, append=False)).reshape(-1, 2).tolist()
            rows += [(contig, first + begin * stride, last - begin) for begin, last in bounds]
            seen += count
    values: Int64[np.ndarray, "rows 3"] = np.array(rows, np.int64).reshape(-1, 3)
    found = WindowStarts(values[:, 0], values[:, 1], values[:, 2], stride, length, seen - int(values[:, 2].sum()))
    if not len(found):
        why = "all have too many unknown bases of the reference" if seen else "its intervals are shorter"
        raise UserError(f"no window of {length:,} fits the part: {why}")
    return found
