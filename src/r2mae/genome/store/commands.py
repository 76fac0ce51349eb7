"""``r2mae data alignment build | info | track | export``: make, inspect and convert stores of alignments."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.build import build_store
from r2mae.genome.store.sources import Progress
from r2mae.genome.store.tracks import add_track
from r2mae.genome.store.zarr_exchange import export_zarr
from r2mae.progress import counting_bar

_MOST_CONTIGS = 30  # in a table
_NOTES = {
    "unknown_reference_positions": "positions of the reference are unknown",
    "soft_masked_positions": "positions are soft-masked",
    "inserted_columns": "columns were omitted, where the reference has a gap",
    "second_rows": "second rows of a species in a block were omitted",
    "without_reference": "blocks without the reference were omitted",
}


def build(**options: Any) -> None:
    """Make a store of MAF or reference-aligned FASTA, or of a zarr group; see :class:`r2mae.genome.options.Build`."""
    with _stage_bars() as progress:
        store = build_store(**options, progress=progress)
    _print_summary(store)


def info(store: str, verify: bool = False) -> None:
    """Print the contents of a store, and compare it with its checksums."""
    opened = AlignmentStore(store)
    if verify:
        with _stage_bars() as progress:
            opened.verify(lambda done: progress("verifying", done))
    _print_summary(opened)
    _print_tables(opened)
    if verify:
        print("all checksums match")


def track(store: str, file: str, name: str) -> None:
    """Add values for each position."""
    add_track(AlignmentStore(store), file, name)
    print(f"{store}: track {name}")


def export(store: str, out: str) -> None:
    """Write a store as a zarr group."""
    with _stage_bars() as progress:
        export_zarr(AlignmentStore(store), Path(out).expanduser(), progress)
    print(out)


def _print_summary(store: AlignmentStore) -> None:
    """Print a summary of a store: its size, and what was omitted from it."""
    layout = store.layout
    contigs = "1 contig" if len(layout.contigs) == 1 else f"{len(layout.contigs):,} contigs"
    print(f"{store.folder}: {layout.positions:,} positions of {contigs} x {len(layout.species)} species")
    for name, note in _NOTES.items():
        if layout.counts.get(name):
            print(f"  {layout.counts[name]:,} {note}")


def _print_tables(store: AlignmentStore) -> None:
    """Print species with the fractions of known bases, and of those the reference's; contigs; and tracks."""
    layout, width = store.layout, max(map(len, ("species", *store.species, *store.contigs[:_MOST_CONTIGS])))
    print(f"{'species':{width}}   known  as the reference")
    for name, known, same in zip(layout.species, layout.known, layout.same, strict=True):
        print(f"{name:{width}}  {known / layout.positions:6.1%}  {same / max(known, 1):16.1%}")
    print(f"{'contig':{width}}  {'positions':>13}")
    for name, length in zip(layout.contigs[:_MOST_CONTIGS], layout.lengths, strict=False):
        print(f"{name:{width}}  {length:13,}")
    if len(layout.contigs) > _MOST_CONTIGS:
        print(f"and {len(layout.contigs) - _MOST_CONTIGS:,} more contigs")
    if store.tracks:
        print(f"tracks: {', '.join(store.tracks)}")


@contextmanager
def _stage_bars() -> Iterator[Progress]:
    """Show a bar with the time left for each stage of the work."""
    bars: dict[str, Callable[[int, int], None]] = {}
    with ExitStack() as stack:

        def update(stage: str, done: float) -> None:
            if stage not in bars:
                stack.close()  # the bar of the stage before
                bars[stage] = stack.enter_context(counting_bar(stage, counted=False, transient=True))
            bars[stage](round(done * 10_000), 10_000)

        yield update
