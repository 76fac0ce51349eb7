"""What the wings declare, as options and help of commands that serve runs of any wing."""

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cli.parsing import Parser
from r2mae.errors import UserError, unknown

if TYPE_CHECKING:
    from r2mae.wings.contract import Wing
    from r2mae.wings.options import Evaluation, Option

_WIDTH = 118
_PLACE = 10  # column at which descriptions begin


def evaluations_of(wing: "Wing") -> "tuple[Evaluation, ...]":
    """Return the wing's usual evaluation, then the others."""
    return (wing.command_line.evaluation, *wing.command_line.evaluations)


def add_options(parser: Parser, options: "Iterable[tuple[Wing, Option]]", when: str = "") -> None:
    """Add options that wings declare, one for each name; the help says whose they are, and `when` they count.

    Raises
    ------
    UserError
        If a wing declares what the command or another wing has otherwise.
    """
    declared: dict[str, list[tuple[Wing, Option]]] = {}
    for wing, option in options:
        declared.setdefault(option.name, []).append((wing, option))
    for name, ones in declared.items():
        (first_wing, first), *others = ones
        for wing, other in others:
            if (other.kind, other.choices) != (first.kind, first.choices):
                raise _clash(wing, other, f"the wing {first_wing.name}")
        more: dict[str, Any] = {"default": ()} if _is_list(first) else {}
        try:
            if first.choices:
                parser.add_argument(f"--{name}", choices=list(first.choices), help=_help(ones, when))
            else:
                parser.add_argument(f"--{name}", type=first.kind, help=_help(ones, when), **more)
        except (argparse.ArgumentError, ValueError):
            raise _clash(first_wing, first, repr(parser.prog)) from None


def _clash(wing: "Wing", option: "Option", other: str) -> UserError:
    return UserError(f"the wing {wing.name} declares {option.typed}, which {other} has otherwise: rename it there")


def _is_list(option: "Option") -> bool:
    return option.kind not in (str, int, float, bool)


def _help(ones: "Sequence[tuple[Wing, Option]]", when: str) -> str:
    """Join what wings say of an option: one sentence for those that say the same."""
    said: dict[str, list[str]] = {}
    for wing, option in ones:
        said.setdefault(option.help, []).append(option.whose or wing.name)
    sentences = (f"{when or ''}for {_and(dict.fromkeys(whose))}: {help_}" for help_, whose in said.items())
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


def _and(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def given_options(values: Mapping[str, Any], options: "Iterable[tuple[Wing, Option]]") -> dict[str, Any]:
    """Return the options that a user gave, by their names: an empty list is none."""
    names = dict.fromkeys(option.name for _, option in options)
    return {name: values[name] for name in names if values[name] is not None and values[name] != ()}


def refuse(path: Path, wing: "Wing", name: str) -> UserError:
    """Build the error for an option that the wing of a run does not have."""
    return UserError(f"{path} is a run of the wing {wing.name}, which has no --{name.replace('_', '-')}: leave it out")


def parameters_of(path: Path, wing: "Wing", own: "Iterable[Option]", given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of the wing's method from options that were given.

    Raises
    ------
    UserError
        For an option that is not one of the wing's `own`.
    """
    known = {option.name: option for option in own}
    for name in given:
        if name not in known:
            raise refuse(path, wing, name)
    return {known[name].sets: value for name, value in given.items()}


def evaluation_of(wing: "Wing", path: Path, what: str | None, given: Mapping[str, Any]) -> "Evaluation":
    """Return the evaluation that is asked for, once the options given are known to be its own.

    Raises
    ------
    UserError
        If the wing has no such evaluation, it lacks an option, or an option belongs to another one.
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
            raise UserError(f"{typed} is of {home.name}: r2mae evaluate {path} {home.name} {typed} {words}")
    return chosen


def listed(lines: Iterable[tuple[str, str]]) -> str:
    """Lay out names with their descriptions, as the text of a help."""
    return "\n".join(
        textwrap.fill(
            f"{name:<{_PLACE - 3}} {text}",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * _PLACE,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for name, text in lines
        if text
    )


def baselines_in_words(wings: "Iterable[Wing]", *, usual: bool = False) -> str:
    """Say which baselines each wing has, and which a comparison measures by default."""
    said = []
    for wing in wings:
        if told := wing.command_line.baselines:
            names = f" (by default {', '.join(wing.default_baselines) or 'none'})" if usual else ""
            said.append(f"of {wing.name} {told}{names}")
    return "; ".join(said)


def files_in_words(wings: "Iterable[Wing]") -> str:
    """Say which files embeddings of each wing are written as: ``of images and text .npz; of cells .h5ad or .npz``."""
    found: dict[str, list[str]] = {}
    for wing in wings:
        found.setdefault(" or ".join(one.suffix for one in wing.exporters), []).append(wing.name)
    return "; ".join(f"of {_and(names)} {files}" for files, names in found.items())
