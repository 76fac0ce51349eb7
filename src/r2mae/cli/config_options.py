"""The fields of a configuration as options of the command line, with help from its docstrings. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from r2mae.fields import ConfigOption, options_of
from r2mae.masking.schemes import SCHEME_OPTIONS, resolve_options, scheme_names
from r2mae.training.config import SCHEME_PREFIX, RunConfig, fields_of
from r2mae.training.models import PREFIX, ModelSettings

GROUPS = ("run", "data", "model", "task", "scheme", "optimizer", "machine", "evaluation", "")
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
    """
    found = [] if "scheme" in kind.omitted else [*_scheme_options(kind)]
    found += _fields(kind)
    if "model" not in kind.omitted:
        chosen, default = kind.settings_of(model or kind.model.name), type(kind.model)
        for settings in dict.fromkeys((chosen, default)):
            known = {option.name for option in found} | {*SCHEME_OPTIONS}
            found += _settings(settings, known, shown=settings is chosen, bare=chosen is default)
    return sorted(found, key=lambda option: GROUPS.index(option.group))


def _fields(kind: type[RunConfig]) -> Iterator[ConfigOption]:
    """Return all fields but the data, and the settings of single models."""
    of_group = {group: type(getattr(kind, group)) if group else kind for group, _ in fields_of(kind).values()}
    options = {(group, option.name): option for group, of in of_group.items() for option in options_of(of)}
    for name, place in fields_of(kind).items():
        if name == "data" or {name, place[0]} & kind.omitted:
            continue
        option = replace(options[place], name=name, default=kind.default_of(name), words=_WORDS.get(name, ()))
        if name == "model":
            help_ = f"{', '.join(kind.models)}. Its settings are the options --model.NAME."
            option = replace(option, help=help_, words=tuple(kind.models), metavar="NAME")
        group = "model" if name == "preset" else place[0] or "run"
        yield replace(option, group=group, common=name in (*_COMMON, *kind.common_fields))


def _settings(kind: type[ModelSettings], known: set[str], *, shown: bool, bare: bool) -> Iterator[ConfigOption]:
    """Return the settings of a model, with and without prefix; without, only if no other option has the name."""
    own = kind.own_fields()
    for option in [replace(one, common=one.name in own[:_USUAL]) for one in options_of(kind) if one.name in own]:
        if option.name not in known:
            yield replace(option, group="model" if shown and bare else "")
        if shown:
            prefixed = "" if bare and option.name not in known else "model"
            yield replace(option, name=PREFIX + option.name, group=prefixed)


def _scheme_options(kind: type[RunConfig]) -> Iterator[ConfigOption]:
    """Return the scheme and its options, with the domain's defaults in their help."""
    names = tuple(scheme_names())
    yield ConfigOption("scheme", str, kind.scheme.name, f"{', '.join(names)}.", "scheme", words=names, metavar="NAME")
    values: dict[str, dict[Any, list[str]]] = {name: {} for name in SCHEME_OPTIONS}  # the schemes of each default
    for scheme in names:
        for name, value in resolve_options(scheme, {}, kind.ratios).items():
            values.setdefault(name, {}).setdefault(value, []).append(scheme)
    for name, schemes_of in values.items():
        paper = ", the paper's" if name in ("ratio", "low", "high") and not kind.ratios.not_in_paper else ""
        text = _in_words(schemes_of)
        settings: dict[str, Any] = {"group": "scheme", "common": name in _COMMON, "default_text": text and text + paper}
        if name in SCHEME_OPTIONS:
            yield ConfigOption(name, SCHEME_OPTIONS[name].kind, None, SCHEME_OPTIONS[name].help, **settings)
        else:
            of = ", ".join(one for schemes in schemes_of.values() for one in schemes)
            yield ConfigOption(SCHEME_PREFIX + name, float, None, f"Option of the scheme {of} alone.", **settings)


def _in_words(schemes_of: Mapping[Any, list[str]]) -> str:
    """Return the defaults of an option, the most frequent first, and the schemes of the others."""
    ordered = sorted(schemes_of.items(), key=lambda item: -len(item[1]))
    texts = [value if isinstance(value, str) else f"{value:.3g}" for value, _ in ordered]
    return ", ".join(
        text + (f" of {', '.join(ordered[place][1])}" if place else "") for place, text in enumerate(texts)
    )
