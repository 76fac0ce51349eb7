"""The configuration of a run from what names its fields: the data's defaults, presets, a file, and given options."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError
from r2mae.masking.schemes import scheme_kind
from r2mae.training.config import Layer, RunConfig, split_options
from r2mae.training.scheme import SchemeSpec, check_options

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

NO_PRESET = "null"
"""The word for no preset, not even that of the file."""


@dataclass(frozen=True)
class Sources:
    """The domain and the data of a run, and what sets the fields of its configuration.

    Parameters
    ----------
    domain : Domain
    data : str, optional
        Name of a set, or a path.
    layers : tuple of Layer
        The defaults of the named set, the preset of the file, the file, the preset and the model of the command line:
        each overrides those before it.
    """

    domain: "Domain"
    data: str | None
    layers: tuple[Layer, ...]

    @property
    def known(self) -> dict[str, Any]:
        """The values of all layers by flat names, and the scheme's name and options."""
        values = self.domain.config.merged(self.layers, dict)
        scheme = values.get("scheme")
        return {**values, **({"scheme": scheme.name} if isinstance(scheme, SchemeSpec) else {})}


def find_layers(
    domain: "Domain",
    data: str | None,
    file: str | None,
    written: Mapping[str, Any],
    preset: str | None,
    model: str | None,
) -> tuple[Layer, ...]:
    """Return the layers of :class:`Sources`.

    Parameters
    ----------
    domain : Domain
    data : str, optional
        Name of a set, or a path.
    file : str, optional
        A YAML file.
    written : mapping
        Its content.
    preset, model : str, optional
        As given on the command line. Any preset there, even none, replaces that of the file.

    Raises
    ------
    UserError
        For an unknown preset, or one of another model than the given one.
    """
    kind: type[RunConfig] = domain.config
    layers = kind.layers_of_set(data)
    if file is not None:
        rest = {name: value for name, value in written.items() if name not in ("domain", "data.source")}
        group = rest.pop("data", None)  # a text is the data, which the command line may replace
        if isinstance(group, Mapping):
            rest["data"] = {name: value for name, value in group.items() if name != "source"}
        own = None if rest.get("preset") is None else kind.model_of(rest["preset"])
        if preset is not None or model not in (None, own or model):  # a file may be for several models
            rest.pop("preset", None)
        layers += kind.layers_of(rest, file)
    typed = {"preset": None if preset == NO_PRESET else preset} if preset is not None else {}
    layers += kind.layers_of({**typed, **({} if model is None else {"model": model})})
    return tuple(layers)


def make_config(sources: Sources, given: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that sources and given options describe.

    Raises
    ------
    UserError
        For values that are refused, and for options that have no effect.
    """
    config: RunConfig = sources.domain.config.of_layers(_with_given(sources, given))
    config.check_given({**given, **({"scheme": config.scheme.name} if config.hides else {})})
    return config


def make_base(sources: Sources, given: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the configuration that the runs of several schemes and seeds share, and the options given for schemes.

    Raises
    ------
    UserError
        As :func:`make_config`.
    """
    kind = sources.domain.config

    def make(values: dict[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
        fields, options = split_options(values)
        scheme = fields.pop("scheme", None)
        if isinstance(scheme, str):
            scheme_kind(scheme)  # which refuses unknown ones, although the schemes of the command are others
        config: RunConfig = kind.of_values({**fields, "seed": kind.seed})
        return config, check_options(options)

    config, options = kind.merged(_with_given(sources, given), make)
    config.check_given(given)
    return config, options


def _with_given(sources: Sources, given: Mapping[str, Any]) -> list[Layer]:
    """Return the layers, and the last one: the given options, and the data.

    A path is made absolute, so that the run folder can be used from any working directory.
    """
    if sources.data is None:
        raise UserError("name the data: a set of `r2mae data list`, or a path")
    path = Path(sources.data)
    known = sources.data in sources.domain.sets or not path.exists()
    data = {"data": sources.data if known else str(path.absolute())}
    options = {name: value for name, value in given.items() if name != "preset"}  # which is a layer of its own
    return [Layer(data), *sources.layers, Layer({**options, **data})]
