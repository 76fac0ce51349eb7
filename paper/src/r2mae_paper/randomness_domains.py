"""Where the randomness belongs, on images, cells, text and genomes: by mini-batch or by sample; mask-aware networks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from r2mae.cells.baselines import log_normalized_expression
from r2mae.cells.batches import load_data
from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS as CELL_SETS
from r2mae.genome.config import GenomeConfig
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.sweep.runs import SweepRun
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN as TEXT
from r2mae.text.sets import SET_DEFAULTS as TEXT_SETS
from r2mae_paper import genomes, table2
from r2mae_paper.randomness import BY_SAMPLE_ROWS, DomainSweep, RandomnessSize, jumps_of_run
from r2mae_paper.rules import closed_form
from r2mae_paper.subsets import some_classes

_SMOKE_ROWS = ("fixed 0.30", "fixed 0.50", "r2mae", "r2mae-per-sample")
_SIDES = {"mnist": 14, "tiny-imagenet": 16}
_CLASSES = 10
# Spread ratios hide exact counts: all others must, too, or the noise of counts would be a difference between them.
_IMAGES = {"hidden": 256, "latent": 64, "norm": "layer", "exact": True}
_CELLS = {"n_hidden": 256, "n_latent": 64, "norm": "layer", "batch_size": 128, "validation": 0.2}
_TEXT = {name: value for name, value in table2.SMALL.items() if name != "glue_limit"}
_ALIGNMENTS = {"sarbecoviruses": genomes.SARBECOVIRUSES, "mitochondria": genomes.MITOCHONDRIA}


@dataclass(frozen=True)
class ImagesSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("digits", "mnist", "tiny-imagenet")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_IMAGES, "steps": 7000})

    small: ClassVar[Mapping[str, Any]] = {"seeds": 5, "settings": {**_IMAGES, "steps": 1500}}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("digits",), "rows": _SMOKE_ROWS, "seeds": 2},
        "settings": {"hidden": 16, "latent": 8, "norm": "layer", "exact": True, "steps": 70},
    }


@dataclass(frozen=True)
class CellsSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`."""

    sets: tuple[str, ...] = ("csle", "covid-tcells", "pig-airway", "onek1k", "perez-tcells")
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_CELLS, "steps": 5000})

    small: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("covid-tcells", "pig-airway", "onek1k"), "seeds": 5},
        "settings": {**_CELLS, "steps": 1000},
    }
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("csle",), "rows": (*_SMOKE_ROWS, "by sample 0.90"), "seeds": 2},
        "settings": {"n_hidden": 16, "n_latent": 8, "norm": "layer", "batch_size": 64, "validation": 0.2, "steps": 70},
    }


@dataclass(frozen=True)
class TextSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`. Text has mask tokens."""

    sets: tuple[str, ...] = ("wiki",)
    mask_aware: tuple[bool, ...] = (False,)
    settings: Mapping[str, Any] = field(default_factory=lambda: {**_TEXT, "steps": 20_000})

    small: ClassVar[Mapping[str, Any]] = {"seeds": 5, "settings": _TEXT}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("wikitext2",), "rows": _SMOKE_ROWS, "seeds": 2},
        "settings": {**table2.SMOKE, "steps": 70},
    }


@dataclass(frozen=True)
class GenomeSize(RandomnessSize):
    """How much is trained; see :class:`r2mae_paper.randomness.RandomnessSize`. Alignments have mask tokens."""

    sets: tuple[str, ...] = tuple(_ALIGNMENTS)
    mask_aware: tuple[bool, ...] = (False,)
    settings: Mapping[str, Any] = field(default_factory=lambda: {"steps": 30_000})

    # Not the sets: the stores of all alignments have one name, by which the data of earlier runs are known.
    chooses: ClassVar[tuple[str, ...]] = ("seeds", "rows")
    small: ClassVar[Mapping[str, Any]] = {"sets": ("sarbecoviruses",), "seeds": 5, "settings": genomes.SMALL}
    smoke: ClassVar[Mapping[str, Any]] = {
        **{"sets": ("mitochondria",), "rows": _SMOKE_ROWS, "seeds": 2},
        "settings": {**genomes.SMOKE, "steps": 70},
    }


def _images(size: ImagesSize, out: Path) -> dict[str, ImagesConfig]:
    def data(name: str) -> str:
        if name != "tiny-imagenet":
            return name
        return str(some_classes(_CLASSES, out.absolute() / f"classes-{_CLASSES}.tar"))

    return {name: ImagesConfig.make(data=data(name), resize=_SIDES.get(name), **size.settings) for name in size.sets}


def _cells(size: CellsSize, out: Path) -> dict[str, CellsConfig]:
    return {name: CellsConfig.make(data=name, **{**CELL_SETS[name], **size.settings}) for name in size.sets}


def _text(size: TextSize, out: Path) -> dict[str, TextConfig]:
    preset = {**TEXT.presets["tiny"], "preset": "tiny", **size.settings}
    return {name: TextConfig.make(data=name, **{**TEXT_SETS.get(name, {}), **preset}) for name in size.sets}


def _genome(size: GenomeSize, out: Path) -> dict[str, GenomeConfig]:
    folders = {name: genomes.store_of(_ALIGNMENTS[name], out / name).folder for name in size.sets}
    return {name: GenomeConfig.make(data=str(folder), **size.settings) for name, folder in folders.items()}


@cache
def _advised_for_images(data: str, side: int | None) -> dict[str, float]:
    images = np.asarray(IMAGES.load(ImagesConfig.make(data=data, resize=side)).train.images)
    return closed_form(images.reshape(len(images), -1).astype(np.float64))


@cache
def _advised_for_cells(data: str) -> dict[str, float]:
    read = load_data(CellsConfig.make(data=data, **{**CELL_SETS[data], "validation": _CELLS["validation"]}))
    assert read.train.rows is not None  # as some cells are held out
    return closed_form(log_normalized_expression(read.table, read.train.rows))


def _image_scores(run: SweepRun) -> Mapping[str, float]:
    """Return how much the loss of a run jumps, and the ratios that the closed form advises for its data."""
    return {
        **jumps_of_run(run),
        **_advised_for_images(run.config.data.source, getattr(run.config.data, "resize", None)),
    }


def _cell_scores(run: SweepRun) -> Mapping[str, float]:
    """Return how much the loss of a run jumps, and the ratios that the closed form advises for its data."""
    return {**jumps_of_run(run), **_advised_for_cells(run.config.data.source)}


SWEEPS = (
    DomainSweep("images", ImagesSize, "masked_mse", "squared error", "probe_accuracy", _images, _image_scores),
    DomainSweep(
        "cells", CellsSize, "masked_loss", "loss of hidden genes", "score", _cells, _cell_scores, more=BY_SAMPLE_ROWS
    ),
    DomainSweep("text", TextSize, "loss", "masked loss", "accuracy", _text, of_features=False),
    DomainSweep("genome", GenomeSize, "masked_loss", "masked loss", "accuracy", _genome, of_features=False),
)
STUDIES = tuple(sweep.study() for sweep in SWEEPS)
