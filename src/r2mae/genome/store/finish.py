"""The last pass over a new store: positions without a block, the reference beside the alignment, and checksums."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8

from r2mae.genome.store.fill_maf import OWNER
from r2mae.genome.store.given import GIVEN
from r2mae.genome.store.meta import ALIGNMENT, CHECKSUMS, CHUNK, DIGEST, REFERENCE, Layout, digest_of
from r2mae.genome.store.tokens import GAP, SOFT, UNKNOWN
from r2mae.genome.store.unfinished import Progress, Unfinished, in_order
from r2mae.genome.store.writing import allocate, read_at, write_at

_STAGE = "checking"
_TOKEN = np.uint8(SOFT - 1)


class Finished(NamedTuple):
    """What was counted: positions by kind; and for each species the bases known, and those that are the reference's."""

    counts: dict[str, int]
    known: tuple[int, ...]
    same: tuple[int, ...]


class _Chunk(NamedTuple):
    """What one chunk adds."""

    counts: Int64[np.ndarray, " kinds"]
    known: Int64[np.ndarray, " species"]
    same: Int64[np.ndarray, " species"]


_KINDS = ("positions", "uncovered_positions", "unknown_reference_positions", "soft_masked_positions")


class Finisher:
    """Completes the tokens that a filler wrote.

    Parameters
    ----------
    layout : Layout
    work : Unfinished
    owned : bool
        Whether only the positions with an owner were written: the others are unknown for every species.
    given : bool
        Whether there is the reference's own FASTA: it gives the base where the alignment has none, and adds its
        lower case to the soft mask.
    """

    def __init__(self, layout: Layout, work: Unfinished, *, owned: bool, given: bool) -> None:
        self.layout, self.work, self.owned, self.given = layout, work, owned, given

    def run(self, jobs: int, progress: Progress) -> Finished:
        """Complete all chunks, and write the reference and the checksums."""
        total = -(-self.layout.positions // CHUNK)
        state = self.work.state(_STAGE)
        width = len(self.layout.species)
        names = (ALIGNMENT, REFERENCE, CHECKSUMS)
        allocate(self.work.path(REFERENCE), self.layout.positions)
        allocate(self.work.path(CHECKSUMS), 2 * DIGEST * total)
        paths = [self.work.path(name) for name in names]
        sums = _Chunk(*(np.array(state.get(key, [0] * size), np.int64) for key, size in _sizes(width)))
        done = state["done"]

        def commit() -> None:
            values = {key: getattr(sums, key).tolist() for key in _Chunk._fields}
            self.work.commit(_STAGE, done, *paths, **values)

        with _opened(paths) as handles, ThreadPoolExecutor(jobs) as pool:

            def complete(chunk: int) -> _Chunk:
                return self._complete(chunk, *handles)

            for _, added in in_order(complete, range(done, total), pool if jobs > 1 else None, 2 * jobs):
                sums = _Chunk(*(mine + its for mine, its in zip(sums, added, strict=True)))
                done += 1
                if self.work.due():
                    commit()
                progress(_STAGE, done / total)
            commit()
        counts = dict(zip(_KINDS, sums.counts.tolist(), strict=True))
        return Finished(counts, tuple(sums.known.tolist()), tuple(sums.same.tolist()))

    def _complete(self, chunk: int, alignment: int, reference: int, checksums: int) -> _Chunk:
        """Complete a chunk. It can be done twice: the second time changes nothing."""
        width = len(self.layout.species)
        first = chunk * CHUNK
        size = min(CHUNK, self.layout.positions - first)
        tokens: UInt8[np.ndarray, "positions species"] = np.empty((size, width), np.uint8)
        read_at(alignment, tokens, first * width)
        uncovered = 0
        if self.owned:
            owner = np.fromfile(self.work.path(OWNER), np.uint16, size, offset=2 * first)
            free = owner == 0
            uncovered = int(np.count_nonzero(free))
            tokens[free] = UNKNOWN
        own = tokens[:, 0]
        if self.given:
            given = np.fromfile(self.work.path(GIVEN), np.uint8, size, offset=first)
            np.copyto(own, given, where=own & _TOKEN == UNKNOWN)
            own |= given & np.uint8(SOFT)
        if self.given or uncovered:
            write_at(alignment, tokens, first * width)
        own = own.copy()
        write_at(reference, own, first)
        write_at(checksums, digest_of(tokens) + digest_of(own), 2 * DIGEST * chunk)
        bases = own & _TOKEN
        tokens[:, 0] = bases
        known = np.count_nonzero(tokens < GAP, axis=0)
        same = np.count_nonzero((tokens == bases[:, None]) & (bases < GAP)[:, None], axis=0)
        kinds = [size, uncovered, np.count_nonzero(bases == UNKNOWN), np.count_nonzero(own & np.uint8(SOFT))]
        return _Chunk(np.array(kinds, np.int64), np.asarray(known, np.int64), np.asarray(same, np.int64))


def _sizes(width: int) -> Iterator[tuple[str, int]]:
    yield from (("counts", len(_KINDS)), ("known", width), ("same", width))


@contextmanager
def _opened(paths: Sequence[Path]) -> Iterator[list[int]]:
    handles = [os.open(path, os.O_RDWR) for path in paths]
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)
