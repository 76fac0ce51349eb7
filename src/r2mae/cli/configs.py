"""The parser of ``pretrain`` and ``compare``, whose options are the fields of a domain's configuration. No torch."""

import argparse
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from r2mae.cli.parsing import HELP, Parser
from r2mae.cores import DEVICES
from r2mae.domains.baselines import known_baselines
from r2mae.domains.lookup import all_domains, domain_of, get_domain, public_sets
from r2mae.domains.sources import Sources, find_layers
from r2mae.errors import UserError, nearest, unknown
from r2mae.fields import ConfigOption, at_home, docstring_part, options_of, read_fields
from r2mae.masking.schemes import SCHEME_OPTIONS, resolve_options, scheme_names, schemes_in_words
from r2mae.registry import DOMAINS
from r2mae.training.config import SCHEME_PREFIX, RunConfig, fields_of, first_of, naming
from r2mae.training.folder import read_yaml
from r2mae.training.models import PREFIX, ModelSettings

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

_ROOM = 20  # characters of an option with its choices, in a column of the short help
_NAMES = ("preset", "model", "scheme", "schemes", "baselines", "device")  # options whose help lists names


def config_parser(
    command: str,
    options: type,
    example: str,
    run: Callable[[Sources, Any, dict[str, Any]], int],
    words: Sequence[str],
    omitted: Sequence[str] = (),
) -> Parser:
    """Return a parser with the options of a command, and those of the domain's configuration, whose defaults it shows.

    In the example, ``{ratios}`` are the domain's :class:`~r2mae.masking.defaults.SchemeDefaults`.
    ``run(sources, options, given)`` runs the command, with its own options and the given ones of the configuration. A
    file may hold `options`, too. The fields `omitted` of the configuration are no options of the command.

    Raises a :class:`UserError` if the domain or the data are missing.
    """
    own, about, everything = options_of(options), docstring_part(options), "--help-all" in words
    data = ConfigOption("data", tuple[str, ...], (), group="", positional=True, metavar="DATA")
    sources, filed = read_sources(command, words, options)
    example = example.format(ratios=(sources.domain if sources else get_domain("images")).config.ratios)
    if sources is None:
        lines = "\n".join(f"  {line}" for line in _examples(command))
        about += f"\n\nEach domain has its own options: r2mae {command} DOMAIN --help. For example:\n\n{lines}"
        parser = Parser(f"r2mae {command} DOMAIN", about, f"r2mae {command} digits {example}")
        return parser.add([replace(data, words=lambda: (*DOMAINS, *public_sets())), *own])
    domain, sets = sources.domain, tuple(sources.domain.sets)
    about += f" {domain.title}. DATA is a path{' or a named set: ' if sets else ''}{', '.join(sets)}."
    about += f"\n\n{schemes_in_words()}" if domain.config.hides else ""
    example = f"r2mae {command} {domain.name} {_example_data(domain) or 'path/to/data'} {example}"

    def call(given: dict[str, Any]) -> int:
        typed = given.pop("data", ())
        if typed and words[0].startswith("-"):
            raise UserError(f"name the data before the options: r2mae {command} {' '.join(typed)} --…")
        mine = {**filed, **{one.name: given.pop(one.name) for one in own if one.name in given}}
        return run(sources, options(**mine), given)

    parser = Parser(f"r2mae {command} {domain.name}", about, example, run=call, everything=everything)
    known = {**sources.known, **filed}
    shown = [*own, *(one for one in config_options(domain.config, known.get("model")) if one.name not in omitted)]
    defaults = {one.name: known.get(one.name, known.get(PREFIX + one.name, one.default)) for one in shown}
    shown = [_suggested(replace(one, default=defaults[one.name]), domain) for one in shown]
    return parser.add([replace(data, words=sets), *(shown if everything else _shortened(shown))])


def read_sources(command: str, words: Sequence[str], options: type) -> tuple[Sources | None, dict[str, Any]]:
    """Find domain, data, presets and file: ``images digits``, a named set alone, or ``--config FILE``.

    Returns them (None if help is asked for without a domain), and the options of the command that the file holds.
    """
    leading = [at_home(word) for word in takewhile(lambda word: not word.startswith("-"), words)]
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--config", "--preset", "--model"):
        first.add_argument(option, nargs="?")  # the parser of the command refuses it without a value
    said = first.parse_known_args(words)[0]
    file = at_home(said.config)
    written = {} if file is None else at_home(read_yaml(Path(file), linked=True))
    with naming(file):
        of_file = first_of(written)
    own = {}
    for one in options_of(options):
        if one.name in written and one.name != "config":
            value = written.pop(one.name)
            own[one.name] = [value] if one.is_list and isinstance(value, str | int | float) else value
    with naming(file):
        filed = read_fields(options, own)
    name = of_file.get("domain")
    if leading and leading[0] in DOMAINS:
        name = leading.pop(0)
    if len(leading) > 1:
        if name is None and not Path(leading[0]).suffix and "did you mean" in nearest(leading[0], DOMAINS):
            raise unknown("domain", leading[0], DOMAINS)
        some = textwrap.shorten(" ".join(leading), 40, placeholder=" …")
        raise UserError(
            f"{command} takes one data set, not {len(leading)} ({some}): name one, such as a folder; quote a pattern "
            "of texts ('notes/*.txt'); join other files first (anndata.concat)"
        )
    data = leading[0] if leading else of_file.get("data")
    if name is None and data is not None:
        name = domain_of(data)
    if name is None:
        if any(word in HELP for word in words):
            return None, filed
        if data is not None and Path(data).exists():
            raise UserError(f"name the domain of {data}: r2mae {command} {'|'.join(DOMAINS)} {data}")
        if data is not None:
            raise unknown("domain or data set", data, [*DOMAINS, *public_sets()])
        hint = "name the data before the options" if words else f"for example: {', or '.join(_examples(command))}"
        raise UserError(f"{command} what? {hint}")
    domain = get_domain(name)
    return Sources(domain, data, find_layers(domain, data, file, written, said.preset, said.model)), filed


def _examples(command: str) -> list[str]:
    """Return an example of a command for every domain."""
    return [f"r2mae {command} {one.name} {data}" for one in all_domains() if (data := _example_data(one))]


def _example_data(domain: "Domain") -> str:
    """Return data of a domain for examples, if it has any."""
    return domain.command_line.example or next(iter(domain.sets), "")


def _shortened(options: Sequence[ConfigOption]) -> Iterator[ConfigOption]:
    """Return options for the short help: a clause or, of names, a sentence each, without groups."""
    rare = ("ratio", "batch_size", "lr") if any(option.name == "ratios" for option in options) else ()
    for option in options:
        ends = (". ",) if option.name in _NAMES else (". ", "; ", ", ", " (")
        first = min((option.help.split(end)[0] for end in ends), key=len).rstrip(".") + "."
        words, metavar = "|".join(option.choices), option.metavar
        if words and len(words) + len(option.typed) > _ROOM:
            first, metavar = f"{', '.join(option.choices[:-1])} or {option.choices[-1]}.", "NAME"
        default = option.default_text if option.name in _NAMES else option.default_text.split(", ")[0]
        common = option.common and option.name not in rare and option.words != (option.default,)
        group = option.group and "options"
        yield replace(option, help=first, metavar=metavar, group=group, default_text=default, common=common)


def _suggested(option: ConfigOption, domain: "Domain") -> ConfigOption:
    """Return an option with the words that complete it, and with those of a domain in its help."""
    if option.name == "preset":
        return replace(option, words=tuple(domain.presets), help=_presets_in_words(domain), metavar="NAME")
    if option.name == "baselines":
        found, more = known_baselines(domain.name), domain.command_line.baselines
        help_ = f"Baselines to measure, or none: {', '.join([*found, *filter(None, [more])])}."
        usual = [one.name for one in found.values() if one.default]
        text = "all" if len(usual) == len(found) and not more else ", ".join(usual)
        several = len(found) > 1 or bool(more)
        return replace(option, words=("none", *found), help=help_, default_text=text, common=several)
    if option.name == "schemes":
        return replace(option, words=scheme_names)
    return replace(option, words=domain.command_line.words.get(option.name, option.words))


def _presets_in_words(domain: "Domain") -> str:
    """Return the presets, with their millions of parameters where these are known: ``unet-4 0.1, -8 0.5``."""
    parts, family = [], ""
    for name in domain.presets:
        size = domain.config.preset_sizes.get(name)
        short = f"-{name.rpartition('-')[2]}" if family and name.rpartition("-")[0] == family else name
        family = name.rpartition("-")[0]
        parts.append(f"{short} {size:g}" if size else short)
    return f"Millions of parameters: {', '.join(parts)}." if domain.config.preset_sizes else f"{', '.join(parts)}."


def print_config(config: RunConfig, skip: Sequence[str] = (), **more: Any) -> None:
    """Print a configuration without some fields, and a command's own options, in the form that `--config` reads."""
    fields = {name: value for name, value in config.to_dict().items() if name not in skip}
    print(yaml.safe_dump({**fields, **more}, sort_keys=False), end="")


GROUPS = ("run", "data", "model", "task", "scheme", "optimizer", "machine", "evaluation", "")
"""The parts of a configuration, in the order of the help; "run" are its fields outside of groups, but the preset."""

_WORDS = {"device": DEVICES}
_COMMON = (
    "preset", "model", "norm", "fill", "scheme", "ratio", "low", "high", "epochs", "batch_size", "lr", "seed",
    "device", "devices", "precision", "workers",
)  # fmt: skip


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
    for option in [replace(one, common=one.name in _COMMON) for one in options_of(kind) if one.name in own]:
        if option.name not in known:
            yield replace(option, group="model" if shown and bare else "")
        if shown:
            prefixed = "" if bare and option.name not in known else "model"
            yield replace(option, name=PREFIX + option.name, group=prefixed)


def _scheme_options(kind: type[RunConfig]) -> Iterator[ConfigOption]:
    """Return the scheme and its options, with the domain's defaults in their help."""
    names = tuple(scheme_names())
    yield ConfigOption("scheme", str, kind.scheme.name, "One of the list above.", "scheme", words=names, metavar="NAME")
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
