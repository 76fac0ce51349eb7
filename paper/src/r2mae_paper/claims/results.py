"""Finds results of targets and of comparisons below some folders, and reads their tables."""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import r2mae
from r2mae.errors import UserError
from r2mae.files import confined_file, read_confined
from r2mae_paper.state import MADE, json_in, state_of, version_in
from r2mae_paper.studies import ENTRIES

if TYPE_CHECKING:
    import pandas as pd

_LINE = 1 << 16  # characters of the first line of a table that are looked at
_DEPTH = 4  # levels of folders below one that is given
_COMPARISON = ("label", "scheme", "ratio", "low", "high", "seed")  # first columns of a comparison's results.csv
_FIRST_TABLE = {"r2mae-vs-fixed": "rules"}  # others have a table of their own name
# Columns that need not be numbers.
_WORDS = ("label", "scheme", "model", "set", "reading", "sample", "table", "signal", "side")
_TABLES = {f"{_FIRST_TABLE.get(entry.name, entry.name)}.csv": entry.name for entry in ENTRIES.values()}
"""Targets by the file of their first table."""


class UnavailableError(Exception):
    """The results do not have what a claim needs; the message says why."""


class UndecidableError(Exception):
    """No number of seeds would tell; the message says why."""


class MissingRowsError(UnavailableError):
    """The results lack rows that a claim compares; others may have them."""


@dataclass(frozen=True)
class Comparison:
    """A comparison that can be used."""

    name: str
    """Of its folder."""
    data: str
    """Name of its data; that of the folder if nothing says it."""
    config: Mapping[str, Any]
    """What its runs share; empty if nothing says it."""
    table: "pd.DataFrame"
    """A line a run."""


class Results:
    """Results below some folders.

    A folder with the table of a target is that target's, whatever its name; one with the results.csv of a comparison is
    a comparison. Tables are read when they are asked for.

    Parameters
    ----------
    folders : sequence of Path
        Folders of targets or comparisons, or folders that hold them.

    Raises
    ------
    UserError
        If a folder does not exist, or two of them hold the same target.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.targets: dict[str, Path] = {}
        self.comparisons: list[Path] = []
        self._unfinished: dict[str, Path] = {}
        self._read: dict[Path, pd.DataFrame] = {}
        found: dict[Path, tuple[Path, list[str]]] = {}
        for folder in folders:
            if not folder.is_dir():
                raise UserError(f"there is no folder {folder}: give folders that `r2mae reproduce --out` wrote to")
            for path, files in _below(folder):
                found.setdefault(path.resolve(), (path, files))
        for path, files in found.values():
            for target in (_TABLES[file] for file in files if file in _TABLES):
                if target in self.targets:
                    raise UserError(
                        f"{self.targets[target]} and {path} both have results of {target}: give one of them"
                    )
                self.targets[target] = path
            if path.name in ENTRIES and MADE in files:
                self._unfinished[path.name] = path
            if "results.csv" in files and _is_comparison(path / "results.csv"):
                self.comparisons.append(path)

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.targets or self.comparisons or self._unfinished)

    def folder(self, target: str) -> Path:
        """Return the folder of a target's results.

        Raises
        ------
        UnavailableError
            If there are none, or they are of a few steps (the scale `smoke`) or of another version of r2mae, or a later
            call began and did not finish, so that the tables may be of both.
        """
        folder = self.targets.get(target) or self._unfinished.get(target)
        if folder is None:
            raise UnavailableError(f"{target} has not run")
        state, version = state_of(folder), version_in(json_in(folder / MADE))
        if target not in self.targets:
            raise UnavailableError(f"{target}: {state.in_words()}")
        if version not in ("", r2mae.__version__):
            raise UnavailableError(f"{target} is of r2mae {version}, this is {r2mae.__version__}")
        if not state.written:
            raise UnavailableError(
                f"{target} has tables of an earlier call; a later one did not finish ({state.in_words()})"
            )
        if state.damaged:
            raise UnavailableError(f"{target}: {MADE}, which has its scale, is damaged")
        if state.scale == "smoke":
            raise UnavailableError(f"{target} is of the scale smoke, whose models have learned nothing")
        return folder

    def as_the_paper(self, target: str) -> bool:
        """Return whether a target's results are of the paper's settings, which is the scale `full`."""
        return state_of(self.folder(target)).scale == "full"

    def usable_comparisons(self, *columns: str) -> tuple[list[Comparison], list[str]]:
        """Return the comparisons whose results.csv has these columns, and why others that are found cannot be used.

        What they say of themselves is in ``compare.json`` or ``results.json``; damaged files say nothing.
        """
        usable, reasons = [], []
        for folder in self.comparisons:
            published = json_in(folder / "results.json")
            config = json_in(folder / "compare.json") or published.get("config")
            config = config if isinstance(config, dict) else {}
            version, data = version_in(published), config.get("data")
            if version not in ("", r2mae.__version__):
                reasons.append(f"{folder.name} is of r2mae {version}, this is {r2mae.__version__}")
                continue
            try:
                table = self.read(folder / "results.csv", "seed")
            except UnavailableError as error:
                reasons.append(str(error))
                continue
            if set(columns) <= set(table):
                name = Path(data).name if isinstance(data, str) and data else folder.name
                usable.append(Comparison(folder.name, name, config, table))
        return usable, reasons

    def table(self, target: str, *columns: str, name: str = "") -> "pd.DataFrame":
        """Return a table of a target.

        Parameters
        ----------
        target : str
        *columns : str
            Those that are needed.
        name : str
            File name without suffix; by default the target's first table.

        Raises
        ------
        UnavailableError
            If there is none that can be used.
        """
        path = self.folder(target) / f"{name or _FIRST_TABLE.get(target, target)}.csv"
        return self.read(path, *columns)

    def read(self, path: Path, *columns: str) -> "pd.DataFrame":
        """Return a CSV file that has these columns, with numbers but for names of rows.

        Raises
        ------
        UnavailableError
            If it cannot be read, or lacks a column.
        """
        import pandas as pd

        if path not in self._read:
            try:
                self._read[path] = pd.read_csv(BytesIO(read_confined(path)), encoding="utf-8")
            except FileNotFoundError:
                raise UnavailableError(f"{path.parent.name} has no {path.name}") from None
            except (OSError, ValueError) as error:  # errors of pandas and of decoding are ValueErrors
                reason = " ".join(str(error).split())[:120]
                raise UnavailableError(f"{path.parent.name}/{path.name} cannot be read ({reason})") from None
        table = self._read[path]
        if not len(table):
            raise UnavailableError(f"{path.parent.name}/{path.name} has no rows")
        for column in columns:
            if column not in table:
                raise UnavailableError(f"{path.parent.name}/{path.name} has no column {column}")
            if column not in _WORDS and table[column].dtype.kind not in "fib":
                raise UnavailableError(f"{path.parent.name}/{path.name} has words in the column {column}")
        return table


def _below(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those in it, in the order of their names, with the names of their files."""
    for here, inside, files in os.walk(folder):
        deep = len(Path(here).relative_to(folder).parts)
        inside[:] = sorted(one for one in inside if not one.startswith(".") and deep < _DEPTH)
        yield Path(here), files


def _is_comparison(path: Path) -> bool:
    try:
        with confined_file(path).open(encoding="utf-8", newline="") as opened:
            return tuple(next(csv.reader([opened.readline(_LINE)]), ()))[: len(_COMPARISON)] == _COMPARISON
    except (OSError, ValueError, csv.Error):
        return False
