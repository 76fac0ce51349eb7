"""The base class of domains, with defaults for the optional parts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from r2mae.domains.options import NPZ, CommandLine, Exporter, FigureColumns

if TYPE_CHECKING:
    from torch import nn

    from r2mae.catalogue import PublicSet
    from r2mae.evaluation.examples import Examples


class BaseDomain:
    """Base class of domains, with defaults for the optional parts of :class:`r2mae.domains.contract.Domain`.

    A domain must define `name`, `title`, `config`, `metrics_of`, `fingerprint`, `load`, `build`, `evaluate`
    and `embed`.
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
        """Refuse nothing: mistakes in the data are found when they are read."""

    def check(self, config: Any) -> None:
        """Refuse missing data."""
        self.check_source(config)

    def examples(
        self, config: Any, task: Any, model: "nn.Module", data: Any, *, ratio: float | None = None
    ) -> "Examples | None":
        """Return None: the domain has no examples."""
        return None

    def figure_columns(self, config: Any) -> FigureColumns:
        """Draw all columns, except `split` (training or test)."""
        return FigureColumns(omitted=("split",))
