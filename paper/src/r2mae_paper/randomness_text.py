"""Where the randomness belongs, on text: by mini-batch or by sequence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN
from r2mae.text.sets import SET_DEFAULTS
from r2mae_paper.randomness import PAPER, RandomnessSize, RandomnessStudy, jumps_of_run
from r2mae_paper.table2 import SMALL, SMOKE

__all__ = ["COST", "DATA", "PAPER", "SIZE", "STUDY", "TITLE", "cells", "draw", "scores_of_run", "table"]

TITLE = "Where the randomness belongs, on text: by batch or by sequence"
DATA = "wiki"
COST = {"smoke": "seconds", "small": "45 runs, about 6 h on a core", "full": "not measured"}

_PRESET = "tiny"
_RECIPE = {name: value for name, value in SMALL.items() if name != "glue_limit"}


@dataclass(frozen=True)
class TextSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`. Text has mask tokens."""

    sets: tuple[str, ...] = ("wiki",)
    mask_aware: tuple[bool, ...] = (False,)
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_RECIPE, "steps": 20_000})

    small: ClassVar[Mapping[str, Any]] = {"seeds": 5, "settings": _RECIPE}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("wikitext2",), "rows": ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-per-sample"), "seeds": 2},
        "settings": {**SMOKE, "steps": 70},
    }


def _bases(size: TextSize, out: Path) -> dict[str, TextConfig]:
    preset = {**DOMAIN.presets[_PRESET], "preset": _PRESET, **size.settings}
    return {name: TextConfig.make(data=name, **{**SET_DEFAULTS.get(name, {}), **preset}) for name in size.sets}


STUDY = RandomnessStudy("randomness-text", "loss", "masked loss", "accuracy", _bases, of_features=False)
SIZE = TextSize
cells, table, draw, scores_of_run = STUDY.cells, STUDY.table, STUDY.draw, jumps_of_run
