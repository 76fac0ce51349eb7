"""A study: what is computed or trained for a figure or table, its tables and figures; helpers that studies share."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Float

from r2mae.theory import Covariance, DominantWarning, InterpolationWarning, LocalisedWarning, LowRank
from r2mae_paper.rows import TableRow, Tables, joined_tables
from r2mae_paper.studies import Entry, Scale, Size, entry_of

if TYPE_CHECKING:
    from r2mae.compare.runs import SweepRun
    from r2mae_paper.drawing import Figures

NOISE = 0.04  # variance σ² in all of the paper's simulations
PUBLISHED = "published"
"""The name under which :attr:`Study.table` gets the rows of :attr:`Study.curves`."""


Parts: TypeAlias = Mapping[str, Callable[[int], Any]]
"""The parts of a computation by the names of their files: lower-case letters, digits, dots and hyphens. Each takes the
number of threads, and returns plain types (dictionaries, lists, numbers, text) that must not depend on it. Its result
is saved, and not computed again."""


@dataclass(frozen=True)
class Study:
    """A figure, a table, or a study of our own; :mod:`r2mae_paper.runner` makes it and writes its files.

    Its numbers have one source: `parts` that are computed, pretraining `runs`, or the tables of other studies, which
    `gather` reads; or published curves alone.
    """

    entry: Entry
    """Its line of the list."""
    plot: "Callable[[Tables, Size], Figures]" = lambda tables, size: {}
    """Takes the tables and the size; returns the figures by file name. The runner has set the style before. By default
    there are none."""
    table: Callable[[Any], Tables] | None = None
    """Returns all numbers that are drawn, as tables by file name. Takes the result of each part by its name; of runs a
    table with a row per run (:func:`r2mae.compare.gather.table_of`); or what `gather` returns. By default the rows of
    all parts, which are lists for the table of the study's name, or mappings of lists by table."""
    parts: Callable[[Size], Parts] | None = None
    """Takes the size; returns the parts of the computation."""
    runs: "Callable[[Size, Path], list[SweepRun]] | None" = None
    """Takes the size and the folder; returns the runs, all of one domain, with folders below it, on data with the same
    first metric."""
    scores_of_run: "Callable[[SweepRun], Mapping[str, float]] | None" = None
    """Takes a finished run; returns numbers that are read from its folder, which become columns of the table of
    runs."""
    plot_runs: "Callable[[list[SweepRun], Size], Figures] | None" = None
    """Takes the runs, all finished, and the size; returns the figures that are drawn from the models, not from
    tables."""
    gather: Callable[[Path, Scale], Any] | None = None
    """Takes the folder that has the folders of the other studies, and the scale, which must be theirs."""
    curves: Callable[[Sequence[Path]], list[TableRow]] | None = None
    """For studies that draw published curves of the user's. Takes the user's files; returns the rows that `table` gets
    under :data:`PUBLISHED`. Raises a UserError if a file is not as needed, or there is none where one is needed."""

    def tables_of(self, results: Any) -> Tables:
        """Return all numbers that are drawn; see `table`."""
        return joined_tables(results, self.entry.name) if self.table is None else self.table(results)


def get_study(name: str) -> Study:
    """Import the module of a study."""
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


def random_signals(d: int, count: int, seed: int = 0) -> Float[np.ndarray, "d count"]:
    """Return unit vectors with directions drawn uniformly."""
    drawn = np.random.default_rng([seed, 5]).standard_normal((d, count))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=0))


def eigen_signals(cov: Covariance, places: Sequence[int], seed: int = 0) -> Float[np.ndarray, "d m"]:
    """Return unit eigenvectors by their number in the spectrum (0 for the largest eigenvalue).

    A low-rank model has many equal eigenvalues (its bulk), within which any direction is an eigenvector. A uniformly
    drawn one is used there, since one concentrated on a single feature would not average over masks.

    `seed` is that of the directions within a bulk.
    """
    if not isinstance(cov, LowRank) or np.ptp(cov.own) > 0:
        return cov.eigenvectors(np.array(places))
    width = cov.factor.shape[1]
    spikes = cov.eigenvectors(np.arange(width)) if width else np.zeros((cov.d, 0))
    drawn = random_signals(cov.d, len(places), seed)
    drawn -= spikes @ (spikes.T @ drawn)
    drawn /= np.linalg.norm(drawn, axis=0)
    for column, place in enumerate(places):
        if place < width:
            drawn[:, column] = spikes[:, place]
    return drawn
