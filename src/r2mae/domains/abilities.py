"""Optional abilities of a domain, beyond its contract; commands test for them. Importing this module loads no torch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.training.task import Data


@runtime_checkable
class HasAnnotations(Protocol):
    """A domain whose data have a table of annotations, with a row for each sample that `embed` embeds."""

    def annotations(self, source: str) -> "pd.DataFrame":
        """Return the table, without reading the samples."""


@runtime_checkable
class MeasuresOtherData(Protocol):
    """A domain whose finished runs can be measured on other data than the run's."""

    def load_other_data(
        self, config: Any, source: str, architecture: Mapping[str, Any], **options: Any
    ) -> "tuple[Any, Data]":
        """Read other data; return the configuration adapted to them and the data, both for the domain's `evaluate`.

        Raises a UserError if the data do not fit the model of `architecture`. `options` are the domain's options for
        reading data (:attr:`r2mae.domains.options.CommandLine.reading`).
        """


@runtime_checkable
class HasItems(Protocol):
    """A domain whose evaluation records the scores of single test items, so that comparisons can be paired by item.

    Its `evaluate` takes `items`, an :class:`~r2mae.evaluation.items.ItemRecorder` or None, and so does its
    `score_baseline` if it :class:`HasBaselines`. Scores are recorded during the evaluation, without an extra pass.
    """

    def item_metrics(self, config: Any) -> tuple[str, ...]:
        """Return the scores that are means over test items; only these are recorded.

        The mean of the recorded values over all items equals the score that `evaluate` returns.
        """


@runtime_checkable
class HasBaselines(Protocol):
    """A domain that can measure baselines: raw features, models of other packages, or vectors from a file."""

    def baselines_of(self, config: Any) -> tuple[str, ...]:
        """Return the names of the baselines that exist for such data."""

    def check_baselines(self, names: Sequence[str]) -> None:
        """Raise a UserError for a baseline that cannot be measured, for example because a package is missing."""

    def score_baseline(self, config: Any, name: str, data: Any, **options: Any) -> dict[str, float]:
        """Measure a baseline with the parts of `evaluate` that apply to it; `progress` is as in `evaluate`."""


@runtime_checkable
class SizesBaselines(Protocol):
    """A domain with baselines whose memory depends on the data."""

    def check_baseline_sizes(self, config: Any, names: Sequence[str], data: Any) -> None:
        """Raise a UserError for a baseline that does not fit into memory, before models are trained or measured."""
