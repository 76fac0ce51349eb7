"""Table 3 on alignments of small genomes: every scheme, on sarbecoviruses and on mitochondrial DNA; and an ablation.

The scores of models of sarbecoviruses rank variants of SARS-CoV-2; models of mitochondrial DNA predict hidden human
bases. The ablation asks what decides how well variants are ranked: relatives, window, size, steps, regularisation.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Bool

from r2mae.catalogue import data_root
from r2mae.compare.measure import check_baselines
from r2mae.compare.runs import SweepRun, runs_of
from r2mae.errors import UserError, brief, warn_once
from r2mae.files import atomic_write
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.config import HELD_OUT, NO_SPECIES, GenomeConfig
from r2mae.genome.domain import DOMAIN
from r2mae.genome.store.tokens import GAP, SOFT
from r2mae.genome.store.tracks import add_track
from r2mae_paper.drawing import Figures
from r2mae_paper.rows import Tables, unique
from r2mae_paper.scheme_tables import CURRICULA, chosen, dots, schemes, tables_of, variants_of
from r2mae_paper.studies import ENTRIES, Size
from r2mae_paper.study import Study

CONSERVATION = "conservation"
TRACKS = ("phylop", "phastcons")
"""The names of tracks with which runs on the human genome are weighted as GPN-MSA's."""
_ALIGNMENT = "alignment"
SCHEMES = schemes((0.05, 0.15, 0.3), "dynamic", "mdlm", "r2mae", *CURRICULA)
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
_BASES = {
    f"{score}{ratio}": f"{title}{f', mask ratio {ratio[1:]}' if ratio else ''}"
    for score, title in (("masked_loss", "masked loss"), ("accuracy", "accuracy"))
    for ratio in ("", "_0.05", "_0.15", "_0.3", "_0.5", "_0.8")
}
_SHOWN = {name: _BASES[name] for name in ("masked_loss", "masked_loss_0.05", "masked_loss_0.8", "accuracy")}
BASE, WEIGHTED = "as Table 3", "loss weighted by conservation"


Alignment: TypeAlias = tuple[str, str]
"""Names of the files of an alignment and its reference, in the folder `genome` of the data folder."""
SARBECOVIRUSES: Alignment = "sarbecovirus_61.aligned.fa.gz", "MN908947.fa.gz"
MITOCHONDRIA: Alignment = "chrM_multiz30way.maf.gz", "rCRS_NC_012920.1.fa.gz"


def genome_file(name: str) -> Path:
    """Return a file of the data folder."""
    path = data_root() / "genome" / name
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; name the folder that holds genome/{name} with R2MAE_DATA")
    return path


def store_of(alignment: Alignment, out: Path) -> AlignmentStore:
    """Build a store below `out`, or open it, with a track: the share of aligned species with the reference's base."""
    file, reference = map(genome_file, alignment)
    store = build_store(file, out / "store", reference=reference)
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
    add_track(store, file, CONSERVATION)


def part_of(store: AlignmentStore, number: int, parts: int) -> str:
    """Return one of the equal parts of a genome of one contig, as a region."""
    (contig,), (length,) = store.contigs, store.layout.lengths
    ends = np.linspace(0, length, parts + 1).round().astype(int)
    return f"{contig}:{ends[number] + 1}-{ends[number + 1]}"


def variants(out: Path, positions: int) -> dict[str, Any]:
    """Write the variants that count below `out`, and return the fields that name them.

    These have an expected count of 20 or more, at sites where the founders of clades do not differ.
    """
    table = pd.read_csv(genome_file("sars2_fitness.tsv.gz"), sep="\t", dtype=str)
    counted = (table["expected_count"].astype(float) >= 20) & (table["site_differs_among_clade_founders"] == "False")
    if positions:
        counted &= table["pos"].astype(int) <= positions
    with atomic_write(file := out / "fitness.tsv") as opened:
        table[counted].to_csv(opened, sep="\t", index=False)
    return {
        "variants": str(file),
        "label": "fitness",
        "classes": "consequence",
        "contrasts": ("stop_gained/synonymous",) if not positions else (),
    }


def human_variants(files: Sequence[str], out: Path) -> dict[str, Any]:
    """Write tables of human variants as one below `out`, and return the fields that name them.

    Variants of the first table are of the class `missense` (the paper: ClinVar), those of others of the class
    `regulatory` (OMIM), and once more of the class of their consequence. Columns of numbers are kept, as baselines.
    """
    tables = []
    for number, file in enumerate(files):
        table = _table_of_variants(Path(file))
        tables.append(table.assign(set="regulatory" if number else "missense"))
        if number and "consequence" in table:
            tables.append(table.assign(set=table["consequence"].str.replace(r"\W+", "_", regex=True)))
    with atomic_write(written := out / "human.tsv") as opened:
        joined = pd.concat(tables)
        own = joined[[*_ALLELES, "label", "set"]]
        others = joined.drop(columns=own.columns).apply(pd.to_numeric, errors="coerce").dropna(axis=1, how="all")
        pd.concat([own, others], axis=1).to_csv(opened, sep="\t", index=False)
    return {"variants": str(written), "label": "label", "classes": "set"}


_ALLELES = ("chrom", "pos", "ref", "alt")
_LABELS = {**dict.fromkeys(("1", "true", "pathogenic"), 1), **dict.fromkeys(("0", "false", "common"), 0)}


def _table_of_variants(file: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, sep=None, engine="python")
    except (OSError, ValueError, ImportError, csv.Error) as error:  # errors of pandas and pyarrow are ValueErrors
        raise UserError(f"{file}: cannot be read as a table ({brief(error)}): give .tsv, .csv or .parquet") from None
    for name in (*_ALLELES, "label"):
        if name not in table:
            raise UserError(f"{file}: has no column {name!r}: it needs {', '.join(_ALLELES)} and label")
    labels = table["label"].astype(str).str.lower().map(_LABELS)
    if labels.isna().any():
        wrong = table["label"][labels.isna()].iloc[0]
        raise UserError(f"{file}: has the label {wrong!r}, expected 1 or 0, or Pathogenic or Common")
    return table.assign(label=labels.astype(int))


def human_regions(store: AlignmentStore) -> dict[str, Any]:
    """Return the fields that hold out chromosomes as GPN-MSA does: 21 for validation, and 22 for testing."""
    prefix = "chr" if "chr21" in store.contigs else ""
    return {"validation_regions": (f"{prefix}21",), "test_regions": (f"{prefix}22",)}


def as_gpn_msa(store: AlignmentStore) -> dict[str, Any]:
    """Return the fields of GPN-MSA's weights of positions, flipped labels and one-hot input, if a store has the tracks.

    The labels of half of the hidden bases that are not conserved are random ones, as in the original.
    """
    if lacking := [name for name in TRACKS if name not in store.tracks]:
        warn_once(
            f"{store.folder} has no track {' and no track '.join(lacking)}: unlike in GPN-MSA, positions weigh alike "
            "(r2mae data alignment track STORE FILE --name NAME adds one)"
        )
        return {}
    return {"conservation": TRACKS, "flip": 0.5, "one_hot": True}


Rows = Mapping[str, Mapping[str, Any]]


def scheme_rows(size: Size, store: AlignmentStore) -> Rows:
    """Return the rows of Table 3."""
    return chosen(size, SCHEMES, REFERENCE)


def by_likeness(store: AlignmentStore) -> list[str]:
    """Return the aligned species, the most like the reference first."""
    known, same = agreement(store)
    shares = same.sum(0) / np.maximum(known.sum(0), 1)
    return [store.species[1:][place] for place in np.argsort(-shares, kind="stable")]


def changes(size: Size, store: AlignmentStore) -> Rows:
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
    return chosen(size, rows, BASE)


def runs(
    size: Size,
    out: Path,
    *,
    alignment: Alignment,
    rows: Callable[[Size, AlignmentStore], Rows] = scheme_rows,
) -> list[SweepRun]:
    """Return a run for each row and seed, and the baselines; each seed holds out another part of the genome.

    Intervals over seeds hence contain the differences between the parts, too. With a store of the human genome all
    seeds hold out the same chromosomes. `rows` returns what each row changes of the configuration, by its label.
    """
    human = size.fields.get("store")
    if size.fields.get("variants") and not human:
        raise UserError("--variants are of the human genome: name its alignment with --store FOLDER")
    if human:
        store = AlignmentStore(Path(human).expanduser())
        scored = human_variants(size.variants, out) if size.variants else {}
        scored |= as_gpn_msa(store)
    else:
        store = store_of(alignment, out)
        scored = variants(out, size.positions) if "positions" in size.fields else {}
    base = GenomeConfig.make(**{"data": str(store.folder), **scored, **size.settings})
    check_baselines(base, DOMAIN, size.baselines)
    regions = [
        human_regions(store) if human else {"test_regions": (part_of(store, seed, size.parts),)}
        for seed in range(size.seeds)
    ]
    return [
        replace(run, config=run.config.replace(**regions[run.seed]))
        for run in runs_of(variants_of(base, rows(size, store), size.baselines), range(size.seeds), out)
    ]


def table(results: pd.DataFrame, *, name: str, titles: Mapping[str, str], reference: str) -> Tables:
    """Return means, intervals and differences of every score, and all runs; the alignment is the baseline."""
    scores = [*titles, *(score for score in map(str, results) if is_human(score))]
    return tables_of(results, name, scores, reference, baseline=_ALIGNMENT, lower=("masked_loss",))


def plot(tables: Tables, size: Size, *, name: str, titles: Mapping[str, str]) -> Figures:
    """Draw the scores of every row, with the alignment's own as the baseline."""
    human = {score: score.replace("_", " ") for score in unique(tables[name], "score") if is_human(score)}
    return {name: dots(tables[name], {**human, **titles}, _ALIGNMENT, without=("composition",))}


def is_human(score: str) -> bool:
    """Return whether a score is of a class of human variants; these are all at held-out positions."""
    of_labels = score.startswith(("auroc_", "partial_auroc_", "auprc_"))
    return of_labels and not any(part in score for part in ("_vs_", "_blocks_", HELD_OUT))


STUDIES = (
    Study(
        ENTRIES["table3"],
        partial(plot, name="table3", titles=TITLES),
        partial(table, name="table3", titles=TITLES, reference=REFERENCE),
        runs=partial(runs, alignment=SARBECOVIRUSES),
    ),
    Study(
        ENTRIES["table3-mtdna"],
        partial(plot, name="table3-mtdna", titles=_SHOWN),
        partial(table, name="table3-mtdna", titles=_BASES, reference=REFERENCE),
        runs=partial(runs, alignment=MITOCHONDRIA),
    ),
    Study(
        ENTRIES["table3-ablation"],
        partial(plot, name="table3-ablation", titles=TITLES),
        partial(table, name="table3-ablation", titles=TITLES, reference=BASE),
        runs=partial(runs, alignment=SARBECOVIRUSES, rows=changes),
    ),
)
