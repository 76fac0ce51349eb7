"""The result of a comparison, once its cells have run: one table, from which everything else is derived."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd  # which takes a second, and the command line needs this module for a name alone

BASELINE = "baseline"  # the scheme of rows that were not pretrained
INTERVAL_COLUMNS = ("items", "interval_over")  # at the end of results.csv, which say something of intervals
RUN_COLUMNS = ("label", "scheme", "ratio", "low", "high", "seed", "seconds")


@dataclass(frozen=True)
class Reconstructions:
    """Examples to look at, all from the first seed.

    Parameters
    ----------
    original, masked : ndarray, shape (examples, height, width, channels)
        Clean images, and the same as the model sees them, hidden pixels filled; 0 to 1.
    ratio : float
        Mask ratio of the examples.
    by_label : mapping of label to ndarray, shape (examples, height, width, channels)
        What each scheme's model predicts from `masked`.
    """

    original: np.ndarray
    masked: np.ndarray
    ratio: float
    by_label: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Comparison:
    """The outcome of schemes × seeds.

    Parameters
    ----------
    title : str
        Such as "digits".
    metrics : tuple of Metric
        The first is the one that the headline speaks of.
    table : DataFrame
        One line a cell (a scheme under a seed): the columns :data:`RUN_COLUMNS`, then one per score. `label` names
        the row of the comparison ("fixed 0.50", "r2mae"); `ratio` is the fixed ratio or NaN; `low` and `high` are the
        ends of the scheme's ratios; a baseline has the scheme :data:`BASELINE` and NaN for all three. Lines are in the
        order of display: by label, then by seed.
    curves : DataFrame
        Training curves, thinned to means over windows: label, seed, step, loss, validation_loss.
    ratios : mapping of label to ndarray
        The ratios drawn in the first seed's run, one a step; for rows `by_sample` numbers that are even over a range.
    reconstructions : Reconstructions, optional
        Where the domain offers them.
    config, environment : mapping
        What was run, and where.
    measured : str
        How its scores were measured, where that is a choice.
    items : mapping of (label, seed) to ItemScores
        Scores of single test items, of the runs that kept some.
    recorded : DataFrame, optional
        Of a comparison that was read without its runs: the differences that were said of it, in place of new ones.
    by_sample : tuple of str
        The rows that draw a ratio for every sample, of which the runs keep only the means of steps.
    unread : tuple of str
        Sentences about files of runs that could not be read, without the period.
    """

    title: str
    metrics: tuple[Metric, ...]
    table: "pd.DataFrame"
    curves: "pd.DataFrame"
    ratios: Mapping[str, np.ndarray] = field(default_factory=dict)
    reconstructions: Reconstructions | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    measured: str = ""
    items: Mapping[tuple[str, int], ItemScores] = field(default_factory=dict)
    recorded: "pd.DataFrame | None" = None
    by_sample: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The rows of the comparison, in the order of display."""
        return list(dict.fromkeys(self.table["label"]))

    @property
    def baselines(self) -> list[str]:
        """The labels of rows that were not pretrained."""
        return list(dict.fromkeys(self.table.loc[self.table["scheme"] == BASELINE, "label"]))
