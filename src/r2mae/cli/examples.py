"""What errors and help texts of commands that take `[WING] DATA` say of wings: examples, and how to ask for more."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.errors import UserError, nearest
from r2mae.registry import WINGS
from r2mae.wings.lookup import all_wings, get_wing, public_sets, wing_of

if TYPE_CHECKING:
    from r2mae.wings.contract import Wing

_FEW = 4  # an error repeats at most this many words


def usage(command: str) -> str:
    """Return an example of a command for every wing that names data."""
    return "for example: " + ", or ".join(filter(None, (_example(command, wing) for wing in all_wings())))


def _example(command: str, wing: "Wing") -> str:
    """Return an example of a command on a wing; empty if the wing names no data."""
    data = wing.command_line.example or next(iter(wing.sets), "")
    return f"r2mae {command} {wing.name} {data}" if data else ""


def of_each_wing(command: str, shown: "Wing") -> str:
    """Say, in a help text with the options of one wing, how to ask for the help of each."""
    lines = [(f"r2mae {command} {wing.name} --help", _example(command, wing)) for wing in all_wings()]
    width = max(len(asked) for asked, _ in lines)
    told = "".join(f"\n  {asked:<{width}}{example and f'   for example: {example}'}" for asked, example in lines)
    return f"\n\nThe options below are those of {shown.name}. Each wing has its own:{told}"


def several(command: str, name: str | None, words: Sequence[str]) -> UserError:
    """Return the error for several words where one data set is expected."""
    first = words[0]
    if name is None and wing_of(first) is None and not Path(first).suffix and not Path(first).exists():
        hint = nearest(first, WINGS)
        if hint.startswith("did you mean"):
            return UserError(f"unknown wing {first!r}: {hint}")
    some = " ".join(words) if len(words) <= _FEW else f"{' '.join(words[:2])} … {words[-1]}"
    own = None if name is None else get_wing(name).command_line.several
    if own is None:
        return UserError(f"{command} takes one data set, not {len(words)} ({some}); {usage(command)}")
    return UserError(
        f"{command} takes one data set, not {len(words)} ({some}): {own.remedy}, for example: "
        f"r2mae {command} {name} {own.example(words)}"
    )


def cannot_tell(command: str, data: str) -> str:
    """Return the error for data whose wing is not known."""
    if Path(data).exists():
        return f"name the wing of {data}: r2mae {command} {'|'.join(WINGS)} {data}"
    return f"unknown wing or data set {data!r}: {nearest(data, [*WINGS, *public_sets()])}"
