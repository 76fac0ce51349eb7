"""Parsers of command lines: argparse, with options from dataclasses and errors that are one line."""

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, get_args

from r2mae.errors import UserError, nearest
from r2mae.training.fields import TRUTHS, ConfigOption, docstring_part, options_of

HELP = ("-h", "--help", "--help-all")
_WIDTH, _INDENT = 118, 26
_FLAG = "\0"  # stands for the value of a flag, which the help does not show
_METAVARS = {float: "NUMBER", int: "N", bool: _FLAG}
_PATHS = ("data", "run", "runs")  # take names and paths

Run = Callable[[dict[str, Any]], int]
"""Runs a command with the options that were given, by name, and returns the exit code."""


class Parser(argparse.ArgumentParser):
    """The parser of a command.

    Parameters
    ----------
    prog : str
        The command as typed: ``r2mae runs``.
    description : str
        What it does.
    *examples : str
        Example commands.
    run : callable, optional
        Runs the command.
    everything : bool
        Whether the help shows all options, or only the common ones.
    """

    def __init__(
        self, prog: str, description: str, *examples: str, run: Run | None = None, everything: bool = False
    ) -> None:
        super().__init__(
            prog=prog,
            description=_wrapped(description),
            epilog="\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]),
            formatter_class=_formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.run, self.everything, self.examples = run, everything, examples
        self.options: dict[str, ConfigOption] = {}
        self.lacks = ""  # the beginning of an error on options of others: "a is a run of images, which has no"
        self.groups: dict[str, str] = {}  # of options of a configuration, which may precede them: --optimizer.lr
        self.elsewhere: dict[str, str] = {}  # options of other commands, with a remark
        self._places: list[str] = []
        self._headings: dict[str, Any] = {"options": self, "": self}
        self.add_argument(*HELP, action="help", help="Show this help; --help-all shows every option.")

    def add(self, options: Iterable[ConfigOption]) -> None:
        """Add options, each under the heading of its group."""
        for option in options:
            self.options[option.name] = option
            shown = bool(option.group) and (self.everything or option.common)
            if option.group not in self._headings and shown:
                self._headings[option.group] = self.add_argument_group(option.group)
            metavar = option.metavar or _metavar(option)
            settings: dict[str, Any] = {"type": option.read, "metavar": metavar}
            settings["help"] = _help(option) if shown else argparse.SUPPRESS
            required = option.default is MISSING
            if option.positional:
                names = [option.name]
                self._places.append(metavar if required else f"[{metavar}]")
                if option.is_list:
                    settings["nargs"] = "+" if required else "*"
                elif not required:
                    settings["nargs"] = "?"
            else:
                names = [option.short, option.typed] if option.short else [option.typed]
                settings |= {"dest": option.name, "required": required, "default": argparse.SUPPRESS}
                if option.is_list:
                    settings["nargs"] = "*"
                elif option.is_flag:
                    settings |= {"nargs": "?", "const": True}
            action = self._headings.get(option.group, self).add_argument(*names, **settings)
            action.completer = partial(_complete, option)  # where argcomplete looks for it

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the options that were given, by name.

        Raises
        ------
        UserError
            For words that the command does not take.
        """
        given, rest = self.parse_known_args(self._spelled(words))
        if unknown := next((word.partition("=")[0] for word in rest if word.startswith("-")), None):
            raise self._unknown_option(unknown)
        if rest:
            raise UserError(f"{self.prog!r} does not take {rest[0]!r}: see --help")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(given).items()}
        omitted = {name for name, option in self.options.items() if option.positional and values[name] in (None, ())}
        empty = [name for name, value in values.items() if value == () and self.options[name].default is MISSING]
        if empty:
            self.error(f"the following arguments are required: {self.options[empty[0]].typed}")
        return {name: value for name, value in values.items() if name not in omitted}

    def _spelled(self, words: Sequence[str]) -> list[str]:
        """Return the words with ``--batch-size`` for ``--batch_size``, and ``--json=true`` for a bare ``--json``."""
        flags = {option.typed for option in self.options.values() if option.is_flag}
        spelled = []
        for word, following in pairwise([*words, ""]):
            name, equals, value = word.partition("=")
            name = self._without_group(name.replace("_", "-")) if name.startswith("--") else name
            bare = name in flags and not equals and following.lower() not in TRUTHS
            spelled.append(f"{name}=true" if bare else f"{name}{equals}{value}")
        return spelled

    def _without_group(self, name: str) -> str:
        """Return ``--lr`` for ``--optimizer.lr``, and ``--model`` for ``--model.name``; other names as they are."""
        group, dot, field = name.removeprefix("--").partition(".")
        if not dot or (group == "model" and field not in ("name", "mask-input")):
            return name  # settings of a model have their prefix as part of the name
        short = f"--{group if field == 'name' else field}"
        return short if self.groups.get(short) == group else name

    def _unknown_option(self, name: str) -> UserError:
        """Return the error for an option that the command does not have."""
        if name in self.elsewhere:
            return UserError(f"{name} {self.elsewhere[name]}")
        hint = nearest(name, [option.typed for option in self.options.values() if not option.positional])
        if "did you mean" in hint or not self.lacks:
            hint = hint if "did you mean" in hint else "see --help"
            return UserError(f"unknown option {name!r} of {self.prog!r}: {hint}")
        return UserError(f"{self.lacks} {name}: omit it")

    def format_help(self) -> str:
        """Return the help; its usage does not repeat every option."""
        self.usage = " ".join([self.prog, *self._places, "[--OPTION VALUE ...]"])
        hidden = f" [{_FLAG}]"
        return super().format_help().replace(hidden, " " * len(hidden))

    def error(self, message: str) -> NoReturn:
        """Raise an error of argparse as a UserError."""
        example = f"; for example: {self.examples[0]}" if self.examples else ""
        raise UserError(f"{message}{example}")


def width() -> int:
    """Return the width of help texts."""
    return min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=_INDENT, width=width())


def _wrapped(text: str) -> str:
    """Fill the paragraphs of a text, and leave lists as they are."""
    parts = text.split("\n\n")
    fill = partial(textwrap.fill, width=width(), break_on_hyphens=False)
    return "\n\n".join(part if part.startswith(" ") else fill(part) for part in parts)


def parser_of(name: str, options: type, run: Run, words: Sequence[str] = ()) -> Parser:
    """Return the parser of a command whose options are the fields of a dataclass, with help from its docstring."""
    examples = [line.strip() for line in docstring_part(options, "Examples").splitlines() if line.strip()]
    parser = Parser(f"r2mae {name}", docstring_part(options), *examples, run=run, everything="--help-all" in words)
    parser.add(options_of(options))
    return parser


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
        text = option.default_text
    elif isinstance(value, tuple):
        text = " ".join(map(str, value))
    else:
        text = "true" if value is True else str(value)
    return (option.help + (f" (default: {text})" if text else "")).replace("%", "%%")


def _complete(option: ConfigOption, prefix: str, **_: Any) -> Iterable[str]:
    """Return the completions of an option's value, for argcomplete."""
    from argcomplete.completers import FilesCompleter

    kinds = {option.kind, *get_args(option.kind)}
    suggested = option.words() if callable(option.words) else option.words
    words = [*option.choices, *suggested, *(("true", "false") if bool in kinds else ())]
    takes_files = option.name in _PATHS or (str in kinds and not words)
    return [*words, *(FilesCompleter()(prefix) if takes_files else ())]
