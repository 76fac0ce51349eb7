"""Adds to the command line what domains declare: commands, and the options for runs of a domain."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.configs import config_options
from r2mae.cli.parsing import Parser, loading, parser_of, width
from r2mae.domains.lookup import all_domains, import_object, open_run
from r2mae.fields import docstring_part, options_of

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.domains.options import Command


def domain_parser(name: str, domain: str, command: "Command", words: Sequence[str]) -> Parser:
    """Return the parser of a domain's own command."""

    def run(values: dict[str, Any]) -> int:
        with loading():
            function = import_object(domain, command.run)
        function(**values)
        return 0

    others = [] if command.config is None else config_options(command.config)
    chosen = [replace(option, default=None) for option in others if option.name in command.fields]
    return parser_of(name, command.options, run, words).add(chosen)


@dataclass(frozen=True)
class Offer:
    """What a domain offers to a command that works on a run.

    Names with descriptions, and examples of arguments, for the help; dataclasses with options, each with its heading;
    changes of the command's own options; and the options of what may also follow RUN, with its name.
    """

    lines: Sequence[tuple[str, str]]
    examples: Sequence[str]
    kinds: Sequence[tuple[type, str]] = ()
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)


def run_parser(
    command: str,
    options: type,
    offer_of: "Callable[[Domain], Offer]",
    run: "Callable[[Path, Domain, Any, dict[str, Any]], int]",
    words: Sequence[str],
) -> Parser:
    """Return the parser of a command that works on a run, with the options of the run's domain.

    Without a run, it describes what every domain offers. ``run(path, domain, options, given)`` runs the command, with
    its own options and all that were given.

    Raises a :class:`UserError` if the first word is no run folder.
    """
    path, own = _run_in(words), options_of(options)
    domains = [*all_domains()] if path is None else [open_run(path)[0]]
    offers = [offer_of(domain) for domain in domains]
    about = f"{docstring_part(options)}\n\n{listed(line for offer in offers for line in offer.lines)}"
    examples = [f"r2mae {command} {example}" for offer in offers for example in offer.examples]
    if path is None:
        about += f"\n\nFurther options depend on the run: `r2mae {command} RUN --help` describes them."
        return Parser(f"r2mae {command}", about, *examples).add(own)

    def call(given: dict[str, Any]) -> int:
        return run(path, domains[0], options(**taken(given, options)), given)

    parser = Parser(f"r2mae {command}", about, *examples, run=call)
    parser.lacks = f"{path} is a run of the domain {domains[0].name}, which has no"
    parser.add(replace(one, **offers[0].changes.get(one.name, {})) for one in own)
    for kind, heading in offers[0].kinds:
        parser.add(options_of(kind, heading))
    parser.elsewhere = {
        typed: f"it belongs to {name}: r2mae {command} {path} {name} {typed} …"
        for typed, name in offers[0].elsewhere.items()
    }
    return parser


def _run_in(words: Sequence[str]) -> Path | None:
    """Return the run folder among the words of a command: the first that is one, or else the first word."""
    names = [word for word in words if not word.startswith("-")]
    found = [word for word in names if (Path(word).expanduser() / "config.yaml").is_file()]
    leading = names[:1] if words and not words[0].startswith("-") else []
    return next((Path(word).expanduser() for word in [*found, *leading]), None)


def taken(values: Mapping[str, Any], options: type) -> dict[str, Any]:
    """Return the given options that are fields of a dataclass; an empty list counts as not given."""
    return {one.name: values[one.name] for one in fields(options) if values.get(one.name) not in (None, ())}


def listed(lines: Iterable[tuple[str, str]]) -> str:
    """Format names with their descriptions as lines of a help text."""
    wrapper = textwrap.TextWrapper(width(), initial_indent="  ", subsequent_indent=" " * 10, break_on_hyphens=False)
    return "\n".join(wrapper.fill(f"{name:<7} {text}") for name, text in lines if text)
