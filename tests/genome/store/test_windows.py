"""Parts lie apart, and windows lie in their part."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genome.alignments import maf_of
from genome.store.test_intervals import positions
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, GenomeConfig, batches, build_store
from r2mae.genome.batches import Parts
from r2mae.genome.store import intervals
from r2mae.genome.store.intervals import POSITION, SHIFT, Intervals, window_starts


@pytest.fixture
def store(tmp_path: Path) -> AlignmentStore:
    """Two contigs of 200 and 60 positions; in the first, 40 to 79 are unknown."""
    row = "ACGT" * 10 + "N" * 40 + "ACGT" * 30
    contigs = {"chr1": row, "chr2": "A" * 60}
    (tmp_path / "a.maf").write_text(maf_of({name: {"ref": letters, "x": letters} for name, letters in contigs.items()}))
    return build_store(tmp_path / "a.maf", tmp_path / "store")


def divide(store: AlignmentStore, window: int, **regions: Any) -> Parts:
    fraction = {} if "validation_regions" in regions else {"validation": 0.0}
    return batches.divide(store, GenomeConfig.make(data="x", window=window, **fraction, **regions))


@given(st.integers(1, 200), st.integers(0, 60), st.integers(2, 15))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_lie_apart(store: AlignmentStore, first: int, size: int, window: int) -> None:
    region = f"chr1:{first}-{min(first + size, 200)}"
    try:
        found = divide(store, window, validation_regions=(region,), test_regions=("chr1:50-90", "chr2:1-5"))
    except UserError as error:
        assert "nothing is left for validation" in str(error)
        return
    sets = [positions(part) for part in (found.train, found.validation, found.test)]
    assert sets[2] == {(0, place) for place in range(49, 90)} | {(1, place) for place in range(5)}
    for number, one in enumerate(sets):
        for other in sets[number + 1 :]:
            for contig in (0, 1):
                mine, its = (np.array([place for c, place in part if c == contig]) for part in (one, other))
                if len(mine) and len(its):
                    assert np.abs(mine[:, None] - its[None]).min() > window
    assert sets[0] | sets[1] | sets[2] >= {(1, place) for place in range(5 + window, 60)}


def test_filters(store: AlignmentStore, tmp_path: Path) -> None:
    (tmp_path / "out.bed").write_text("chr1 100 110\n")
    found = divide(
        store, 5, test_regions=("chr2",), include=("chr1:51-150", "chr2:1-10"), exclude=(str(tmp_path / "out.bed"),)
    )
    assert found.train.rows() == [(0, 50, 100), (0, 110, 150)]
    assert found.test.rows() == [(1, 0, 10)]
    assert not len(found.validation)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"test_regions": ("chr1", "chr2")}, "nothing is left for train"),
        ({"test_regions": ("chr1",), "validation_regions": ("chr1:5-10",)}, "nothing is left for validation"),
        ({"test_regions": ("chr1",), "include": ("chr2",)}, "nothing is left for test"),
        ({"test_regions": ("chr3",)}, "unknown contig 'chr3'"),
    ],
)
def test_wrong_parts(store: AlignmentStore, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        divide(store, 10, **options)


@given(
    length=st.integers(1, 60),
    stride=st.integers(1, 30),
    most=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    step=st.integers(1, 100),
    listed=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(30, 60)), min_size=1, max_size=4),
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_windows_of_a_part(
    store: AlignmentStore, length: int, stride: int, most: float, step: int, listed: list[tuple[int, int, int]]
) -> None:
    part = Intervals.of(listed)
    expected = []
    for contig, start, end in part.rows():
        for first in range(start, end - length + 1, stride):
            offset = int(store.layout.offsets[contig]) + first
            if (store.reference[offset : offset + length] == 5).mean() <= most:
                expected.append((contig, first))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_STEP", step)
        patch.setattr(intervals, "_MOST_UNKNOWN", most)
        if not expected:
            with pytest.raises(UserError, match="no window of"):
                window_starts(store, part, length, stride)
            return
        starts, _ = window_starts(store, part, length, stride)
    assert list(zip((starts >> SHIFT).tolist(), (starts & POSITION).tolist(), strict=True)) == expected


def test_windows_that_fit_nowhere(store: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Intervals.everywhere(store.layout)
    with pytest.raises(UserError, match="no window of 201 fits the part: its intervals are shorter"):
        window_starts(store, whole, 201, 1)
    with pytest.raises(UserError, match="all have too many unknown bases"):
        window_starts(store, Intervals.of([(0, 40, 60)]), 10, 1)
    monkeypatch.setattr(intervals, "_MOST_UNKNOWN", 0.3)
    assert window_starts(store, whole, 100, 50)[1] == 1


def test_starts_that_the_memory_does_not_hold(store: AlignmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Intervals.everywhere(store.layout)
    monkeypatch.setattr(intervals, "_MOST_UNKNOWN", 1.0)
    count = len(window_starts(store, whole, 10, 1)[0])
    monkeypatch.setattr("r2mae.cores.available_memory", lambda: 24 * count - 1)
    with pytest.raises(UserError, match=rf"^{count:,} windows take .* GB are free: give a larger --stride$"):
        window_starts(store, whole, 10, 1)
    assert len(window_starts(store, whole, 10, 2)[0]) < count
