"""Reads the tables of runs that targets write: a line for each run, numbers but for names."""

import hashlib
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.errors import UserError
from r2mae.files import read_confined, read_rows

if TYPE_CHECKING:
    import pandas as pd

RUNS = "-runs"
"""End of the name of the table that has a line for each run."""

_REMEDY = "take a copy of the table, or make it again with r2mae reproduce"


def digest_of(file: Path) -> str:
    """Return what tells a file's content from any other."""
    return hashlib.blake2b(read_confined(file), digest_size=16).hexdigest()


def read_runs(file: Path, columns: Collection[str] = ("seed",)) -> "pd.DataFrame":
    """Return a table of runs.

    Parameters
    ----------
    file : Path
        A CSV file.
    columns : collection of str
        Those that it must have.

    Raises
    ------
    UserError
        If the file is no such table or a part of one: it cannot be read, has no lines, ends within a line, has lines of
        another length than its head, a word among numbers, or not the columns.
    """
    import pandas as pd

    read_rows(file, _REMEDY)
    text = read_confined(file)
    if not text.endswith(b"\n"):
        raise UserError(f"{file} ends within a line: {_REMEDY}")
    table = pd.read_csv(BytesIO(text), encoding="utf-8")
    if not len(table):
        raise UserError(f"{file} has no lines: {_REMEDY}")
    for column in columns:
        if column not in table:
            raise UserError(f"{file} has no column {column!r}, so it is no table of these runs: {_REMEDY}")
    for column, word in _words(table):
        raise UserError(f"{file}: the column {column!r} has {word!r} among its numbers: {_REMEDY}")
    return table


def _words(table: "pd.DataFrame") -> "Iterator[tuple[str, str]]":
    """Yield the first word of each column in which others are numbers."""
    import pandas as pd

    for name in table:
        if pd.api.types.is_numeric_dtype(table[name]):
            continue
        values = table[name].dropna()
        numbers = pd.to_numeric(values, errors="coerce")
        if numbers.notna().any() and numbers.isna().any():
            yield str(name), str(values[numbers.isna()].iloc[0])
