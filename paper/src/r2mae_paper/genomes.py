"""What the artefacts of the genome domain share: alignments from the data folder, runs by held-out part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool
from matplotlib.figure import Figure

from r2mae.catalogue import data_root
from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.config import GenomeConfig
from r2mae.genome.store.tokens import GAP, SOFT
from r2mae.genome.store.tracks import add_track
from r2mae.report.comparison import BASELINE
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of
from r2mae.sweep.runs import Variant as SweepRow
from r2mae.training.models import with_values
from r2mae_paper.artefact import TableRow, Tables
from r2mae_paper.scheme_table import dots, tables_of

if TYPE_CHECKING:
    import pandas as pd

CONSERVATION = "conservation"
_ALIGNMENT = "alignment"


@dataclass(frozen=True)
class Alignment:
    """An alignment in the folder `genome` of the data folder.

    Attributes
    ----------
    file, reference : str
        Names of the files.
    contig : str
        Of the reference.
    """

    file: str
    reference: str
    contig: str


@runtime_checkable
class Crossed(Protocol):
    """A size with seeds and parts."""

    @property
    def seeds(self) -> int:
        """Runs of each row."""

    @property
    def parts(self) -> int:
        """Equal parts of the genome."""


SARBECOVIRUSES = Alignment("sarbecovirus_61.aligned.fa.gz", "MN908947.fa.gz", "MN908947")
MITOCHONDRIA = Alignment("chrM_multiz30way.maf.gz", "rCRS_NC_012920.1.fa.gz", "chrM")


def genome_file(name: str) -> Path:
    """Return a file of the data folder.

    Raises
    ------
    UserError
        If it is not there.
    """
    path = data_root() / "genome" / name
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; name the folder that holds genome/{name} with R2MAE_DATA")
    return path


def store_of(alignment: Alignment, out: Path) -> AlignmentStore:
    """Build a store below `out`, or open it, with a track: the share of aligned species with the reference's base."""
    store = build_store(genome_file(alignment.file), out / "store", reference=genome_file(alignment.reference))
    if CONSERVATION not in store.tracks:
        _add_conservation(store, out)
        store = AlignmentStore(store.folder)
    return store


def agreement(
    store: AlignmentStore,
) -> tuple[Bool[np.ndarray, "positions others"], Bool[np.ndarray, "positions others"]]:
    """Return where an aligned species has a base and the reference, too, and where the two are the same."""
    tokens = np.concatenate([store.tokens(number)[:, 1:] for number in range(len(store.contigs))])
    reference = (store.reference & (SOFT - 1))[:, None]
    known = (tokens < GAP) & (reference < GAP)
    return known, known & (tokens == reference)


def _add_conservation(store: AlignmentStore, out: Path) -> None:
    known, same = agreement(store)
    shares = same.sum(1) / np.maximum(known.sum(1), 1)
    file = out / f"{CONSERVATION}.bedgraph"
    with atomic_write(file) as opened:
        for contig, offset, length in zip(store.contigs, store.layout.offsets[:-1], store.layout.lengths, strict=True):
            for place in range(length):
                opened.write(f"{contig}\t{place}\t{place + 1}\t{shares[offset + place]:.3f}\n")
    add_track(store.folder, store.layout, file, CONSERVATION)


def part_of(store: AlignmentStore, number: int, parts: int) -> str:
    """Return one of the equal parts of a genome of one contig, as a region."""
    (contig,), (length,) = store.contigs, store.layout.lengths
    ends = np.linspace(0, length, parts + 1).round().astype(int)
    return f"{contig}:{ends[number] + 1}-{ends[number + 1]}"


def crossed(
    base: GenomeConfig,
    rows: Mapping[str, Mapping[str, Any]],
    baselines: Sequence[str],
    store: AlignmentStore,
    size: Crossed,
    out: Path,
) -> list[SweepRun]:
    """Return a run for each row and seed; each seed holds out another part of the genome.

    Intervals over seeds hence contain the differences between the parts, too.

    Parameters
    ----------
    base : GenomeConfig
    rows : mapping of label to fields of the configuration
    baselines : sequence of str
        Rows that are measured without training.
    store : AlignmentStore
    size : Crossed
        Seeds, and parts of the genome, of which there are at least as many.
    out : Path
    """
    known = [SweepRow(name, base, {"scheme": BASELINE}, baseline=True) for name in baselines]
    planned = [replace(row, values={"scheme": row.config.scheme}) for row in grid(base, [SweepParameter("row", rows)])]
    regions = [{"test_regions": (part_of(store, seed, size.parts),)} for seed in range(size.seeds)]
    return [
        replace(cell, config=with_values(cell.config, regions[cell.seed]))
        for cell in runs_of([*planned, *known], range(size.seeds), out)
    ]


def genome_tables(results: "pd.DataFrame", name: str, scores: Sequence[str], reference: str) -> Tables:
    """Return :func:`~r2mae_paper.scheme_table.tables_of` with the alignment as the baseline."""
    return tables_of(results, name, scores, reference, baseline=_ALIGNMENT, lower=("masked_loss",))


def genome_dots(rows: Sequence[TableRow], titles: Mapping[str, str]) -> Figure:
    """Draw :func:`~r2mae_paper.scheme_table.dots` with the alignment as the baseline."""
    return dots(rows, titles, _ALIGNMENT, without=("composition",))
