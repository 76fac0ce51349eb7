"""What a reproduced figure or table is, where each one lives, and what their modules share."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError, unknown
from r2mae.theory import DominantWarning, InterpolationWarning, LocalisedWarning

if TYPE_CHECKING:
    from r2mae.reproduce.drawing import Figures
    from r2mae.sweep.cells import Cell

Progress: TypeAlias = Callable[[int, int], None]
Scale: TypeAlias = Literal["smoke", "small", "full"]
Row: TypeAlias = dict[str, Any]
Tables: TypeAlias = Mapping[str, Any]
"""By the stem of the file: a list of rows becomes CSV, a mapping JSON."""

NOISE = 0.04  # variance σ² in all of the paper's simulations

_PACKAGE = "r2mae.reproduce"
ARTEFACTS = {
    name: f"{_PACKAGE}.{module}"
    for name, module in {
        "fig1a": "fig1a",
        "fig1b": "fig1b",
        "fig1c": "fig1c",
        "fig1d": "fig1d",
        "fig1e": "fig1e",
        "fig1f": "fig1f",
        "fig1g": "fig1g",
        "fig2b": "fig2b",
        "fig3": "fig3",
        "fig4": "fig4",
        "table5": "table5",
        "table9": "table9",
        "r2mae-vs-fixed": "readings",
        "ranges": "ranges",
        "validation": "validation",
    }.items()
}


@dataclass(frozen=True)
class Size:
    """How much an artefact computes; the fields are its own, and their defaults are the paper's sizes.

    Attributes
    ----------
    small : mapping
        Fields of the size that takes seconds; of training runs hours, on a machine without a GPU.
    smoke : mapping
        Fields of a size that only shows that all works; empty where the small one is as quick.
    digits : int
        Of the numbers in the tables.
    """

    small: ClassVar[Mapping[str, Any]] = {}
    smoke: ClassVar[Mapping[str, Any]] = {}
    digits: ClassVar[int] = 6

    @classmethod
    def of(cls, scale: Scale) -> "Size":
        """Return the size of this name.

        Raises
        ------
        UserError
            If there is no smoke size.
        """
        if scale == "smoke" and not cls.smoke:
            raise UserError("--scale smoke is for artefacts of training runs: here the small scale takes seconds")
        return cls(**{"smoke": cls.smoke, "small": cls.small, "full": {}}[scale])


@runtime_checkable
class Artefact(Protocol):
    """A module that reproduces one figure or table; it writes nothing, :mod:`r2mae.reproduce.runner` does.

    It is :class:`Computed` or :class:`OfRuns` besides.

    Attributes
    ----------
    TITLE : str
        What it is, in a line.
    PAPER : str
        What the paper shows, and where.
    SIZE : type
        What its sizes are.
    """

    TITLE: str
    PAPER: str
    SIZE: type[Size]

    def table(self, results: Any) -> Tables:
        """Return every number that is drawn, by the stem of its file.

        Parameters
        ----------
        results : mapping or DataFrame
            What each part computed, by its name; of runs, a line a run (:func:`r2mae.sweep.gather.table_of`).
        """

    def draw(self, tables: Tables, size: Any) -> "Figures":
        """Return the figures by the stems of their files; the runner has set their style."""


@runtime_checkable
class Computed(Artefact, Protocol):
    """An artefact that is computed, part by part."""

    def parts(self, size: Any) -> "list[Part]":
        """Return what is computed."""


@runtime_checkable
class OfRuns(Artefact, Protocol):
    """An artefact made of pretraining runs."""

    def cells(self, size: Any, out: Path) -> "list[Cell]":
        """Return the runs, all of one wing on the same data, with folders below `out`."""


def get_artefact(name: str) -> Artefact:
    """Import an artefact's module.

    Raises
    ------
    UserError
        If there is no such artefact.
    """
    if name not in ARTEFACTS:
        raise unknown("artefact", name, ARTEFACTS)
    return cast(Artefact, import_module(ARTEFACTS[name]))


class Tally:
    """One count of progress over several simulations.

    Parameters
    ----------
    progress : callable or None
        Called with the steps done and `total`.
    total : int
        Steps of all parts.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def step(self, steps: int = 1) -> None:
        """Count steps that are done."""
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, self._total)

    def every(self, steps: int = 1) -> Progress:
        """Return a simulation's progress callback, each of whose repetitions counts as so many steps."""
        return lambda done, total: self.step(steps)

    def reach(self, steps: int) -> None:
        """Count up to this many steps, where fewer have been counted."""
        if steps > self._done:
            self.step(steps - self._done)


@dataclass(frozen=True)
class Part:
    """A share of an artefact's computation, whose result is kept once it is there.

    Parameters
    ----------
    name : str
        Of its file: small letters, digits, dots and hyphens.
    steps : int
        How much of the progress it is.
    compute : callable
        Takes the number of threads and a :class:`Tally`, on which it may count; returns plain types (dictionaries,
        lists, numbers, text) that depend on neither.
    """

    name: str
    steps: int
    compute: Callable[[int, Tally], Any]


def joined(results: Mapping[str, list[Row]]) -> list[Row]:
    """Return the rows of all parts, in their order."""
    return [row for rows in results.values() for row in rows]


@contextmanager
def compared() -> Iterator[None]:
    """Silence the theory's advice to compare with a simulation, where that is what is being done."""
    with warnings.catch_warnings():
        for kind in (DominantWarning, InterpolationWarning, LocalisedWarning):
            warnings.simplefilter("ignore", kind)
        yield


def paper_ratios(step: float = 0.05) -> Float[np.ndarray, " p"]:
    """Return the ratios step, 2·step, … below 1; the paper's are 0.05, 0.10, …, 0.95."""
    return np.round(np.arange(1, round(1 / step)) * step, 10)
