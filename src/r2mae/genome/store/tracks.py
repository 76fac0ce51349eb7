"""Values for every position of a store, such as conservation, from bedGraph or bigWig."""

from collections.abc import Iterator, Mapping, Sequence
from math import isinf
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.errors import UserError, reading
from r2mae.fields import decimal
from r2mae.files import atomic_path, exclusive, ordinary, write_json
from r2mae.genome.store.alignment import TRACKS, AlignmentStore, Layout, digest_of
from r2mae.genome.store.contigs import RENAME, Contigs, read_renamed
from r2mae.genome.store.intervals import interval_lines
from r2mae.genome.store.sources import allocate, name_of, shown

_BIGWIG = (b"\x26\xfc\x8f\x88", b"\x88\x8f\xfc\x26")
_STEP = 1 << 20  # positions of a bigWig that are read at a time
_LARGEST = float(np.finfo(np.float16).max)
Piece = tuple[str, int, int, int, Any]
"""Where values come from (for errors), contig, start, end, and the values."""


def add_track(store: AlignmentStore, source: str | Path, name: str, *, rename: Sequence[str] = ()) -> None:
    """Read a bedGraph (plain, gzip or bgzip) or bigWig into a store, as float16: three digits of up to 65,504.

    Intervals must not overlap; those of contigs that the store lacks are omitted. `rename` has
    names of contigs, OLD=NEW, and files of two columns. A name has letters, digits, ``_`` and
    ``-``; an existing track of the name is replaced.
    """
    if not name or not all(letter.isalnum() or letter in "_-" for letter in name):
        raise UserError(f"a track's name has letters, digits, _ and - alone, not {name!r}")
    path = Path(source).expanduser()
    if not ordinary(path).is_file():
        raise UserError(f"{path}: there is no such file")
    with path.open("rb") as file:
        is_bigwig = file.read(4) in _BIGWIG
    read, renamed = _bigwig if is_bigwig else _bedgraph, read_renamed(rename)
    found = read(path, store.layout, renamed)
    target = store.folder / TRACKS / f"{name}.npy"
    with exclusive(target):
        with atomic_path(target) as place:
            _write(place, store.layout, found)
            digest = digest_of(place)
            target.with_suffix(".json").unlink(missing_ok=True)
        write_json(target.with_suffix(".json"), {"digest": digest, "source": path.name})
    store.mapped.cache_clear()


def _write(place: Path, layout: Layout, pieces: Iterator[Piece]) -> None:
    values = allocate(place, np.float16, layout.positions)
    values[:] = np.nan
    for where, contig, start, end, found in pieces:
        part = values[layout.offsets[contig] + start : layout.offsets[contig] + end]
        if not np.isnan(part).all():
            position = start + int(np.flatnonzero(~np.isnan(part))[0])
            raise UserError(
                f"{where}: overlaps an earlier interval at {layout.contigs[contig]}:{position + 1:,}: a position has "
                "one value"
            )
        if (most := float(np.fmax.reduce(np.abs(found).ravel(), initial=0.0))) > _LARGEST:
            raise UserError(f"{where}: {most:g} is larger than {_LARGEST:,.0f}: scale the values")
        part[:] = found


def _bedgraph(path: Path, layout: Layout, renamed: Mapping[str, str]) -> Iterator[Piece]:
    for where, contig, start, end, text in interval_lines(path, layout, renamed, value=True):
        value = decimal(name_of(text))
        if value is None or isinf(value):
            raise UserError(f"{where}: the value must be a number, not {shown(text)}")
        yield where, contig, start, end, value


def _bigwig(path: Path, layout: Layout, renamed: Mapping[str, str]) -> Iterator[Piece]:
    """Read the contigs of the layout from a bigWig."""
    with reading(path, "fetch it again, or convert it with bigWigToBedGraph"):
        import pyBigWig  # type: ignore[import-not-found, unused-ignore]

        opened = pyBigWig.open(str(path))
        lengths = dict(opened.chroms())
        contigs = Contigs(layout, renamed)
        unfit = {name for name, length in lengths.items() if not contigs.fits(name, length=length)}
        numbers = {name: contigs.number(name) for name in lengths}  # of an inferred one that does not fit it is -1
        contigs.report(path, hint=RENAME)
        for name, number in sorted(numbers.items(), key=itemgetter(1)):
            if number < 0:
                continue
            length = layout.lengths[number]
            if name in unfit:
                raise UserError(
                    f"{path}: {name} has {lengths[name]:,} positions, and {length:,} in the store: is it the same "
                    "assembly?"
                )
            for first in range(0, length, _STEP):
                last = min(first + _STEP, length)
                yield f"{path}: {name}", number, first, last, np.asarray(opened.values(name, first, last, numpy=True))
