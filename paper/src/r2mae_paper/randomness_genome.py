"""Where the randomness belongs, on alignments of genomes: by mini-batch or by window."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.genome.config import GenomeConfig
from r2mae_paper.genomes import MITOCHONDRIA, SARBECOVIRUSES, store_of
from r2mae_paper.randomness import PAPER, RandomnessSize, RandomnessStudy, jumps_of_run
from r2mae_paper.table3 import SMALL, SMOKE

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "Where the randomness belongs, on genomes: by batch or by window"
DATA = "61 sarbecoviruses; full: mitochondria of 26 species, too"
COST = {"smoke": "seconds", "small": "45 runs, about 1 h on a core", "full": "not measured"}

_ALIGNMENTS = {"sarbecoviruses": SARBECOVIRUSES, "mitochondria": MITOCHONDRIA}


@dataclass(frozen=True)
class GenomeSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`. Alignments have mask tokens."""

    sets: tuple[str, ...] = tuple(_ALIGNMENTS)
    mask_aware: tuple[bool, ...] = (False,)
    settings: Mapping[str, Any] = field(default_factory=lambda: {"steps": 30_000})

    # Not the sets: the stores of all alignments have one name, by which the data of earlier runs are known.
    chooses: ClassVar[tuple[str, ...]] = ("seeds", "rows")

    small: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("sarbecoviruses",), "seeds": 5},
        "settings": SMALL,
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("mitochondria",), "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-per-sample"), "seeds": 2},
        "settings": {**SMOKE, "steps": 70},
    }


def _bases(size: GenomeSize, out: Path) -> dict[str, GenomeConfig]:
    folders = {name: store_of(_ALIGNMENTS[name], out / name).folder for name in size.sets}
    return {name: GenomeConfig.make(data=str(folder), **size.settings) for name, folder in folders.items()}


STUDY = RandomnessStudy("randomness-genome", "masked_loss", "masked loss", "accuracy", _bases, of_features=False)
SIZE = GenomeSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, jumps_of_run
