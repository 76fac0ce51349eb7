"""What a domain may offer beyond its contract; commands ask whether it does. Importing this module loads no torch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd

    from r2mae.training.task import Data


@runtime_checkable
class HasAnnotations(Protocol):
    """A domain whose data have a table of annotations, with a row for each sample that its `embed` embeds."""

    def annotations(self, source: str) -> "pd.DataFrame":
        """Return the table alone, without reading the samples."""


@runtime_checkable
class MeasuresOtherData(Protocol):
    """A domain whose finished runs can be measured on other data than those of the run."""

    def load_other_data(
        self, config: Any, source: str, architecture: Mapping[str, Any], **options: Any
    ) -> "tuple[Any, Data]":
        """Read other data; return the configuration adapted to them and the data, both for the domain's `evaluate`.

        Raises a UserError if the data do not fit the model that `architecture` describes. `options` are those that the
        domain declares for reading data (:attr:`r2mae.domains.options.CommandLine.reading`).
        """


@runtime_checkable
class HasItems(Protocol):
    """A domain whose evaluation also tells the scores of single test items, so that comparisons can be paired by items.

    Its `evaluate` takes `items`, an :class:`~r2mae.evaluation.items.ItemRecorder` or None, and so does its
    `score_baseline` if it :class:`HasBaselines`. It adds the scores while it measures, without a pass of its own.
    """

    def item_metrics(self, config: Any) -> tuple[str, ...]:
        """Return the scores that are means over test items where they exist; the recorder gets these, and no others.

        The mean over all items of what is recorded is the score that `evaluate` returns.
        """


@runtime_checkable
class HasBaselines(Protocol):
    """A domain that can also measure baselines: raw features, models of other packages, or vectors from a file."""

    def baselines_of(self, config: Any) -> tuple[str, ...]:
        """Return the names of the baselines that exist for such data."""

    def check_baselines(self, names: Sequence[str]) -> None:
        """Raise a UserError for a baseline that cannot be measured here, because a package is missing, for example."""

    def score_baseline(self, config: Any, name: str, data: Any, **options: Any) -> dict[str, float]:
        """Measure a baseline with the parts of `evaluate` that apply to it; `progress` is as there."""


@runtime_checkable
class SizesBaselines(Protocol):
    """A domain with baselines that may not fit into memory, which only the data tell."""

    def check_baseline_sizes(self, config: Any, names: Sequence[str], data: Any) -> None:
        """Raise a UserError for a baseline that does not, before models are trained or measured for hours."""
