"""The parser of ``pretrain`` and ``compare``, whose options are the fields of a domain's configuration."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.declared import baselines_in_words
from r2mae.cli.parsing import HELP, Parser
from r2mae.compare.lists import words_of
from r2mae.domains.lookup import all_domains, check_preset, domain_of, get_domain, is_domain, preset_name, public_sets
from r2mae.domains.sources import Sources, merge, read_file
from r2mae.errors import UserError, nearest
from r2mae.masking.schemes import scheme_names
from r2mae.registry import DOMAINS
from r2mae.training.config import RunConfig
from r2mae.training.config_options import GROUPS, config_options
from r2mae.training.fields import ConfigOption, at_home, docstring_part, options_of

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

_NAMES = ("preset", "model", "scheme", "schemes", "baselines", "device")  # options whose help lists names
_PRESETS = 4  # at most this many in the short help
_FEW = 4  # an error repeats at most this many words


def read_sources(
    command: str, words: Sequence[str], skip: tuple[str, ...] = (), in_file: Sequence[str] = ()
) -> Sources | None:
    """Find domain, data and configuration file: ``images digits``, a named set alone, or ``--config FILE``.

    If help is asked for without a domain, there are none.

    Parameters
    ----------
    command : str
        Name of the command.
    words : sequence of str
        Words of the command line.
    skip : tuple of str
        Fields of configurations that the command does not use.
    in_file : sequence of str
        Options of the command itself that a file may hold, too.

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
    file, model = at_home(said.config), said.model
    written = {} if file is None else read_file(file)
    name = written.get("domain")
    if leading and is_domain(leading[0]):
        name = leading.pop(0)
    if len(leading) > 1:
        raise _several_words_error(command, name, leading)
    data = leading[0] if leading else written.get("data")
    if name is None and data is not None:
        name = domain_of(data)
    if name is None:
        if any(word in HELP for word in words):
            return None
        if data is not None:
            raise UserError(_unknown_data(command, data))
        hint = "name the data before the options" if words else f"for example: {_examples(command)}"
        raise UserError(f"{command} what? {hint}")
    domain = get_domain(name)
    if written.get("preset") is not None:
        written["preset"] = preset_name(domain, written["preset"], written.get("model"))
        if not _fits(domain, written["preset"], model):  # a file may be for several models
            del written["preset"]
    preset = preset_name(domain, said.preset, model or written.get("model"))
    check_preset(domain, preset, model)
    own = {name: _listed(file, name, written.pop(name)) for name in in_file if name in written}
    return Sources(domain, data, preset, model, file, written, own, skip)


def _fits(domain: "Domain", preset: str, model: str | None) -> bool:
    try:
        check_preset(domain, preset, model)
    except UserError:
        return False
    return True


def _listed(file: str | None, name: str, value: object) -> tuple[str, ...] | None:
    """Return the words of a list in a file."""
    try:
        return None if value is None else tuple(words_of(value))
    except UserError as error:
        raise UserError(f"{file}: {name}: {error}") from None


def config_parser(
    command: str, options: type, sources: Sources | None, example: str, run: Callable[..., int], words: Sequence[str]
) -> Parser:
    """Return a parser with the options of a command, and those of the domain's configuration, whose defaults it shows.

    Parameters
    ----------
    command : str
        Its name.
    options : type
        Dataclass with the options of the command itself.
    sources : Sources, optional
        None for the help without a domain.
    example : str
        Example of options.
    run : callable
        ``run(sources, options, given)`` runs the command, with its own options and all that were given.
    words : sequence of str
        Words of the command line.
    """
    own, about, everything = options_of(options), docstring_part(options), "--help-all" in words
    data = ConfigOption("data", tuple[str, ...], (), group="", positional=True, metavar="DATA")
    if sources is None:
        lines = "\n".join(f"  r2mae {command} {one.name} {_example(one)}" for one in all_domains())
        about += f"\n\nEach domain has its own options: r2mae {command} DOMAIN --help. For example:\n\n{lines}"
        parser = Parser(f"r2mae {command} DOMAIN", about, f"r2mae {command} digits {example}")
        parser.add([replace(data, words=lambda: (*DOMAINS, *public_sets())), *own])
        return parser
    domain, sets = sources.domain, tuple(sources.domain.sets)
    named = f", or a named set, without {domain.name!r} before it: {', '.join(sets)}" if sets else ""
    about += f" {domain.title}. DATA is a path{named}."
    example = f"r2mae {command} {next(iter(sets), f'{domain.name} path/to/data')} {example}"

    def call(given: dict[str, Any]) -> int:
        if given.get("data") and words[0].startswith("-"):
            raise UserError(f"name the data before the options: r2mae {command} {' '.join(given['data'])} --…")
        values = {**sources.own, **given}
        return run(sources, options(**{one.name: values[one.name] for one in own if one.name in values}), given)

    parser = Parser(f"r2mae {command} {domain.name}", about, example, run=call, everything=everything)
    parser.groups = GROUPS
    known = merge(sources, {})
    fields = config_options(domain.config, sources.model or known.get("model"))
    options_shown = [replace(one, **_known(one, sources.own)) for one in own]
    options_shown += [replace(one, **_known(one, known)) for one in fields if one.name not in sources.skip]
    shown = [_suggested(one, domain, everything) for one in options_shown]
    parser.add([replace(data, words=sets), *(shown if everything else map(_shortened, shown))])
    return parser


def _shortened(option: ConfigOption) -> ConfigOption:
    """Return an option with the first clause of its help, or the first sentence where that lists names."""
    ends = (". ",) if option.name in _NAMES else (". ", "; ", ", ", " (")
    first = min((option.help.split(end)[0] for end in ends), key=len)
    return replace(option, help=first.rstrip(".") + ".", default_text=option.default_text.split(", ")[0])


def _known(option: ConfigOption, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default that named set, file and preset give an option."""
    return {"default": known[option.name]} if option.name in known else {}


def _suggested(option: ConfigOption, domain: "Domain", everything: bool) -> ConfigOption:
    """Return an option with the words that complete it."""
    if option.name == "preset":
        names = tuple(domain.presets)
        more = len(names) - _PRESETS
        first = names if everything or more <= 0 else (*names[-_PRESETS:], f"and {more} more")
        return replace(option, words=names, help=f"{', '.join(first) or 'there are none'}.", metavar="NAME")
    if option.name == "baselines":
        help_ = f"Baselines to measure, or none: {baselines_in_words([domain], default=True) or 'there are none'}."
        return replace(option, words=("none", *domain.default_baselines), help=help_)
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
    several = None if name is None else get_domain(name).command_line.several
    if several is None:
        return UserError(f"{refusal}; for example: {_examples(command)}")
    example = f"r2mae {command} {name} {several.example(words)}"
    return UserError(f"{refusal}: {several.hint}, for example: {example}")


def _unknown_data(command: str, data: str) -> str:
    if Path(data).exists():
        return f"name the domain of {data}: r2mae {command} {'|'.join(DOMAINS)} {data}"
    return f"unknown domain or data set {data!r}: {nearest(data, [*DOMAINS, *public_sets()])}"
