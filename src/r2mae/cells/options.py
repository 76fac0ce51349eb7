"""Options of commands on cells. No torch."""

from dataclasses import dataclass
from typing import Literal

from r2mae.domains.options import MeasuredStatistics


@dataclass(frozen=True)
class Layer:
    """The layer of the model that is used.

    Parameters
    ----------
    representation : {"latent", "hidden"}, optional
        The latent layer, or the last hidden layer before it; by default as in the run.
    """

    representation: Literal["latent", "hidden"] | None = None


@dataclass(frozen=True)
class Probing(Layer, MeasuredStatistics):
    """Options of the evaluation."""


@dataclass(frozen=True)
class Reading:
    """Options of reading other cells.

    Parameters
    ----------
    transform_batch : str, optional
        The training batch to use for cells whose own is unknown to the model.
    layer : str, optional
        Layer with this file's raw counts (X for X); by default as in the run.
    """

    transform_batch: str | None = None
    layer: str | None = None
