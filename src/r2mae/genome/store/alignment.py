"""An alignment on disk, of which windows are read, however large it is."""

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8

from r2mae.errors import UserError, unknown
from r2mae.genome.store.meta import (
    ALIGNMENT,
    CHECKSUMS,
    DIGEST,
    REFERENCE,
    TRACKS,
    Layout,
    damaged,
    digest_of,
    read_meta,
)
from r2mae.genome.store.tokens import SOFT, UNKNOWN, reverse_complement
from r2mae.genome.store.tracks import Track, read_track

_TOKEN = np.uint8(SOFT - 1)
_SMALL = 1 << 30  # bytes of an alignment whose chunks are compared with their checksums while they are read


class Windows(NamedTuple):
    """Windows of an alignment.

    Parameters
    ----------
    tokens : uint8 ndarray, shape (batch, length, species)
        A C G T - unknown as 0 to 5; the reference is species 0.
    soft : bool ndarray, shape (batch, length)
        Where the reference is soft-masked.
    """

    tokens: UInt8[np.ndarray, "batch length species"]
    soft: Bool[np.ndarray, "batch length"]


class AlignmentStore:
    """A tokenised alignment on disk: positions of the reference × species, a byte each.

    Memory holds the windows that are read, and nothing else. It can be pickled, as a path.

    Sizes of files are compared when it is opened. Of an alignment of up to 1 GiB each chunk is compared with its
    checksum when it is first read; of a larger one that would read most of the file for a few windows, and
    :meth:`verify` does it. No window ever has a value outside the alphabet.

    Parameters
    ----------
    folder : path
        With meta.json, alignment.bin, reference.bin and checksums.bin.

    Raises
    ------
    UserError
        No store, one of another version, or a damaged one.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.meta = read_meta(self.folder)
        self.layout: Layout = self.meta.layout
        self._lazily = self.layout.positions * len(self.species) <= _SMALL
        self._check_sizes()
        self._open()

    def __repr__(self) -> str:
        return (
            f"AlignmentStore({str(self.folder)!r}: {self.layout.positions:,} positions x {len(self.species)} species, "
            f"{len(self.layout.contigs):,} contigs)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    @property
    def species(self) -> tuple[str, ...]:
        """The species; the first is the reference."""
        return self.layout.species

    @property
    def contigs(self) -> tuple[str, ...]:
        """Names of the reference's contigs, by number."""
        return self.layout.contigs

    @property
    def lengths(self) -> Int64[np.ndarray, " contigs"]:
        """Positions of each contig."""
        found: Int64[np.ndarray, " contigs"] = np.diff(self.layout.offsets)
        return found

    @property
    def fingerprint(self) -> str:
        """The hash of all that the store holds, tracks apart."""
        return self.meta.content

    @property
    def tokens(self) -> UInt8[np.ndarray, "positions species"]:
        """All contigs one after the other, mapped; the reference's column has the soft-mask bit."""
        shape = (self.layout.positions, len(self.species))
        return np.asarray(np.memmap(self.folder / ALIGNMENT, np.uint8, "r", shape=shape))

    @property
    def reference(self) -> UInt8[np.ndarray, " positions"]:
        """The reference's column alone, with the soft-mask bit, mapped from a file of its own."""
        return self._reference

    def number(self, contig: str) -> int:
        """Return a contig's number.

        Raises
        ------
        UserError
            If there is none of this name.
        """
        return self.layout.number(contig)

    def windows(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> UInt8[np.ndarray, "batch length species"]:
        """Return windows of the alignment, in new memory; see :meth:`soft_windows` for the soft mask.

        Parameters
        ----------
        contigs : int64 ndarray
            Numbers of contigs.
        starts : int64 ndarray
            First positions, counted from 0. A window may reach over an end of its contig; there it is unknown.
        length : int
            Positions of each window.
        """
        return self.soft_windows(contigs, starts, length).tokens

    def soft_windows(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> Windows:
        """Return windows, as :meth:`windows`, with the soft mask of the reference (false outside of the contig)."""
        found = self._gather(contigs, starts, length)
        soft = found[:, :, 0] >= SOFT
        found[:, :, 0] &= _TOKEN
        return Windows(self._known(found, ALIGNMENT), soft)

    def window(
        self, contig: str, start: int, length: int, *, strand: Literal["+", "-"] = "+"
    ) -> UInt8[np.ndarray, "length species"]:
        """Return a single window, by the contig's name; on strand "-" as its reverse complement."""
        found = self.windows(np.array([self.number(contig)]), np.array([start]), length)
        if strand not in ("+", "-"):
            raise unknown("strand", strand, ("+", "-"))
        window: UInt8[np.ndarray, "length species"] = (found if strand == "+" else reverse_complement(found))[0]
        return window

    def reference_windows(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> UInt8[np.ndarray, "batch length"]:
        """Return windows of the reference alone, without the soft-mask bit, padded likewise."""
        places = self._places(contigs, starts, length)
        if self._lazily:
            first, sizes = self._bounds(contigs, length)
            self._verify_windows(first + np.maximum(starts, 0), first + np.minimum(starts + length, sizes))
        found = np.where(places < 0, np.uint8(UNKNOWN), self._reference[np.maximum(places, 0)] & _TOKEN)
        return self._known(found, REFERENCE)

    def _known(self, tokens: UInt8[np.ndarray, "..."], file: str) -> UInt8[np.ndarray, "..."]:
        """Return tokens, all of which are of the alphabet."""
        if tokens.max(initial=0) > UNKNOWN:
            raise damaged(self.folder, f"{file} holds values that are no letters")
        return tokens

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of the tracks: values for each position, such as conservation."""
        return tuple(sorted(path.stem for path in (self.folder / TRACKS).glob("*.json")))

    def track(self, name: str) -> Track:
        """Open a track.

        Raises
        ------
        UserError
            If there is none of this name, or it is damaged.
        """
        if name not in self.tracks:
            if not self.tracks:
                raise UserError(f"{self.folder} has no tracks: add one with r2mae data alignment track")
            raise unknown("track", name, self.tracks)
        found = read_track(self.folder, name, self.layout)
        if self._lazily:
            found.verify()
        return found

    def track_windows(
        self,
        name: str,
        contigs: Int64[np.ndarray, " batch"],
        starts: Int64[np.ndarray, " batch"],
        length: int,
        *,
        missing: float = float("nan"),
    ) -> Float[np.ndarray, "batch length"]:
        """Return windows of a track as float32; `missing` stands where it has no value, and outside of the contig."""
        places = self._places(contigs, starts, length)
        if name not in self._tracks:
            self._tracks[name] = self.track(name)
        values = self._tracks[name].values[np.maximum(places, 0)].astype(np.float32)
        return np.where((places < 0) | np.isnan(values), np.float32(missing), values)

    def verify(self, progress: Callable[[float], None] | None = None) -> None:
        """Compare all chunks and tracks with their checksums.

        Parameters
        ----------
        progress : callable, optional
            Hears how much is done, from 0 to 1.

        Raises
        ------
        UserError
            For the first chunk that has changed; names its file and positions.
        """
        total = len(self._checksums)
        for chunk in range(total):
            self._verify(chunk)
            if progress is not None:
                progress((chunk + 1) / total)
        for name in self.tracks:
            self.track(name).verify()

    def _check_sizes(self) -> None:
        meta, positions = self.meta, self.layout.positions
        sizes = {
            ALIGNMENT: positions * len(self.species),
            REFERENCE: positions,
            CHECKSUMS: 2 * DIGEST * -(-positions // meta.chunk),
        }
        for name, size in sizes.items():
            try:
                found = (self.folder / name).stat().st_size
            except OSError as error:
                raise damaged(self.folder, f"{name}: {error.strerror}") from None
            if found != size:
                raise damaged(self.folder, f"{name} has {found:,} bytes, not {size:,}")
        data = (self.folder / CHECKSUMS).read_bytes()
        if digest_of(data).hex() != meta.checksums:
            raise damaged(self.folder, f"{CHECKSUMS} has changed")
        self._checksums = [data[place : place + 2 * DIGEST] for place in range(0, len(data), 2 * DIGEST)]

    def _open(self) -> None:
        # Windows are read and not mapped: a map is no faster where they lie at random, and its pages would fill memory.
        self._handle = os.open(self.folder / ALIGNMENT, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)
        self._reference: UInt8[np.ndarray, " positions"] = np.asarray(np.memmap(self.folder / REFERENCE, np.uint8, "r"))
        self._tracks: dict[str, Track] = {}  # that windows have been read of
        self._verified: Bool[np.ndarray, " chunks"] = np.zeros(len(self._checksums), bool)

    def _gather(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> UInt8[np.ndarray, "batch length species"]:
        """Copy windows from the map, with the soft-mask bit."""
        width = len(self.species)
        first, sizes = self._bounds(contigs, length)
        whole = (starts >= 0) & (starts + length <= sizes)
        if self._lazily:
            self._verify_windows(first + np.maximum(starts, 0), first + np.minimum(starts + length, sizes))
        found: UInt8[np.ndarray, "batch length species"] = np.empty((len(starts), length, width), np.uint8)
        if not whole.all():
            found[~whole] = UNKNOWN
        begin, end = np.maximum(starts, 0), np.minimum(starts + length, sizes)
        inside = end > begin
        rows = np.arange(len(starts)) * length + begin - starts
        self._read(found, *((values[inside] * width).tolist() for values in (rows, first + begin, end - begin)))
        return found

    def _read(
        self, out: UInt8[np.ndarray, "batch length species"], into: list[int], places: list[int], counts: list[int]
    ) -> None:
        """Read bytes from places of the file into places of an array."""
        handle, read = self._handle, os.preadv
        if len(places) > 1 and hasattr(os, "posix_fadvise"):  # those on the disk are then fetched side by side
            advise, soon = os.posix_fadvise, os.POSIX_FADV_WILLNEED
            for place, count in zip(places, counts, strict=True):
                advise(handle, place, count, soon)
        memory = out.data.cast("B") if out.size else memoryview(b"")
        for target, place, count in zip(into, places, counts, strict=True):
            if read(handle, (memory[target : target + count],), place) != count:
                raise damaged(self.folder, f"{ALIGNMENT} became shorter")

    def _bounds(
        self, contigs: Int64[np.ndarray, " batch"], length: int
    ) -> tuple[Int64[np.ndarray, " batch"], Int64[np.ndarray, " batch"]]:
        """Return where contigs begin, and how long they are."""
        if length < 1:
            raise ValueError(f"a window has 1 position or more, not {length}")
        if len(contigs) and not 0 <= contigs.min() <= contigs.max() < len(self.layout.contigs):
            raise IndexError(f"contigs {contigs.min()} to {contigs.max()} of {len(self.layout.contigs)}")
        offsets = self.layout.offsets
        return offsets[contigs], offsets[contigs + 1] - offsets[contigs]

    def _places(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> Int64[np.ndarray, "batch length"]:
        """Return the places of the windows' positions in the files, -1 outside of the contig."""
        first, sizes = self._bounds(contigs, length)
        inside = starts[:, None] + np.arange(length)
        found: Int64[np.ndarray, "batch length"] = np.where(
            (inside >= 0) & (inside < sizes[:, None]), first[:, None] + inside, -1
        )
        return found

    def _verify_windows(self, first: Int64[np.ndarray, " batch"], last: Int64[np.ndarray, " batch"]) -> None:
        chunk = self.meta.chunk
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            for number in range(begin // chunk, -(-end // chunk)):
                if not self._verified[number]:
                    self._verify(number)

    def _verify(self, number: int) -> None:
        chunk, width = self.meta.chunk, len(self.species)
        first, last = number * chunk, min((number + 1) * chunk, self.layout.positions)
        tokens: UInt8[np.ndarray, "one positions species"] = np.empty((1, last - first, width), np.uint8)
        self._read(tokens, [0], [first * width], [(last - first) * width])
        found = digest_of(tokens) + digest_of(self._reference[first:last])
        if found != self._checksums[number]:
            name = ALIGNMENT if found[:DIGEST] != self._checksums[number][:DIGEST] else REFERENCE
            place = f"{self.layout.place(first)} to {self.layout.place(last - 1)}"
            raise damaged(self.folder, f"{name} has changed between {place}")
        self._verified[number] = True
