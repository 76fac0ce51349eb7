"""Tables as lists of rows: making them of columns or of intervals, choosing rows, and taking columns."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from r2mae.evaluation.statistics import Difference, mean_interval

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
