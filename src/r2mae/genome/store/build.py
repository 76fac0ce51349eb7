"""From an alignment to a store: ``r2mae data alignment build``."""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError
from r2mae.files import exclusive, read_json, sync, write_json
from r2mae.genome.store.alignment import MOST_MAPPED, AlignmentStore
from r2mae.genome.store.fasta import FastaFiles, read_reference
from r2mae.genome.store.maf import MafFiles
from r2mae.genome.store.meta import (
    CHUNK,
    FORMAT,
    META,
    REFERENCE,
    Meta,
    Placed,
    Source,
    allocate,
    contig_file,
    digest_of,
    read_meta,
)
from r2mae.genome.store.sources import Kind, Progress, kind_of, name_of, table_lines
from r2mae.genome.store.tokens import GAP, LETTERS, SOFT, UNKNOWN
from r2mae.genome.store.zarr_exchange import ZarrGroup
from r2mae.training.fingerprint import fingerprint

_COVERED = np.uint8(0x40)  # bit of the reference's column at the positions that have been written
_TOKEN = np.uint8(SOFT - 1)
_PLAN, _DONE = "plan.json", "done.json"
_EVERY = 5.0  # seconds between the times that finished contigs are noted


@dataclass(frozen=True)
class _Request:
    """The files and options of a build."""

    kind: Kind
    files: tuple[Path, ...]
    species: tuple[str, ...] | None
    reference: Path | None
    contig: str | None

    def plan(self) -> dict[str, Any]:
        """Return plain values that are the same only for the same build."""
        given = [] if self.reference is None else [self.reference]
        values = {
            "format": FORMAT,
            "kind": self.kind,
            "files": [file.name for file in self.files],
            "species": None if self.species is None else list(self.species),
            "reference": given[0].name if given else None,
            "contig": self.contig,
            "fingerprint": fingerprint(*self.files, *given),
        }
        return dict(json.loads(json.dumps(values)))

    def source(self, folder: Path, progress: Progress) -> Source:
        """Open the files; the folder is for temporary ones."""
        if self.kind == "maf":
            return MafFiles(self.files, self.species, self.reference, progress)
        if self.kind == "fasta":
            return FastaFiles(self.files, self.species, self.contig, self.reference, folder, progress)
        return ZarrGroup(self.files[0], self.species, self.reference, progress)


def build_store(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    species: str | Path | Sequence[str] | None = None,
    reference: str | Path | None = None,
    contig: str | None = None,
    progress: Progress | None = None,
) -> AlignmentStore:
    """Make a store of an alignment; memory holds some chunks at a time.

    A build that was interrupted resumes when it is called again: finished contigs are kept. A store that was built of
    the same files with the same options is opened.

    Parameters
    ----------
    sources : path or sequence of paths
        MAF files; reference-aligned FASTA files (the reference's row first; a file is a contig); or a zarr group.
        Plain, gzip or bgzip, recognised by content.
    out : path
        The store's folder, which appears when it is complete.
    species : path or sequence of str, optional
        Species to keep, in this order, or a file with one on each line; the reference is always the first. By default
        all, in order of appearance.
    reference : path, optional
        FASTA of the reference. It has to agree with the alignment, and gives the base and the soft mask of positions
        that the alignment omits.
    contig : str, optional
        Name of the contig of a FASTA alignment; by default that of the only record of `reference`, or of the first row.
    progress : callable, optional
        Called with a stage and the fraction of it that is done.

    Raises
    ------
    UserError
        Wrong input, with file and line; or a folder that is something else.
    """
    request = _request(sources, species, reference, contig)
    out = Path(out).expanduser().absolute()
    plan = request.plan()
    if _is_built(out, plan):
        return AlignmentStore(out)
    folder = out.with_name(f".{out.name}.unfinished")
    try:
        with exclusive(out):
            if not _is_built(out, plan):  # by another process, since we looked
                _begin(folder, plan)
                try:
                    source = request.source(folder, progress := progress or (lambda stage, done: None))
                    _Builder(source, folder, request.reference, progress).build(plan)
                except UserError:  # of the input, with which no build can resume
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                folder.rename(out)
                sync(out.parent)
                for name in (_PLAN, _DONE):  # only now: without them a build that was killed here would begin again
                    (out / name).unlink()
    except OSError as error:
        raise UserError(
            f"{error.filename or out.parent}: cannot be written ({error.strerror or error}): choose a place with room; "
            "rerun the same command to resume"
        ) from None
    return AlignmentStore(out)


def _request(
    sources: str | Path | Sequence[str | Path],
    species: str | Path | Sequence[str] | None,
    reference: str | Path | None,
    contig: str | None,
) -> _Request:
    listed = [sources] if isinstance(sources, str | Path) else list(sources)
    files = tuple(Path(source).expanduser() for source in listed)
    given = None if reference is None else Path(reference).expanduser()
    if not files:
        raise UserError("name the alignment: MAF files, FASTA files or a zarr group")
    if len(set(files)) < len(files):
        raise UserError("a file is named twice: name each once")
    for file in (*files, *([] if given is None else [given])):
        if not file.exists():
            raise UserError(f"{file}: there is no such file")
    kinds = [kind_of(file) for file in files]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise UserError(f"{file}: is {kind}, and {files[0]} is {kinds[0]}: a store is built of one kind")
    if kinds[0] == "zarr" and len(files) > 1:
        raise UserError("a store is built of one zarr group")
    if contig is not None and kinds[0] != "fasta":
        raise UserError(f"--contig names the contig of a FASTA alignment; {files[0]} names its own: omit it")
    if contig is not None and not contig.strip():
        raise UserError("--contig takes a name")
    return _Request(kinds[0], files, None if species is None else _listed(species), given, contig)


def _listed(species: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Return the names of a list or file, each once."""
    where = str(species) if isinstance(species, str | Path) else "species"
    entries = list(enumerate(species, 1)) if not isinstance(species, str | Path) else []
    if isinstance(species, str | Path):
        path = Path(species).expanduser()
        if not path.is_file():
            raise UserError(f"{path}: there is no such file: --species takes one with a species on each line")
        entries = [(number, name_of(line)) for number, line in table_lines(path)]
    found: dict[str, int] = {}
    for line, name in entries:
        if name in found:
            raise UserError(f"{where}, line {line}: {name} is listed twice: name each species once")
        found[name] = line
    if not found:
        raise UserError(f"{where}: lists no species")
    return tuple(found)


def _is_built(out: Path, plan: dict[str, Any]) -> bool:
    """Return whether the store exists, built of the same."""
    if not out.exists():
        return False
    hint = "delete it, or name another folder"
    if not (out / META).is_file():
        raise UserError(f"{out}: exists and is no alignment store: {hint}")
    if read_meta(out).made_from != plan:
        raise UserError(f"{out}: exists, and was built of something else or with other options: {hint}")
    return True


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Make the folder in which a store is built; that of the same build is kept, with the contigs that are finished."""
    if read_json(folder / _PLAN) != plan:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / contig_file(0)).parent.mkdir(parents=True)
        write_json(folder / _PLAN, plan)
    for path in folder.glob("contigs/*.tmp"):
        path.unlink()


class _Builder:
    """The contigs of a store, which are filled, and completed one by one.

    Parameters
    ----------
    source : Source
    folder : Path
    given : Path, optional
        The reference's own FASTA.
    progress : Progress
    """

    def __init__(self, source: Source, folder: Path, given: Path | None, progress: Progress) -> None:
        self.source, self.layout, self.folder, self.given = source, source.layout, folder, given
        self.open: dict[int, np.ndarray] = {}
        self.overlapping: Counter[int] = Counter()  # positions of later blocks that were omitted, by contig
        zeros = [0] * len(self.layout.species)
        # Of finished contigs: size and checksum of each file; sums of the counts.
        started = {"files": {}, "counts": {}, "known": zeros, "same": zeros}
        self.done: dict[str, Any] = read_json(folder / _DONE) or started
        self._noted = time.monotonic()
        missing = sum(length for number, length in enumerate(self.layout.lengths) if not self.is_done(number))
        if missing * (len(zeros) + 1) > shutil.disk_usage(folder).free:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(folder))
        if self.done["files"]:
            self.reference = np.asarray(np.lib.format.open_memmap(folder / REFERENCE, mode="r+"))
        else:
            self.reference = allocate(folder / REFERENCE, np.uint8, self.layout.positions)
            if given is not None:
                progress("reading the reference", 0.0)
                read_reference(given, self.layout, self.reference)
            self._note()

    def is_done(self, number: int) -> bool:
        """Return whether a contig was finished, now or before an interruption."""
        return contig_file(number) in self.done["files"]

    def build(self, plan: dict[str, Any]) -> None:
        """Read the source, and complete the store."""
        finished = {number for number in range(len(self.layout.contigs)) if self.is_done(number)}
        for part, complete in enumerate(self.source.parts):
            for placed in self.source.blocks(part, finished):
                self.place(placed)
            for number in complete:
                if number not in finished:
                    self.finish(number)
        self._note()
        for path in self.folder.glob("*.rows"):  # temporary files of the source
            path.unlink()
        reference = self.folder / REFERENCE
        files = {name: self.done["files"][name] for name in map(contig_file, range(len(self.layout.contigs)))}
        Meta(
            self.layout,
            {**files, REFERENCE: (reference.stat().st_size, digest_of(reference))},
            made_from=plan,
            counts={"positions": self.layout.positions, **self.source.counts, **self.done["counts"]},
            known=tuple(self.done["known"]),
            same=tuple(self.done["same"]),
        ).write(self.folder)

    def contig(self, number: int) -> UInt8[np.ndarray, "positions species"]:
        """Return the array of a contig that is to be filled; it holds zeros at first."""
        if number not in self.open:
            if len(self.open) >= MOST_MAPPED:
                self.open.clear()
            path = self.folder / f"{contig_file(number)}.tmp"
            shape = self.layout.lengths[number], len(self.layout.species)
            known = np.lib.format.open_memmap(path, mode="r+") if path.exists() else allocate(path, np.uint8, *shape)
            self.open[number] = np.asarray(known)
        return self.open[number]

    def place(self, placed: Placed) -> None:
        """Write a block where no earlier one was written.

        Raises
        ------
        UserError
            If the reference's own FASTA contradicts it.
        """
        number, start, tokens, where = placed
        if self.given is not None:
            first = int(self.layout.offsets[number]) + start
            mine, own = tokens[:, 0] & _TOKEN, self.reference[first : first + len(tokens)] & _TOKEN
            wrong = np.flatnonzero((mine != own) & (mine != UNKNOWN) & (own != UNKNOWN))
            if len(wrong):
                at = int(wrong[0])
                raise UserError(
                    f"{where}: the reference has {LETTERS[mine[at]]} at {self.layout.contigs[number]}:"
                    f"{start + at + 1:,}, and {self.given} has {LETTERS[own[at]]}: is it of the same assembly?"
                )
        target = self.contig(number)[start : start + len(tokens)]
        taken = target[:, 0] & _COVERED != 0
        if taken.any():
            self.overlapping[number] += int(taken.sum())
            target[~taken] = tokens[~taken]
        else:
            target[:] = tokens
        target[:, 0] |= _COVERED

    def finish(self, number: int) -> None:
        """Complete a contig: positions without a block, the reference's own FASTA, counts and the checksum."""
        tokens, name = self.contig(number), contig_file(number)
        offset = int(self.layout.offsets[number])
        known, same = (np.array(self.done[key]) for key in ("known", "same"))
        counts = Counter(overlapping=self.overlapping[number], uncovered=0, unknown_reference=0, soft_masked=0)
        for first in range(0, len(tokens), CHUNK):
            block = tokens[first : first + CHUNK]
            own = block[:, 0]
            free = own & _COVERED == 0
            block[free] = UNKNOWN
            own &= ~_COVERED
            reference = self.reference[offset + first : offset + first + len(block)]
            if self.given is not None:
                np.copyto(own, reference, where=own & _TOKEN == UNKNOWN)
                own |= reference & np.uint8(SOFT)
            reference[:] = own
            bases, plain = own & _TOKEN, block & _TOKEN
            counts["uncovered"] += int(free.sum())
            counts["unknown_reference"] += int((bases == UNKNOWN).sum())
            counts["soft_masked"] += int((own >= SOFT).sum())
            known += (plain < GAP).sum(0, dtype=np.int32)
            same += ((plain == bases[:, None]) & (bases < GAP)[:, None]).sum(0, dtype=np.int32)
        path = self.folder / name
        sync(path.with_name(f"{path.name}.tmp").rename(path))
        del self.open[number]
        self.done["files"][name] = path.stat().st_size, digest_of(path)
        self.done |= {"known": known.tolist(), "same": same.tolist()}
        for kind, count in counts.items():
            key = f"{kind}_positions"
            self.done["counts"][key] = self.done["counts"].get(key, 0) + count
        if time.monotonic() - self._noted >= _EVERY:
            self._note()

    def _note(self) -> None:
        """Write down which contigs are finished."""
        sync(self.folder / REFERENCE)
        write_json(self.folder / _DONE, self.done)
        self._noted = time.monotonic()
