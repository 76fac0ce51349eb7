"""The values that the paper prints in Tables 5 and 9, from CSV files next to this module.

``tables.csv`` holds the settings of the tables, ``<table>.csv`` the entries of one table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Literal, TypeAlias, get_args

import pandas as pd

Model: TypeAlias = Literal["beta", "latent"]


@dataclass(frozen=True, eq=False)
class Table:
    """A table's setting and entries."""

    name: str
    """Name of the table."""
    low: float
    high: float
    """`low`, `high`: R²MAE's range."""
    quantile: float
    """The signal is the eigenvector at this quantile from the top."""
    entries: Mapping[Model, pd.DataFrame]
    """By model, and in it by seed: the best fixed ratio, its risk (`best`), the risk at the `middle` of the range, that
    of R²MAE (`r2mae`), and how much larger the latter is (`gain`; negative: R²MAE is better)."""

    @property
    def middle(self) -> float:
        """Mean of the range."""
        return round((self.low + self.high) / 2, 10)


@cache
def published(name: str) -> Table:
    """Return a table of the paper: "table5" or "table9"."""
    setting = _rows("tables").set_index("table").loc[name]
    rows = _rows(name)
    rows = rows.assign(gain=(rows["r2mae"] - rows["middle"]).round(3))
    entries = {model: rows[rows["model"] == model].set_index("seed").drop(columns="model") for model in get_args(Model)}
    low, high, quantile = (float(setting[key]) for key in ("low", "high", "quantile"))
    return Table(name, low, high, quantile, entries)


def _rows(stem: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(files(__name__).joinpath(f"{stem}.csv").read_text("utf-8")))
