"""Table 3 on alignments of small genomes: every scheme, on sarbecoviruses and on mitochondrial DNA; and an ablation.

The scores of models of sarbecoviruses rank variants of SARS-CoV-2; models of mitochondrial DNA predict hidden human
bases. The ablation asks what decides how well variants are ranked: relatives, window, size, steps, regularisation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool

from r2mae.catalogue import data_root
from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.config import NO_SPECIES, GenomeConfig
from r2mae.genome.store.tokens import GAP, SOFT
from r2mae.genome.store.tracks import add_track
from r2mae.genome.variants.settings import HELD_OUT
from r2mae.sweep.runs import SweepRun, runs_of
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import Tables
from r2mae_paper.scheme_table import dots, tables_of, variants_of
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import Size, Study

CONSERVATION = "conservation"
_ALIGNMENT = "alignment"
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    **{f"fixed {ratio:.2f}": {"scheme": "fixed", "ratio": ratio} for ratio in (0.05, 0.15, 0.3)},
    **{
        name: {"scheme": name}
        for name in ("dynamic", "mdlm", "r2mae", "r2mae-dynamic", "cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0")
    },
}
REFERENCE = "fixed 0.15"

_VARIANTS = {
    "spearman": "Spearman, all",
    "spearman_missense": "Spearman, missense",
    "spearman_synonymous": "Spearman, synonymous",
    "auroc_stop_gained_vs_synonymous": "AUROC, stop gained\nfrom synonymous",
}
TITLES = {
    **_VARIANTS,
    **{name + HELD_OUT: f"{title}\n(held-out positions)" for name, title in _VARIANTS.items()},
    "masked_loss": "masked loss, held out",
    "accuracy": "accuracy, held out",
}


PAPERS = {"steps": 30_000, "accumulate": 4, "validate_every": 500, "patience": 5, "keep": "best"}
"""The paper's network, steps and schedule, which are the domain's, with early stopping; its patience is ours.

Windows of a step are divided into four parts, so that a GPU with 80 GB can hold them. GPN-MSA's conservation weights
and flipped labels need tracks of phyloP and phastCons, which these genomes do not have.
"""

SMALL = {
    **{"width": 128, "layers": 2, "heads": 4, "dropout": 0.3, "window": 64, "batch_size": 64, "lr": 1e-3},
    **{"steps": 250, "validate_every": 25, "keep": "best"},
}
SMOKE = {"width": 16, "layers": 1, "heads": 2, "window": 64, "batch_size": 8, "steps": 2}


_BASES = {
    f"{score}{ratio}": f"{title}{f', mask ratio {ratio[1:]}' if ratio else ''}"
    for score, title in (("masked_loss", "masked loss"), ("accuracy", "accuracy"))
    for ratio in ("", "_0.05", "_0.15", "_0.3", "_0.5", "_0.8")
}
_SHOWN = {name: _BASES[name] for name in ("masked_loss", "masked_loss_0.05", "masked_loss_0.8", "accuracy")}
BASE, WEIGHTED = "as Table 3", "loss weighted by conservation"


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


SARBECOVIRUSES = Alignment("sarbecovirus_61.aligned.fa.gz", "MN908947.fa.gz", "MN908947")
MITOCHONDRIA = Alignment("chrM_multiz30way.maf.gz", "rCRS_NC_012920.1.fa.gz", "chrM")


@dataclass(frozen=True)
class GenomeSize(Size):
    """How much is trained.

    Attributes
    ----------
    rows : tuple of str
        Names of :data:`SCHEMES`; by default all.
    seeds : int
        Runs of each row.
    parts : int
        Equal parts of the genome, of which the first run holds out the first, and so on.
    settings : mapping
        Fields of the configuration.
    """

    rows: tuple[str, ...] | None = None
    seeds: int = 5
    parts: int = 5
    settings: Mapping[str, Any] = field(default_factory=lambda: PAPERS)

    @property
    def most_seeds(self) -> int:
        """As many as there are parts: each seed holds out one of its own."""
        return self.parts

    small: ClassVar[Mapping[str, Any]] = {"settings": SMALL}
    smoke: ClassVar[Mapping[str, Any]] = {"rows": ("fixed 0.15", "r2mae"), "seeds": 2, "parts": 2, "settings": SMOKE}


@dataclass(frozen=True)
class VirusSize(GenomeSize):
    """How much is trained, and which variants are scored.

    Attributes
    ----------
    positions : int, optional
        Variants up to this position are scored, instead of all.
    """

    positions: int | None = None

    smoke: ClassVar[Mapping[str, Any]] = {**GenomeSize.smoke, "positions": 900}


@dataclass(frozen=True)
class AblationSize(VirusSize):
    """How much is trained; see :class:`VirusSize`.

    Attributes
    ----------
    rows : tuple of str
        Names of :func:`changes`; by default all.
    """

    seeds: int = 1

    smoke: ClassVar[Mapping[str, Any]] = {**VirusSize.smoke, "rows": (BASE, "no relatives", WEIGHTED)}


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


def variants(out: Path, positions: int | None = None) -> dict[str, Any]:
    """Write the variants that count below `out`, and return the fields that name them.

    These have an expected count of 20 or more, at sites where the founders of clades do not differ.
    """
    table = pd.read_csv(genome_file("sars2_fitness.tsv.gz"), sep="\t", dtype=str)
    counted = (table["expected_count"].astype(float) >= 20) & (table["site_differs_among_clade_founders"] == "False")
    if positions is not None:
        counted &= table["pos"].astype(int) <= positions
    with atomic_write(file := out / "fitness.tsv") as opened:
        table[counted].to_csv(opened, sep="\t", index=False)
    return {
        "variants": str(file),
        "label": "fitness",
        "classes": "consequence",
        "contrasts": ("stop_gained/synonymous",) if positions is None else (),
    }


Rows = Mapping[str, Mapping[str, Any]]


def schemes(size: GenomeSize, store: AlignmentStore) -> Rows:
    """Return the rows of Table 3."""
    return {name: SCHEMES[name] for name in size.rows or SCHEMES}


def by_likeness(store: AlignmentStore) -> list[str]:
    """Return the aligned species, the most like the reference first."""
    known, same = agreement(store)
    shares = same.sum(0) / np.maximum(known.sum(0), 1)
    return [store.species[1:][place] for place in np.argsort(-shares, kind="stable")]


def changes(size: GenomeSize, store: AlignmentStore) -> Rows:
    """Return the rows of the ablation: what each of them changes."""
    names = by_likeness(store)
    rows: Rows = {
        BASE: {},
        "without the 2 nearest": {"species": tuple(names[2:])},
        "every 4th relative": {"species": tuple(names[::4])},
        "the 8 farthest": {"species": tuple(names[-8:])},
        "the 2 farthest": {"species": tuple(names[-2:])},
        "no relatives": {"species": (NO_SPECIES,)},
        "window 16": {"window": 16, "batch_size": 256},
        "window 128": {"window": 128, "batch_size": 32},
        "1 layer, width 32": {"layers": 1, "width": 32, "heads": 4},
        "4 layers, width 256": {"layers": 4, "width": 256, "heads": 8, "lr": 5e-4},
        "50 steps": {"steps": 50},
        "1,000 steps, the last weights": {"steps": 1000, "keep": "last"},
        "dropout 0": {"dropout": 0.0},
        "dropout 0.5, 500 steps": {"dropout": 0.5, "steps": 500},
        "weight decay 0.3": {"weight_decay": 0.3},
        "mask token alone": {"corruption": "mask"},
        WEIGHTED: {"weight_track": CONSERVATION},
    }
    return rows if size.rows is None else {name: rows[name] for name in size.rows}


def runs(
    size: GenomeSize,
    out: Path,
    *,
    alignment: Alignment,
    rows: Callable[[GenomeSize, AlignmentStore], Rows] = schemes,
    baselines: Sequence[str] = (_ALIGNMENT, "composition"),
) -> list[SweepRun]:
    """Return a run for each row and seed, and the baselines; each seed holds out another part of the genome.

    Intervals over seeds hence contain the differences between the parts, too.

    Parameters
    ----------
    size : GenomeSize
        With seeds, and parts of the genome, of which there are at least as many.
    out : Path
    alignment : Alignment
    rows : callable
        Returns what each row changes of the configuration, by its label.
    baselines : sequence of str
        Rows that are measured without training.
    """
    store = store_of(alignment, out)
    scored = variants(out, size.positions) if isinstance(size, VirusSize) else {}
    base = GenomeConfig.make(data=str(store.folder), **scored, **size.settings)
    regions = [{"test_regions": (part_of(store, seed, size.parts),)} for seed in range(size.seeds)]
    return [
        replace(run, config=run.config.replace(**regions[run.seed]))
        for run in runs_of(variants_of(base, rows(size, store), baselines), range(size.seeds), out)
    ]


def table(results: pd.DataFrame, *, name: str, titles: Mapping[str, str], reference: str) -> Tables:
    """Return means, intervals and differences of every score, and all runs; the alignment is the baseline."""
    return tables_of(results, name, list(titles), reference, baseline=_ALIGNMENT, lower=("masked_loss",))


def plot(tables: Tables, size: GenomeSize, *, name: str, titles: Mapping[str, str]) -> Figures:
    """Draw the scores of every row, with the alignment's own as the baseline."""
    return {name: dots(tables[name], titles, _ALIGNMENT, without=("composition",))}


STUDIES = (
    Study(
        ENTRIES["table3"],
        VirusSize,
        partial(plot, name="table3", titles=TITLES),
        partial(table, name="table3", titles=TITLES, reference=REFERENCE),
        runs=partial(runs, alignment=SARBECOVIRUSES),
    ),
    Study(
        ENTRIES["table3-mtdna"],
        GenomeSize,
        partial(plot, name="table3-mtdna", titles=_SHOWN),
        partial(table, name="table3-mtdna", titles=_BASES, reference=REFERENCE),
        runs=partial(runs, alignment=MITOCHONDRIA),
    ),
    Study(
        ENTRIES["table3-ablation"],
        AblationSize,
        partial(plot, name="table3-ablation", titles=TITLES),
        partial(table, name="table3-ablation", titles=TITLES, reference=BASE),
        runs=partial(runs, alignment=SARBECOVIRUSES, rows=changes, baselines=(_ALIGNMENT,)),
    ),
)
