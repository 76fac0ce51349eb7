"""What a reproduced figure or table is, where each one lives, and what their modules share."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from jaxtyping import Float

from r2mae.errors import unknown
from r2mae.files import write_rows
from r2mae.theory import DominantWarning, InterpolationWarning, LocalisedWarning

Progress: TypeAlias = Callable[[int, int], None]
Scale: TypeAlias = Literal["small", "full"]

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
        "fig3": "fig3",
        "fig4": "fig4",
        "table5": "table5",
        "table9": "table9",
        "r2mae-vs-fixed": "readings",
        "ranges": "ranges",
        "validation": "validation",
    }.items()
}


@runtime_checkable
class Artefact(Protocol):
    """A module that reproduces one figure or table.

    Attributes
    ----------
    TITLE : str
        What it is, in a line.
    PAPER : str
        What the paper shows, and where.
    """

    TITLE: str
    PAPER: str

    def run(self, out: Path, *, scale: Scale, jobs: int, progress: Progress | None) -> list[Path]:
        """Write ``<name>.csv`` (every number that is drawn), ``<name>.png`` and ``.svg``; return the files.

        Parameters
        ----------
        out : Path
            Folder.
        scale : {"small", "full"}
            "full" has the paper's sizes; "small" takes seconds.
        jobs : int
            Threads of the simulations; the numbers do not depend on it.
        progress : callable, optional
            Called with the steps done and all steps.
        """


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


def short(value: object) -> object:
    """Round a number to six digits; an infinite one or one that is missing becomes an empty cell."""
    if isinstance(value, float | np.floating):
        number = float(value)
        return float(f"{number:.6g}") if math.isfinite(number) else ""
    return value


def write_table(out: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as ``<name>.csv``; columns are those of the rows, in the order in which they first appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    path = Path(out) / f"{name}.csv"
    write_rows(path, [{key: short(value) for key, value in row.items()} for row in rows], columns)
    return path
