"""Intervals are sets of positions."""

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae.genome.store.alignment import Layout
from r2mae.genome.store.intervals import SHIFT, Intervals, read_regions

LAYOUT = Layout(("ref",), ("chr1", "chr2:a"), (40, 30))
LISTED = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 30)), max_size=12)


def positions(intervals: Intervals) -> set[tuple[int, int]]:
    return {(contig, place) for contig, start, end in intervals.rows() for place in range(start, end)}


@given(LISTED, LISTED, st.integers(0, 9))
def test_sets_of_positions(one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], by: int) -> None:
    first, second = Intervals.of(one), Intervals.of(two)
    mine = {(contig, place) for contig, start, end in one for place in range(start, end)}
    its = positions(second)
    assert positions(first) == mine
    assert first.positions == len(mine)
    rows = first.rows()
    assert rows == sorted(rows)
    for (contig, _, end), (following, start, _) in pairwise(rows):
        assert contig != following or end < start  # they do not touch
    assert positions(first.without(second)) == mine - its
    assert positions(first.within(second)) == mine & its
    wide = {(contig, place + shift) for contig, place in mine for shift in range(-by, by + 1)}
    assert positions(first.widened(by, LAYOUT)) == {
        (contig, place) for contig, place in wide if 0 <= place < LAYOUT.lengths[contig]
    }


@given(LISTED)
def test_positions_that_lie_in_intervals(listed: list[tuple[int, int, int]]) -> None:
    intervals = Intervals.of(listed)
    contigs, places = (axis.ravel() for axis in np.mgrid[0:2, 0:31])
    inside = intervals.hold((contigs << SHIFT) + places)
    held = {(int(contig), int(place)) for contig, place in zip(contigs[inside], places[inside], strict=True)}
    assert held == positions(intervals)


def test_bed(tmp_path: Path) -> None:
    path = tmp_path / "a.bed.gz"
    path.write_bytes(
        gzip.compress(b"track name=x\n# comment\nchr1\t5\t9\tname\nchr1 7 12\n\nchr9 0 4\nchr2:a\t0\t30\n")
    )
    assert read_regions([str(path)], LAYOUT).rows() == [(0, 5, 12), (1, 0, 30)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("chr1\t1\n", "line 1: a line of BED is contig, start and end"),
        ("chr1 1 2\nchr1 x 5\n", "line 2: a line of BED"),
        (f"chr1 1 2\nchr1 {'9' * 5000} 5\n", "line 2: a line of BED"),
        ("chr1 1 41\n", "line 1: 1 to 41 does not fit chr1, which has 40 positions"),
        ("chr1 9 3\n", "line 1: 9 to 3 does not fit"),
        ("7 0 3\nX 0 3\n", "names 7, X, and the store has the contigs chr1, chr2:a: give the contigs the same names"),
        ("", "has no intervals"),
        ("chr1 1 2\0\n", "line 1: holds a NUL byte"),
    ],
)
def test_wrong_bed(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.bed").write_text(text)
    with pytest.raises(UserError, match=told) as caught:
        read_regions([str(tmp_path / "a.bed")], LAYOUT)
    assert str(caught.value).startswith(f"{tmp_path / 'a.bed'}")


def test_regions_as_people_type_them(tmp_path: Path) -> None:
    (tmp_path / "a.bed").write_text("chr1 30 40\n")
    assert read_regions(["chr1:1-10", "chr2:a:11-2,0"], LAYOUT).rows() == [(0, 0, 10), (1, 10, 20)]
    assert read_regions(["chr2:a", str(tmp_path / "a.bed")], LAYOUT).rows() == [(0, 30, 40), (1, 0, 30)]
    for wrong, told in {
        "chr1:0-5": "has the positions 1 to 40",
        "chr1:5-41": "has the positions 1 to 40",
        "chr1:9-3": "from a lower to a higher one",
        "chr3:1-2": "unknown contig 'chr3'",
        "chr3": "unknown contig 'chr3'",
        f"chr1:1-{'9' * 30}": "unknown contig 'chr1:1-9",
    }.items():
        with pytest.raises(UserError, match=told):
            read_regions([wrong], LAYOUT)
