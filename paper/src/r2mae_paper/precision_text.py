"""Products in bf16 against 32 bits, on text: RoBERTa."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.sets import SET_DEFAULTS
from r2mae_paper.precision import PAPER, PrecisionSize, PrecisionStudy, final_loss
from r2mae_paper.table2 import SMOKE

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "bf16 against 32 bits on a processor: the model of text"
DATA = "wiki"
COST = {"smoke": "seconds", "small": "10 runs, 40 min on a core", "full": "not measured"}

_RECIPE = {"vocab_size": 8000, "batch_size": 16, "lr": 1e-3, "dropout": 0.0}


@dataclass(frozen=True)
class TextSize(PrecisionSize):
    """How much is trained; see :class:`r2mae_paper.precision.PrecisionSize`."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"tiny": {**_RECIPE, "steps": 20_000}})

    small: ClassVar[Mapping[str, Any]] = {"settings": {"tiny": {**_RECIPE, "steps": 1000, "eval_sequences": 500}}}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"tiny": SMOKE}}


def _bases(size: TextSize, out: Path) -> dict[str, TextConfig]:
    presets = {
        name: {**SET_DEFAULTS.get(DATA, {}), **DOMAIN.presets[name], "preset": name, **settings}
        for name, settings in size.settings.items()
    }
    return {name: TextConfig.make(data=DATA, **preset) for name, preset in presets.items()}


STUDY = PrecisionStudy("precision-text", ("loss", "accuracy"), _bases)
SIZE = TextSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, final_loss
