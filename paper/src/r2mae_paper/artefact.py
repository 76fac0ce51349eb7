"""The protocol of a reproduced figure or table, and helpers that the modules share; they are listed in targets.py."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError
from r2mae.theory import DominantWarning, InterpolationWarning, LocalisedWarning
from r2mae_paper.targets import ARTEFACTS, Scale, folder_of

if TYPE_CHECKING:
    from typing import Self

    from r2mae.sweep.runs import SweepRun
    from r2mae_paper.drawing import Figures

Progress: TypeAlias = Callable[[int, int], None]
TableRow: TypeAlias = dict[str, Any]
Tables: TypeAlias = Mapping[str, Any]
"""Tables by file name without suffix. A list of rows is written as CSV, a mapping as JSON."""

NOISE = 0.04  # variance σ² in all of the paper's simulations


@dataclass(frozen=True)
class Size:
    """How much an artefact computes. Each artefact has its own fields; their defaults are the paper's sizes.

    Attributes
    ----------
    small : mapping
        Values of the fields for the size that takes seconds; for training runs it takes hours without a GPU.
    smoke : mapping
        Values of the fields for a size that only shows that everything works; empty if the small one is as quick.
    digits : int
        Number of digits of the numbers in the tables.
    drawn : tuple of str
        Fields that nothing is computed from: what is drawn beside the results.
    chooses : tuple of str
        Fields that say which runs there are, and nothing of how each is trained and measured: earlier runs
        (``--earlier``) may have been made with others.
    """

    small: ClassVar[Mapping[str, Any]] = {}
    smoke: ClassVar[Mapping[str, Any]] = {}
    digits: ClassVar[int] = 6
    drawn: ClassVar[tuple[str, ...]] = ()
    chooses: ClassVar[tuple[str, ...]] = ("seeds",)

    @classmethod
    def of(cls, scale: Scale) -> "Size":
        """Return the size of this name.

        Raises
        ------
        UserError
            If there is no smoke size.
        """
        if scale == "smoke" and not cls.smoke:
            raise UserError("--scale smoke is for targets of training runs: here the small scale takes seconds")
        return cls(**{"smoke": cls.smoke, "small": cls.small, "full": {}}[scale])

    @property
    def most_seeds(self) -> int | None:
        """How many seeds there can be, if there is a limit."""
        return None

    def with_seeds(self, seeds: int) -> "Self":
        """Return the size with another number of seeds.

        Raises
        ------
        UserError
            If it has no seeds, or not so many.
        """
        now: int | tuple[int, ...] | None = getattr(self, "seeds", None)
        if now is None:
            raise UserError("there are no runs under several seeds: omit --seeds")
        if seeds < 1 or (self.most_seeds is not None and seeds > self.most_seeds):
            most = "or more" if self.most_seeds is None else f"to {self.most_seeds}, as each holds out another part"
            raise UserError(f"--seeds must be 1 {most}, not {seeds}")
        given: dict[str, Any] = {"seeds": seeds if isinstance(now, int) else tuple(range(seeds))}
        return replace(self, **given)


@runtime_checkable
class Artefact(Protocol):
    """A module that reproduces one figure or table. :mod:`r2mae_paper.runner` writes its files.

    It is also one of :class:`Computed`, :class:`OfRuns` and :class:`OfTables`. For the list of all
    (:mod:`r2mae_paper.targets`) a module says `DATA`, which data it reads, and `COST`, how long it takes by scale,
    as literals.

    Attributes
    ----------
    TITLE : str
        Description of one line.
    PAPER : str
        What the paper shows.
    SIZE : type
        The subclass of :class:`Size` for this artefact.
    """

    TITLE: str
    PAPER: str
    SIZE: type[Size]

    def table(self, results: Any) -> Tables:
        """Return all numbers that are drawn, as tables by file name without suffix.

        Parameters
        ----------
        results : mapping or DataFrame
            The result of each part by its name; for runs, a table with a row per run
            (:func:`r2mae.sweep.gather.table_of`); or what :meth:`OfTables.gather` returns.
        """

    def draw(self, tables: Tables, size: Any) -> "Figures":
        """Return the figures by file name without suffix; the runner has set the style before."""


@runtime_checkable
class Computed(Artefact, Protocol):
    """An artefact that is computed in parts."""

    def parts(self, size: Any) -> "list[Part]":
        """Return the parts of the computation."""


@runtime_checkable
class OfRuns(Artefact, Protocol):
    """An artefact made of pretraining runs."""

    def cells(self, size: Any, out: Path) -> "list[SweepRun]":
        """Return the runs, all of one domain, with folders below `out`; of sets that have the same first metric."""


@runtime_checkable
class OfTables(Artefact, Protocol):
    """An artefact made of the tables of others."""

    def gather(self, beside: Path, scale: Scale) -> Any:
        """Return what :meth:`table` gets, of the others' folders in the folder `beside`; they must be of this scale."""


@runtime_checkable
class TakesCurves(Artefact, Protocol):
    """An artefact that draws published curves of the user's, beside its own or alone."""

    def with_curves(self, size: Any, files: Sequence[Path]) -> Any:
        """Return the size with the rows of these tables.

        Raises
        ------
        UserError
            If a table does not fit, or there is none where one is needed.
        """


@runtime_checkable
class MeasuresRuns(OfRuns, Protocol):
    """An artefact of runs with numbers that are read from a run's folder, beside its scores."""

    def scores_of_run(self, cell: "SweepRun") -> Mapping[str, float]:
        """Return these numbers of a finished run by name: columns of the table that :meth:`table` gets."""


@runtime_checkable
class DrawnFromRuns(OfRuns, Protocol):
    """An artefact of runs with figures that are drawn from the trained models, and not from tables."""

    def draw_runs(self, cells: "list[SweepRun]", size: Any) -> "Figures":
        """Return these figures by file name without suffix; all runs are finished."""


def get_artefact(name: str) -> Artefact:
    """Import an artefact's module.

    Raises
    ------
    UserError
        If there is no such artefact, or nothing makes this figure or table of the paper.
    """
    return cast(Artefact, import_module(ARTEFACTS[folder_of(name)]))


class Tally:
    """Counts progress over several simulations.

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
        """Count finished steps."""
        self._done += steps
        if self._progress is not None:
            self._progress(self._done, self._total)

    def every(self, steps: int = 1) -> Progress:
        """Return a progress callback for a simulation that counts `steps` steps for each repetition."""
        return lambda done, total: self.step(steps)

    def reach(self, steps: int) -> None:
        """Raise the count to `steps` if it is lower."""
        if steps > self._done:
            self.step(steps - self._done)


@dataclass(frozen=True)
class Part:
    """A part of an artefact's computation. Its result is saved, and not computed again.

    Parameters
    ----------
    name : str
        Name of its file: lower-case letters, digits, dots and hyphens.
    steps : int
        Number of steps that it counts in the progress.
    compute : callable
        Takes the number of threads and a :class:`Tally` to count its progress. Returns plain types (dictionaries,
        lists, numbers, text) that must not depend on either.
    """

    name: str
    steps: int
    compute: Callable[[int, Tally], Any]


def joined(results: Mapping[str, list[TableRow]]) -> list[TableRow]:
    """Return the rows of all parts, in their order."""
    return [row for rows in results.values() for row in rows]


@contextmanager
def compared() -> Iterator[None]:
    """Suppress the theory's warnings that advise a comparison with a simulation, while such a comparison is made."""
    with warnings.catch_warnings():
        for kind in (DominantWarning, InterpolationWarning, LocalisedWarning):
            warnings.simplefilter("ignore", kind)
        yield


def paper_ratios(step: float = 0.05) -> Float[np.ndarray, " p"]:
    """Return the ratios step, 2·step, … below 1; the paper's are 0.05, 0.10, …, 0.95."""
    return np.round(np.arange(1, round(1 / step)) * step, 10)
