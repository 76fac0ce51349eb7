"""The commands of ``r2mae``: their names, and the parser of each, which is imported when it is needed."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from r2mae.errors import UserError
from r2mae.registry import DOMAIN_COMMANDS, external_commands

# Each command is a module, imported only when it is called, with its `Options` and `run`, or `parser`.
COMMANDS = {
    "compare": "pretrain under every scheme and several seeds, and say which wins",
    "pretrain": "pretrain one model",
    "evaluate": "measure a pretrained model",
    "embed": "embed data with a pretrained model",
    "pictures": "draw test images as pretrained models complete them",
    "export": "write a pretrained model for other libraries",
    "report": "make the report of a comparison again",
    "data": "list, fetch and find public data sets",
    "completion": "print completion for a shell",
}

# Commands of distributions of this project that may not be installed.
SEPARATE = {
    "reproduce": ("a figure or table of the paper", "r2mae-paper", "pip install . ./paper in a checkout of r2mae")
}


def split_command(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return the command that begins the words, or "" if none does; its words, or those of a group; and the others."""
    known = all_commands()
    count = next((size for size in range(len(words), 0, -1) if _following(words[:size], known)), 0)
    name = " ".join(words[:count])
    return name if name in known else "", [*words[:count]], [*words[count:]]


def _following(words: Sequence[str], names: Iterable[str]) -> list[list[str]]:
    """Return the names, as words, that begin with these words."""
    return [name.split() for name in names if name.split()[: len(words)] == [*words]]


def next_words(typed: Sequence[str]) -> list[str]:
    """Return the words that may follow these in the name of a command."""
    names = _following(typed, all_commands())
    return list(dict.fromkeys(name[len(typed)] for name in names if len(name) > len(typed)))


def all_commands() -> dict[str, str]:
    """Return every command with its description: those of this package, of the domains, and of other packages."""
    own = {**COMMANDS, **{name: text for name, (text, _, _) in SEPARATE.items()}}
    own |= {name: text for name, (_, text) in DOMAIN_COMMANDS.items()}
    others = {name: f"a command of {package}" for name, (_, package) in external_commands().items()}
    return own | {name: text for name, text in others.items() if name not in own}


def parser_for(name: str, words: Sequence[str]) -> Any:
    """Return the parser of a command for these words, a :class:`r2mae.cli.parsing.Parser`.

    Raises a :class:`UserError` if the words do not say enough for the parser, such as a run folder that does not exist.
    """
    from r2mae.cli.parsing import parser_of

    if name in COMMANDS:
        module = import_module(f"r2mae.cli.{name.replace(' ', '_')}")
        if hasattr(module, "parser"):
            return module.parser(words)
        return parser_of(name, module.Options, lambda values: module.run(module.Options(**values)), words)
    if name in SEPARATE:
        _, package, hint = SEPARATE[name]
        raise UserError(f"`r2mae {name}` comes with {package}, which is not installed: {hint}")
    from r2mae.cli.declared import domain_parser
    from r2mae.domains.lookup import get_domain

    domain = get_domain(DOMAIN_COMMANDS[name][0])
    return domain_parser(name, domain.name, domain.command_line.commands[name], words)
