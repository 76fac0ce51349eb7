"""From an alignment to a store: ``r2mae data alignment build``."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.fill_fasta import FastaFiller, fasta_layout, rows_file
from r2mae.genome.store.fill_maf import OWNER, MafFiller, maf_layout
from r2mae.genome.store.finish import Finisher
from r2mae.genome.store.given import GIVEN, read_given
from r2mae.genome.store.meta import CHECKSUMS, CHUNK, FORMAT, META, Layout, Meta, content_of, digest_of, read_meta
from r2mae.genome.store.sources import Kind, kind_of, lines, name_of
from r2mae.genome.store.unfinished import Progress, Unfinished, unfinished
from r2mae.genome.store.writing import Filler
from r2mae.genome.store.zarr_exchange import ZarrFiller, zarr_layout
from r2mae.training.fingerprint import fingerprint


@dataclass(frozen=True)
class _Wanted:
    """What a store is built of."""

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
            "chunk": CHUNK,
            "kind": self.kind,
            "files": [file.name for file in self.files],
            "species": self.species,
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
    jobs: int = 1,
    progress: Progress | None = None,
    every: float | None = None,
) -> AlignmentStore:
    """Make a store of an alignment; memory holds a few chunks at a time.

    A build that was killed goes on when it is called again, and ends with the same bytes. A store that was built of
    the same is opened and not made again.

    Parameters
    ----------
    sources : path or sequence of paths
        MAF files; reference-aligned FASTA files (the reference's row first; a file is a contig); or a zarr group.
        Plain, gzip or bgzip; told apart by content.
    out : path
        The store's folder, which takes its name when it is whole.
    species : path or sequence of str, optional
        Species to keep, in this order, or a file with one on each line; the reference is always the first. By default
        all, in order of appearance.
    reference : path, optional
        FASTA of the reference. It has to agree with the alignment, and gives the base and the soft mask of positions
        that the alignment leaves out.
    contig : str, optional
        Name of the contig of a FASTA alignment; by default that of the only record of `reference`, or of the first row.
    jobs : int
        Processes that read MAF blocks, or threads that turn rows into columns.
    progress : callable, optional
        Hears of a stage and how much of it is done, from 0 to 1.
    every : float, optional
        Seconds between the points from which a killed build goes on; by default 5.

    Raises
    ------
    UserError
        Wrong input, named with file and line; or a folder that is something else.
    """
    wanted = _wanted(sources, species, reference, contig)
    if jobs < 1:
        raise UserError(f"jobs must be 1 or more, not {jobs}")
    out = Path(out).expanduser()
    plan = wanted.plan()
    if _is_built(out, plan):
        return AlignmentStore(out)
    with unfinished(out.absolute(), plan, every) as work:
        _build(wanted, plan, work, jobs, progress or _silent)
    return AlignmentStore(out)


def _wanted(
    sources: str | Path | Sequence[str | Path],
    species: str | Path | Sequence[str] | None,
    reference: str | Path | None,
    contig: str | None,
) -> _Wanted:
    listed = [sources] if isinstance(sources, str | Path) else list(sources)
    files = tuple(Path(source).expanduser() for source in listed)
    if not files:
        raise UserError("name the alignment: MAF files, FASTA files or a zarr group")
    if len(set(files)) < len(files):
        raise UserError("a file is named twice: name each once")
    for file in files:
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
    given = None if reference is None else Path(reference).expanduser()
    if given is not None and not given.exists():
        raise UserError(f"{given}: there is no such file")
    return _Wanted(kinds[0], files, None if species is None else _species(species), given, contig)


def _species(species: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Return the names of a list or file, each once."""
    named: Path | None = None
    if isinstance(species, str | Path):
        named = Path(species).expanduser()
        entries = _names(named)
    else:
        entries = list(enumerate(species, 1))
    first: dict[str, int] = {}
    for line, name in entries:
        if name in first:
            where = f"{named}, line {line}" if named is not None else "species"
            raise UserError(f"{where}: {name} is listed twice: name each species once")
        first[name] = line
    if not first:
        raise UserError(f"{named or 'species'}: lists no species")
    return tuple(first)


def _names(path: Path) -> list[tuple[int, str]]:
    if path.is_dir() or not path.exists():
        raise UserError(f"{path}: there is no such file: --species takes one with a species on each line")
    return [(number, name_of(line)) for number, line in lines(path)]


def _is_built(out: Path, plan: dict[str, Any]) -> bool:
    """Whether the store is there already, built of the same."""
    if not out.exists():
        return False
    hint = "delete it, or name another folder"
    if not (out / META).is_file():
        raise UserError(f"{out}: exists and is no alignment store: {hint}")
    if read_meta(out).made_from != json.loads(json.dumps(plan)):
        raise UserError(f"{out}: exists, and was built of something else or with other options: {hint}")
    return True


def _build(wanted: _Wanted, plan: dict[str, Any], work: Unfinished, jobs: int, progress: Progress) -> None:
    layout, kind, scratch = _start(wanted, work, progress)
    if wanted.reference is not None:
        read_given(wanted.reference, layout, work, lambda done: progress("reading the reference", done))
        scratch.append(GIVEN)
    counts = kind(wanted.files, layout, work, wanted.reference).fill(jobs, progress)
    finisher = Finisher(layout, work, owned=wanted.kind == "maf", given=wanted.reference is not None)
    found = finisher.run(jobs, progress)
    checksums = work.path(CHECKSUMS).read_bytes()
    meta = Meta(
        layout=layout,
        chunk=CHUNK,
        checksums=digest_of(checksums).hex(),
        content=content_of(layout, checksums),
        made_from=plan,
        counts={**counts, **found.counts},
        known=found.known,
        same=found.same,
    )
    meta.write(work.folder)
    work.remove(*scratch)


def _start(wanted: _Wanted, work: Unfinished, progress: Progress) -> tuple[Layout, type[Filler], list[str]]:
    """Return the layout, the class that fills it, and the files that go in the end."""
    if wanted.kind == "maf":
        return maf_layout(wanted.files, wanted.species, wanted.reference, work, progress), MafFiller, [OWNER]
    if wanted.kind == "zarr":
        return zarr_layout(wanted.files[0], wanted.species, wanted.reference), ZarrFiller, []
    layout = fasta_layout(wanted.files, wanted.species, wanted.contig, wanted.reference, work, progress)
    return layout, FastaFiller, [rows_file(number) for number in range(len(wanted.files))]


def _silent(_: str, __: float) -> None:
    """Show nothing."""
