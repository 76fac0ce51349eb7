"""A study: what is computed or trained for a figure or table, its tables and figures; helpers that studies share."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Float

from r2mae.errors import UserError
from r2mae.theory import DominantWarning, InterpolationWarning, LocalisedWarning
from r2mae_paper.rows import Tables, joined
from r2mae_paper.studies import Entry, Scale, entry_of

if TYPE_CHECKING:
    from typing import Self

    from r2mae.sweep.runs import SweepRun
    from r2mae_paper.drawing import Figures

Progress: TypeAlias = Callable[[int, int], None]

NOISE = 0.04  # variance σ² in all of the paper's simulations


@dataclass(frozen=True)
class Size:
    """How much a study computes. Each study has its own fields; their defaults are the paper's sizes.

    Attributes
    ----------
    small : mapping
        Values of the fields for the size that takes seconds; for training runs it takes hours without a GPU.
    smoke : mapping
        Values of the fields for a size that only shows that everything works; empty if the small one is as quick.
    digits : int
        Number of digits of the numbers in the tables.
    drawn : tuple of str
        Fields that nothing is computed from: what is drawn in addition to the results.
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
    def of(cls, scale: Scale) -> "Self":
        """Return the size of this name.

        Raises
        ------
        UserError
            If there is no smoke size.
        """
        if scale == "smoke" and not cls.smoke:
            raise UserError("--scale smoke is for studies of training runs: here the small scale takes seconds")
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
    """A part of a computation. Its result is saved, and not computed again.

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


@dataclass(frozen=True)
class Study:
    """A figure, a table, or a study of our own; :mod:`r2mae_paper.runner` makes it and writes its files.

    Its numbers have one source: `parts` that are computed, pretraining `runs`, or the tables of other studies, which
    `gather` reads.

    Attributes
    ----------
    entry : Entry
        Its line of the list.
    size : type
        The subclass of :class:`Size` of this study.
    plot : callable
        Takes the tables and the size; returns the figures by file name. The runner has set the style before. By default
        there are none.
    table : callable, optional
        Returns all numbers that are drawn, as tables by file name. Takes the result of each part by its name; of runs a
        table with a row per run (:func:`r2mae.sweep.gather.table_of`); or what `gather` returns. By default one table
        of the study's name, with the rows of all parts.
    parts : callable, optional
        Takes the size; returns the parts of the computation.
    runs : callable, optional
        Takes the size and the folder; returns the runs, all of one domain, with folders below it, on data with the same
        first metric.
    scores_of_run : callable, optional
        Takes a finished run; returns numbers that are read from its folder, which become columns of the table of runs.
    plot_runs : callable, optional
        Takes the runs, all finished, and the size; returns the figures that are drawn from the models, not from tables.
    gather : callable, optional
        Takes the folder that has the folders of the other studies, and the scale, which must be theirs.
    curves : callable, optional
        For studies that draw published curves of the user's. Takes the size and the user's files; returns the size with
        their rows. Raises a UserError if a file is not as needed, or there is none where one is needed.
    """

    entry: Entry
    size: type[Size]
    plot: "Callable[[Tables, Any], Figures]" = lambda tables, size: {}
    table: Callable[[Any], Tables] | None = None
    parts: Callable[[Any], list[Part]] | None = None
    runs: "Callable[[Any, Path], list[SweepRun]] | None" = None
    scores_of_run: "Callable[[SweepRun], Mapping[str, float]] | None" = None
    plot_runs: "Callable[[list[SweepRun], Any], Figures] | None" = None
    gather: Callable[[Path, Scale], Any] | None = None
    curves: Callable[[Any, Sequence[Path]], Any] | None = None

    def tables_of(self, results: Any) -> Tables:
        """Return all numbers that are drawn; see `table`."""
        return {self.entry.name: joined(results)} if self.table is None else self.table(results)


def get_study(name: str) -> Study:
    """Import the module of a study.

    Raises
    ------
    UserError
        If there is no such study, or nothing makes this figure or table of the paper.
    """
    entry = entry_of(name)
    studies: Sequence[Study] = import_module(f"r2mae_paper.{entry.module}").STUDIES
    (study,) = (study for study in studies if study.entry == entry)
    return study


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
