"""What a store says of itself: species, contigs, and where its positions lie."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from r2mae.errors import UserError, unknown
from r2mae.files import write_json

ALIGNMENT, REFERENCE, CHECKSUMS, META, TRACKS = "alignment.bin", "reference.bin", "checksums.bin", "meta.json", "tracks"
FORMAT = 1
DIGEST = 16  # bytes of a checksum (blake2b)
CHUNK = 1 << 16
"""Positions with a checksum of their own, and that are made at a time."""


@dataclass(frozen=True)
class Layout:
    """Species and contigs: where everything is.

    Parameters
    ----------
    species : tuple of str
        The reference first.
    contigs : tuple of str
        Of the reference, in the order in which they lie in the files.
    lengths : tuple of int
        Positions of each contig.
    """

    species: tuple[str, ...]
    contigs: tuple[str, ...]
    lengths: tuple[int, ...]

    @cached_property
    def offsets(self) -> Int64[np.ndarray, " bounds"]:
        """Where each contig begins, in positions, and the end of the last."""
        found: Int64[np.ndarray, " bounds"] = np.zeros(len(self.lengths) + 1, np.int64)
        np.cumsum(self.lengths, out=found[1:])
        return found

    @property
    def positions(self) -> int:
        """Positions of all contigs."""
        return int(self.offsets[-1])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.contigs)}

    def number(self, contig: str) -> int:
        """Return a contig's number.

        Raises
        ------
        UserError
            If there is none of this name.
        """
        if contig not in self._numbers:
            raise unknown("contig", contig, self.contigs)
        return self._numbers[contig]

    def find(self, contig: str) -> int | None:
        """Return a contig's number, or None."""
        return self._numbers.get(contig)

    def place(self, position: int) -> str:
        """Say where a position of the files lies, as contig:position, counted from 1."""
        contig = int(np.searchsorted(self.offsets, position, side="right")) - 1
        return f"{self.contigs[contig]}:{position - int(self.offsets[contig]) + 1:,}"


@dataclass(frozen=True)
class Meta:
    """What meta.json holds.

    Parameters
    ----------
    layout : Layout
    chunk : int
        Positions that share a checksum.
    checksums : str
        blake2b of checksums.bin.
    content : str
        blake2b of species, contigs, lengths and checksums: it tells stores apart.
    made_from : dict
        Files and options of the build, and its `fingerprint`, by which the same build is recognised.
    counts : dict of str to int
        What was counted while it was made.
    known, same : tuple of int
        For each species, the positions with a base, and with the reference's base.
    """

    layout: Layout
    chunk: int
    checksums: str
    content: str
    made_from: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    known: tuple[int, ...] = ()
    same: tuple[int, ...] = ()

    def write(self, folder: Path) -> None:
        """Write meta.json."""
        values = asdict(self)
        layout = values.pop("layout") | {"offsets": self.layout.offsets}
        write_json(folder / META, {"format": FORMAT, **layout, **values})


def content_of(layout: Layout, checksums: bytes) -> str:
    """Return the hash that tells a store from others."""
    digest = hashlib.blake2b(digest_size=DIGEST)
    digest.update(json.dumps([layout.species, layout.contigs, layout.lengths]).encode())
    digest.update(checksums)
    return digest.hexdigest()


def digest_of(data: bytes | np.ndarray) -> bytes:
    """Return a checksum."""
    return hashlib.blake2b(data if isinstance(data, bytes) else data.data, digest_size=DIGEST).digest()


def read_meta(folder: Path) -> Meta:
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
    if values.get("format") != FORMAT:
        raise UserError(
            f"{path}: the store is of version {values.get('format')}, and this r2mae reads version {FORMAT}: make it "
            "again with r2mae data alignment build"
        )
    try:
        layout = Layout(*(tuple(values[name]) for name in ("species", "contigs", "lengths")))
        _check(layout, values["offsets"])
        return Meta(
            layout,
            chunk=int(values["chunk"]),
            checksums=str(values["checksums"]),
            content=str(values["content"]),
            made_from=dict(values["made_from"]),
            counts=dict(values["counts"]),
            known=tuple(values["known"]),
            same=tuple(values["same"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise damaged(folder, f"{META} has wrong entries") from None


def _check(layout: Layout, offsets: Any) -> None:
    right = (
        len(layout.contigs) == len(layout.lengths) > 0
        and len(set(layout.contigs)) == len(layout.contigs)
        and len(set(layout.species)) == len(layout.species) > 0
        and all(isinstance(name, str) for name in (*layout.species, *layout.contigs))
        and all(isinstance(length, int) and length > 0 for length in layout.lengths)
        and list(offsets) == layout.offsets.tolist()
    )
    if not right:
        raise ValueError


def damaged(folder: Path, reason: str) -> UserError:
    """Build the error for a store that has changed since it was made."""
    return UserError(f"the alignment store {folder} is damaged ({reason}): delete the folder and make it again")
