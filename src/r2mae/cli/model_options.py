"""Options of models: `--model NAME`, and for its settings `--model.NAME VALUE`."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from r2mae.training.config import RunConfig
from r2mae.training.models import PREFIX, ModelConfig, default_model, settings_of

if TYPE_CHECKING:
    from r2mae.cli.parsing import Parser

_FIELD = "model_settings"  # prefix for jsonargparse, which would read `--model.layers` as a part of `--model`


def fields_of_models(kind: type[RunConfig]) -> tuple[str, ...]:
    """Return the fields of a configuration that are not options themselves."""
    return (_FIELD,) if issubclass(kind, ModelConfig) else ()


def as_typed(text: str) -> str:
    """Return a text in which options of models are written as people type them."""
    return text.replace(f"--{_FIELD}.", f"--{PREFIX}")


def written_as(kind: type[RunConfig], given: Mapping[str, Any], name: str) -> str:
    """Return the name in the configuration for a name in a file."""
    return name if name in given or not issubclass(kind, ModelConfig) else name.removeprefix(PREFIX)


def add_settings(
    parser: "Parser", kind: type[RunConfig], defaults: Mapping[str, Any], said: str | None
) -> dict[str, Any]:
    """Add the settings of the chosen model as options, and return the defaults under the parser's names.

    If the command line names another model than file or preset, their settings of a model are ignored.

    Parameters
    ----------
    parser : Parser
        A parser that has the options of the configuration.
    kind : type
        The configuration.
    defaults : mapping
        Defaults from the named set, the file and presets.
    said : str, optional
        The model that the command line names.

    Raises
    ------
    UserError
        If there is no such model.
    """
    if not issubclass(kind, ModelConfig):
        return dict(defaults)
    default = default_model(kind)
    before = str(defaults.get("model", default))
    name = before if said is None else said
    parser.describe("model", f"One of: {', '.join(kind.models)}. Its settings are the options --{PREFIX}NAME.")
    settings = settings_of(kind, name)
    if name != default:
        parser.add_class_arguments(settings, _FIELD, as_group=False)
    own = {
        field.name: field.name if name == default else f"{_FIELD}.{field.name}"
        for field in dataclasses.fields(settings)
    }
    parser.aliases |= {f"--{PREFIX}{setting}": f"--{parsed}" for setting, parsed in own.items()}
    others = {field.name for field in dataclasses.fields(kind.default_settings)} if name != default else set()
    kept = {}
    for key, value in defaults.items():
        setting = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and name == before:
            kept[own[setting]] = value
        elif not key.startswith(PREFIX) and key not in others:
            kept[key] = value
    return kept
