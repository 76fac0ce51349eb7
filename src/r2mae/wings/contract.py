"""What a wing offers to comparisons and the command line, beyond what the loop needs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from torch import nn
from typing_extensions import TypeVar

from r2mae.catalogue import PublicSet
from r2mae.evaluation.examples import Examples
from r2mae.evaluation.metrics import Metric
from r2mae.training.config import RunConfig
from r2mae.training.task import Data, Task, Trainable
from r2mae.wings.options import CommandLine, Exporter, FigureColumns

if TYPE_CHECKING:
    import pandas as pd


_Config = TypeVar("_Config", bound=RunConfig, default=Any)
_Task = TypeVar("_Task", bound=Task, default=Any)
_Model = TypeVar("_Model", bound=nn.Module, default=Any)


@runtime_checkable
class Wing(Trainable[_Config, _Task, _Model], Protocol[_Config, _Task, _Model]):
    """A domain: one object per wing, named in one line of :mod:`r2mae.registry` or by an entry point.

    :class:`r2mae.wings.base.BaseWing` has the defaults of what may be left out.
    """

    @property
    def title(self) -> str:
        """The wing in a line, for help texts."""

    def metrics_of(self, config: _Config) -> tuple[Metric, ...]:
        """What :meth:`evaluate` measures in such runs, for tables; the first is the one that headlines speak of."""

    @property
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """Fields of the configuration by the name of a preset."""

    @property
    def sets(self) -> Mapping[str, PublicSet]:
        """The public sets that are known by name."""

    @property
    def set_defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Fields of the configuration that a named set wants otherwise than the wing."""

    @property
    def command_line(self) -> CommandLine:
        """What the command line offers for the wing: options, evaluations and commands of its own."""

    def check_source(self, config: Any) -> None:
        """Raise a UserError where the data are not there. It may look at files, and loads no library."""

    def check(self, config: Any) -> None:
        """Raise a UserError for mistakes of a run that can be seen without a library; data that are not there, too."""

    @property
    def default_baselines(self) -> tuple[str, ...]:
        """The baselines that a comparison measures unless it is told otherwise."""

    @property
    def evaluation_support(self) -> tuple[str, ...]:
        """What :meth:`evaluate` takes beside options of users: `kept`, `progress`, or neither.

        One that takes long may take `kept`, a file for what it has finished, and `progress`, which it calls with what
        is done and what there is to do.
        """

    def evaluate(self, config: _Config, task: _Task, model: _Model, data: Any, **options: Any) -> dict[str, float]:
        """Measure a pretrained model: a number for each of `metrics`, and more if the wing likes."""

    @property
    def has_examples(self) -> bool:
        """Whether :meth:`examples` may return some."""

    def examples(self, config: _Config, task: _Task, model: _Model, data: Any) -> Examples | None:
        """Complete a few masked test samples that can be looked at, the same in every run; None where none can."""

    @property
    def exporters(self) -> tuple[Exporter, ...]:
        """The kinds of file that embeddings are written as, the usual one first."""

    def figure_columns(self, config: Any) -> FigureColumns:
        """Return how a figure treats the columns that :meth:`embed` gives in such runs."""

    def embed(self, config: _Config, task: _Task, model: _Model, source: str, **options: Any) -> dict[str, np.ndarray]:
        """Embed new data, and return arrays by name (`embedding`, and what belongs to it)."""


@runtime_checkable
class HasAnnotations(Protocol):
    """A wing whose data carry a table of annotations, a row for each sample that :meth:`Wing.embed` embeds."""

    def annotations(self, source: str) -> "pd.DataFrame":
        """Return the table alone, without reading the samples."""


@runtime_checkable
class MeasuresElsewhere(Protocol):
    """A wing whose finished runs can be measured on other data than their own."""

    def elsewhere(self, config: Any, source: str, architecture: Mapping[str, Any], **options: Any) -> tuple[Any, Data]:
        """Return what :meth:`Wing.evaluate` takes: the configuration as it is for these data, and the data.

        Raises a UserError where they do not fit the model that `architecture` describes. The options are those of
        reading that the wing declares (:attr:`r2mae.wings.options.CommandLine.reading`).
        """


@runtime_checkable
class HasBaselines(Protocol):
    """A wing that can also measure what is no pretrained model of ours: raw features, other packages, given vectors."""

    def baselines_of(self, config: Any) -> tuple[str, ...]:
        """Return the names that can be asked for, given such data."""

    def check_baselines(self, names: Sequence[str]) -> None:
        """Raise a UserError for one that cannot be measured here, such as for want of a package."""

    def score_baseline(self, config: Any, name: str, data: Any, **options: Any) -> dict[str, float]:
        """Measure one of them, as far as :meth:`Wing.evaluate` applies to it, with its `progress` if it has one."""
