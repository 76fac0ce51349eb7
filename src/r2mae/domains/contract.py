"""The contract of a domain: what comparisons and the command line need, in addition to the training loop's needs."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn
from typing_extensions import TypeVar

from r2mae.catalogue import PublicSet
from r2mae.domains.options import CommandLine, Exporter, FigureColumns
from r2mae.evaluation.examples import Examples
from r2mae.evaluation.metrics import Metric
from r2mae.training.config import RunConfig
from r2mae.training.task import Task, Trainable

_Config = TypeVar("_Config", bound=RunConfig, default=Any)
_Task = TypeVar("_Task", bound=Task, default=Any)
_Model = TypeVar("_Model", bound=nn.Module, default=Any)


@runtime_checkable
class Domain(Trainable[_Config, _Task, _Model], Protocol[_Config, _Task, _Model]):
    """A domain, such as images: its configuration, data, task, model and evaluation, in one object.

    :class:`~r2mae.training.task.Trainable` lists what the training loop needs; this class adds the rest. Inherit from
    :class:`r2mae.domains.base.BaseDomain`, which has defaults for the optional parts. Register the object in
    :mod:`r2mae.registry`, or by an entry point of your package.
    """

    @property
    def title(self) -> str:
        """A description of the domain in one line, for help texts."""

    def metrics_of(self, config: _Config) -> tuple[Metric, ...]:
        """Return the scores of :meth:`evaluate` that tables show for such runs, the primary score first."""

    @property
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """Values of configuration fields, by the name of a preset."""

    @property
    def sets(self) -> Mapping[str, PublicSet]:
        """The domain's public data sets, by name."""

    @property
    def set_defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Defaults of configuration fields that differ for a public set, by the set's name."""

    @property
    def command_line(self) -> CommandLine:
        """The domain's own options, evaluations and commands on the command line."""

    def check_source(self, config: Any) -> None:
        """Raise a UserError if the data are missing. It may open files, but must not import heavy libraries."""

    def check(self, config: Any) -> None:
        """Raise a UserError for missing data and other mistakes that are found without heavy libraries."""

    @property
    def default_baselines(self) -> tuple[str, ...]:
        """The baselines that a comparison measures by default."""

    @property
    def evaluation_support(self) -> tuple[str, ...]:
        """The arguments among `kept` and `progress` that :meth:`evaluate` takes, in addition to users' options.

        They are for long evaluations: `kept` is the path of a file for finished parts, and `progress` is called with
        the amount done and the total.
        """

    def evaluate(self, config: _Config, task: _Task, model: _Model, data: Any, **options: Any) -> dict[str, float]:
        """Measure a pretrained model; return scores by name, including those of :meth:`metrics_of`.

        `data` is the result of `load`, or None for an evaluation with its own data
        (:attr:`r2mae.domains.options.Evaluation.own_data`).
        """

    @property
    def has_examples(self) -> bool:
        """Whether :meth:`examples` may return examples."""

    def examples(
        self, config: _Config, task: _Task, model: _Model, data: Any, *, ratio: float | None = None
    ) -> Examples | None:
        """Let the model complete a few masked test samples, the same in every run; None if they cannot be shown.

        By default, the domain's default `ratio` is hidden.
        """

    @property
    def exporters(self) -> tuple[Exporter, ...]:
        """The file formats in which embeddings can be written, the default first."""

    def figure_columns(self, config: Any) -> FigureColumns:
        """Return how a figure treats the columns that :meth:`embed` returns for such runs."""

    def embed(self, config: _Config, task: _Task, model: _Model, source: str, **options: Any) -> dict[str, np.ndarray]:
        """Embed new data, and return arrays by name: `embedding`, and columns such as `labels`."""
