"""Errors for users: one line that says what is wrong and what to do.

Every package may raise :class:`UserError`. Only the command line catches it (one line on stderr, exit code 2).
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import cache

_MAX_LISTED = 20  # at most this many names are listed in an error line
_MAX_SUGGESTED = 3  # at most this many names are suggested in "did you mean …?"
_MIN_PREFIX = 3  # at least this many letters are needed to suggest names that begin with them


class UserError(Exception):
    """A user's mistake or a broken input; the message is one line with a hint."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known names that are most like a misspelt one, or list all names.

    Parameters
    ----------
    name : str
        The name that was given.
    known : iterable of str
        The names that exist.

    Returns
    -------
    str
        ``"did you mean 'x'?"`` or ``"choose from: a, b, c"``. A known name is suggested if it differs by few typing
        errors (one for every four letters), or begins with the given name. Case is ignored.
    """
    names = list(known)
    closest = _closest_names(name.lower(), names)
    if closest:
        return f"did you mean {' or '.join(map(repr, closest))}?"
    listed = ", ".join(names[:_MAX_LISTED]) + (
        f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    )
    return f"choose from: {listed}"


def _closest_names(name: str, names: Sequence[str]) -> list[str]:
    """Return the names with the fewest typing errors, or those that begin with `name`; none if there are too many."""
    lowered = {other.lower(): other for other in reversed(names)}
    close = {}
    for other in reversed(lowered):
        most = max(1, max(len(name), len(other)) // 4)
        if name == other or (abs(len(name) - len(other)) <= most and min(len(name), len(other)) > 1):
            typos = _count_typos(name, other)
            if typos <= most:
                close[other] = (typos, -SequenceMatcher(None, name, other).ratio())
    if close:
        best = [other for other, rank in close.items() if rank == min(close.values())]
    else:
        best = [other for other in reversed(lowered) if len(name) >= _MIN_PREFIX and other.startswith(name)]
    return [lowered[other] for other in best] if len(best) <= _MAX_SUGGESTED else []


def _count_typos(one: str, other: str) -> int:
    """Count the typing errors between two words: letters omitted, added, replaced, or exchanged with the next one."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name."""
    return UserError(f"unknown {kind} {name!r}: {nearest(name, known)}")


@cache
def warn_once(line: str) -> None:
    """Log a warning once per process."""
    import logging

    logging.getLogger("r2mae").warning("%s", line)
