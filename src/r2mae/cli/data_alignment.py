"""``r2mae data alignment build | info | track | export | import``: make, inspect and convert stores of alignments."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from r2mae.genome.store.alignment import AlignmentStore
    from r2mae.genome.store.sources import Progress

_HELP = """usage: r2mae data alignment ACTION ...

Alignments of genomes as stores of tokens, a row of species for each position.

actions:
  build    make a store of MAF or reference-aligned FASTA
  info     print the contents of a store, and compare it with its checksums (--verify)
  track    add values for each position (bedGraph, bigWig), such as weights of the loss
  export   write a store as a zarr group
  import   make a store of a zarr group

example:
  r2mae data alignment build chr1.maf.gz chr2.maf.gz -o human

`r2mae data alignment ACTION --help` describes an action.
"""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    if not words or words[0] in ("-h", "--help"):
        print(_HELP, end="")
        return 0
    if words[0] not in ACTIONS:
        raise unknown("action", words[0], ACTIONS)
    leading = list(words[1:])
    sources = []
    while leading and not leading[0].startswith("-"):
        sources.append(leading.pop(0))
    return ACTIONS[words[0]](sources, leading)


def _build(sources: Sequence[str], words: Sequence[str]) -> int:
    """Run ``build``."""
    parser = Parser(
        "r2mae data alignment build IN [IN ...]",
        "Make a store of an alignment: MAF files, or FASTA files whose rows are aligned to the first, the reference "
        "(plain, gzip or bgzip, detected by content). The same command resumes an interrupted build. If several MAF "
        "blocks cover a position, the first is used.",
        "r2mae data alignment build chrM.maf.gz --reference chrM.fa.gz -o mtdna",
    )
    parser.add_argument("-o", "--out", type=str, required=True, help="Folder of the store.")
    parser.add_argument("--contig", type=str, help="Name of the contig of a FASTA alignment; else its first row's.")
    _add_common(parser)
    values = parser.read(words)
    if not sources:
        raise UserError("name MAF or FASTA files to build from: r2mae data alignment build chr1.maf.gz -o human")
    return _build_store(sources, values)


def _import(sources: Sequence[str], words: Sequence[str]) -> int:
    """Run ``import``."""
    parser = Parser(
        "r2mae data alignment import ZARR",
        "Make a store of a zarr group that has an array of letters for each contig, positions x species.",
        "r2mae data alignment import 89.zarr --species species.txt -o human",
    )
    parser.add_argument("-o", "--out", type=str, required=True, help="Folder of the store.")
    _add_common(parser)
    values = parser.read(words)
    if len(sources) != 1:
        raise UserError(f"import takes one zarr group, not {len(sources)}")
    if not Path(sources[0]).is_dir():
        raise UserError(f"{sources[0]}: is not the folder of a zarr group")
    return _build_store(sources, {**values, "contig": None})


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--species",
        type=str,
        help="File with a species on each line: those to keep, in this order; the reference is always the first.",
    )
    parser.add_argument(
        "--reference",
        type=str,
        help="FASTA of the reference. It must agree with the alignment, and fills positions that the alignment omits.",
    )


def _build_store(sources: Sequence[str], values: dict[str, Any]) -> int:
    from r2mae.genome.store.build import build_store

    with _stage_bars() as progress:
        store = build_store(
            [*sources],
            values["out"],
            species=None if values["species"] is None else Path(values["species"]),
            reference=values["reference"],
            contig=values["contig"],
            progress=progress,
        )
    _print_summary(store)
    return 0


def _info(sources: Sequence[str], words: Sequence[str]) -> int:
    """Run ``info``."""
    parser = Parser(
        "r2mae data alignment info STORE",
        "Print the contents of a store: species, contigs, what was omitted when it was made, and tracks.",
        "r2mae data alignment info human --verify",
    )
    parser.add_argument("--verify", type=bool, default=False, help="Compare all of it with its checksums.")
    parser.add_argument("--json", type=bool, default=False, help="Print JSON.")
    values = parser.read(words)
    store = _open_store("info", sources)
    if values["verify"]:
        with _stage_bars() as progress:
            store.verify(lambda done: progress("verifying", done))
    if values["json"]:
        from r2mae.cli.show import print_json

        layout, meta = store.layout, store.meta
        contigs = dict(zip(layout.contigs, layout.lengths, strict=True))
        contents = {"species": layout.species, "contigs": contigs, "counts": meta.counts, "tracks": store.tracks}
        print_json({**contents, "known": meta.known, "same": meta.same, "fingerprint": meta.content})
        return 0
    _print_summary(store)
    _print_tables(store)
    if values["verify"]:
        print("all checksums match")
    return 0


def _track(sources: Sequence[str], words: Sequence[str]) -> int:
    """Run ``track``."""
    parser = Parser(
        "r2mae data alignment track STORE FILE",
        "Add values for each position to a store, from bedGraph (plain, gzip or bgzip) or bigWig (with pyBigWig), "
        "such as weights of the loss.",
        "r2mae data alignment track human phastCons.bw --name phastcons",
    )
    parser.add_argument("--name", type=str, required=True, help="Name of the track; an existing one is replaced.")
    parser.add_argument("--dtype", type=str, default="float16", help="float16 or float32.")
    values = parser.read(words)
    if len(sources) != 2:
        raise UserError("track takes a store and a file: r2mae data alignment track STORE FILE --name NAME")
    from r2mae.genome.store.tracks import add_track

    store = _open_store("track", sources[:1])
    with _stage_bars() as progress:
        add_track(
            store.folder,
            store.layout,
            sources[1],
            values["name"],
            dtype=values["dtype"],
            progress=lambda done: progress("reading", done),
        )
    print(f"{sources[0]}: track {values['name']}")
    return 0


def _export(sources: Sequence[str], words: Sequence[str]) -> int:
    """Run ``export``."""
    parser = Parser(
        "r2mae data alignment export STORE",
        "Write a store as a zarr group (version 2): for each contig an array of letters, positions x species.",
        "r2mae data alignment export human -o human.zarr",
    )
    parser.add_argument("-o", "--out", type=str, required=True, help="Folder of the group.")
    values = parser.read(words)
    from r2mae.genome.store.zarr_exchange import export_zarr

    store = _open_store("export", sources)
    with _stage_bars() as progress:
        export_zarr(store, Path(values["out"]), progress)
    print(values["out"])
    return 0


ACTIONS: dict[str, Callable[[Sequence[str], Sequence[str]], int]] = {
    "build": _build,
    "info": _info,
    "track": _track,
    "export": _export,
    "import": _import,
}


def _open_store(action: str, sources: Sequence[str]) -> "AlignmentStore":
    from r2mae.genome.store.alignment import AlignmentStore

    if len(sources) != 1:
        raise UserError(f"{action} takes one store, not {len(sources)}: r2mae data alignment {action} STORE")
    return AlignmentStore(sources[0])


def _print_summary(store: "AlignmentStore") -> None:
    """Print a summary of a store: its size, and what was omitted from it."""
    layout, counts = store.layout, store.meta.counts
    contigs = "1 contig" if len(layout.contigs) == 1 else f"{len(layout.contigs):,} contigs"
    print(f"{store.folder}: {layout.positions:,} positions of {contigs} x {len(layout.species)} species")
    for name, note in _NOTES.items():
        if counts.get(name):
            print(f"  {counts[name]:,} {note}")


_NOTES = {
    "uncovered_positions": "positions have no block: every species is unknown there",
    "unknown_reference_positions": "positions of the reference are unknown",
    "soft_masked_positions": "positions are soft-masked",
    "inserted_columns": "columns were omitted, where the reference has a gap",
    "overlapping_positions": "positions of later blocks were omitted: an earlier block covers them",
    "second_rows": "second rows of a species in a block were omitted",
    "without_reference": "blocks without the reference were omitted",
}


def _print_tables(store: "AlignmentStore") -> None:
    from rich.markup import escape
    from rich.table import Table

    from r2mae.terminal import Terminal

    layout, meta, most = store.layout, store.meta, 30
    console = Terminal()
    table = Table("species", box=None, pad_edge=False)
    for name in ("known", "as the reference"):
        table.add_column(name, justify="right")
    for name, known, same in zip(layout.species, meta.known, meta.same, strict=True):
        table.add_row(escape(name), f"{known / layout.positions:.1%}", f"{same / max(known, 1):.1%}")
    console.print(table)
    table = Table("contig", box=None, pad_edge=False)
    table.add_column("positions", justify="right")
    for name, length in zip(layout.contigs[:most], layout.lengths, strict=False):
        table.add_row(escape(name), f"{length:,}")
    console.print(table)
    if len(layout.contigs) > most:
        print(f"and {len(layout.contigs) - most:,} more contigs")
    if store.tracks:
        print(f"tracks: {', '.join(store.tracks)}")


@contextmanager
def _stage_bars() -> Iterator["Progress"]:
    """Show a bar with the time left for each stage of the work."""
    from r2mae.training.progress import counting_bar

    bars: dict[str, Callable[[int, int], None]] = {}
    with ExitStack() as stack:

        def update(stage: str, done: float) -> None:
            if stage not in bars:
                stack.close()  # the bar of the stage before
                bars[stage] = stack.enter_context(counting_bar(stage, counted=False, transient=True))
            bars[stage](round(done * 10_000), 10_000)

        yield update
