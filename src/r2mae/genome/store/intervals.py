"""Sets of positions: BED files, regions as people type them, and the windows of a set."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from r2mae.cores import refuse_beyond_memory
from r2mae.errors import UserError
from r2mae.files import ordinary
from r2mae.genome.store.alignment import AlignmentStore, Layout
from r2mae.genome.store.contigs import RENAME, Contigs
from r2mae.genome.store.sources import integer, name_of, table_lines
from r2mae.genome.store.tokens import TOKEN, UNKNOWN

SHIFT = 40
"""Bits of a position, where contig and position are one number: contig x 2^40 + position."""

POSITION = (1 << SHIFT) - 1
"""The bits of the position."""

_STEP = 1 << 22  # positions of the reference that are read at a time
_BYTES = 24  # of a window: its start, its place in the order of an epoch, and the random word that orders it
_MOST_UNKNOWN = 0.5  # of the positions of a window, which needs a base that can be hidden
_REGION = re.compile(r"(?P<contig>.+):(?P<first>[0-9,]{1,20})-(?P<last>[0-9,]{1,20})")


@dataclass(frozen=True)
class Intervals:
    """Intervals of contigs, in order, that neither overlap nor touch.

    Parameters
    ----------
    ends : int64 ndarray, shape (n, 2)
        First position of each interval (counted from 0), and the position after the last. Contig and position are one
        number: contig x 2^40 + position.
    """

    ends: Int64[np.ndarray, "n 2"]

    @classmethod
    def of(cls, found: Iterable[tuple[int, int, int]]) -> "Intervals":
        """Sort and join (contig, start, end)."""
        listed: Int64[np.ndarray, "n 3"] = np.array(list(found), np.int64).reshape(-1, 3)
        return cls._joined((listed[:, :1] << SHIFT) + listed[:, 1:])

    @classmethod
    def everywhere(cls, layout: Layout) -> "Intervals":
        """Return all positions of all contigs."""
        return cls.of((number, 0, length) for number, length in enumerate(layout.lengths))

    @classmethod
    def _joined(cls, ends: Int64[np.ndarray, "n 2"]) -> "Intervals":
        ends = ends[ends[:, 0] < ends[:, 1]]
        ends = ends[np.argsort(ends[:, 0], kind="stable")]
        reach = np.maximum.accumulate(ends[:, 1])
        first = np.append(True, ends[1:, 0] > reach[:-1])[: len(ends)]  # the interval begins behind those before it
        return cls(np.stack([ends[first, 0], reach[np.append(first[1:], True)[: len(ends)]]], 1))

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self.ends)

    @property
    def positions(self) -> int:
        """Positions in all intervals."""
        return int(np.diff(self.ends).sum())

    def hold(self, places: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Return which positions (of the form contig x 2^40 + position) are in one of the intervals."""
        return np.asarray(np.searchsorted(self.ends.ravel(), places, "right") % 2 == 1)

    def rows(self) -> list[tuple[int, int, int]]:
        """Return contig, start and end of each interval."""
        starts, ends = (self.ends & POSITION).T.tolist()
        return list(zip((self.ends[:, 0] >> SHIFT).tolist(), starts, ends, strict=True))

    def widened(self, by: int, layout: Layout) -> "Intervals":
        """Return the intervals with so many more positions on both sides, as far as their contigs reach."""
        first = self.ends[:, :1] >> SHIFT << SHIFT
        lengths = np.array(layout.lengths, np.int64)[self.ends[:, :1] >> SHIFT]
        return self._joined(np.clip(self.ends + np.array([-by, by]), first, first + lengths))

    def within(self, other: "Intervals", is_inside: bool = True) -> "Intervals":
        """Return the positions that are in the other intervals, too, or that are not."""
        cuts = np.unique(np.concatenate([self.ends, other.ends]))  # between neighbouring ends of both, nothing changes
        kept = self.hold(cuts[:-1]) & (other.hold(cuts[:-1]) == is_inside)
        return self._joined(np.stack([cuts[:-1][kept], cuts[1:][kept]], 1))

    def without(self, other: "Intervals") -> "Intervals":
        """Return the positions that are not in the other intervals."""
        return self.within(other, False)


def interval_lines(
    path: Path, layout: Layout, renamed: Mapping[str, str] | None = None, *, value: bool = False
) -> Iterator[tuple[str, int, int, int, bytes]]:
    """Yield file and line (for errors), contig, start, end, and the last column of each line of a BED or bedGraph.

    Lines of contigs that the store lacks are omitted; a file without any others is refused, as is a wrong line. With
    `value` a line has exactly one more column, as in bedGraph; of a BED, columns after the third are ignored.
    """
    contigs, is_empty = Contigs(layout, renamed), True
    for number, line in table_lines(path):
        where, fields = f"{path}, line {number:,}", line.split()
        is_row = len(fields) == 4 if value else len(fields) >= 3
        start, end = map(integer, fields[1:3]) if is_row else (None, None)
        if start is None or end is None:
            form = "bedGraph is contig, start, end and value" if value else "BED is contig, start and end"
            raise UserError(f"{where}: a line of {form}, the positions as whole numbers")
        contig = name_of(fields[0])
        place, is_empty = contigs.number(contig), False
        if place < 0:
            continue
        if start > end or not contigs.fits(contig, end=end):
            if start <= end and contigs.number(contig) < 0:  # its name was only inferred
                continue
            raise UserError(
                f"{where}: {start:,} to {end:,} does not fit {contig}, which has {layout.lengths[place]:,} positions"
            )
        yield where, place, start, end, fields[-1]
    if is_empty:
        raise UserError(f"{path}: has no intervals")
    contigs.report(path, hint=RENAME if renamed is not None else "give the contigs the same names")


def read_regions(regions: Sequence[str], layout: Layout) -> Intervals:
    """Read regions as people type them: ``chr1``, ``chr1:1,001-2,000`` (counted from 1, both ends in), or a BED."""
    contigs, found = Contigs(layout), list[tuple[int, int, int]]()
    for region in regions:
        match = _REGION.fullmatch(region)
        if region not in layout.numbers and (path := ordinary(Path(region).expanduser())).is_file():
            lines = interval_lines(path, layout)
            found += [(contig, start, end) for _, contig, start, end, _ in lines]
        elif match is None or region in layout.numbers:
            number = contigs.require(region)
            found.append((number, 0, layout.lengths[number]))
        else:
            number = contigs.require(match["contig"])
            first, last = (int(match[end].replace(",", "") or 0) for end in ("first", "last"))
            if not 1 <= first <= last <= layout.lengths[number]:
                raise UserError(
                    f"region {region}: {match['contig']} has the positions 1 to {layout.lengths[number]:,}, and a "
                    "region goes from a lower to a higher one"
                )
            found.append((number, first - 1, last))
    contigs.report("regions")
    return Intervals.of(found)


def window_starts(
    store: AlignmentStore, part: Intervals, length: int, stride: int
) -> tuple[Int64[np.ndarray, " windows"], int]:
    """List the windows that are completely within a part, a start every `stride` positions.

    Each start is contig x 2^40 + position. Windows are omitted, and counted, in which the reference is unknown at
    more than half of the positions. A UserError is raised if no window fits, or if the free memory does not hold
    the starts.
    """
    seen = sum(max((end - start - length) // stride + 1, 0) for _, start, end in part.rows())
    refuse_beyond_memory(seen * _BYTES, f"{seen:,} windows take", "give a larger --stride")
    starts: Int64[np.ndarray, " windows"] = np.empty(seen, np.int64)
    kept, per_step = 0, max(_STEP // stride, 1)
    for contig, start, end in part.rows():
        offset = store.layout.offsets[contig]
        for first in range(start, end - length + 1, per_step * stride):
            count = min((end - length - first) // stride + 1, per_step)
            bases = store.reference[offset + first : offset + first + (count - 1) * stride + length] & TOKEN
            total = np.cumsum(np.append(0, bases == UNKNOWN))
            places = np.arange(count) * stride
            is_kept = total[places + length] - total[places] <= _MOST_UNKNOWN * length
            some = (contig << SHIFT) + first + places[is_kept]
            starts[kept : kept + len(some)] = some
            kept += len(some)
    if not kept:
        why = "all have too many unknown bases of the reference" if seen else "its intervals are shorter"
        raise UserError(f"no window of {length:,} fits the part: {why}")
    return starts[:kept], seen - kept
