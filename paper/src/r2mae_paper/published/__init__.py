"""The values that the paper prints in Tables 5 and 9, from CSV files next to this module.

``tables.csv`` holds the settings of the tables, ``<table>.csv`` the entries of one table.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Literal, TypeAlias

import pandas as pd

Model: TypeAlias = Literal["beta", "latent"]


@dataclass(frozen=True)
class Printed:
    """One seed and model: best fixed ratio, its risk, the risk at the middle of the range, and that of R²MAE."""

    best_ratio: float
    best: float
    middle: float
    r2mae: float

    @property
    def gain(self) -> float:
        """The risk of R²MAE minus that at the middle of its range; negative: R²MAE is better."""
        return round(self.r2mae - self.middle, 3)


@dataclass(frozen=True)
class Table:
    """A table's setting and entries."""

    name: str
    """Name of the table."""
    low: float
    high: float
    """`low`, `high`: R²MAE's range."""
    quantile: float
    """The signal is the eigenvector at this quantile from the top."""
    entries: dict[Model, dict[int, Printed]]
    """:class:`Printed` by model, then by seed."""

    @property
    def middle(self) -> float:
        """Mean of the range."""
        return round((self.low + self.high) / 2, 10)


@cache
def published(name: str) -> Table:
    """Return a table of the paper: "table5" or "table9"."""
    setting = _rows("tables").set_index("table").loc[name]
    entries: dict[Model, dict[int, Printed]] = {}
    for model, seed, *numbers in _rows(name).itertuples(index=False):
        entries.setdefault(model, {})[seed] = Printed(*numbers)
    low, high, quantile = (float(setting[key]) for key in ("low", "high", "quantile"))
    return Table(name, low, high, quantile, entries)


def _rows(stem: str) -> pd.DataFrame:
    return pd.read_csv(StringIO(files(__name__).joinpath(f"{stem}.csv").read_text("utf-8")))
