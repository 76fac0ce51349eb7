"""Tables as lists of rows: their CSV files, making them of columns or of intervals, choosing rows and columns."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from r2mae.errors import UserError
from r2mae.evaluation.statistics import Difference, mean_interval
from r2mae.files import atomic_write, read_confined

TableRow: TypeAlias = dict[str, Any]
Tables: TypeAlias = Mapping[str, Any]
"""Tables by file name without suffix. A list of rows is written as CSV, a mapping as JSON."""


def records(table: pd.DataFrame) -> list[TableRow]:
    """Return the rows of a table."""
    return cast("list[TableRow]", table.to_dict("records"))


def rows_of(**columns: Any) -> list[TableRow]:
    """Return a row for each entry of the columns; a single value is in every row."""
    return records(pd.DataFrame(columns))


def joined(results: Mapping[str, list[TableRow]]) -> list[TableRow]:
    """Return the rows of all parts, in their order."""
    return [row for rows in results.values() for row in rows]


def joined_tables(results: Mapping[str, Any], name: str = "") -> dict[str, list[TableRow]]:
    """Return the rows of all parts by their table, in the order of the parts; a list of rows is of the table `name`."""
    tables: dict[str, list[TableRow]] = {}
    for found in results.values():
        for table, rows in (found if isinstance(found, Mapping) else {name: found}).items():
            tables.setdefault(table, []).extend(rows)
    return tables


def select(rows: Sequence[TableRow], **wanted: object) -> list[TableRow]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(rows: Sequence[TableRow], key: str) -> Float[np.ndarray, " rows"]:
    """Return one entry of every row as an array, with NaN where it is missing."""
    return np.array([row.get(key, np.nan) for row in rows], dtype=np.float64)


def unique(rows: Sequence[TableRow], key: str) -> list[Any]:
    """Return the different values of an entry, in the order of the rows."""
    return list(dict.fromkeys(row[key] for row in rows))


def mean_columns(values: Any) -> TableRow:
    """Return the number of seeds, their mean and its 95 % interval."""
    found = mean_interval(values)
    return {"seeds": found.n, "mean": found.mean, "low": found.low, "high": found.high}


def difference_columns(name: str, found: Difference) -> TableRow:
    """Return a paired difference, its 95 % interval and its verdict, in columns that begin with a name."""
    ends = {f"{name}_low": found.low, f"{name}_high": found.high}
    return {name: found.mean, **ends, f"{name}_is": found.verdict}


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write dictionaries as CSV, atomically; a missing entry is an empty cell."""
    with atomic_write(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)


def read_rows(path: Path, hint: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a CSV file, which must be complete.

    Raises
    ------
    UserError
        If the file is empty, is not text, or has rows of another length than its header; `hint` says what to do.
    """
    try:
        text = read_confined(path).decode("utf-8")
        lines = [line for line in csv.reader(StringIO(text, newline="")) if line]
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text: {hint}") from None
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{path} cannot be read ({error}): {hint}") from None
    if "\0" in text:
        raise UserError(f"{path} is not text: {hint}")
    if not lines:
        raise UserError(f"{path} is empty: {hint}")
    columns, *rows = lines
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            cells = f"{len(row)} cells in row {number}, and {len(columns)} headings"
            raise UserError(f"{path} is truncated or damaged ({cells}): {hint}")
    return columns, rows
