"""Zarr groups with an array of letters for each contig, positions × species, as other DNA models read them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError, unknown
from r2mae.genome.store.given import GIVEN, differences, mismatch
from r2mae.genome.store.meta import ALIGNMENT, CHUNK, Layout
from r2mae.genome.store.sources import check_lengths
from r2mae.genome.store.tokens import GAP, INVALID, PLAIN_TABLE, SOFT_TABLE, letters
from r2mae.genome.store.unfinished import Progress
from r2mae.genome.store.writing import Filler, allocate, write_at

if TYPE_CHECKING:
    from r2mae.genome.store.alignment import AlignmentStore

_STAGE = "reading"
_CHUNK = 1 << 14  # positions of a chunk of the arrays that are written


def _zarr() -> Any:
    try:
        import zarr
    except ImportError:
        raise UserError("zarr is missing: pip install 'r2mae[genome]'") from None
    return zarr


def _arrays(path: Path) -> tuple[Any, dict[str, Any]]:
    _zarr()
    from r2mae.zarr_folder import open_zarr

    try:
        group = open_zarr(path)
        arrays = dict(group.arrays())
    except UserError:
        raise
    except Exception as error:  # the library raises many kinds
        raise UserError(f"{path}: is no zarr group that can be read ({' '.join(str(error).split())[:120]})") from None
    if not arrays:
        raise UserError(f"{path}: the group has no arrays: each contig is one, positions x species, of letters")
    return group, arrays


def zarr_layout(path: Path, species: Sequence[str] | None, given: Path | None = None) -> Layout:
    """Return the layout of a group; it names the species in its attribute `species`, else they have to be listed.

    Raises
    ------
    UserError
        Arrays that are no letters, of different numbers of species, or far longer than the files could fill, together
        with the reference's own FASTA that may be given; or species that are not named.
    """
    group, arrays = _arrays(path)
    widths = {name: array.shape[1] if len(array.shape) == 2 else -1 for name, array in arrays.items()}
    width = next(iter(widths.values()))
    for name, array in arrays.items():
        if array.dtype not in (np.dtype("S1"), np.dtype(np.uint8)) or widths[name] != width or width < 1:
            raise UserError(
                f"{path}: array {name!r} is {array.dtype} of shape {array.shape}, and not letters (S1) of positions x "
                f"{width} species"
            )
    attributes = dict(group.attrs)
    stored = attributes.get("species")
    names = species if stored is None else [str(name) for name in stored]
    if names is None:
        raise UserError(f"{path}: does not name its {width} species: list them, in order, with --species FILE")
    if len(names) != width or len(set(names)) != width:
        raise UserError(f"{path}: has {width} species, and {len(set(names))} names are given for them")
    for name in species or ():
        if name not in names:
            raise unknown("species", name, names)
    chosen = tuple(dict.fromkeys([names[0], *(names if species is None else species)]))
    order = [str(name) for name in attributes.get("contigs", [])]
    contigs = tuple(order if set(order) == set(arrays) and len(order) == len(arrays) else sorted(arrays))
    lengths = {name: int(arrays[name].shape[0]) for name in contigs}
    held = sum(file.stat().st_size for file in [*path.rglob("*"), *([given] if given else [])])
    check_lengths(lengths, held, lambda name: f"{path}: array {name!r}")
    return Layout(chosen, contigs, tuple(lengths.values()))


@dataclass(eq=False)
class ZarrFiller(Filler):
    """Copies the arrays of a zarr group, which is the only file."""

    def __post_init__(self) -> None:
        (self.path,) = self.files

    def fill(self, jobs: int, progress: Progress) -> dict[str, int]:
        """Write all positions; `jobs` is zarr's own business."""
        group, arrays = _arrays(self.path)
        stored = [str(name) for name in group.attrs.get("species", self.layout.species)]
        columns = [stored.index(name) for name in self.layout.species]
        target = self.work.path(ALIGNMENT)
        width = len(columns)
        allocate(target, self.layout.positions * width)
        units = [
            (number, first) for number, length in enumerate(self.layout.lengths) for first in range(0, length, CHUNK)
        ]
        done = self.work.state(_STAGE)["done"]
        handle = os.open(target, os.O_WRONLY)
        try:
            for number, first in units[done:]:
                last = min(first + CHUNK, self.layout.lengths[number])
                found = np.ascontiguousarray(arrays[self.layout.contigs[number]][first:last])
                tokens = self._tokens(found.view(np.uint8), columns, number, first)
                write_at(handle, tokens, (int(self.layout.offsets[number]) + first) * width)
                done += 1
                if self.work.due():
                    self.work.commit(_STAGE, done, target)
                progress(_STAGE, done / len(units))
            self.work.commit(_STAGE, done, target)
        finally:
            os.close(handle)
        return {}

    def _tokens(
        self, text: UInt8[np.ndarray, "positions stored"], columns: list[int], number: int, first: int
    ) -> UInt8[np.ndarray, "positions species"]:
        chosen = np.ascontiguousarray(text[:, columns])
        tokens = np.frombuffer(chosen.tobytes().translate(PLAIN_TABLE), np.uint8).reshape(chosen.shape).copy()
        tokens[:, 0] = np.frombuffer(chosen[:, 0].tobytes().translate(SOFT_TABLE), np.uint8)
        contig = self.layout.contigs[number]
        wrong = np.argwhere((tokens == INVALID) | ((tokens == GAP) & (np.arange(len(columns)) == 0)))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise UserError(
                f"{self.path}: {contig}:{first + row + 1:,} of {self.layout.species[column]} is "
                f"{chr(chosen[row, column])!r}, which is no letter of an alignment, or a gap in the reference"
            )
        if self.reference is not None:
            place = int(self.layout.offsets[number]) + first
            given = np.fromfile(self.work.path(GIVEN), np.uint8, len(tokens), offset=place)
            different = np.flatnonzero(differences(tokens[:, 0], given))
            if len(different):
                at = int(different[0])
                position = self.layout.place(place + at)
                raise mismatch(str(self.path), position, int(tokens[at, 0]), int(given[at]), self.reference)
        return tokens


def export_zarr(store: "AlignmentStore", out: Path, progress: Progress | None = None) -> None:
    """Write a store as a zarr group (version 2), which appears when it is whole.

    Each contig is an array of letters (S1), positions × species; lower case is the reference's soft mask, N unknown.
    The group's attributes name species and contigs.

    Raises
    ------
    UserError
        If the place is taken, a contig's name cannot be that of an array, or the store has changed since it was made.
    """
    import shutil

    zarr = _zarr()
    layout = store.layout
    for name in layout.contigs:
        if "/" in name or "\\" in name or name.startswith((".", "__")):
            raise UserError(f"{store.folder}: a contig called {name!r} cannot be an array of a zarr group")
    if out.exists():
        raise UserError(f"{out}: exists: delete it, or name another folder")
    store.verify()
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        group = zarr.open_group(str(unfinished), mode="w", zarr_format=2)
        group.attrs.update({"species": list(layout.species), "contigs": list(layout.contigs)})
        for number, name in enumerate(layout.contigs):
            length, first = layout.lengths[number], int(layout.offsets[number])
            shape = (length, len(layout.species))
            array = group.create_array(name, shape=shape, chunks=(min(_CHUNK, length), shape[1]), dtype="S1")
            for begin in range(0, length, _CHUNK):
                end = min(begin + _CHUNK, length)
                array[begin:end] = letters(store.tokens[first + begin : first + end]).view("S1")
                if progress is not None:
                    progress("writing", (first + end) / layout.positions)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
