"""Sets of positions as intervals: BED files, regions as people type them, and what is left of them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from r2mae.errors import UserError
from r2mae.genome.store.meta import Layout
from r2mae.genome.store.sources import integer, name_of, table_lines

_REGION = re.compile(r"(?P<contig>.+):(?P<first>[0-9,]{1,20})-(?P<last>[0-9,]{1,20})")


@dataclass(frozen=True)
class Intervals:
    """Intervals of contigs, in order, that neither overlap nor touch.

    Parameters
    ----------
    contigs, starts, ends : int64 ndarray
        Of each interval: number of the contig, first position (counted from 0), and the position after the last.
    """

    contigs: Int64[np.ndarray, " n"]
    starts: Int64[np.ndarray, " n"]
    ends: Int64[np.ndarray, " n"]

    @classmethod
    def of(cls, found: Iterable[tuple[int, int, int]]) -> "Intervals":
        """Sort and join (contig, start, end)."""
        listed = [entry for entry in found if entry[1] < entry[2]]
        values: Int64[np.ndarray, "n 3"] = np.array(listed, np.int64).reshape(-1, 3)
        order = np.lexsort((values[:, 1], values[:, 0]))
        contigs, starts, ends = values[order].T
        if len(order):
            # An interval begins where the last end so far, of its contig, lies before it.
            far = int(ends.max()) + 1
            reach = np.maximum.accumulate(ends + contigs * far) - contigs * far
            first = np.flatnonzero(
                np.append(True, (contigs[1:] != contigs[:-1]) | (starts[1:] > np.maximum(reach[:-1], 0)))
            )
            last = np.append(first[1:], len(order)) - 1
            contigs, starts, ends = contigs[first], starts[first], reach[last]
        return cls(np.ascontiguousarray(contigs), np.ascontiguousarray(starts), np.ascontiguousarray(ends))

    @classmethod
    def everywhere(cls, layout: Layout) -> "Intervals":
        """Return all positions of all contigs."""
        return cls.of((number, 0, length) for number, length in enumerate(layout.lengths))

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self.starts)

    @property
    def positions(self) -> int:
        """Positions in all intervals."""
        return int((self.ends - self.starts).sum())

    def hold(self, contigs: Int64[np.ndarray, " n"], positions: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Return which positions (counted from 0, with their contigs' numbers) are in one of the intervals."""
        if not len(self):
            return np.zeros(len(positions), bool)
        at = np.searchsorted(self.contigs << 40 | self.starts, contigs << 40 | positions, "right") - 1
        inside: Bool[np.ndarray, " n"] = (at >= 0) & (self.contigs[at] == contigs) & (positions < self.ends[at])
        return inside

    def rows(self) -> list[tuple[int, int, int]]:
        """Return contig, start and end of each interval."""
        return list(zip(self.contigs.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True))

    def widened(self, by: int, layout: Layout) -> "Intervals":
        """Return the intervals with so many more positions on both sides, as far as their contigs reach."""
        return Intervals.of(
            (contig, max(start - by, 0), min(end + by, layout.lengths[contig])) for contig, start, end in self.rows()
        )

    def without(self, other: "Intervals") -> "Intervals":
        """Return the positions that are not in the other intervals."""
        return self._where(other, lambda mine, its: mine and not its)

    def within(self, other: "Intervals") -> "Intervals":
        """Return the positions that are in the other intervals, too."""
        return self._where(other, lambda mine, its: mine and its)

    def _where(self, other: "Intervals", keep: Callable[[bool, bool], bool]) -> "Intervals":
        """Keep the positions between neighbouring ends of both for which `keep` is true."""
        events = sorted(
            (contig, place, which, change)
            for which, intervals in enumerate((self, other))
            for contig, start, end in intervals.rows()
            for place, change in ((start, 1), (end, -1))
        )
        inside = [0, 0]
        found = []
        for (contig, place, which, change), following in pairwise(events):
            inside[which] += change
            if following[0] == contig and following[1] > place and keep(inside[0] > 0, inside[1] > 0):
                found.append((contig, place, following[1]))
        return Intervals.of(found)


def read_bed(path: str | Path, layout: Layout) -> Intervals:
    """Read the intervals of a BED file (plain, gzip or bgzip); columns after the third are ignored.

    Intervals of contigs that the store lacks are omitted.

    Raises
    ------
    UserError
        A wrong line, or no contig that the store has; names file and line.
    """
    path = Path(path).expanduser()
    return Intervals.of((contig, start, end) for _, contig, start, end, _ in interval_lines(path, layout))


def interval_lines(path: Path, layout: Layout, *, value: bool = False) -> Iterator[tuple[str, int, int, int, bytes]]:
    """Yield file and line (for errors), contig, start, end, and the last column of each line of a BED or bedGraph.

    Lines of contigs that the store lacks are omitted.

    Parameters
    ----------
    path : Path
    layout : Layout
    value : bool
        Whether a line has exactly one more column, as in bedGraph.

    Raises
    ------
    UserError
        A wrong line, or no contig that the store has; names file and line.
    """
    if path.is_dir() or not path.exists():
        raise UserError(f"{path}: there is no such file")
    others: set[str] = set()
    none = True
    for number, line in table_lines(path):
        where, fields = f"{path}, line {number:,}", line.split()
        is_row = len(fields) == 4 if value else len(fields) >= 3
        start, end = map(integer, fields[1:3]) if is_row else (None, None)
        if start is None or end is None:
            form = "bedGraph is contig, start, end and value" if value else "BED is contig, start and end"
            raise UserError(f"{where}: a line of {form}")
        contig = name_of(fields[0])
        place = layout.find(contig)
        if place is None:
            others.add(contig)
            continue
        if start > end or end > layout.lengths[place]:
            raise UserError(
                f"{where}: {start:,} to {end:,} does not fit {contig}, which has {layout.lengths[place]:,} positions"
            )
        none = False
        yield where, place, start, end, fields[-1]
    if none:
        raise UserError(f"{path}: {nothing_of(others, layout)}")


def read_regions(regions: Sequence[str], layout: Layout) -> Intervals:
    """Read regions as people type them: ``chr1``, ``chr1:1,001-2,000`` (counted from 1, both ends in), or a BED file.

    Raises
    ------
    UserError
        No such contig or file, or positions past the contig's end.
    """
    found: list[tuple[int, int, int]] = []
    for region in regions:
        if layout.find(region) is not None:
            found.append((layout.number(region), 0, layout.lengths[layout.number(region)]))
            continue
        if Path(region).expanduser().is_file():
            found += read_bed(region, layout).rows()
            continue
        match = _REGION.fullmatch(region)
        if match is None:
            layout.number(region)  # which says what is meant
            raise AssertionError(region)
        contig, first, last = match["contig"], *(int(match[end].replace(",", "") or 0) for end in ("first", "last"))
        number = layout.number(contig)
        if not 1 <= first <= last <= layout.lengths[number]:
            raise UserError(
                f"region {region}: {contig} has the positions 1 to {layout.lengths[number]:,}, and a region goes from "
                "a lower to a higher one"
            )
        found.append((number, first - 1, last))
    return Intervals.of(found)


def nothing_of(others: Iterable[str], layout: Layout) -> str:
    """Say that a file has none of the store's contigs."""
    named = sorted(others)
    theirs = f"names {', '.join(named[:3])}{' …' if len(named) > 3 else ''}" if named else "has no intervals"
    mine = f"{', '.join(layout.contigs[:3])}{' …' if len(layout.contigs) > 3 else ''}"
    return f"{theirs}, and the store has the contigs {mine}: give the contigs the same names"
