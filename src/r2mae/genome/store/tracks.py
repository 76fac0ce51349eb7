"""Values for every position of a store, such as conservation, from bedGraph or bigWig."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError, unknown
from r2mae.files import atomic_path, read_json, write_json
from r2mae.genome.store.intervals import interval_lines, nothing_of
from r2mae.genome.store.meta import TRACKS, Layout, allocate, damaged, digest_of, open_array

_BIGWIG = (b"\x26\xfc\x8f\x88", b"\x88\x8f\xfc\x26")
_STEP = 1 << 20  # positions of a bigWig that are read at a time
Dtype = Literal["float16", "float32"]


def track_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the tracks of a store."""
    return tuple(sorted(path.stem for path in (folder / TRACKS).glob("*.json")))


def check_track(folder: Path, name: str) -> None:
    """Refuse a track that a store does not have.

    Raises
    ------
    UserError
    """
    names = track_names(folder)
    if not names:
        raise UserError(f"{folder} has no tracks: add one with r2mae data alignment track")
    if name not in names:
        raise unknown("track", name, names)


def track_digest(folder: Path, name: str) -> str | None:
    """Return the checksum of a track, or None if the store does not have it, or its description is damaged."""
    found = read_json((folder / _file(name)).with_suffix(".json"))
    return str(found["digest"]) if isinstance(found, dict) and "digest" in found else None


def read_track(folder: Path, name: str, layout: Layout, *, verify: bool) -> Float[np.ndarray, " positions"]:
    """Map the values of a track for each position of all contigs, one after the other; NaN where there is none.

    Parameters
    ----------
    folder : Path
        The store.
    name : str
    layout : Layout
        Of the store.
    verify : bool
        Compare the file with its checksum.

    Raises
    ------
    UserError
        If there is none of this name, or it is damaged.
    """
    check_track(folder, name)
    values = read_json((folder / _file(name)).with_suffix(".json"))
    if not isinstance(values, dict) or values.get("dtype") not in ("float16", "float32"):
        raise damaged(folder, f"the description of track {name!r} cannot be read")
    found: Float[np.ndarray, " positions"]
    found = open_array(folder, _file(name), np.dtype(values["dtype"]), layout.positions)
    if verify and digest_of(folder / _file(name)) != values.get("digest"):
        raise damaged(folder, f"track {name!r} has changed")
    return found


def add_track(
    folder: Path,
    layout: Layout,
    source: str | Path,
    name: str,
    *,
    dtype: Dtype = "float16",
    progress: Callable[[float], None] | None = None,
) -> None:
    """Read a bedGraph (plain, gzip or bgzip) or bigWig into a store.

    Parameters
    ----------
    folder : Path
        The store.
    layout : Layout
        Of the store.
    source : path
        Its intervals must not overlap; those of contigs that the store lacks are omitted.
    name : str
        Letters, digits, ``_`` and ``-``; an existing track of the name is replaced.
    dtype : {"float16", "float32"}
    progress : callable, optional
        Called with the fraction of a bigWig's contigs that is done.

    Raises
    ------
    UserError
        Wrong lines (with file and line), no contig that the store has, values that the type cannot hold, or a bigWig
        without a library that reads it.
    """
    if dtype not in ("float16", "float32"):
        raise unknown("dtype", dtype, ("float16", "float32"))
    if not name or not all(letter.isalnum() or letter in "_-" for letter in name):
        raise UserError(f"a track's name has letters, digits, _ and - alone, not {name!r}")
    path = Path(source).expanduser()
    if path.is_dir() or not path.exists():
        raise UserError(f"{path}: there is no such file")
    with path.open("rb") as file:
        is_bigwig = file.read(4) in _BIGWIG
    found = _bigwig(path, layout, progress) if is_bigwig else _bedgraph(path, layout)
    target = folder / _file(name)
    with atomic_path(target) as place:
        _write(place, path, layout, np.dtype(dtype), found)
        digest = digest_of(place)
        target.with_suffix(".json").unlink(missing_ok=True)
    write_json(target.with_suffix(".json"), {"dtype": dtype, "digest": digest, "source": path.name})


Piece = tuple[str, int, int, Any]
"""Where values come from (for errors), their first and last position in the track (exclusive), and the values."""


def _write(place: Path, path: Path, layout: Layout, dtype: np.dtype[Any], pieces: Iterator[Piece]) -> None:
    values = allocate(place, dtype, layout.positions)
    values[:] = np.nan
    largest = float(np.finfo(dtype).max)
    count = 0
    for where, first, last, found in pieces:
        if not np.isnan(values[first:last]).all():
            taken = first + int(np.flatnonzero(~np.isnan(values[first:last]))[0])
            contig = int(np.searchsorted(layout.offsets, taken, side="right")) - 1
            position = f"{layout.contigs[contig]}:{taken - int(layout.offsets[contig]) + 1:,}"
            raise UserError(f"{where}: overlaps an earlier interval at {position}: a position has one value")
        size = np.abs(np.asarray(found, np.float64))
        if (most := float(np.max(size, where=~np.isnan(size), initial=0))) > largest:
            raise UserError(f"{where}: {most:g} is too large for {dtype}: give --dtype float32")
        values[first:last] = found
        count += last - first
    if not count:
        raise UserError(f"{path}: holds no values for the store's contigs")


def _bedgraph(path: Path, layout: Layout) -> Iterator[Piece]:
    for where, contig, start, end, text in interval_lines(path, layout, value=True):
        try:
            value = float(text)
        except ValueError:
            value = math.inf
        if math.isinf(value):
            raise UserError(f"{where}: the value must be a number, not {text[:20].decode('ascii', 'replace')!r}")
        offset = int(layout.offsets[contig])
        yield where, offset + start, offset + end, value


def _bigwig(path: Path, layout: Layout, progress: Callable[[float], None] | None) -> Iterator[Piece]:
    """Read the contigs of the layout from a bigWig."""
    try:
        import pyBigWig  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise UserError(f"{path}: a bigWig needs pyBigWig (pip install pyBigWig), or bigWigToBedGraph") from None
    try:
        opened = pyBigWig.open(str(path))
        lengths = dict(opened.chroms())
    except RuntimeError as error:
        raise _broken(path, error) from None
    shared = [name for name in layout.contigs if name in lengths]
    if not shared:
        raise UserError(f"{path}: {nothing_of(lengths, layout)}")
    for done, name in enumerate(shared, 1):
        number = layout.number(name)
        if lengths[name] != layout.lengths[number]:
            raise UserError(
                f"{path}: {name} has {lengths[name]:,} positions, and {layout.lengths[number]:,} in the store: is it "
                "the same assembly?"
            )
        offset = int(layout.offsets[number])
        for first in range(0, layout.lengths[number], _STEP):
            last = min(first + _STEP, layout.lengths[number])
            try:
                found = np.asarray(opened.values(name, first, last, numpy=True))
            except RuntimeError as error:
                raise _broken(path, error) from None
            yield f"{path}: {name}", offset + first, offset + last, found
        if progress is not None:
            progress(done / len(shared))


def _broken(path: Path, error: RuntimeError) -> UserError:
    reason = " ".join(str(error).split())[:120]
    return UserError(f"{path}: pyBigWig cannot read this bigWig ({reason}): fetch it again")


def _file(name: str) -> str:
    return f"{TRACKS}/{name}.npy"
