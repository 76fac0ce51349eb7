"""Parsers of command lines: argparse, with options from dataclasses and errors that are one line."""

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, get_args

from r2mae.errors import UserError, nearest
from r2mae.fields import TRUTHS, ConfigOption, docstring_part, options_of
from r2mae.training.ranks import is_first

HELP = ("-h", "--help", "--help-all")
_WIDTH, _INDENT = 118, 26
_METAVARS = {float: "NUMBER", int: "N", bool: ""}
_PATHS = ("data", "run", "runs")  # take names and paths

Run = Callable[[dict[str, Any]], int]
"""Runs a command with the options that were given, by name, and returns the exit code."""


class Parser(argparse.ArgumentParser):
    """The parser of a command, with examples in its help, and ``run``, which runs it with the given options.

    With `everything` the help shows all options, otherwise the common ones.
    """

    def __init__(
        self, prog: str, description: str, *examples: str, run: Run | None = None, everything: bool = False
    ) -> None:
        super().__init__(
            prog=prog,
            description=_wrapped(description),
            epilog="\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]),
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=_INDENT, width=width()),
            allow_abbrev=False,
            add_help=False,
        )
        self.run, self.everything, self.examples = run, everything, examples
        self.options: dict[str, ConfigOption] = {}
        self.lacks = ""  # the beginning of an error on unknown options: "a is a run of images, which has no"
        self.elsewhere: dict[str, str] = {}  # options that the command does not have, with a hint
        self._headings: dict[str, Any] = {"options": self, "": self}
        self.add_argument(*HELP, action="help", help="Show this help; --help-all shows every option.")

    def add(self, options: Iterable[ConfigOption]) -> "Parser":
        """Add options, each under the heading of its group, and return the parser."""
        for option in options:
            self.options[option.name] = option
            shown = bool(option.group) and (self.everything or option.common)
            if option.group not in self._headings and shown:
                self._headings[option.group] = self.add_argument_group(option.group)
            metavar = option.metavar or _metavar(option)
            settings: dict[str, Any] = {"metavar": metavar}
            settings["help"] = _help(option) if shown else argparse.SUPPRESS
            required = option.default is MISSING
            if option.is_list:
                settings["nargs"] = "+" if required else "*"
            elif option.positional and not required:
                settings["nargs"] = "?"
            names = [option.name] if option.positional else [name for name in (option.short, option.typed) if name]
            if not option.positional:
                settings |= {"dest": option.name, "required": required, "default": argparse.SUPPRESS}
            action = self._headings.get(option.group, self).add_argument(*names, **settings)
            action.completer = partial(_complete, option)  # where argcomplete looks for it
        places = [
            one.typed if one.default is MISSING else f"[{one.typed}]" for one in self.options.values() if one.positional
        ]
        self.usage = " ".join([self.prog, *places, "[--OPTION VALUE ...]"])  # not every option
        return self

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the options that were given, by name; refuse words that the command does not take."""
        given, rest = self.parse_known_args(self._spelled(words))
        if unknown := next((word.partition("=")[0] for word in rest if word.startswith("-")), None):
            raise self._unknown_option(unknown)
        if rest:
            raise UserError(f"{self.prog!r} does not take {rest[0]!r}: see --help")
        found = {}
        for name, words_of in vars(given).items():
            option = self.options[name]
            if words_of not in (None, []) or not option.positional:
                found[name] = tuple(map(option.read, words_of)) if isinstance(words_of, list) else option.read(words_of)
        return found

    def _spelled(self, words: Sequence[str]) -> list[str]:
        """Return the words with ``--batch-size`` for ``--batch_size``, and ``--json=true`` for a bare ``--json``."""
        known = {option.typed: option.is_flag for option in self.options.values()}
        spelled = []
        for word, following in pairwise([*words, ""]):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                name = name.replace("_", "-")
            bare = known.get(name, False) and not equals and following.lower() not in TRUTHS
            spelled.append(f"{name}=true" if bare else f"{name}{equals}{value}")
        return spelled

    def _unknown_option(self, name: str) -> UserError:
        """Return the error for an option that the command does not have."""
        known = [option.typed for option in self.options.values() if not option.positional]
        group, _, field = name.removeprefix("--").partition(".")
        written = group if field == "name" else field  # --optimizer.lr is --lr, --model.name is --model
        hint = self.elsewhere.get(name) or nearest(f"--{written}" if f"--{written}" in known else name, known)
        if "choose" in hint and self.lacks:
            return UserError(f"{self.lacks} {name}: omit it")
        return UserError(f"unknown option {name!r} of {self.prog!r}: {'see --help' if 'choose' in hint else hint}")

    def error(self, message: str) -> NoReturn:
        """Raise an error of argparse as a UserError."""
        example = f"; for example: {self.examples[0]}" if self.examples else ""
        raise UserError(f"{message}{example}")


def width() -> int:
    """Return the width of help texts."""
    return min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)


def _wrapped(text: str) -> str:
    """Fill the paragraphs of a text, and leave lists as they are."""
    parts = text.split("\n\n")
    fill = partial(textwrap.fill, width=width(), break_on_hyphens=False)
    return "\n\n".join(part if "\n  " in f"\n{part}" else fill(part) for part in parts)


def parser_of(name: str, options: type, run: Run, words: Sequence[str] = ()) -> Parser:
    """Return the parser of a command whose options are the fields of a dataclass, with help from its docstring."""
    examples = [line.strip() for line in docstring_part(options, "Examples").splitlines() if line.strip()]
    parser = Parser(f"r2mae {name}", docstring_part(options), *examples, run=run, everything="--help-all" in words)
    return parser.add(options_of(options))


def _metavar(option: ConfigOption) -> str:
    if option.choices:
        return "{" + ",".join(option.choices) + "}"
    if option.positional:
        return option.name.upper()
    kinds = {option.kind, *get_args(option.kind)}
    return next((_METAVARS[kind] for kind in _METAVARS if kind in kinds), "NAME")


def _help(option: ConfigOption) -> str:
    """Return the help of an option with its default."""
    value = option.default
    if value is False or value in (MISSING, None, "", ()):
        value = option.default_text
    text = " ".join(str(part) for part in (value if isinstance(value, tuple) else (value,)))
    return (option.help + (f" (default: {'true' if value is True else text})" if text else "")).replace("%", "%%")


def _complete(option: ConfigOption, prefix: str, **_: Any) -> Iterable[str]:
    """Return the completions of an option's value, for argcomplete."""
    from argcomplete.completers import FilesCompleter

    kinds = {option.kind, *get_args(option.kind)}
    suggested = option.words() if callable(option.words) else option.words
    words = [*option.choices, *suggested, *(("true", "false") if bool in kinds else ())]
    takes_files = option.name in _PATHS or (str in kinds and not words)
    return [*words, *(FilesCompleter()(prefix) if takes_files else ())]


def loading(what: str = "torch") -> AbstractContextManager[object]:
    """Show that libraries are loading, in a line that disappears; of several processes only rank 0 shows it."""
    from r2mae.terminal import Terminal

    return Terminal(stderr=True, quiet=not is_first()).status(f"loading {what}")
