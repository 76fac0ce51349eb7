"""What a user is told when something cannot be done: one line, with the remedy.

Every room may raise :class:`UserError`; only the command line catches it (one line on stderr, exit code 2).
"""

from collections.abc import Iterable
from difflib import get_close_matches

_LISTED = 20  # names that a line can hold


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
        ``"did you mean 'x'?"``, whatever the case of its letters, or ``"choose from: a, b, c"``.
    """
    names = list(known)
    lowered = {other.lower(): other for other in reversed(names)}
    match = get_close_matches(name.lower(), list(lowered), n=1)
    if match:
        return f"did you mean {lowered[match[0]]!r}?"
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else "")
    return f"choose from: {listed}"


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that does not exist."""
    return UserError(f"unknown {kind} {name!r}: {nearest(name, known)}")
