"""The defaults of a wing: what one has that says nothing else."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from r2mae.wings.options import NPZ, CommandLine, Exporter, FigureColumns

if TYPE_CHECKING:
    from torch import nn

    from r2mae.catalogue import PublicSet
    from r2mae.evaluation.examples import Examples


class BaseWing:
    """A base for wings: everything of :class:`r2mae.wings.contract.Wing` that has a sensible default.

    A wing adds `name`, `title`, `config`, `ratios`, `metrics_of`, `fingerprint`, `load`, `build`, `evaluate` and
    `embed`.
    """

    presets: Mapping[str, Mapping[str, Any]] = {}
    sets: Mapping[str, "PublicSet"] = {}
    set_defaults: Mapping[str, Mapping[str, Any]] = {}
    default_baselines: tuple[str, ...] = ()
    evaluation_support: tuple[str, ...] = ()
    has_examples: bool = False
    exporters: tuple[Exporter, ...] = (NPZ,)
    command_line: CommandLine = CommandLine()

    def check_source(self, config: Any) -> None:
        """Refuse nothing: data are looked at when they are read."""

    def check(self, config: Any) -> None:
        """Refuse data that are not there."""
        self.check_source(config)

    def examples(self, config: Any, task: Any, model: "nn.Module", data: Any) -> "Examples | None":
        """Return None: there is nothing to look at."""
        return None

    def figure_columns(self, config: Any) -> FigureColumns:
        """Return that all columns are drawn as they are, but for the division into training and test."""
        return FigureColumns(left_out=("split",))
