"""What a user is told when something cannot be done: one line, with the remedy.

Every package may raise :class:`UserError`; only the command line catches it (one line on stderr, exit code 2).
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import cache

_LISTED = 20  # names that a line can hold
_MEANT = 3  # names that a question can hold
_BEGINNING = 3  # letters that may stand for a longer name


class UserError(Exception):
    """A user's mistake or a broken input; the message is one line and names the remedy."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, or list them all.

    Parameters
    ----------
    name : str
        What was asked for.
    known : iterable of str
        What there is.

    Returns
    -------
    str
        ``"did you mean 'x'?"``, whatever the case of its letters, or ``"choose from: a, b, c"``. A name is meant if it
        is a slip or two away (one for every four letters), or begins with what was asked for.
    """
    names = list(known)
    meant = _meant(name.lower(), names)
    if meant:
        return f"did you mean {' or '.join(map(repr, meant))}?"
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else "")
    return f"choose from: {listed}"


def _meant(name: str, names: Sequence[str]) -> list[str]:
    """Return the names that are fewest slips away, if they are few enough."""
    lowered = {other.lower(): other for other in reversed(names)}
    found = {}
    for other in reversed(lowered):
        most = max(1, max(len(name), len(other)) // 4)
        if name == other or (abs(len(name) - len(other)) <= most and min(len(name), len(other)) > 1):
            slips = _slips(name, other)
            if slips <= most:
                found[other] = (slips, -SequenceMatcher(None, name, other).ratio())
    if found:
        best = [other for other, rank in found.items() if rank == min(found.values())]
    else:
        best = [other for other in reversed(lowered) if len(name) >= _BEGINNING and other.startswith(name)]
    return [lowered[other] for other in best] if len(best) <= _MEANT else []


def _slips(one: str, other: str) -> int:
    """Count the letters that are left out, added, replaced, or exchanged with the next, between two words."""
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
    """Build the error for a name that does not exist."""
    return UserError(f"unknown {kind} {name!r}: {nearest(name, known)}")


@cache
def warn_once(line: str) -> None:
    """Log a warning, the first time that it is given."""
    import logging

    logging.getLogger("r2mae").warning("%s", line)
