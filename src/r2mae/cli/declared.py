"""Adds to the command line what domains declare: options and help for common commands, and commands of their own."""

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.domains.lookup import command_function
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import Command, Evaluation, Option

_WIDTH = 118
_COLUMN = 10  # column at which descriptions begin


def evaluations_of(domain: "Domain") -> "tuple[Evaluation, ...]":
    """Return the domain's default evaluation, then the others."""
    return (domain.command_line.evaluation, *domain.command_line.evaluations)


def add_options(parser: Parser, options: "Iterable[tuple[Domain, Option]]", when: str = "") -> None:
    """Add the options that domains declare, each name once; the help says which domain has it, and `when` it applies.

    Raises
    ------
    UserError
        If a domain declares an option that the command has, or that another domain declares differently.
    """
    declared: dict[str, list[tuple[Domain, Option]]] = {}
    for domain, option in options:
        declared.setdefault(option.name, []).append((domain, option))
    for ones in declared.values():
        (first_domain, first), *others = ones
        for domain, other in others:
            if (other.kind, other.choices) != (first.kind, first.choices):
                raise _clash(domain, other, f"the domain {first_domain.name}")
        try:
            _add(parser, first, _help(ones, when))
        except (argparse.ArgumentError, ValueError):
            raise _clash(first_domain, first, repr(parser.prog)) from None


def _add(parser: Parser, option: "Option", description: str) -> None:
    names = (option.short, f"--{option.name}") if option.short else (f"--{option.name}",)
    if option.choices and not option.is_list:
        parser.add_argument(*names, choices=list(option.choices), help=description)
    elif option.is_list:
        parser.add_argument(*names, type=option.kind, default=(), help=description)
    else:
        parser.add_argument(*names, type=option.kind, help=description)


def _clash(domain: "Domain", option: "Option", other: str) -> UserError:
    return UserError(
        f"the domain {domain.name} declares {option.typed}, which {other} has with another meaning: "
        "rename it in the domain"
    )


def _help(ones: "Sequence[tuple[Domain, Option]]", when: str) -> str:
    """Join the help of an option from several domains; domains with the same text share a sentence."""
    said: dict[str, list[str]] = {}
    for domain, option in ones:
        said.setdefault(option.help, []).append(option.whose or domain.name)
    sentences = (f"{when or ''}for {_and(dict.fromkeys(whose))}: {help_}" for help_, whose in said.items())
    return " ".join(map(_sentence, sentences))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _and(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def given_options(values: Mapping[str, Any], options: "Iterable[tuple[Domain, Option]]") -> dict[str, Any]:
    """Return the options that a user gave, by name; an empty list counts as not given."""
    return _given(values, dict.fromkeys(option.name for _, option in options))


def _given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if values[name] is not None and values[name] not in ((), [])}


def refuse(path: Path, domain: "Domain", name: str) -> UserError:
    """Return the error for an option that the domain of a run does not have."""
    return UserError(f"{path} is a run of the domain {domain.name}, which has no --{name.replace('_', '-')}: omit it")


def parameters_of(path: Path, domain: "Domain", own: "Iterable[Option]", given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options that were given into parameters of the domain's method.

    Raises
    ------
    UserError
        For an option that is not one of the domain's `own`.
    """
    known = {option.name: option for option in own}
    for name in given:
        if name not in known:
            raise refuse(path, domain, name)
    return {known[name].sets: known[name].value_of(value) for name, value in given.items()}


def evaluation_of(domain: "Domain", path: Path, what: str | None, given: Mapping[str, Any]) -> "Evaluation":
    """Return the requested evaluation, after checking that the given options belong to it.

    Raises
    ------
    UserError
        If the domain has no such evaluation, a required option is missing, or an option belongs to another evaluation.
    """
    ones = evaluations_of(domain)
    known = [domain.name, *(one.name for one in ones if one.name)]
    if what is not None and what not in known:
        raise unknown("evaluation", what, known)
    chosen = next(one for one in ones if one.name == ("" if what in (None, domain.name) else what))
    for option in chosen.options:
        if option.needed and option.name not in given:
            raise UserError(f"evaluate RUN {chosen.name} needs {option.needed}")
    own = {option.name for option in chosen.options}
    for name, value in given.items():
        home = next((one for one in ones if name in {option.name for option in one.options}), None)
        if home is None:
            raise refuse(path, domain, name)
        if name not in own:
            typed = "--" + name.replace("_", "-")
            if not home.name:
                raise UserError(f"{chosen.name} has no {typed}: omit it")
            words = " ".join(map(str, value)) if isinstance(value, tuple | list) else value
            raise UserError(f"{typed} belongs to {home.name}: r2mae evaluate {path} {home.name} {typed} {words}")
    return chosen


def run_command(domain: "Domain", command: "Command", words: Sequence[str]) -> int:
    """Run a domain's own command."""
    examples = [f"r2mae {command.name} {example}" for example in command.examples]
    parser = Parser(f"r2mae {command.name}", f"{_sentence(command.help)}.", *examples)
    for argument in command.places:
        more: dict[str, Any] = {"nargs": "+"} if argument.is_list else {"nargs": "?"} if argument.optional else {}
        parser.add_argument(
            argument.name,
            metavar=argument.name.upper(),
            type=str if argument.is_list else argument.kind,
            help=_sentence(argument.help),
            **more,
        )
    for option in command.options:
        _add(parser, option, _sentence(option.help))
    values = parser.read(words)
    declared = {option.name: option for option in (*command.places, *command.options)}
    given = _given(values, declared)
    for option in command.options:
        if option.needed and option.name not in given:
            raise UserError(f"r2mae {command.name} needs {option.needed}")
    with loading():
        function = command_function(domain, command)
    function(**{declared[name].sets: declared[name].value_of(value) for name, value in given.items()})
    return 0


def listed(lines: Iterable[tuple[str, str]]) -> str:
    """Format names with their descriptions as lines of a help text."""
    return "\n".join(
        textwrap.fill(
            f"{name:<{_COLUMN - 3}} {text}",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * _COLUMN,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for name, text in lines
        if text
    )


def baselines_in_words(domains: "Iterable[Domain]", *, default: bool = False) -> str:
    """Return the baselines of each domain in words; with `default`, also those that a comparison measures."""
    said = []
    for domain in domains:
        if baselines := domain.command_line.baselines:
            names = f" (by default {', '.join(domain.default_baselines) or 'none'})" if default else ""
            said.append(f"of {domain.name} {baselines}{names}")
    return "; ".join(said)


def files_in_words(domains: "Iterable[Domain]") -> str:
    """Return the file types for embeddings of each domain: ``of images and text .npz; of cells .h5ad or .npz``."""
    domains_by_suffix: dict[str, list[str]] = {}
    for domain in domains:
        domains_by_suffix.setdefault(" or ".join(one.suffix for one in domain.exporters), []).append(domain.name)
    return "; ".join(f"of {_and(names)} {files}" for files, names in domains_by_suffix.items())
