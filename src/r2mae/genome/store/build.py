"""From an alignment to a store: ``r2mae data alignment build``."""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError
from r2mae.files import sync, write_json
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.fasta import (
    contigs_of_files,
    fill_from_rows,
    first_difference,
    read_reference,
    read_rows,
    species_of_rows,
)
from r2mae.genome.store.maf import MafFiles
from r2mae.genome.store.meta import (
    CHUNK,
    FORMAT,
    META,
    REFERENCE,
    Layout,
    Meta,
    allocate,
    contig_file,
    digest_of,
    read_meta,
)
from r2mae.genome.store.sources import Kind, Progress, kind_of, name_of, table_lines
from r2mae.genome.store.tokens import GAP, SOFT, UNKNOWN
from r2mae.genome.store.zarr_exchange import fill_from_zarr, zarr_layout
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
        return {
            "format": FORMAT,
            "kind": self.kind,
            "files": [file.name for file in self.files],
            "species": None if self.species is None else list(self.species),
            "reference": given[0].name if given else None,
            "contig": self.contig,
            "fingerprint": fingerprint(*self.files, *given),
        }


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
    out = Path(out).expanduser()
    plan = request.plan()
    if not _is_built(out, plan):
        with _unfinished(out.absolute(), plan) as folder:
            if folder is not None:
                _build(request, plan, folder, progress or (lambda stage, done: None))
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
    if read_meta(out).made_from != json.loads(json.dumps(plan)):
        raise UserError(f"{out}: exists, and was built of something else or with other options: {hint}")
    return True


@contextmanager
def _unfinished(out: Path, plan: dict[str, Any]) -> Iterator[Path | None]:
    """Yield the folder in which a store is made, which becomes `out` if no error occurs; None if `out` is made by now.

    After a kill or a full disk the folder remains, and the same build resumes; another build begins again.
    """
    from filelock import FileLock, Timeout

    folder = out.with_name(f".{out.name}.unfinished")
    lock = FileLock(out.with_name(f".{out.name}.lock"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with lock.acquire(timeout=0):
            if _is_built(out, plan):  # by another process, since the caller looked
                yield None
                Path(lock.lock_file).unlink(missing_ok=True)
                return
            if _read_json(folder / _PLAN) != json.loads(json.dumps(plan)):
                shutil.rmtree(folder, ignore_errors=True)
                (folder / contig_file(0)).parent.mkdir(parents=True)
                write_json(folder / _PLAN, plan)
            try:
                yield folder
            except UserError:  # of the input, with which no build can resume
                shutil.rmtree(folder, ignore_errors=True)
                Path(lock.lock_file).unlink(missing_ok=True)
                raise
            folder.rename(out)
            sync(out.parent)
            for name in (_PLAN, _DONE):  # only now: without them a build that was killed here would begin again
                (out / name).unlink()
            Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        raise UserError(f"{out}: another process is building it: wait for it, or name another store") from None
    except OSError as error:
        raise UserError(
            f"{error.filename or out.parent}: cannot be written ({error.strerror or error}): choose a place with room; "
            "rerun the same command to resume"
        ) from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


class _Builder:
    """Contigs of a store that are filled, and completed one by one.

    Parameters
    ----------
    folder : Path
    layout : Layout
    given : Path, optional
        The reference's own FASTA.
    progress : Progress
    """

    def __init__(self, folder: Path, layout: Layout, given: Path | None, progress: Progress) -> None:
        self.folder, self.layout, self.given, self.progress = folder, layout, given, progress
        width = len(layout.species)
        none = [0] * width
        # Of finished contigs: size and checksum of each file; sums of the counts.
        self.done: dict[str, Any] = _read_json(folder / _DONE) or {
            "files": {},
            "counts": {},
            "known": none,
            "same": none,
        }
        self.open: dict[int, np.ndarray] = {}
        self._noted = time.monotonic()
        missing = sum(length for number, length in enumerate(layout.lengths) if not self.is_done(number))
        if missing * (width + 1) > shutil.disk_usage(folder).free:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(folder))
        if self.done["files"]:
            self.reference = np.asarray(np.lib.format.open_memmap(folder / REFERENCE, mode="r+"))
        else:
            self.reference = allocate(folder / REFERENCE, np.uint8, layout.positions)
            if given is not None:
                progress("reading the reference", 0.0)
                read_reference(given, layout, self.reference)
            self._note()

    def is_done(self, number: int) -> bool:
        """Return whether a contig was finished, now or before an interruption."""
        return contig_file(number) in self.done["files"]

    def contig(self, number: int) -> UInt8[np.ndarray, "positions species"]:
        """Return the array of a contig that is to be filled; it holds zeros."""
        if number not in self.open:
            path = self.folder / f"{contig_file(number)}.tmp"
            self.open[number] = allocate(path, np.uint8, self.layout.lengths[number], len(self.layout.species))
        return self.open[number]

    def compare(self, number: int, start: int, mine: UInt8[np.ndarray, " positions"], where: str) -> None:
        """Refuse bases of the reference that its own FASTA contradicts."""
        if self.given is None:
            return
        first = int(self.layout.offsets[number]) + start
        if (found := first_difference(mine, self.reference[first : first + len(mine)])) is not None:
            raise UserError(
                f"{where}: the reference has {found[1]} at {self.layout.contigs[number]}:{start + found[0] + 1:,}, and "
                f"{self.given} has {found[2]}: is it of the same assembly?"
            )

    def finish(self, number: int, overlapping: int | None = None) -> None:
        """Complete a contig: positions without a block, the reference's own FASTA, counts and the checksum.

        Parameters
        ----------
        number : int
        overlapping : int, optional
            Where blocks were written, and those positions have a mark: positions of later blocks that were omitted.
        """
        tokens, name = self.contig(number), contig_file(number)
        offset = int(self.layout.offsets[number])
        known, same = (np.array(self.done[key]) for key in ("known", "same"))
        counts = {"uncovered": 0, "unknown_reference": 0, "soft_masked": 0, "overlapping": overlapping or 0}
        for first in range(0, len(tokens), CHUNK):
            block = tokens[first : first + CHUNK]
            own = block[:, 0]
            if overlapping is not None:
                free = own & _COVERED == 0
                counts["uncovered"] += int(free.sum())
                block[free] = UNKNOWN
                own &= ~_COVERED
            reference = self.reference[offset + first : offset + first + len(block)]
            if self.given is not None:
                np.copyto(own, reference, where=own & _TOKEN == UNKNOWN)
                own |= reference & np.uint8(SOFT)
            reference[:] = own
            bases = own & _TOKEN
            counts["unknown_reference"] += int((bases == UNKNOWN).sum())
            counts["soft_masked"] += int((own >= SOFT).sum())
            plain = block & _TOKEN
            known += (plain < GAP).sum(0, dtype=np.int32)
            same += ((plain == bases[:, None]) & (bases < GAP)[:, None]).sum(0, dtype=np.int32)
        path = self.folder / name
        sync(path.with_name(f"{path.name}.tmp").rename(path))
        del self.open[number]
        self.done["files"][name] = path.stat().st_size, digest_of(path)
        for kind, count in counts.items():
            key = f"{kind}_positions"
            self.done["counts"][key] = self.done["counts"].get(key, 0) + count
        self.done |= {"known": known.tolist(), "same": same.tolist()}
        if time.monotonic() - self._noted >= _EVERY:
            self._note()

    def _note(self) -> None:
        sync(self.folder / REFERENCE)
        write_json(self.folder / _DONE, self.done)
        self._noted = time.monotonic()

    def write_meta(self, plan: dict[str, Any], counts: dict[str, int]) -> None:
        """Write the description of the store, when all contigs are finished."""
        self._note()
        path = self.folder / REFERENCE
        names = map(contig_file, range(len(self.layout.contigs)))
        Meta(
            self.layout,
            {**{name: self.done["files"][name] for name in names}, REFERENCE: (path.stat().st_size, digest_of(path))},
            made_from=plan,
            counts={"positions": self.layout.positions, **counts, **self.done["counts"]},
            known=tuple(self.done["known"]),
            same=tuple(self.done["same"]),
        ).write(self.folder)


def _build(request: _Request, plan: dict[str, Any], folder: Path, progress: Progress) -> None:
    builds = {"maf": _build_maf, "fasta": _build_fasta, "zarr": _build_zarr}
    builder, counts = builds[request.kind](request, folder, progress)
    builder.write_meta(plan, counts)


def _build_maf(request: _Request, folder: Path, progress: Progress) -> tuple[_Builder, dict[str, int]]:
    maf = MafFiles(request.files, request.species, request.reference, lambda done: progress("finding species", done))
    builder = _Builder(folder, maf.layout, request.reference, progress)
    contigs = range(len(maf.layout.contigs))
    overlapping: Counter[int] = Counter()
    finished = {number for number in contigs if builder.is_done(number)}
    for contig, start, tokens, where, ends in maf.blocks(finished, lambda done: progress("reading", done)):
        if builder.is_done(contig):
            name = maf.layout.contigs[contig]
            raise UserError(f"{where}: a block of {name}, which was complete: did the file change? rerun")
        builder.compare(contig, start, tokens[:, 0], where)
        target = builder.contig(contig)[start : start + len(tokens)]
        taken = target[:, 0] & _COVERED != 0
        if taken.any():
            overlapping[contig] += int(taken.sum())
            target[~taken] = tokens[~taken]
        else:
            target[:] = tokens
        target[:, 0] |= _COVERED
        if ends:
            builder.finish(contig, overlapping[contig])
    for number in contigs:  # those that have no block, but a second row in one
        if not builder.is_done(number):
            builder.finish(number, overlapping[number])
    return builder, maf.counts


def _build_fasta(request: _Request, folder: Path, progress: Progress) -> tuple[_Builder, dict[str, int]]:
    files = request.files
    spools = [folder / f"rows{number}" for number in range(len(files))]
    rows = [read_rows(file, spool) for file, spool in zip(files, spools, strict=True)]
    species = species_of_rows(files, rows, request.species)
    contigs = contigs_of_files(files, request.contig, request.reference, species[0])
    kept = [(one.tokens[0] & _TOKEN) != GAP for one in rows]
    for file, columns in zip(files, kept, strict=True):
        if not columns.any():
            raise UserError(f"{file}: the first row, which is the reference, has gaps alone")
    layout = Layout(species, contigs, tuple(int(columns.sum()) for columns in kept))
    builder = _Builder(folder, layout, request.reference, progress)
    for number, (file, one, columns) in enumerate(zip(files, rows, kept, strict=True)):
        progress("turning rows into columns", number / len(files))
        if not builder.is_done(number):
            builder.compare(number, 0, one.tokens[0][columns], str(file))
            fill_from_rows(builder.contig(number), one, columns, species)
            builder.finish(number)
    total = sum(one.columns for one in rows)
    for spool in spools:
        spool.unlink()
    return builder, {"columns": total, "inserted_columns": total - layout.positions}


def _build_zarr(request: _Request, folder: Path, progress: Progress) -> tuple[_Builder, dict[str, int]]:
    (path,) = request.files
    layout = zarr_layout(path, request.species, request.reference)
    builder = _Builder(folder, layout, request.reference, progress)
    for number in range(len(layout.contigs)):
        progress("reading", number / len(layout.contigs))
        if not builder.is_done(number):
            target = builder.contig(number)
            fill_from_zarr(target, path, layout, number)
            builder.compare(number, 0, target[:, 0], str(path))
            builder.finish(number)
    return builder, {}
