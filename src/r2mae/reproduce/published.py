"""What the paper prints in Tables 5 and 9."""

from dataclasses import dataclass
from typing import Literal

Model = Literal["beta", "latent"]
SEEDS = (2, 12, 22, 32, 42)


@dataclass(frozen=True)
class Row:
    """One seed and model: best fixed ratio, its risk, the risk at the middle of the range, and R²MAE's."""

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
        Of the artefact.
    low, high : float
        R²MAE's range.
    quantile : float
        The signal is the eigenvector at this quantile from the top.
    rows : dict
        By model, one for each seed.
    """

    name: str
    low: float
    high: float
    quantile: float
    rows: dict[Model, tuple[Row, ...]]

    @property
    def middle(self) -> float:
        """Mean of the range."""
        return round((self.low + self.high) / 2, 10)


TABLE_5 = Table(
    "table5",
    0.5,
    0.6,
    0.0,
    {
        "beta": (
            Row(0.55, 0.520, 0.520, 0.504),
            Row(0.53, 0.606, 0.612, 0.599),
            Row(0.58, 0.626, 0.631, 0.615),
            Row(0.51, 0.543, 0.563, 0.549),
            Row(0.53, 0.649, 0.658, 0.645),
        ),
        "latent": (
            Row(0.55, 0.611, 0.611, 0.599),
            Row(0.65, 0.641, 0.673, 0.662),
            Row(0.36, 0.662, 0.667, 0.653),
            Row(0.59, 0.640, 0.659, 0.634),
            Row(0.38, 0.640, 0.643, 0.629),
        ),
    },
)
TABLE_9 = Table(
    "table9",
    0.4,
    0.5,
    0.1,
    {
        "beta": (
            Row(0.43, 0.859, 0.865, 0.855),
            Row(0.43, 0.863, 0.865, 0.859),
            Row(0.54, 0.862, 0.898, 0.890),
            Row(0.43, 0.817, 0.822, 0.814),
            Row(0.36, 0.817, 0.830, 0.819),
        ),
        "latent": (
            Row(0.45, 0.826, 0.826, 0.823),
            Row(0.42, 0.832, 0.837, 0.830),
            Row(0.37, 0.848, 0.851, 0.842),
            Row(0.33, 0.852, 0.865, 0.859),
            Row(0.43, 0.814, 0.818, 0.806),
        ),
    },
)
