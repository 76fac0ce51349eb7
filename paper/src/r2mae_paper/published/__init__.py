"""The values that the paper prints in Tables 5 and 9, from CSV files next to this module.

``tables.csv`` holds the settings of the tables, ``<table>.csv`` the entries of one table.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast

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
    """A table's setting and entries.

    Attributes
    ----------
    name : str
        Name of the table.
    low, high : float
        R²MAE's range.
    quantile : float
        The signal is the eigenvector at this quantile from the top.
    entries : dict
        :class:`Printed` by model, then by seed.
    """

    name: str
    low: float
    high: float
    quantile: float
    entries: dict[Model, dict[int, Printed]]

    @property
    def middle(self) -> float:
        """Mean of the range."""
        return round((self.low + self.high) / 2, 10)


@cache
def published(name: str) -> Table:
    """Return a table of the paper: "table5" or "table9"."""
    (setting,) = (row for row in _rows("tables") if row["table"] == name)
    entries: dict[Model, dict[int, Printed]] = {}
    for row in _rows(name):
        values = (float(row[column]) for column in ("best_ratio", "best", "middle", "r2mae"))
        entries.setdefault(cast(Model, row["model"]), {})[int(row["seed"])] = Printed(*values)
    return Table(name, float(setting["low"]), float(setting["high"]), float(setting["quantile"]), entries)


def _rows(stem: str) -> list[dict[str, str]]:
    return list(csv.DictReader(files(__name__).joinpath(f"{stem}.csv").read_text("utf-8").splitlines()))
