"""What decides how well a model of sarbecoviruses ranks variants: relatives, window, size, steps, regularisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from r2mae.genome import AlignmentStore
from r2mae.genome.config import NO_SPECIES, GenomeConfig
from r2mae.sweep.runs import SweepRun
from r2mae_paper.artefact import Tables
from r2mae_paper.drawing import Figures
from r2mae_paper.genomes import (
    CONSERVATION,
    SARBECOVIRUSES,
    agreement,
    crossed,
    genome_dots,
    genome_tables,
    store_of,
)
from r2mae_paper.table3 import TITLES, VirusSize, variants

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Sarbecoviruses: what decides how well a model ranks variants"
DATA = "61 sarbecoviruses, variants of SARS-CoV-2"
COST = {"smoke": "seconds", "small": "20 min on a core", "full": "17 runs, not measured"}
PAPER = "No such table: the paper has one network, and all of its species."
BASE, WEIGHTED = "as Table 3", "loss weighted by conservation"


@dataclass(frozen=True)
class AblationSize(VirusSize):
    """How much is trained; see :class:`r2mae_paper.table3.VirusSize`.

    Attributes
    ----------
    rows : tuple of str
        Names of :func:`changes`; by default all.
    """

    rows: tuple[str, ...] | None = None
    seeds: int = 1

    smoke: ClassVar[Mapping[str, Any]] = {**VirusSize.smoke, "rows": (BASE, "no relatives", WEIGHTED)}


SIZE = AblationSize


def by_likeness(store: AlignmentStore) -> list[str]:
    """Return the aligned species, the most like the reference first."""
    known, same = agreement(store)
    shares = same.sum(0) / np.maximum(known.sum(0), 1)
    return [store.species[1:][place] for place in np.argsort(-shares, kind="stable")]


def changes(store: AlignmentStore) -> dict[str, Mapping[str, Any]]:
    """Return the rows: what each of them changes."""
    names = by_likeness(store)
    return {
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


def cells(size: AblationSize, out: Path) -> list[SweepRun]:
    """Return a run for each change and held-out part of the genome, and the baseline."""
    store = store_of(SARBECOVIRUSES, out)
    base = GenomeConfig.make(data=str(store.folder), **variants(out, size.positions), **size.settings)
    rows = changes(store)
    if size.rows is not None:
        rows = {name: rows[name] for name in size.rows}
    return crossed(base, rows, ("alignment",), store, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return means, intervals and differences of every score, and all runs."""
    return genome_tables(results, "table3-ablation", list(TITLES), BASE)


def draw(tables: Tables, size: AblationSize) -> Figures:
    """Draw every score of every change, with the alignment's own."""
    return {"table3-ablation": genome_dots(tables["table3-ablation"], TITLES)}
