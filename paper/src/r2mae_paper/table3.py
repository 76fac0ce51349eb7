"""Table 3 on the alignment of sarbecoviruses: every scheme, and how its scores rank variants of SARS-CoV-2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.files import atomic_write
from r2mae.genome.config import GenomeConfig
from r2mae.genome.variants.settings import HELD_OUT
from r2mae.sweep.runs import SweepRun
from r2mae_paper.artefact import Size, Tables
from r2mae_paper.drawing import Figures
from r2mae_paper.genomes import SARBECOVIRUSES, crossed, genome_dots, genome_file, genome_tables, store_of

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Table 3 on sarbecoviruses: schemes, and how their scores rank the variants of SARS-CoV-2"
DATA = "61 sarbecoviruses, variants of SARS-CoV-2"
COST = {
    "smoke": "seconds",
    "small": "55 runs, 40 min on a core",
    "full": "55 runs, 6.5 h each on 4 GPUs (the paper, human genome)",
}
PAPER = "On human variants R²MAE has the highest partial AUROC and AUPRC (regulatory); missense is alike for all."

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


PAPERS = {"steps": 30_000, "validate_every": 500, "patience": 5, "keep": "best"}
"""The paper's network and steps, which are the domain's, with early stopping; its patience is ours."""

SMALL = {
    **{"width": 128, "layers": 2, "heads": 4, "dropout": 0.3, "window": 64, "batch_size": 64, "lr": 1e-3},
    **{"steps": 250, "validate_every": 25, "keep": "best"},
}
SMOKE = {"width": 16, "layers": 1, "heads": 2, "window": 64, "batch_size": 8, "steps": 2}


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


SIZE = VirusSize


def variants(out: Path, positions: int | None = None) -> dict[str, Any]:
    """Write the variants that count below `out`, and return the fields that name them.

    These have an expected count of 20 or more, at sites where the founders of clades do not differ.
    """
    import pandas as pd

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


def cells(size: VirusSize, out: Path) -> list[SweepRun]:
    """Return a run for each scheme and held-out fifth of the genome, and the baselines."""
    store = store_of(SARBECOVIRUSES, out)
    base = GenomeConfig.make(data=str(store.folder), **variants(out, size.positions), **size.settings)
    rows = {name: SCHEMES[name] for name in size.rows or SCHEMES}
    return crossed(base, rows, ("alignment", "composition"), store, size, out)


def table(results: "pd.DataFrame") -> Tables:
    """Return means, intervals and differences of every score, and all runs."""
    return genome_tables(results, "table3", list(TITLES), REFERENCE)


def draw(tables: Tables, size: VirusSize) -> Figures:
    """Draw every score of every scheme, with the alignment's own."""
    rows: Sequence[Any] = tables["table3"]
    return {"table3": genome_dots(rows, TITLES)}
