"""Adds to the command line what domains declare: commands, and the options for runs of a domain."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser, parser_of
from r2mae.domains.lookup import command_function
from r2mae.training.config_options import config_options
from r2mae.training.fields import options_of

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import Command, Evaluation

_WIDTH = 118
_COLUMN = 10  # column at which descriptions begin


def domain_parser(domain: "Domain", command: "Command", words: Sequence[str]) -> Parser:
    """Return the parser of a domain's own command."""

    def run(values: dict[str, Any]) -> int:
        with loading():
            function = command_function(domain, command)
        function(**values)
        return 0

    parser = parser_of(command.name, command.options, run, words)
    if command.config is not None:
        fields = (option for option in config_options(command.config) if option.name in command.fields)
        parser.add(replace(option, default=None) for option in fields)
    return parser


def run_in(words: Sequence[str]) -> Path | None:
    """Return the run folder among the words of a command: the first that is one, or else the first word."""
    names = [word for word in words if not word.startswith("-")]
    found = [word for word in names if (Path(word).expanduser() / "config.yaml").is_file()]
    leading = names[:1] if words and not words[0].startswith("-") else []
    return next((Path(word).expanduser() for word in [*found, *leading]), None)


def evaluations_of(domain: "Domain") -> "tuple[Evaluation, ...]":
    """Return the domain's default evaluation, then the others."""
    return (domain.command_line.evaluation, *domain.command_line.evaluations)


def names_of(options: type) -> set[str]:
    """Return the names of a dataclass's fields."""
    return {option.name for option in options_of(options)}


def taken(values: Mapping[str, Any], options: type) -> dict[str, Any]:
    """Return the given options that are fields of a dataclass; an empty list counts as not given."""
    return {name: values[name] for name in names_of(options) if values.get(name) not in (None, ())}


def options_by_domain(command: str, named: "Iterable[tuple[str, Sequence[type]]]") -> str:
    """Return the paragraph of a help text that lists the options of each domain; RUN determines the domain."""
    lines = [
        (name, " ".join(option.typed for kind in kinds for option in options_of(kind)) or "none")
        for name, kinds in named
    ]
    return f"Further options, described by `r2mae {command} RUN --help` for runs of the domain:\n\n{listed(lines)}"


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


def baselines_in_words(domains: "Iterable[Domain]") -> str:
    """Return the baselines of each domain in words."""
    named = [(domain.name, domain.command_line.baselines) for domain in domains if domain.command_line.baselines]
    return "; ".join(f"of {name} {baselines}" for name, baselines in named)
