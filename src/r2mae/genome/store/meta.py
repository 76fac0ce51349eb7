"""The contents of a store: species, contigs, files and their checksums."""

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from r2mae.errors import UserError, unknown
from r2mae.files import write_json

META, REFERENCE, TRACKS = "meta.json", "reference.npy", "tracks"
FORMAT = 2


def contig_file(number: int) -> str:
    """Return the name of a contig's file in the store."""
    return f"contigs/{number}.npy"


@dataclass(frozen=True)
class Layout:
    """Species and contigs of an alignment; of a store, also the other contents of its meta.json.

    Parameters
    ----------
    species : tuple of str
        The reference first.
    contigs : tuple of str
        Contigs of the reference, by number.
    lengths : tuple of int
        Positions of each contig.
    files : dict of str to (int, str)
        Bytes and blake2b of the file of each contig, and of the reference's.
    made_from : dict
        Files and options of the build, and their fingerprint, by which the same build is recognised.
    counts : dict of str to int
        Counts of the build.
    known, same : tuple of int
        For each species, the positions with a base, and with the reference's base.
    """

    species: tuple[str, ...]
    contigs: tuple[str, ...]
    lengths: tuple[int, ...]
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    made_from: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    known: tuple[int, ...] = ()
    same: tuple[int, ...] = ()

    @cached_property
    def offsets(self) -> Int64[np.ndarray, " bounds"]:
        """The position at which each contig begins if all are concatenated, and their total length."""
        found: Int64[np.ndarray, " bounds"] = np.zeros(len(self.lengths) + 1, np.int64)
        np.cumsum(self.lengths, out=found[1:])
        return found

    @property
    def positions(self) -> int:
        """Positions of all contigs."""
        return int(self.offsets[-1])

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each contig."""
        return {name: number for number, name in enumerate(self.contigs)}

    def number(self, contig: str) -> int:
        """Return a contig's number.

        Raises
        ------
        UserError
            If there is none of this name.
        """
        if contig not in self.numbers:
            raise unknown("contig", contig, self.contigs)
        return self.numbers[contig]

    @property
    def content(self) -> str:
        """The hash of species, contigs and tokens, which differs for another alignment."""
        values = [self.species, self.contigs, self.lengths, sorted(self.files.items())]
        return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()

    def write(self, folder: Path) -> None:
        """Write meta.json."""
        write_json(folder / META, {"format": FORMAT, **asdict(self)})


def read_meta(folder: Path) -> Layout:
    """Read and check meta.json.

    Raises
    ------
    UserError
        No store, one of another version, or a damaged one.
    """
    path = folder / META
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{folder} is no alignment store ({META} is missing): make one with r2mae data alignment build"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise damaged(folder, f"{META} cannot be read") from None
    if not isinstance(values, dict) or "species" not in values:
        raise UserError(f"{path}: is not that of an alignment store: make one with r2mae data alignment build")
    if values.pop("format", None) != FORMAT:
        raise UserError(
            f"{path}: the store is not of version {FORMAT}, which this r2mae reads: delete the folder, and build it "
            "again with r2mae data alignment build"
        )
    try:
        values["files"] = {name: (int(size), str(digest)) for name, (size, digest) in values["files"].items()}
        entries: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
        found = Layout(**entries)
        right = (
            len(found.contigs) == len(found.lengths) == len(set(found.contigs)) > 0
            and len(set(found.species)) == len(found.species) == len(found.known) == len(found.same) > 0
            and all(isinstance(name, str) for name in (*found.species, *found.contigs))
            and all(isinstance(count, int) for count in (*found.known, *found.same, *found.counts.values()))
            and all(isinstance(length, int) and 0 < length < 1 << 40 for length in found.lengths)
            and {*found.files} == {REFERENCE, *map(contig_file, range(len(found.contigs)))}
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        right = False
    if not right:
        raise damaged(folder, f"{META} has wrong entries")
    return found


def allocate(path: Path, dtype: Any, *shape: int) -> np.ndarray:
    """Make a .npy file with room on the disk, so that a full disk is an error and no crash."""
    found = np.asarray(np.lib.format.open_memmap(path, "w+", dtype, shape))
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return found


def open_array(folder: Path, name: str, dtype: Any, *shape: int) -> np.ndarray:
    """Map a .npy file of a store for reading at random places.

    Raises
    ------
    UserError
        If it is no such file, or has another type or shape.
    """
    try:
        found = np.lib.format.open_memmap(folder / name, mode="r")
    except (OSError, ValueError) as error:
        raise damaged(folder, f"{name} cannot be read: {' '.join(str(error).split())[:80]}") from None
    if found.dtype != dtype or found.shape != shape or not found.flags.c_contiguous:
        raise damaged(folder, f"{name} is {found.dtype} of shape {found.shape}, not {np.dtype(dtype)} of {shape}")
    if hasattr(mmap, "MADV_RANDOM"):
        found._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    return np.asarray(found)


def digest_of(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def damaged(folder: Path, reason: str) -> UserError:
    """Return the error for a store that has changed since it was made."""
    return UserError(f"the alignment store {folder} is damaged ({reason}): delete the folder and make it again")
