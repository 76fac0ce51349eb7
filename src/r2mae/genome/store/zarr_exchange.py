"""Zarr groups with an array of letters for each contig, positions × species, as other DNA models read them."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.cache import create_once
from r2mae.errors import UserError, reading
from r2mae.genome.store.alignment import AlignmentStore, Layout
from r2mae.genome.store.readers import Build, Placed, check_lengths, choose_species
from r2mae.genome.store.tokens import GAP, INVALID, PLAIN_TABLE, SOFT_TABLE, letters

_CHUNK = 1 << 14  # positions of a chunk of the arrays that are written
_HINT = "export or fetch it again"


class ZarrGroup:
    """A zarr group with an array of letters for each contig, positions × species.

    Its attribute `species` names them; a group without it has the listed ones.
    """

    def __init__(self, build: Build) -> None:
        (path,), listed, self._progress = build.files, build.species, build.progress
        self.path = path
        self.counts: dict[str, int] = {}
        with reading(f"{path}: the zarr group", _HINT):
            import zarr

            group: Any = zarr.open_group(path, mode="r", use_consolidated=False)
            self._arrays = dict(group.arrays())
        if not self._arrays:
            raise UserError(f"{path}: the group has no arrays: each contig is one, positions x species, of letters")
        width = next(iter(self._arrays.values())).shape[-1:]
        for name, array in self._arrays.items():
            is_letters = array.dtype in (np.dtype("S1"), np.dtype(np.uint8))
            if not is_letters or array.ndim != 2 or array.shape[1:] != width or not array.size:
                raise UserError(
                    f"{path}: array {name!r} is {array.dtype} of shape {array.shape}, and not letters (S1) of "
                    "positions x species, as many as in the other arrays"
                )
        names, order = group.attrs.get("species", listed), group.attrs.get("contigs")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{path}: does not name its {width[0]} species: list them, in order, with --species FILE")
        if not len(names) == len(set(names)) == width[0]:
            raise UserError(f"{path}: has {width[0]} species, and {len(set(names))} names are given for them")
        chosen = choose_species(names, listed)
        self._columns = [names.index(name) for name in chosen]
        order = [str(name) for name in order] if isinstance(order, list) else []
        contigs = order if sorted(order) == sorted(self._arrays) else sorted(self._arrays)
        lengths = {name: int(self._arrays[name].shape[0]) for name in contigs}
        files = [*path.rglob("*"), *([build.reference] if build.reference else [])]
        held = sum(file.stat().st_size for file in files if file.is_file())
        check_lengths(lengths, held, lambda name: f"{path}: array {name!r}")
        self.layout = Layout(chosen, tuple(contigs), tuple(lengths.values()))

    def blocks(self, skipped: Collection[int]) -> Iterator[Placed | int]:
        """Yield the arrays of the contigs, some positions at a time, and the number of each that is complete."""
        for number, (contig, length) in enumerate(zip(self.layout.contigs, self.layout.lengths, strict=True)):
            if number in skipped:
                continue
            for first in range(0, length, 4 * _CHUNK):
                yield Placed(number, first, self._tokens(contig, first), str(self.path))
                self._progress("reading", (number + first / length) / len(self.layout.contigs))
            yield number

    def _tokens(self, contig: str, first: int) -> np.ndarray:
        part, array = slice(first, first + 4 * _CHUNK), self._arrays[contig]
        with reading(f"{self.path}: array {contig!r}", _HINT):
            found = np.ascontiguousarray(array[part])
        text = np.ascontiguousarray(found.view(np.uint8)[:, self._columns])
        tokens = np.frombuffer(text.tobytes().translate(PLAIN_TABLE), np.uint8).reshape(text.shape).copy()
        tokens[:, 0] = np.frombuffer(text[:, 0].tobytes().translate(SOFT_TABLE), np.uint8)
        wrong = np.argwhere((tokens == INVALID) | ((tokens == GAP) & (np.arange(text.shape[1]) == 0)))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise UserError(
                f"{self.path}: {contig}:{first + row + 1:,} of {self.layout.species[column]} is "
                f"{chr(text[row, column])!r}, which is no letter of an alignment, or a gap in the reference"
            )
        return tokens


def export_zarr(store: AlignmentStore, out: Path) -> None:
    """Write a store as a zarr group (version 2), which appears when it is complete.

    Each contig is an array of letters (S1), positions × species; lower case is the reference's soft mask, N unknown.
    The group's attributes name species and contigs. A place that is taken is refused, as is a store that has changed.
    """
    layout = store.layout
    for name in layout.contigs:
        if "/" in name or "\\" in name or name.startswith((".", "__")):
            raise UserError(f"{store.folder}: a contig called {name!r} cannot be an array of a zarr group")
    store.verify()
    with reading("zarr", "install it again"):
        import zarr
    with create_once(out) as unfinished:
        if unfinished is None:
            raise UserError(f"{out}: exists: delete it, or name another folder")
        group = zarr.open_group(str(unfinished), mode="w", zarr_format=2)
        group.attrs.update({"species": list(layout.species), "contigs": list(layout.contigs)})
        for number, name in enumerate(layout.contigs):
            tokens = store.tokens(number)
            chunks = (min(_CHUNK, len(tokens)), tokens.shape[1])
            array = group.create_array(name, shape=tokens.shape, chunks=chunks, dtype="S1")
            for begin in range(0, len(tokens), _CHUNK):
                array[begin : begin + _CHUNK] = letters(tokens[begin : begin + _CHUNK]).view("S1")
