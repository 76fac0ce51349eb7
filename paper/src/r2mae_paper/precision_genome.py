"""Products in bf16 against 32 bits, on alignments: GPN-MSA."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.genome.config import GenomeConfig
from r2mae_paper.genomes import SARBECOVIRUSES, store_of
from r2mae_paper.precision import PAPER, PrecisionSize, PrecisionStudy, final_loss
from r2mae_paper.table3 import SMALL, SMOKE

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the model of genomes"
DATA = "61 sarbecoviruses"
COST = {"smoke": "seconds", "small": "10 runs, 10 min on a core", "full": "not measured"}


@dataclass(frozen=True)
class GenomeSize(PrecisionSize):
    """How much is trained; see :class:`r2mae_paper.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"gpn-msa": {"steps": 30_000}})

    small: ClassVar[Mapping[str, Any]] = {"settings": {"gpn-msa": SMALL}}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"gpn-msa": SMOKE}}


def _bases(size: GenomeSize, out: Path) -> dict[str, GenomeConfig]:
    store = store_of(SARBECOVIRUSES, out)
    return {name: GenomeConfig.make(data=str(store.folder), **settings) for name, settings in size.settings.items()}


STUDY = PrecisionStudy("precision-genome", ("masked_loss", "accuracy"), _bases)
SIZE = GenomeSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, final_loss
