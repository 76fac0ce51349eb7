"""``r2mae data alignment build | info | track | export``: make, inspect and convert stores of alignments."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError
from r2mae.files import exclusive, read_json, sync, write_json
from r2mae.fingerprint import fingerprint
from r2mae.genome.store.alignment import (
    FORMAT,
    META,
    MOST_MAPPED,
    REFERENCE,
    AlignmentStore,
    contig_file,
    digest_of,
    read_layout,
)
from r2mae.genome.store.readers import CHUNK, Build, FastaFile, MafFiles, Placed, Progress, kind_of, read_reference
from r2mae.genome.store.sources import allocate, name_of, table_lines
from r2mae.genome.store.tokens import LETTERS, SOFT, TOKEN, UNKNOWN
from r2mae.genome.store.tracks import add_track
from r2mae.genome.store.zarr_exchange import ZarrGroup, export_zarr
from r2mae.progress import counting_bar

_COVERED = np.uint8(0x40)  # bit of the reference's column at the positions that have been written
_PLAN, _GIVEN = "plan.json", "given.npy"  # of an unfinished build: what it is made of, and the reference's own FASTA
_MOST_CONTIGS = 30  # in a table
_NOTES = {
    "unknown_reference_positions": "positions of the reference are unknown",
    "inserted_columns": "columns were omitted, where the reference has a gap",
    "second_rows": "second rows of a species in a block were omitted",
    "without_reference": "blocks without the reference were omitted",
}
Source = MafFiles | FastaFile | ZarrGroup
_SOURCES: dict[str, type[Source]] = {"maf": MafFiles, "fasta": FastaFile, "zarr": ZarrGroup}


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
    the same files with the same options is opened. Wrong input is refused with file and line.

    For parameters see :class:`r2mae.genome.domain.Build`; `species` may also be names. `progress` is called with a
    stage and the fraction of it that is done.
    """
    files = [Path(source).expanduser() for source in ([sources] if isinstance(sources, str | Path) else sources)]
    given = None if reference is None else Path(reference).expanduser()
    kind = _kind(files, given, contig)
    kept = None if species is None else _listed(species)
    out = Path(out).expanduser().absolute()
    plan: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "files": [file.name for file in files],
        "species": kept,
        "reference": None if given is None else given.name,
        "contig": contig,
        "fingerprint": fingerprint(*files, *([] if given is None else [given])),
    }
    folder, show = out.with_name(f".{out.name}.unfinished"), progress or (lambda stage, done: None)
    try:
        if not _is_built(out, plan):
            with exclusive(out):
                if not _is_built(out, plan):  # by another process, since we looked
                    if read_json(folder / _PLAN) != plan:
                        shutil.rmtree(folder, ignore_errors=True)
                        (folder / contig_file(0)).parent.mkdir(parents=True)
                        write_json(folder / _PLAN, plan)
                    try:
                        _Builder(Build(files, kept, contig, given, folder, show), plan).build()
                    except UserError:  # of the input, with which no build can resume
                        shutil.rmtree(folder, ignore_errors=True)
                        raise
                    folder.rename(out)
                    sync(out.parent)
    except OSError as error:
        raise UserError(
            f"{error.filename or out.parent}: cannot be written ({error.strerror or error}): choose a place with room; "
            "rerun the same command to resume"
        ) from None
    return AlignmentStore(out)


def _kind(files: Sequence[Path], given: Path | None, contig: str | None) -> str:
    """Return the kind of the files, which has to be one."""
    for file in (*files, *([] if given is None else [given])):
        if not file.exists():
            raise UserError(f"{file}: there is no such file")
    kind, *others = (kind_of(file) for file in files)
    for file, other in zip(files[1:], others, strict=True):
        if other != kind:
            raise UserError(f"{file}: is {other}, and {files[0]} is {kind}: a store is built of one kind")
    if kind != "maf" and others:
        raise UserError(
            f"{files[1]}: a store is built of one FASTA alignment or zarr group: write several contigs as MAF"
        )
    if contig is not None and kind != "fasta":
        raise UserError(f"--contig names the contig of a FASTA alignment; {files[0]} names its own: omit it")
    return kind


def _listed(species: str | Path | Sequence[str]) -> list[str]:
    """Return the names of a list or file."""
    if not isinstance(species, str | Path):
        return [*species]
    names = [name_of(line) for _, line in table_lines(Path(species).expanduser())]
    if not names:
        raise UserError(f"{species}: lists no species")
    return names


def _is_built(out: Path, plan: dict[str, Any]) -> bool:
    """Return whether the store exists, built of the same."""
    if not out.exists():
        return False
    hint = "delete it, or name another folder"
    if not (out / META).is_file():
        raise UserError(f"{out}: exists and is no alignment store: {hint}")
    if read_layout(out).made_from != plan:
        raise UserError(f"{out}: exists, and was built of something else or with other options: {hint}")
    return True


class _Builder:
    """The contigs of a store, which are filled and finished one by one; a finished one is not made again."""

    def __init__(self, build: Build, plan: dict[str, Any]) -> None:
        self.folder, self.reference, self.plan = build.folder, build.reference, plan
        self.source = _SOURCES[plan["kind"]](build)
        self.layout = self.source.layout
        self.contig = lru_cache(MOST_MAPPED)(self._contig)
        numbers = range(len(self.layout.contigs))
        self.finished = {number for number in numbers if (self.folder / contig_file(number)).exists()}
        for path in self.folder.glob("contigs/*.tmp"):  # of an interrupted build; they take the room of whole contigs
            path.unlink()
        self.given: np.ndarray | None = None
        if self.reference is not None:
            build.progress("reading the reference", 0.0)
            self.given = read_reference(self.reference, self.layout, self.folder / _GIVEN)

    def build(self) -> None:
        """Read the source, and complete the store."""
        for found in self.source.blocks(self.finished):
            if isinstance(found, Placed):
                self.place(found)
            elif found not in self.finished:
                self.finish(found)
        self.describe()
        for path in (self.folder / _PLAN, self.folder / _GIVEN, *self.folder.glob("*.rows")):
            path.unlink(missing_ok=True)

    def _contig(self, number: int) -> UInt8[np.ndarray, "positions species"]:
        """Map the array of a contig that is to be filled; it holds zeros at first."""
        path = self.folder / f"{contig_file(number)}.tmp"
        if path.exists():
            return np.asarray(np.lib.format.open_memmap(path, mode="r+"))
        return allocate(path, np.uint8, self.layout.lengths[number], len(self.layout.species))

    def place(self, placed: Placed) -> None:
        """Write a block where no earlier one was written; raise a UserError if the reference's FASTA contradicts it."""
        number, start, tokens, where = placed
        if self.given is not None:
            first = int(self.layout.offsets[number]) + start
            mine, own = tokens[:, 0] & TOKEN, self.given[first : first + len(tokens)] & TOKEN
            wrong = np.flatnonzero((mine != own) & (mine != UNKNOWN) & (own != UNKNOWN))
            if len(wrong):
                at = int(wrong[0])
                raise UserError(
                    f"{where}: the reference has {LETTERS[mine[at]]} at {self.layout.contigs[number]}:"
                    f"{start + at + 1:,}, and {self.reference} has {LETTERS[own[at]]}: is it of the same assembly?"
                )
        target = self.contig(number)[start : start + len(tokens)]
        np.copyto(target, tokens, where=target[:, :1] & _COVERED == 0)
        target[:, 0] |= _COVERED

    def finish(self, number: int) -> None:
        """Finish a contig: positions without a block are unknown, or have the base of the reference's own FASTA."""
        tokens = self.contig(number)
        for first in range(0, len(tokens), CHUNK):
            block = tokens[first : first + CHUNK]
            own = block[:, 0]
            block[own & _COVERED == 0] = UNKNOWN
            own &= ~_COVERED
            if self.given is not None:
                given = self.given[self.layout.offsets[number] + first :][: len(own)]
                np.copyto(own, given, where=own & TOKEN == UNKNOWN)
                own |= given & np.uint8(SOFT)
        path = self.folder / contig_file(number)
        unfinished = path.with_name(f"{path.name}.tmp")
        sync(unfinished)
        unfinished.rename(path)

    def describe(self) -> None:
        """Write the reference's column and meta.json, with counts and checksums."""
        layout, paths = self.layout, [contig_file(number) for number in range(len(self.layout.contigs))]
        reference = allocate(self.folder / REFERENCE, np.uint8, layout.positions)
        counts = Counter(self.source.counts)
        for path, offset in zip(paths, layout.offsets.tolist(), strict=False):
            tokens = np.load(self.folder / path, mmap_mode="r")
            for first in range(0, len(tokens), CHUNK):
                own = tokens[first : first + CHUNK, 0]
                reference[offset + first :][: len(own)] = own
                counts["unknown_reference_positions"] += int((own & TOKEN == UNKNOWN).sum())
        sync(self.folder / REFERENCE)
        sizes = {name: (self.folder / name).stat().st_size for name in (*paths, REFERENCE)}
        files = {name: (size, digest_of(self.folder / name)) for name, size in sizes.items()}
        contents = {"files": files, "made_from": self.plan, "counts": counts}
        write_json(self.folder / META, {"format": FORMAT, **asdict(layout), **contents})


def build(**options: Any) -> None:
    """Make a store of MAF, a reference-aligned FASTA, or a zarr group; see :class:`r2mae.genome.domain.Build`."""
    bars: dict[str, Callable[[int, int], None]] = {}
    with ExitStack() as stack:

        def show(stage: str, done: float) -> None:
            if stage not in bars:
                stack.close()  # the bar of the stage before
                bars[stage] = stack.enter_context(counting_bar(stage, counted=False, transient=True))
            bars[stage](round(done * 10_000), 10_000)

        store = build_store(**options, progress=show)
    _print_summary(store)


def info(store: str, verify: bool = False) -> None:
    """Print the contents of a store, and compare it with its checksums."""
    opened = AlignmentStore(store)
    if verify:
        opened.verify()
    _print_summary(opened)
    layout, width = opened.layout, max(map(len, ("contig", *opened.contigs[:_MOST_CONTIGS])))
    print(f"species: {', '.join(layout.species)}")
    print(f"{'contig':{width}}  {'positions':>13}")
    for name, length in zip(layout.contigs[:_MOST_CONTIGS], layout.lengths, strict=False):
        print(f"{name:{width}}  {length:13,}")
    if len(layout.contigs) > _MOST_CONTIGS:
        print(f"and {len(layout.contigs) - _MOST_CONTIGS:,} more contigs")
    if opened.tracks:
        print(f"tracks: {', '.join(opened.tracks)}")
    if verify:
        print("all checksums match")


def track(store: str, file: str, name: str, rename: Sequence[str] = ()) -> None:
    """Add values for each position."""
    add_track(AlignmentStore(store), file, name, rename=rename)
    print(f"{store}: track {name}")


def export(store: str, out: str) -> None:
    """Write a store as a zarr group."""
    export_zarr(AlignmentStore(store), Path(out).expanduser())
    print(out)


def _print_summary(store: AlignmentStore) -> None:
    """Print a summary of a store: its size, and what was omitted from it."""
    layout = store.layout
    contigs = "1 contig" if len(layout.contigs) == 1 else f"{len(layout.contigs):,} contigs"
    print(f"{store.folder}: {layout.positions:,} positions of {contigs} x {len(layout.species)} species")
    for name, note in _NOTES.items():
        if layout.counts.get(name):
            print(f"  {layout.counts[name]:,} {note}")
