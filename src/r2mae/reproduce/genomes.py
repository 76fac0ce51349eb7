"""What the artefacts of the genome wing share: alignments from the data folder, runs by held-out part, their table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool
from matplotlib.figure import Figure

from r2mae.catalogue import data_root
from r2mae.errors import UserError
from r2mae.evaluation.statistics import mean_interval, paired_difference
from r2mae.files import atomic_write
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.config import GenomeConfig
from r2mae.genome.store.tokens import GAP, SOFT
from r2mae.genome.store.tracks import add_track
from r2mae.report.comparison import BASELINE
from r2mae.report.style import BLUE, GREEN, VERMILION
from r2mae.reproduce.artefact import Row, Tables
from r2mae.reproduce.drawing import GREY, panels
from r2mae.sweep.cells import Axis, Cell, cells_of, grid
from r2mae.sweep.cells import Row as SweepRow
from r2mae.training.models import with_values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

CONSERVATION = "conservation"
_LOSS = "masked_loss"


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
    tokens, reference = np.asarray(store.tokens[:, 1:]), (np.asarray(store.reference) & (SOFT - 1))[:, None]
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
) -> list[Cell]:
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
    planned = [replace(row, values={"scheme": row.config.scheme}) for row in grid(base, [Axis("row", rows)])]
    regions = [{"test_regions": (part_of(store, seed, size.parts),)} for seed in range(size.seeds)]
    return [
        replace(cell, config=with_values(cell.config, regions[cell.seed]))
        for cell in cells_of([*planned, *known], range(size.seeds), out)
    ]


def tables_of(results: "pd.DataFrame", name: str, scores: Sequence[str], reference: str) -> Tables:
    """Return means of scores over seeds with 95 % intervals, and paired differences from a row and from the alignment.

    Parameters
    ----------
    results : DataFrame
        A line a run.
    name : str
        Of the tables.
    scores : sequence of str
        Columns of the results.
    reference : str
        The row that others are compared with.
    """
    scores = [score for score in scores if score in results]
    by_label = {label: group.set_index("seed") for label, group in results.groupby("label", sort=False)}
    rows: list[Row] = []
    for label, group in by_label.items():
        for score in scores:
            mine = group[score].dropna()  # no variant of a class may lie in a held-out part
            if mine.empty:
                continue
            found = mean_interval(mine)
            row: Row = {"label": label, "score": score, "seeds": found.n, "mean": found.mean}
            row |= {"low": found.low, "high": found.high}
            for other, prefix in ((reference, "vs_reference"), ("alignment", "vs_alignment")):
                row |= _difference(mine, by_label.get(other), score, prefix) if label != other else {}
            rows.append(row)
    kept = ["label", "scheme", "seed", "seconds", *scores]
    return {name: rows, f"{name}-runs": results[kept].to_dict("records")}


def _difference(mine: "pd.Series[float]", other: "pd.DataFrame | None", score: str, prefix: str) -> Row:
    both = (
        []
        if other is None
        else [seed for seed in mine.index if seed in other.index and np.isfinite(other[score][seed])]
    )
    if other is None or not both:
        return {}
    found = paired_difference(mine[both], other[score][both], higher_is_better=not score.startswith(_LOSS))
    ends = {f"{prefix}_low": found.low, f"{prefix}_high": found.high}
    return {prefix: found.mean, **ends, f"{prefix}_is": found.verdict, f"{prefix}_pairs": found.n}


def dots(rows: Sequence[Row], titles: Mapping[str, str]) -> Figure:
    """Draw a panel for each score: rows with their means and intervals, and the alignment as a dashed line."""
    named = [title for title in titles if any(row["score"] == title for row in rows)]
    labels = [label for label in dict.fromkeys(row["label"] for row in rows) if label != "composition"]
    columns = max(min(len(named), 4), 1)
    figure, grid_of_axes = panels(
        columns, max(-(-len(named) // columns), 1), width=3.1, height=0.8 + 0.24 * len(labels)
    )
    for axes in grid_of_axes[len(named) :]:
        axes.set_visible(False)
    for place, (axes, score) in enumerate(zip(grid_of_axes, named, strict=False)):
        _panel(axes, [row for row in rows if row["score"] == score], labels, titles[score], place % columns == 0)
    return figure


def _panel(axes: "Axes", rows: Sequence[Row], labels: Sequence[str], title: str, named: bool) -> None:
    found = {row["label"]: row for row in rows}
    for place, label in enumerate(labels):
        if label not in found:
            continue
        row = found[label]
        colour = GREEN if label == "alignment" else VERMILION if label.startswith("r2mae") else BLUE
        ends = [[row["mean"] - row["low"]], [row["high"] - row["mean"]]]
        axes.errorbar(
            row["mean"], place, xerr=None if np.isnan(ends).any() else ends, fmt="o", color=colour, markersize=4,
            capsize=2,
        )  # fmt: skip
    if "alignment" in found:
        axes.axvline(found["alignment"]["mean"], color=GREY, linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(labels)), list(labels) if named else [""] * len(labels))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_title(title, fontsize=9)
