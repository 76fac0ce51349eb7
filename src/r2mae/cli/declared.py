"""Adds to the command line what wings declare: options and help for common commands, and commands of their own."""

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.early import loading
from r2mae.cli.parsing import Parser
from r2mae.errors import UserError, unknown
from r2mae.wings.lookup import implementation

if TYPE_CHECKING:
    from r2mae.wings.contract import Wing
    from r2mae.wings.options import Command, Evaluation, Option

_WIDTH = 118
_COLUMN = 10  # column at which descriptions begin


def evaluations_of(wing: "Wing") -> "tuple[Evaluation, ...]":
    """Return the wing's default evaluation, then the others."""
    return (wing.command_line.evaluation, *wing.command_line.evaluations)


def add_options(parser: Parser, options: "Iterable[tuple[Wing, Option]]", when: str = "") -> None:
    """Add the options that wings declare, each name once; the help says which wing has it, and `when` it applies.

    Raises
    ------
    UserError
        If a wing declares an option that the command has, or that another wing declares differently.
    """
    declared: dict[str, list[tuple[Wing, Option]]] = {}
    for wing, option in options:
        declared.setdefault(option.name, []).append((wing, option))
    for ones in declared.values():
        (first_wing, first), *others = ones
        for wing, other in others:
            if (other.kind, other.choices) != (first.kind, first.choices):
                raise _clash(wing, other, f"the wing {first_wing.name}")
        try:
            _add(parser, first, _help(ones, when))
        except (argparse.ArgumentError, ValueError):
            raise _clash(first_wing, first, repr(parser.prog)) from None


def _add(parser: Parser, option: "Option", description: str) -> None:
    names = (option.short, f"--{option.name}") if option.short else (f"--{option.name}",)
    if option.choices and not option.is_list:
        parser.add_argument(*names, choices=list(option.choices), help=description)
    elif option.is_list:
        parser.add_argument(*names, type=option.kind, default=(), help=description)
    else:
        parser.add_argument(*names, type=option.kind, help=description)


def _clash(wing: "Wing", option: "Option", other: str) -> UserError:
    return UserError(
        f"the wing {wing.name} declares {option.typed}, which {other} has with another meaning: rename it in the wing"
    )


def _help(ones: "Sequence[tuple[Wing, Option]]", when: str) -> str:
    """Join the help of an option from several wings; wings with the same text share a sentence."""
    said: dict[str, list[str]] = {}
    for wing, option in ones:
        said.setdefault(option.help, []).append(option.whose or wing.name)
    sentences = (f"{when or ''}for {_and(dict.fromkeys(whose))}: {help_}" for help_, whose in said.items())
    return " ".join(map(_sentence, sentences))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _and(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def given_options(values: Mapping[str, Any], options: "Iterable[tuple[Wing, Option]]") -> dict[str, Any]:
    """Return the options that a user gave, by name; an empty list counts as not given."""
    return _given(values, dict.fromkeys(option.name for _, option in options))


def _given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if values[name] is not None and values[name] not in ((), [])}


def refuse(path: Path, wing: "Wing", name: str) -> UserError:
    """Return the error for an option that the wing of a run does not have."""
    return UserError(f"{path} is a run of the wing {wing.name}, which has no --{name.replace('_', '-')}: leave it out")


def parameters_of(path: Path, wing: "Wing", own: "Iterable[Option]", given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn options that were given into parameters of the wing's method.

    Raises
    ------
    UserError
        For an option that is not one of the wing's `own`.
    """
    known = {option.name: option for option in own}
    for name in given:
        if name not in known:
            raise refuse(path, wing, name)
    return {known[name].sets: known[name].value_of(value) for name, value in given.items()}


def evaluation_of(wing: "Wing", path: Path, what: str | None, given: Mapping[str, Any]) -> "Evaluation":
    """Return the requested evaluation, after checking that the given options belong to it.

    Raises
    ------
    UserError
        If the wing has no such evaluation, a required option is missing, or an option belongs to another evaluation.
    """
    ones = evaluations_of(wing)
    known = [wing.name, *(one.name for one in ones if one.name)]
    if what is not None and what not in known:
        raise unknown("evaluation", what, known)
    chosen = next(one for one in ones if one.name == ("" if what in (None, wing.name) else what))
    for option in chosen.options:
        if option.needed and option.name not in given:
            raise UserError(f"evaluate RUN {chosen.name} needs {option.needed}")
    own = {option.name for option in chosen.options}
    for name, value in given.items():
        home = next((one for one in ones if name in {option.name for option in one.options}), None)
        if home is None:
            raise refuse(path, wing, name)
        if name not in own:
            typed = "--" + name.replace("_", "-")
            if not home.name:
                raise UserError(f"{chosen.name} has no {typed}: leave it out")
            words = " ".join(map(str, value)) if isinstance(value, tuple | list) else value
            raise UserError(f"{typed} belongs to {home.name}: r2mae evaluate {path} {home.name} {typed} {words}")
    return chosen


def run_command(wing: "Wing", command: "Command", words: Sequence[str]) -> int:
    """Run a wing's own command."""
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
        function = implementation(wing, command)
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


def baselines_in_words(wings: "Iterable[Wing]", *, usual: bool = False) -> str:
    """Return the baselines of each wing in words; with `usual`, also which ones a comparison measures by default."""
    said = []
    for wing in wings:
        if baselines := wing.command_line.baselines:
            names = f" (by default {', '.join(wing.default_baselines) or 'none'})" if usual else ""
            said.append(f"of {wing.name} {baselines}{names}")
    return "; ".join(said)


def files_in_words(wings: "Iterable[Wing]") -> str:
    """Return the file types for embeddings of each wing: ``of images and text .npz; of cells .h5ad or .npz``."""
    wings_by_suffix: dict[str, list[str]] = {}
    for wing in wings:
        wings_by_suffix.setdefault(" or ".join(one.suffix for one in wing.exporters), []).append(wing.name)
    return "; ".join(f"of {_and(names)} {files}" for files, names in wings_by_suffix.items())
