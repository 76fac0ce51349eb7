"""The schemes of Table 3 on the alignment of mitochondrial DNA: how well hidden human bases are predicted."""

from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.genome.config import GenomeConfig
from r2mae.sweep.runs import SweepRun
from r2mae_paper.artefact import Tables
from r2mae_paper.drawing import Figures
from r2mae_paper.genomes import MITOCHONDRIA, crossed, genome_dots, genome_tables, store_of
from r2mae_paper.table3 import REFERENCE, SCHEMES, GenomeSize

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Table 3's schemes on mitochondrial DNA: hidden bases of held-out parts"
DATA = "mitochondria of 26 species"
COST = {"smoke": "seconds", "small": "1.2 h on a core", "full": "55 runs, not measured"}
PAPER = "The paper has variants of the nuclear genome alone."

_RATIOS = ("", "_0.05", "_0.15", "_0.3", "_0.5", "_0.8")
_TITLES = {
    f"{score}{ratio}": f"{title}{f', mask ratio {ratio[1:]}' if ratio else ''}"
    for score, title in (("masked_loss", "masked loss"), ("accuracy", "accuracy"))
    for ratio in _RATIOS
}
_SHOWN = ("masked_loss", "masked_loss_0.05", "masked_loss_0.8", "accuracy")


SIZE = GenomeSize


def cells(size: GenomeSize, out: Path) -> list[SweepRun]:
    """Return a run for each scheme and held-out fifth of the genome, and the baselines."""
    store = store_of(MITOCHONDRIA, out)
    base = GenomeConfig.make(data=str(store.folder), **size.settings)
    rows = {name: SCHEMES[name] for name in size.rows or SCHEMES}
    return crossed(base, rows, ("alignment", "composition"), store, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return means, intervals and differences of every score, and all runs."""
    return genome_tables(results, "table3-mtdna", list(_TITLES), REFERENCE)


def draw(tables: Tables, size: GenomeSize) -> Figures:
    """Draw loss and accuracy of every scheme, with the alignment's own."""
    shown = {name: _TITLES[name] for name in _SHOWN}
    return {"table3-mtdna": genome_dots(tables["table3-mtdna"], shown)}
