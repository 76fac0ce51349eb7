"""Products in bf16 against 32 bits on a processor, for the models of images, cells, text and genomes.

Runs differ in the number format alone: weights, order and masks of a seed are the same. Two formats give equal results
if the interval of their difference lies within the seeds' noise, one standard deviation of the runs in 32 bits. A
processor without bf16 instructions refuses the runs in bf16.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from r2mae.cells.config import CellsConfig
from r2mae.cells.sets import SET_DEFAULTS as CELL_SETS
from r2mae.evaluation.statistics import paired_difference
from r2mae.genome.config import GenomeConfig
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN as IMAGES
from r2mae.sweep.gather import metrics_of
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of_groups
from r2mae.text.config import TextConfig
from r2mae.text.domain import DOMAIN as TEXT
from r2mae.text.sets import SET_DEFAULTS as TEXT_SETS
from r2mae_paper import genomes, table2
from r2mae_paper.drawing import COLOURS, GREY, Figures, interval, name_rows, panels
from r2mae_paper.rows import TableRow, Tables
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import Size, Study
from r2mae_paper.subsets import some_classes

if TYPE_CHECKING:
    from r2mae.training.config import RunConfig

    Bases = Callable[[Any, Path], Mapping[str, RunConfig]]

Settings = Mapping[str, Mapping[str, Any]]
EXACT, QUICK = "32 bits", "bf16"
FORMATS: Mapping[str, Mapping[str, Any]] = {
    EXACT: {"precision": "32", "device": "cpu"},
    QUICK: {"precision": "bf16", "device": "cpu"},
}
FINAL_LOSS = "final_loss"
"""Name of the mean training loss over the last tenth of a run."""


@dataclass(frozen=True)
class PrecisionSize(Size):
    """How much is trained.

    Attributes
    ----------
    seeds : int
        Runs in each format.
    settings : mapping of mappings
        Fields of the configuration by the name of a model.
    """

    seeds: int = 5
    settings: Settings = field(default_factory=dict)


_CLASSES = 10
_MNIST = "mnist"
_CELLS = {"n_hidden": 512, "n_latent": 128, "batch_size": 256, "validation": 0.2}
_CELL_SETS = ("covid-tcells", "pig-airway")
_WIKI = "wiki"
_TEXT = {"vocab_size": 8000, "batch_size": 16, "lr": 1e-3, "dropout": 0.0}


def _image_settings(mlp: int, vit: int, unet: int) -> Settings:
    """Return the settings of the models of images, with their steps."""
    recipe = {"batch_size": 32, "base_lr": 3e-3}
    return {"mlp": {"steps": mlp}, "vit-mae-tiny": {**recipe, "steps": vit}, "unet-4": {"steps": unet}}


@dataclass(frozen=True)
class ImagesSize(PrecisionSize):
    """How much is trained; see :class:`PrecisionSize`."""

    settings: Settings = field(default_factory=lambda: _image_settings(4000, 4000, 600))

    small: ClassVar[Mapping[str, Any]] = {"settings": _image_settings(1000, 250, 60)}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"mlp": {"hidden": 16, "latent": 8, "steps": 20}}}


@dataclass(frozen=True)
class CellsSize(PrecisionSize):
    """How much is trained; see :class:`PrecisionSize`."""

    settings: Settings = field(default_factory=lambda: {name: {"steps": 5000} for name in _CELL_SETS})

    small: ClassVar[Mapping[str, Any]] = {"settings": {name: {**_CELLS, "steps": 500} for name in _CELL_SETS}}
    smoke: ClassVar[Mapping[str, Any]] = {
        "seeds": 2,
        "settings": {"csle": {"n_hidden": 16, "n_latent": 8, "batch_size": 64, "validation": 0.2, "steps": 20}},
    }


@dataclass(frozen=True)
class TextSize(PrecisionSize):
    """How much is trained; see :class:`PrecisionSize`."""

    settings: Settings = field(default_factory=lambda: {"tiny": {**_TEXT, "steps": 20_000}})

    small: ClassVar[Mapping[str, Any]] = {"settings": {"tiny": {**_TEXT, "steps": 1000, "eval_sequences": 500}}}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"tiny": table2.SMOKE}}


@dataclass(frozen=True)
class GenomeSize(PrecisionSize):
    """How much is trained; see :class:`PrecisionSize`."""

    settings: Settings = field(default_factory=lambda: {"gpn-msa": {"steps": 30_000}})

    small: ClassVar[Mapping[str, Any]] = {"settings": {"gpn-msa": genomes.SMALL}}
    smoke: ClassVar[Mapping[str, Any]] = {"seeds": 2, "settings": {"gpn-msa": genomes.SMOKE}}


def _images(size: ImagesSize, out: Path) -> dict[str, ImagesConfig]:
    bases = {}
    for name, settings in size.settings.items():
        if name == "mlp":
            bases[name] = ImagesConfig.make(data=_MNIST).replace(**settings)
        else:
            data = some_classes(_CLASSES, out.absolute() / f"classes-{_CLASSES}.tar")
            preset = {**IMAGES.presets[name], "preset": name}
            bases[name] = ImagesConfig.make(data=str(data)).replace(**{**preset, **settings})
    return bases


def _cells(size: CellsSize, out: Path) -> dict[str, CellsConfig]:
    return {
        name: CellsConfig.make(data=name, **{**CELL_SETS[name], **settings}) for name, settings in size.settings.items()
    }


def _text(size: TextSize, out: Path) -> dict[str, TextConfig]:
    presets = {
        name: {**TEXT_SETS.get(_WIKI, {}), **TEXT.presets[name], "preset": name, **settings}
        for name, settings in size.settings.items()
    }
    return {name: TextConfig.make(data=_WIKI, **preset) for name, preset in presets.items()}


def _genome(size: GenomeSize, out: Path) -> dict[str, GenomeConfig]:
    folder = str(genomes.store_of(genomes.SARBECOVIRUSES, out).folder)
    return {name: GenomeConfig.make(data=folder, **settings) for name, settings in size.settings.items()}


def final_loss(run: SweepRun) -> Mapping[str, float]:
    """Return the mean training loss over the last tenth of a run."""
    losses = metrics_of(run)["loss"].to_numpy(float)
    return {FINAL_LOSS: float(losses[-max(1, len(losses) // 10) :].mean())}


def runs(size: PrecisionSize, out: Path, *, bases: "Bases") -> list[SweepRun]:
    """Return a run for each model, format and seed, each model in a folder of its own.

    Parameters
    ----------
    size : PrecisionSize
    out : Path
    bases : callable
        Takes size and folder; returns the configuration of each model by its name.
    """
    formats = SweepParameter("format", FORMATS)
    groups = {
        name: [replace(row, values={"model": name, **row.values}) for row in grid(base, [formats])]
        for name, base in bases(size, out).items()
    }
    return runs_of_groups(groups, range(size.seeds), out)


def table(results: pd.DataFrame, *, name: str, scores: tuple[str, ...]) -> Tables:
    """Return for each model and score the difference bf16 − 32 bits, paired over seeds, and all runs."""
    measured = [score for score in (FINAL_LOSS, *scores) if score in results and results[score].notna().any()]
    rows = [
        {"model": model, **row}
        for model, group in results.groupby("model", sort=False)
        for score in measured
        if (row := _row(group, score)) is not None
    ]
    return {name: rows, f"{name}-runs": results[["model", "format", "seed", *measured]].to_dict("records")}


def plot(tables: Tables, size: PrecisionSize, *, name: str) -> Figures:
    """Draw every difference in standard deviations of the seeds: between −1 and 1 where results are equal."""
    rows = [row for row in tables[name] if row["sd_32"] > 0]
    figure, (axes,) = panels(1, width=5.6, height=1.2 + 0.26 * max(1, len(rows)))
    for place, row in enumerate(rows):
        middle, low, high = (row[key] / row["sd_32"] for key in ("difference", "low", "high"))
        interval(axes, middle, low, high, place, color=COLOURS[0])
    axes.axvspan(-1, 1, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    name_rows(axes, [f"{row['model']}: {row['score'].replace('_', ' ')}" for row in rows], 0)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("bf16 minus 32 bits, over the seeds' deviation\n(grey: within their noise)")
    return {name: figure}


def _row(results: pd.DataFrame, score: str) -> TableRow | None:
    both = results.pivot_table(index="seed", columns="format", values=score).reindex(columns=list(FORMATS)).dropna()
    if not len(both):
        return None
    exact, quick = both[EXACT].to_numpy(float), both[QUICK].to_numpy(float)
    found = paired_difference(quick, exact)
    noise = float(exact.std(ddof=1)) if len(exact) > 1 else float("nan")
    row: TableRow = {"score": score, "seeds": len(both), "mean_32": float(exact.mean()), "sd_32": noise}
    row |= {"mean_bf16": float(quick.mean()), "difference": found.mean, "low": found.low, "high": found.high}
    return {**row, "is": _verdict(found.low, found.high, noise)}


def _verdict(low: float, high: float, noise: float) -> str:
    """Return where the interval of a difference lies, compared with the seeds' noise."""
    if -noise <= low and high <= noise:
        return "equal"
    if low > noise or high < -noise:
        return "different"
    return "undecided"


def _study(domain: str, size: type[PrecisionSize], bases: "Bases", *scores: str) -> Study:
    """Return the study of a domain, by its scores in addition to :data:`FINAL_LOSS`, which comes first."""
    name = f"precision-{domain}"
    return Study(
        ENTRIES[name],
        size,
        partial(plot, name=name),
        partial(table, name=name, scores=scores),
        runs=partial(runs, bases=bases),
        scores_of_run=final_loss,
    )


STUDIES = (
    _study("images", ImagesSize, _images, "masked_mse", "probe_accuracy", "knn_accuracy"),
    _study("cells", CellsSize, _cells, "masked_loss", "score"),
    _study("text", TextSize, _text, "loss", "accuracy"),
    _study("genome", GenomeSize, _genome, "masked_loss", "accuracy"),
)
