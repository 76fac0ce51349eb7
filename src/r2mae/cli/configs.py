"""The parser of ``pretrain`` and ``compare``, whose options are the fields of a domain's configuration."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.lists import words_of
from r2mae.cli.parsing import HELP, Parser
from r2mae.domains.lookup import all_domains, domain_of, get_domain, is_domain, public_sets
from r2mae.domains.sources import Sources, find_layers, first_of
from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import scheme_names
from r2mae.registry import DOMAINS
from r2mae.training.config import RunConfig
from r2mae.training.config_options import config_options
from r2mae.training.fields import ConfigOption, at_home, docstring_part, options_of
from r2mae.training.layers import naming
from r2mae.training.models import PREFIX
from r2mae.training.records import read_yaml

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

_NAMES = ("preset", "model", "scheme", "schemes", "baselines", "device")  # options whose help lists names
_PRESETS = 4  # at most this many in the short help
_FEW = 4  # an error repeats at most this many words


def _read_sources(
    command: str, words: Sequence[str], in_file: Sequence[str]
) -> tuple[Sources | None, dict[str, tuple[str, ...] | None]]:
    """Find domain, data, presets and file: ``images digits``, a named set alone, or ``--config FILE``.

    Returns them (None if help is asked for without a domain), and the options of the command that the file holds.

    Raises
    ------
    UserError
        If the domain or the data are missing.
    """
    leading = [at_home(word) for word in takewhile(lambda word: not word.startswith("-"), words)]
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("config", "preset"):
        first.add_argument(f"--{option}", nargs="?")  # the parser of the command refuses it without a value
    first.add_argument("--model", "--model.name", nargs="?", dest="model")
    said = first.parse_known_args(words)[0]
    file = at_home(said.config)
    written = {} if file is None else at_home(read_yaml(Path(file), linked=True))
    of_file = {} if file is None else first_of(file, written)
    own = {name: _listed(file, name, written.pop(name)) for name in in_file if name in written}
    name = of_file.get("domain")
    if leading and is_domain(leading[0]):
        name = leading.pop(0)
    if len(leading) > 1:
        raise _several_words_error(command, name, leading)
    data = leading[0] if leading else of_file.get("data")
    if name is None and data is not None:
        name = domain_of(data)
    if name is None:
        if any(word in HELP for word in words):
            return None, own
        if data is not None:
            raise UserError(_unknown_data(command, data))
        hint = "name the data before the options" if words else f"for example: {_examples(command)}"
        raise UserError(f"{command} what? {hint}")
    domain = get_domain(name)
    return Sources(domain, data, find_layers(domain, data, file, written, said.preset, said.model)), own


def _listed(file: str | None, name: str, value: object) -> tuple[str, ...] | None:
    """Return the words of a list in a file."""
    with naming(file), naming(name):
        return None if value is None else tuple(words_of(value))


def config_parser(
    command: str,
    options: type,
    example: str,
    run: Callable[..., int],
    words: Sequence[str],
    *,
    in_file: Sequence[str] = (),
    omitted: Sequence[str] = (),
) -> Parser:
    """Return a parser with the options of a command, and those of the domain's configuration, whose defaults it shows.

    Parameters
    ----------
    command : str
        Its name.
    options : type
        Dataclass with the options of the command itself.
    example : str
        Example of options.
    run : callable
        ``run(sources, options, given)`` runs the command, with its own options and the given ones of the configuration.
    words : sequence of str
        Words of the command line.
    in_file : sequence of str
        The command's own options that a file may hold, too.
    omitted : sequence of str
        Fields of the configuration that are no options of the command.

    Raises
    ------
    UserError
        If the domain or the data are missing.
    """
    sources, filed = _read_sources(command, words, in_file)
    own, about, everything = options_of(options), docstring_part(options), "--help-all" in words
    data = ConfigOption("data", tuple[str, ...], (), group="", positional=True, metavar="DATA")
    if sources is None:
        lines = "\n".join(f"  r2mae {command} {one.name} {_example(one)}" for one in all_domains())
        about += f"\n\nEach domain has its own options: r2mae {command} DOMAIN --help. For example:\n\n{lines}"
        parser = Parser(f"r2mae {command} DOMAIN", about, f"r2mae {command} digits {example}")
        parser.add([replace(data, words=lambda: (*DOMAINS, *public_sets())), *own])
        return parser
    domain, sets = sources.domain, tuple(sources.domain.sets)
    about += f" {domain.title}. DATA is a path{' or a named set: ' if sets else ''}{', '.join(sets)}."
    example = f"r2mae {command} {next(iter(sets), f'{domain.name} path/to/data')} {example}"

    def call(given: dict[str, Any]) -> int:
        typed = given.pop("data", ())
        if typed and words[0].startswith("-"):
            raise UserError(f"name the data before the options: r2mae {command} {' '.join(typed)} --…")
        mine = {**filed, **{one.name: given.pop(one.name) for one in own if one.name in given}}
        return run(sources, options(**mine), given)

    parser = Parser(f"r2mae {command} {domain.name}", about, example, run=call, everything=everything)
    known = {**sources.known, **filed}
    shown = [*own, *(one for one in config_options(domain.config, known.get("model")) if one.name not in omitted)]
    shown = [_suggested(replace(one, **_known(one, known)), domain, everything) for one in shown]
    parser.groups = {option.typed: option.group for option in shown}
    parser.add([replace(data, words=sets), *(shown if everything else _shortened(shown))])
    return parser


def _shortened(options: Sequence[ConfigOption]) -> Iterator[ConfigOption]:
    """Return options for the short help: a clause or, of names, a sentence each, and no group for a single one."""
    shown = Counter(option.group for option in options if option.common)
    for option in options:
        ends = (". ",) if option.name in _NAMES else (". ", "; ", ", ", " (")
        first = min((option.help.split(end)[0] for end in ends), key=len)
        group = option.group if shown[option.group] > 1 or not option.group else "options"
        default = option.default_text if option.name in _NAMES else option.default_text.split(", ")[0]
        yield replace(option, help=first.rstrip(".") + ".", group=group, default_text=default)


def _known(option: ConfigOption, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default that named set, file and preset give an option."""
    return next(({"default": known[name]} for name in (option.name, PREFIX + option.name) if name in known), {})


def _suggested(option: ConfigOption, domain: "Domain", everything: bool) -> ConfigOption:
    """Return an option with the words that complete it."""
    if option.name == "preset":
        names = tuple(domain.presets)
        more = len(names) - _PRESETS
        first = names if everything or more <= 0 else (*names[-_PRESETS:], f"and {more} more")
        return replace(option, words=names, help=f"{', '.join(first) or 'there are none'}.", metavar="NAME")
    if option.name == "baselines":
        help_ = f"Baselines to measure, or none: {domain.command_line.baselines or 'there are none'}."
        usual = ", ".join(domain.default_baselines) or "none"
        return replace(option, words=("none", *domain.default_baselines), help=help_, default_text=usual)
    if option.name == "schemes":
        return replace(
            option, words=scheme_names, help=f"Schemes to compare: {', '.join(scheme_names())}. {option.help}"
        )
    return replace(option, words=domain.command_line.words.get(option.name, option.words))


def print_config(config: RunConfig, skip: Sequence[str] = (), **more: Any) -> None:
    """Print a configuration without some fields, and a command's own options, in the form that `--config` reads."""
    import yaml

    fields = {name: value for name, value in config.to_dict().items() if name not in skip}
    print(yaml.safe_dump({**fields, **more}, sort_keys=False), end="")


def _examples(command: str) -> str:
    """Return an example of a command for every domain."""
    return ", or ".join(f"r2mae {command} {one.name} {_example(one)}" for one in all_domains() if _example(one))


def _example(domain: "Domain") -> str:
    return domain.command_line.example or next(iter(domain.sets), "")


def _several_words_error(command: str, name: str | None, words: Sequence[str]) -> UserError:
    """Return the error for several words in place of one data set."""
    first = words[0]
    if name is None and domain_of(first) is None and not Path(first).suffix and not Path(first).exists():
        hint = nearest(first, DOMAINS)
        if hint.startswith("did you mean"):
            return UserError(f"unknown domain {first!r}: {hint}")
    some = " ".join(words) if len(words) <= _FEW else f"{' '.join(words[:2])} … {words[-1]}"
    refusal = f"{command} takes one data set, not {len(words)} ({some})"
    several = "" if name is None else get_domain(name).command_line.several
    return UserError(f"{refusal}: {several}" if several else f"{refusal}; for example: {_examples(command)}")


def _unknown_data(command: str, data: str) -> str:
    if Path(data).exists():
        return f"name the domain of {data}: r2mae {command} {'|'.join(DOMAINS)} {data}"
    return f"unknown domain or data set {data!r}: {nearest(data, [*DOMAINS, *public_sets()])}"
