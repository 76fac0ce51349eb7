"""An alignment on disk, of which windows are read, however large it is."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8

from r2mae.errors import unknown
from r2mae.genome.store.meta import REFERENCE, contig_file, damaged, digest_of, open_array, read_meta
from r2mae.genome.store.tokens import SOFT, TOKEN, UNKNOWN, reverse_complement
from r2mae.genome.store.tracks import read_track, track_names

_SMALL = 1 << 30  # bytes of a file that is compared with its checksum before it is read
MOST_MAPPED = 20_000
"""Files that are mapped at a time; systems limit the maps of a process."""


class AlignmentStore:
    """A tokenised alignment on disk: for each contig a .npy file of positions × species, a byte each.

    Files are memory-mapped: memory holds the windows that are read. A store can be pickled, as a path.

    Sizes of files are compared with meta.json when the store is opened, and files of up to 1 GiB with their checksums
    when they are first read; :meth:`verify` compares all. Windows are checked for values outside the alphabet.

    Parameters
    ----------
    folder : path
        With meta.json, reference.npy and contigs.

    Attributes
    ----------
    layout : Layout
    species, contigs : tuple of str
        Names; the first species is the reference.
    lengths : int64 ndarray
        Positions of each contig.
    fingerprint : str
        The hash of all contents of the store except tracks.

    Raises
    ------
    UserError
        No store, one of another version, or a damaged one.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.layout = read_meta(self.folder)
        self.species, self.contigs = self.layout.species, self.layout.contigs
        self.lengths: Int64[np.ndarray, " contigs"] = np.array(self.layout.lengths, np.int64)
        self.fingerprint = self.layout.content
        for name, (size, _) in self.layout.files.items():
            try:
                found = (self.folder / name).stat().st_size
            except OSError as error:
                raise damaged(self.folder, f"{name}: {error.strerror}") from None
            if found != size:
                raise damaged(self.folder, f"{name} has {found:,} bytes, not {size:,}")
        self._contigs: dict[int, np.ndarray] = {}
        self._tracks: dict[str, np.ndarray] = {}

    def __repr__(self) -> str:
        return (
            f"AlignmentStore({str(self.folder)!r}: {self.layout.positions:,} positions x {len(self.species)} species, "
            f"{len(self.layout.contigs):,} contigs)"
        )

    def __reduce__(self) -> tuple[type["AlignmentStore"], tuple[Path]]:
        return AlignmentStore, (self.folder,)

    def tokens(self, contig: int) -> UInt8[np.ndarray, "positions species"]:
        """Return the mapped tokens of a contig; the reference's column has the soft-mask bit.

        Parameters
        ----------
        contig : int
            Its number.

        Raises
        ------
        UserError
            If its file has changed.
        """
        if contig not in self._contigs:
            if not 0 <= contig < len(self.contigs):
                raise IndexError(f"contig {contig} of {len(self.contigs)}")
            if len(self._contigs) >= MOST_MAPPED:
                self._contigs.clear()
            self._contigs[contig] = self._map(contig_file(contig), self.layout.lengths[contig], len(self.species))
        return self._contigs[contig]

    @cached_property
    def reference(self) -> UInt8[np.ndarray, " positions"]:
        """The reference's column of all contigs, one after the other, with the soft-mask bit; mapped."""
        return self._map(REFERENCE, self.layout.positions)

    def windows(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> UInt8[np.ndarray, "batch length species"]:
        """Return windows of the alignment, in new memory: A C G T - unknown as 0 to 5; the reference is species 0.

        Parameters
        ----------
        contigs : int64 ndarray
            Numbers of contigs.
        starts : int64 ndarray
            First positions, counted from 0. A window may reach over an end of its contig; there it is unknown.
        length : int
            Positions of each window.
        """
        return self.soft_windows(contigs, starts, length)[0]

    def soft_windows(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> tuple[UInt8[np.ndarray, "batch length species"], Bool[np.ndarray, "batch length"]]:
        """Return windows, as :meth:`windows`, and the soft mask of the reference (false outside of the contig)."""
        if length < 1:
            raise ValueError(f"a window has 1 position or more, not {length}")
        found: UInt8[np.ndarray, "batch length species"]
        found = np.empty((len(starts), length, len(self.species)), np.uint8)
        for window, contig, start in zip(found, contigs.tolist(), starts.tolist(), strict=True):
            tokens = self.tokens(contig)
            if 0 <= start <= len(tokens) - length:
                window[:] = tokens[start : start + length]
            else:
                window[:] = UNKNOWN
                first, last = max(start, 0), min(start + length, len(tokens))
                if first < last:
                    window[first - start : last - start] = tokens[first:last]
        soft = found[:, :, 0] >= SOFT
        found[:, :, 0] &= TOKEN
        self._check_alphabet(found)
        return found, soft

    def window(
        self, contig: str, start: int, length: int, *, strand: Literal["+", "-"] = "+"
    ) -> UInt8[np.ndarray, "length species"]:
        """Return a single window, by the contig's name; on strand "-" as its reverse complement."""
        if strand not in ("+", "-"):
            raise unknown("strand", strand, ("+", "-"))
        found = self.windows(np.array([self.layout.number(contig)]), np.array([start]), length)
        window: UInt8[np.ndarray, "length species"] = (found if strand == "+" else reverse_complement(found))[0]
        return window

    def reference_windows(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> UInt8[np.ndarray, "batch length"]:
        """Return windows of the reference alone, without the soft-mask bit, padded likewise."""
        places = self._places(contigs, starts, length)
        found = np.where(places < 0, np.uint8(UNKNOWN), self.reference[np.maximum(places, 0)] & TOKEN)
        self._check_alphabet(found)
        return found

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of the tracks: values for each position, such as conservation."""
        return track_names(self.folder)

    def track(self, name: str) -> Float[np.ndarray, " positions"]:
        """Map the values of a track for each position of all contigs, one after the other; NaN where there is none.

        Raises
        ------
        UserError
            If there is none of this name, or it is damaged.
        """
        if name not in self._tracks:
            is_small = self.layout.positions * 4 <= _SMALL
            self._tracks[name] = read_track(self.folder, name, self.layout, verify=is_small)
        return self._tracks[name]

    def track_windows(
        self,
        name: str,
        contigs: Int64[np.ndarray, " batch"],
        starts: Int64[np.ndarray, " batch"],
        length: int,
        *,
        missing: float = float("nan"),
    ) -> Float[np.ndarray, "batch length"]:
        """Return windows of a track as float32, `missing` where it has no value and outside of the contig."""
        places = self._places(contigs, starts, length)
        values = self.track(name)[np.maximum(places, 0)].astype(np.float32)
        return np.where((places < 0) | np.isnan(values), np.float32(missing), values)

    def verify(self, progress: Callable[[float], None] | None = None) -> None:
        """Compare all files with their checksums; `progress` is called with the fraction that is done.

        Raises
        ------
        UserError
            For the first file that has changed.
        """
        for done, name in enumerate(self.layout.files, 1):
            self._verify(name)
            if progress is not None:
                progress(done / len(self.layout.files))
        for name in self.tracks:
            read_track(self.folder, name, self.layout, verify=True)

    def _map(self, name: str, *shape: int) -> np.ndarray:
        found = open_array(self.folder, name, np.uint8, *shape)
        if self.layout.files[name][0] <= _SMALL:
            self._verify(name)
        return found

    def _verify(self, name: str) -> None:
        if digest_of(self.folder / name) != self.layout.files[name][1]:
            raise damaged(self.folder, f"{name} has changed")

    def _check_alphabet(self, tokens: UInt8[np.ndarray, "..."]) -> None:
        if tokens.max(initial=0) > UNKNOWN:
            raise damaged(self.folder, "it holds values that are no letters")

    def _places(
        self, contigs: Int64[np.ndarray, " batch"], starts: Int64[np.ndarray, " batch"], length: int
    ) -> Int64[np.ndarray, "batch length"]:
        """Return the positions of windows in arrays of all contigs, -1 outside of the contig."""
        inside = starts[:, None] + np.arange(length)
        found: Int64[np.ndarray, "batch length"] = np.where(
            (inside >= 0) & (inside < self.lengths[contigs][:, None]),
            self.layout.offsets[contigs][:, None] + inside,
            -1,
        )
        return found
