"""The configuration of a run from what names its fields: the data's defaults, presets, a file, and given options."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError, nearest, unknown
from r2mae.masking.schemes import scheme_kind
from r2mae.training.config import Layer, RunConfig, naming, split_options
from r2mae.training.scheme import SchemeSpec, check_options

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

NO_PRESET = "null"
"""The word for no preset, not even that of the file."""
_FIRST = {"domain": "", "data": "source", "preset": "", "model": "name"}  # what is read before the domain is known


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


def first_of(file: str, written: Mapping[str, Any]) -> dict[str, str | None]:
    """Return domain, data, preset and model of a file, which decide what its other fields mean.

    Raises
    ------
    UserError
        If one of them is no text.
    """
    found: dict[str, str | None] = {}
    for name, field in _FIRST.items():
        value = written.get(name, written.get(f"{name}.{field}"))
        if field and isinstance(value, Mapping):
            value = value.get(field)
        if not isinstance(value, str | None):
            raise UserError(f"{file}: {name} takes text, not {str(value)[:80]!r}")
        found[name] = value
    return found


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
    of_file = {} if file is None else first_of(file, written)
    rest = {name: value for name, value in written.items() if name not in ("domain", "preset", "data.source")}
    if isinstance(group := rest.pop("data", None), Mapping):  # a text is the data, which the command line may replace
        rest["data"] = {name: value for name, value in group.items() if name != "source"}
    layers, own = [], of_file.get("preset")
    if data is not None and data in domain.set_defaults:
        layers.append(Layer(domain.set_defaults[data], f"the set {data}"))
    if preset is None and own is not None:
        with naming(file):
            values = preset_values(domain, own)
        if model in (None, values.get("model", model)):  # a file may be for several models
            layers.append(Layer(values, str(file)))
    if file is not None:
        layers.append(Layer(rest, file))
    if preset == NO_PRESET:
        layers.append(Layer({"preset": None}))
    elif preset is not None:
        values = preset_values(domain, preset)
        if model not in (None, values.get("model", model)):
            fitting = [name for name in domain.presets if preset_values(domain, name).get("model", model) == model]
            hint = nearest(preset, fitting) if fitting else "omit --preset"
            domain.config.settings_of(model)  # which refuses an unknown one
            raise UserError(f"the model {model!r} has no preset {preset!r}: {hint}")
        layers.append(Layer(values))
    if model is not None:
        layers.append(Layer({"model": model}))
    return tuple(layers)


def preset_values(domain: "Domain", preset: str) -> dict[str, Any]:
    """Return the fields that a preset sets, with its name, and with its model if it does not fit every one.

    Raises
    ------
    UserError
        If there is no such preset.
    """
    if not domain.presets:
        raise UserError(f"the domain {domain.name!r} has no presets: omit --preset")
    if preset not in domain.presets:
        raise unknown("preset", preset, [name for name in domain.presets if preset in name] or domain.presets)
    values = domain.presets[preset]
    settings = values.keys() & {*domain.config.model.own_fields()}
    return {**({"model": domain.config.model.name} if settings else {}), **values, "preset": preset}


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
