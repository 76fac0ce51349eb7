"""What a user is told when something cannot be done: one line, with the remedy.

Every room may raise :class:`UserError`; only the command line catches it (one line on stderr, exit code 2).
"""

from collections.abc import Iterable
from difflib import get_close_matches


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
        ``"did you mean 'x'?"`` or ``"choose from: a, b, c"``.
    """
    names = list(known)
    match = get_close_matches(name.lower(), names, n=1)
    return f"did you mean {match[0]!r}?" if match else f"choose from: {', '.join(names)}"


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that does not exist."""
    return UserError(f"unknown {kind} {name!r}: {nearest(name, known)}")
