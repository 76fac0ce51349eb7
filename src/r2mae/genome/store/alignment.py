"""An alignment on disk, of which windows are read, however large it is."""

import hashlib
import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8

from r2mae.errors import UserError, reading, unknown
from r2mae.files import read_json
from r2mae.genome.store.tokens import SOFT, TOKEN, UNKNOWN

META, REFERENCE, TRACKS = "meta.json", "reference.npy", "tracks"
FORMAT = 2
MOST_MAPPED = 20_000
"""Files that are mapped at a time; systems limit the maps of a process."""

_SMALL = 1 << 30  # bytes of a file that is compared with its checksum before it is read

Numbers = Int64[np.ndarray, " batch"]


def contig_file(number: int) -> str:
    """Return the name of a contig's file in the store."""
    return f"contigs/{number}.npy"


@dataclass(frozen=True)
class Layout:
    """Species (the reference first) and contigs of an alignment; of a store, also the other contents of its meta.json.

    `files` are bytes and blake2b of the file of each contig, and of the reference's; `made_from` are files and options
    of the build, by which the same build is recognised. `counts` are numbers of what was omitted.
    """

    species: tuple[str, ...]
    contigs: tuple[str, ...]
    lengths: tuple[int, ...]
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    made_from: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def offsets(self) -> Int64[np.ndarray, " bounds"]:
        """The position at which each contig begins if all are concatenated, and their total length."""
        return np.cumsum([0, *self.lengths], dtype=np.int64)

    @property
    def positions(self) -> int:
        """Positions of all contigs."""
        return sum(self.lengths)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each contig."""
        return {name: number for number, name in enumerate(self.contigs)}

    def number(self, contig: str) -> int:
        """Return a contig's number, or raise a UserError if there is none of this name."""
        if contig not in self.numbers:
            raise unknown("contig", contig, self.contigs)
        return self.numbers[contig]


def read_layout(folder: Path) -> Layout:
    """Read and check meta.json; raise a UserError for no store, one of another version, or a damaged one."""
    if folder.is_file():
        raise UserError(
            f"{folder} is a file, and runs read an alignment store: build one first with "
            f"r2mae data alignment build {folder} -o {folder.name.split('.')[0] or 'store'}"
        )
    path = folder / META
    values = read_json(path)
    if not isinstance(values, dict) or "species" not in values:
        raise UserError(
            f"{folder} is no alignment store (it has no {META} of one): make one with r2mae data alignment build"
        )
    if values.pop("format", None) != FORMAT:
        raise UserError(
            f"{path}: the store is not of version {FORMAT}, which this r2mae reads: delete the folder, and build it "
            "again with r2mae data alignment build"
        )
    try:
        files = {name: (int(size), str(digest)) for name, (size, digest) in values["files"].items()}
        names, lengths = (tuple(values[name]) for name in ("contigs", "lengths"))
        found = Layout(tuple(values["species"]), names, lengths, files, values["made_from"], values["counts"])
        is_right = (
            len(found.contigs) == len(found.lengths) == len(set(found.contigs)) > 0
            and len(set(found.species)) == len(found.species) > 0
            and all(isinstance(name, str) for name in (*found.species, *found.contigs))
            and all(isinstance(count, int) for count in found.counts.values())
            and all(isinstance(length, int) and 0 < length < 1 << 40 for length in found.lengths)
            and {*found.files} == {REFERENCE, *map(contig_file, range(len(found.contigs)))}
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        is_right = False
    if not is_right:
        raise damaged(folder, f"{META} has wrong entries")
    return found


class AlignmentStore:
    """A tokenised alignment on disk: for each contig a .npy file of positions × species, a byte each.

    Files are memory-mapped: memory holds the windows that are read. A store can be pickled, as a path.

    Sizes of files are compared with meta.json when the store is opened, and files of up to 1 GiB with their checksums
    when they are first read; :meth:`verify` compares all. Windows are checked for values outside the alphabet.

    `species`, `contigs` and `lengths` are those of the `layout`; `fingerprint` is the hash of all contents except
    tracks. No store, one of another version, or a damaged one raises a UserError.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.layout = read_layout(self.folder)
        self.species, self.contigs = self.layout.species, self.layout.contigs
        self.lengths: Int64[np.ndarray, " contigs"] = np.array(self.layout.lengths, np.int64)
        values = [self.species, self.contigs, self.layout.lengths, sorted(self.layout.files.items())]
        self.fingerprint = hashlib.blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()
        for name, (size, _) in self.layout.files.items():
            file = self.folder / name
            if not file.is_file() or file.stat().st_size != size:
                raise damaged(self.folder, f"{name} is missing, or has not {size:,} bytes")
        self.mapped = lru_cache(MOST_MAPPED)(self._map)

    def __repr__(self) -> str:
        return (
            f"AlignmentStore({str(self.folder)!r}: {self.layout.positions:,} positions x {len(self.species)} species, "
            f"{len(self.contigs):,} contigs)"
        )

    def __reduce__(self) -> tuple[type["AlignmentStore"], tuple[Path]]:
        return AlignmentStore, (self.folder,)

    def tokens(self, contig: int) -> UInt8[np.ndarray, "positions species"]:
        """Return the mapped tokens of a contig, by its number; the reference's column has the soft-mask bit."""
        if not 0 <= contig < len(self.contigs):
            raise IndexError(f"{self.folder} has the contigs 0 to {len(self.contigs) - 1}, not {contig}")
        return self.mapped(contig_file(contig), (self.layout.lengths[contig], len(self.species)))

    @property
    def reference(self) -> UInt8[np.ndarray, " positions"]:
        """The reference's column of all contigs, one after the other, with the soft-mask bit; mapped."""
        return self.mapped(REFERENCE, (self.layout.positions,))

    def columns(self, names: Sequence[str]) -> list[int] | slice:
        """Return the index of the aligned species with these names: a slice, of no copy, if these are all in order."""
        known = self.species[1:]
        if tuple(names) == known:
            return slice(None)
        missing = [name for name in names if name not in known]
        if missing:
            listed = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
            raise UserError(
                f"{self.folder} lacks {len(missing)} of the {len(names)} aligned species of the model ({listed}): "
                "build a store with them (r2mae data alignment build --species)"
            )
        return [known.index(name) for name in names]

    def windows(self, contigs: Numbers, starts: Numbers, length: int) -> UInt8[np.ndarray, "batch length species"]:
        """Return windows of the alignment, in new memory: A C G T - unknown as 0 to 5; the reference is species 0.

        Contigs are numbers, and starts count from 0. A window may reach over an end of its contig; there it is unknown.
        """
        return self.soft_windows(contigs, starts, length)[0]

    def soft_windows(
        self, contigs: Numbers, starts: Numbers, length: int
    ) -> tuple[UInt8[np.ndarray, "batch length species"], Bool[np.ndarray, "batch length"]]:
        """Return windows, as :meth:`windows`, and the soft mask of the reference (false outside of the contig)."""
        if length < 1:
            raise ValueError(f"a window has 1 position or more, not {length}")
        found = np.full((len(starts), length, len(self.species)), UNKNOWN, np.uint8)
        tokens_of = {contig: self.tokens(contig) for contig in set(contigs.tolist())}
        for window, contig, start in zip(found, contigs.tolist(), starts.tolist(), strict=True):
            tokens = tokens_of[contig]
            first, last = max(start, 0), min(start + length, len(tokens))
            if first < last:
                window[first - start : last - start] = tokens[first:last]
        soft = found[:, :, 0] >= SOFT
        found[:, :, 0] &= TOKEN
        self._check_alphabet(found)
        return found, soft

    def reference_windows(self, contigs: Numbers, starts: Numbers, length: int) -> UInt8[np.ndarray, "batch length"]:
        """Return windows of the reference alone, without the soft-mask bit, padded likewise."""
        places = self._places(contigs, starts, length)
        found = np.where(places < 0, np.uint8(UNKNOWN), self.reference[np.maximum(places, 0)] & TOKEN)
        self._check_alphabet(found)
        return found

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of the tracks: values for each position, such as conservation."""
        return tuple(sorted(path.stem for path in (self.folder / TRACKS).glob("*.json")))

    def track_digest(self, name: str) -> str | None:
        """Return the checksum of a track, or None if the store does not have it, or its description is damaged."""
        found = read_json(self.folder / TRACKS / f"{name}.json")
        return str(found["digest"]) if isinstance(found, dict) and "digest" in found else None

    def track(self, name: str) -> Float[np.ndarray, " positions"]:
        """Map the values of a track for each position of all contigs, one after the other; NaN where there is none."""
        if not (self.folder / TRACKS / f"{name}.json").is_file():
            none = UserError(f"{self.folder} has no tracks: add one with r2mae data alignment track")
            raise unknown("track", name, self.tracks) if self.tracks else none
        return self.mapped(f"{TRACKS}/{name}.npy", (self.layout.positions,), "float16")

    def track_windows(
        self, name: str, contigs: Numbers, starts: Numbers, length: int
    ) -> Float[np.ndarray, "batch length"]:
        """Return windows of a track as float32, 0 where it has no value and outside of the contig."""
        places = self._places(contigs, starts, length)
        values = self.track(name)[np.maximum(places, 0)].astype(np.float32)
        return np.where((places < 0) | np.isnan(values), np.float32(0), values)

    def verify(self) -> None:
        """Raise a UserError for the first file that differs from its checksum."""
        for name in (*self.layout.files, *(f"{TRACKS}/{name}.npy" for name in self.tracks)):
            self._verify(name)

    def _map(self, name: str, shape: tuple[int, ...], dtype: str = "uint8") -> np.ndarray:
        """Map a file for reading at random places."""
        with reading(self.folder / name, "delete the store and make it again"):
            found = np.lib.format.open_memmap(self.folder / name, mode="r")
        if found.dtype != dtype or found.shape != shape or not found.flags.c_contiguous:
            raise damaged(self.folder, f"{name} is {found.dtype} of shape {found.shape}, not {dtype} of {shape}")
        if hasattr(mmap, "MADV_RANDOM"):
            found._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
        if found.nbytes <= _SMALL:
            self._verify(name)
        return np.asarray(found)

    def _verify(self, name: str) -> None:
        expected = self.layout.files[name][1] if name in self.layout.files else self.track_digest(Path(name).stem)
        if not (self.folder / name).is_file() or digest_of(self.folder / name) != expected:
            raise damaged(self.folder, f"{name} has changed")

    def _check_alphabet(self, tokens: UInt8[np.ndarray, "..."]) -> None:
        if tokens.max(initial=0) > UNKNOWN:
            raise damaged(self.folder, "it holds values that are no letters")

    def _places(self, contigs: Numbers, starts: Numbers, length: int) -> Int64[np.ndarray, "batch length"]:
        """Return the positions of windows in arrays of all contigs, -1 outside of the contig."""
        inside = starts[:, None] + np.arange(length)
        is_inside = (inside >= 0) & (inside < self.lengths[contigs][:, None])
        return np.where(is_inside, self.layout.offsets[contigs][:, None] + inside, -1)


def digest_of(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def damaged(folder: Path, reason: str) -> UserError:
    """Return the error for a store that has changed since it was made."""
    return UserError(f"the alignment store {folder} is damaged ({reason}): delete the folder and make it again")
