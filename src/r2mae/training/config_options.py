"""The fields of a configuration as options of the command line, with help from its docstrings. No torch."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from r2mae.masking.schemes import SCHEME_OPTIONS, resolve_options, scheme_names
from r2mae.training.config import RunConfig, fields_of
from r2mae.training.fields import ConfigOption, options_of
from r2mae.training.layers import SCHEME_OWN
from r2mae.training.models import ModelSettings

GROUPS = ("run", "data", "model", "task", "scheme", "optimizer", "machine", "evaluation")
"""The parts of a configuration, in the order of the help; "run" are its fields outside of groups, but the preset."""

_WORDS = {"device": ("auto", "cpu", "cuda")}
_USUAL = 2  # the first settings of a model are in the short help
_COMMON = ("preset", "model", "scheme", "ratio", "low", "high", "epochs", "batch_size", "lr", "seed", "device")


def config_options(kind: type[RunConfig], model: str | None = None) -> list[ConfigOption]:
    """Return the fields of a configuration as options, by group.

    An option without a group is accepted, and not shown: a setting of the model under its other name, or one of the
    default model if another is chosen.

    Parameters
    ----------
    kind : type
        The configuration.
    model : str, optional
        The model whose settings are options; by default the domain's.

    Raises
    ------
    UserError
        If there is no such model.
    """
    common, found = {*_COMMON, *kind.common_fields}, []
    of_group = {
        group: {option.name: option for option in options_of(type(getattr(kind, group)))} for group in _groups(kind)
    }
    of_group[""] = {option.name: option for option in options_of(kind)}
    for name, (group, field) in fields_of(kind).items():
        if name == "data" or {name, group} & kind.omitted:
            continue
        found.append(
            dataclasses.replace(
                of_group[group][field],
                name=name,
                default=kind.default_of(name),
                group="model" if name == "preset" else group or "run",
                common=name in common,
                words=_WORDS.get(name, ()),
            )
        )
    if "model" not in kind.omitted:
        found = _with_models(kind, found, model)
    if "scheme" not in kind.omitted:
        found = [*_scheme_options(kind), *found]
    return sorted(found, key=lambda option: (*GROUPS, "").index(option.group))


def _groups(kind: type[RunConfig]) -> set[str]:
    return {group for group, _ in fields_of(kind).values() if group}


def _with_models(kind: type[RunConfig], found: list[ConfigOption], model: str | None) -> list[ConfigOption]:
    """Add the settings of the chosen model, under both of their names."""
    for place, option in enumerate(found):
        if option.name == "model":
            help_ = f"{', '.join(kind.models)}. Its settings are the options --model.NAME."
            found[place] = dataclasses.replace(option, help=help_, words=tuple(kind.models), metavar="NAME")
    chosen = kind.settings_of(model or kind.default_model())
    by_default = chosen is type(kind.model)
    known = {option.name for option in found} | {*SCHEME_OPTIONS}
    for settings in dict.fromkeys((chosen, type(kind.model))):
        found += _settings(settings, known, shown=settings is chosen, bare=by_default)
        known |= set(settings.own_fields())
    return found


def _settings(kind: type[ModelSettings], known: set[str], *, shown: bool, bare: bool) -> list[ConfigOption]:
    """Return the settings of a model, with and without prefix; without, only if no other option has the name."""
    found, own = [], kind.own_fields()
    for field in options_of(kind):
        if field.name not in own:
            continue
        option = dataclasses.replace(field, common=field.name in own[:_USUAL])
        if option.name not in known:
            found.append(dataclasses.replace(option, group="model" if shown and bare else ""))
        if shown:
            prefixed = "" if bare and option.name not in known else "model"
            found.append(dataclasses.replace(option, name=f"model.{option.name}", group=prefixed))
    return found


def _scheme_options(kind: type[RunConfig]) -> list[ConfigOption]:
    """Return the scheme and its options, with the domain's defaults in their help."""
    names = tuple(scheme_names())
    values: dict[str, dict[Any, list[str]]] = {}  # the schemes of each default, by option
    for scheme in names:
        for name, value in resolve_options(scheme, {}, kind.ratios).items():
            values.setdefault(name, {}).setdefault(value, []).append(scheme)
    paper = "" if kind.ratios.not_in_paper else ", the paper's"
    found = [
        ConfigOption("scheme", str, kind.scheme.name, f"{', '.join(names)}.", "scheme", words=names, metavar="NAME")
    ]
    for name, option in SCHEME_OPTIONS.items():
        whose = paper if name in ("ratio", "low", "high") else ""
        text = _in_words(values.get(name, {}))
        found.append(
            ConfigOption(
                name, option.kind, None, option.help, "scheme", name in _COMMON, default_text=text and text + whose
            )
        )
    further = "Further options of a scheme, as NAME=NUMBER."
    own = ConfigOption(SCHEME_OWN, tuple[str, ...], (), further, "scheme", common=False, metavar="NAME=NUMBER")
    return [*found, own]


def _in_words(schemes_of: Mapping[Any, list[str]]) -> str:
    """Return the defaults of an option, the most frequent first, and the schemes of the others."""
    ordered = sorted(schemes_of.items(), key=lambda item: -len(item[1]))
    texts = [value if isinstance(value, str) else f"{value:.3g}" for value, _ in ordered]
    return ", ".join(
        text + (f" of {', '.join(ordered[place][1])}" if place else "") for place, text in enumerate(texts)
    )
