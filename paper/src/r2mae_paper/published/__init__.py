"""The values that the paper prints in Tables 5 and 9, from CSV files beside this module.

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


@dataclass(frozen=True)
class Table:
    """A table's setting and entries.

    Attributes
    ----------
    name : str
        Name of the artefact.
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
def published(name: Literal["table5", "table9"]) -> Table:
    """Return a table of the paper."""
    (setting,) = (row for row in _rows("tables") if row["table"] == name)
    entries: dict[Model, dict[int, Printed]] = {}
    for row in _rows(name):
        values = (float(row[column]) for column in ("best_ratio", "best", "middle", "r2mae"))
        entries.setdefault(cast(Model, row["model"]), {})[int(row["seed"])] = Printed(*values)
    return Table(name, float(setting["low"]), float(setting["high"]), float(setting["quantile"]), entries)


def _rows(stem: str) -> list[dict[str, str]]:
    return list(csv.DictReader(files(__name__).joinpath(f"{stem}.csv").read_text("utf-8").splitlines()))
