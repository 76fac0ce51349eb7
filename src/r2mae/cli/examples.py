"""Examples of domains for the errors and help texts of commands that take `[DOMAIN] DATA`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.domains.lookup import all_domains, domain_of, get_domain, public_sets
from r2mae.errors import UserError, nearest
from r2mae.registry import DOMAINS

if TYPE_CHECKING:
    from r2mae.domains.base import Domain

_FEW = 4  # an error repeats at most this many words


def usage(command: str) -> str:
    """Return an example of a command for every domain that has data to name."""
    return "for example: " + ", or ".join(filter(None, (_example(command, domain) for domain in all_domains())))


def _example(command: str, domain: "Domain") -> str:
    """Return an example of a command on a domain; empty if the domain has no data to name."""
    data = domain.command_line.example or next(iter(domain.sets), "")
    return f"r2mae {command} {domain.name} {data}" if data else ""


def help_of_each_domain(command: str, shown: "Domain") -> str:
    """Return the paragraph of a help text that says how to get the help of each domain."""
    lines = [(f"r2mae {command} {domain.name} --help", _example(command, domain)) for domain in all_domains()]
    width = max(len(asked) for asked, _ in lines)
    commands = "".join(f"\n  {asked:<{width}}{example and f'   for example: {example}'}" for asked, example in lines)
    return f"\n\nThe options below are those of {shown.name}. Each domain has its own:{commands}"


def several_words_error(command: str, name: str | None, words: Sequence[str]) -> UserError:
    """Return the error for several words in place of one data set."""
    first = words[0]
    if name is None and domain_of(first) is None and not Path(first).suffix and not Path(first).exists():
        hint = nearest(first, DOMAINS)
        if hint.startswith("did you mean"):
            return UserError(f"unknown domain {first!r}: {hint}")
    some = " ".join(words) if len(words) <= _FEW else f"{' '.join(words[:2])} … {words[-1]}"
    own = None if name is None else get_domain(name).command_line.several
    if own is None:
        return UserError(f"{command} takes one data set, not {len(words)} ({some}); {usage(command)}")
    return UserError(
        f"{command} takes one data set, not {len(words)} ({some}): {own.hint}, for example: "
        f"r2mae {command} {name} {own.example(words)}"
    )


def unknown_data_message(command: str, data: str) -> str:
    """Return the message for data whose domain is unknown."""
    if Path(data).exists():
        return f"name the domain of {data}: r2mae {command} {'|'.join(DOMAINS)} {data}"
    return f"unknown domain or data set {data!r}: {nearest(data, [*DOMAINS, *public_sets()])}"
