"""Configurations of the domains on named data, which studies share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r2mae.catalogue import data_root
from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS as CELL_SETS
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN as TEXT
from r2mae.text.sets import SET_DEFAULTS as TEXT_SETS
from r2mae.training.config import RunConfig
from r2mae_paper.studies import Size
from r2mae_paper.subsets import some_classes

Fields = Mapping[str, Any]
"""Fields of a configuration."""

_CLASSES = 10


def few_classes(out: Path, count: int = _CLASSES) -> str:
    """Return an archive of evenly spaced classes of the set `tiny-imagenet` in a folder; it is made where missing."""
    return str(some_classes(count, out.absolute() / f"classes-{count}.tar"))


def faces(name: str) -> str:
    """Return the data of a study of faces: a name, or else the folder `celeba-aligned` of the data folder."""
    return name or str(data_root() / "celeba-aligned")


def image_presets(names: list[str], settings: Fields) -> dict[str, Fields]:
    """Return the fields of presets of images, by name; settings take the place of a preset's."""
    return {name: {**IMAGES.presets[name], "preset": name, **settings} for name in names}


def cells(name: str, settings: Fields) -> CellsConfig:
    """Return the configuration of a named set of cells; settings take the place of what is known of the set."""
    return CellsConfig.make(**{"data": name, **CELL_SETS[name], **settings})


def text(name: str, preset: str, settings: Fields) -> TextConfig:
    """Return the configuration of a preset on a corpus; settings take the place of what is known of both."""
    return TextConfig.make(
        **{"data": name, **of_corpus(name, settings), **TEXT.presets[preset], "preset": preset, **settings}
    )


def of_corpus(name: str, settings: Fields) -> Fields:
    """Return what is known of a corpus. A copy of yours is read as FineWeb, unless a vocabulary is trained on it."""
    known: Fields = TEXT_SETS.get(name, {} if "vocab_size" in settings else TEXT_SETS["fineweb"])
    return known


def runs_by_ratio(base: RunConfig, name: str, models: Mapping[str, Fields], size: Size, out: Path) -> list[SweepRun]:
    """Return a run for each model, fixed ratio and seed of a size.

    Parameters
    ----------
    base : RunConfig
        What all runs share.
    name : str
        Of the column of models.
    models : mapping
        Fields of the configuration by the name of a model.
    size : Size
        With `ratios`; with `seeds`, of which there is otherwise one.
    out : Path
    """
    seeds = size.fields.get("seeds", (0,))
    models_and_ratios = [SweepParameter(name, models), SweepParameter.over("ratio", size.ratios)]
    return runs_of(grid(base, models_and_ratios), range(seeds) if isinstance(seeds, int) else seeds, out)
