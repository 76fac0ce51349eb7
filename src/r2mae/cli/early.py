"""What is said while libraries are loading."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from r2mae.training.ranks import is_first, is_relaunched


@contextmanager
def loading(what: str = "torch") -> Iterator[None]:
    """Show on a terminal that libraries are loading, which takes seconds; the line disappears afterwards.

    Of several processes of a run only rank 0 shows it.
    """
    if not is_first():
        yield
        return
    from r2mae.terminal import Terminal

    with Terminal(stderr=True).status(f"loading {what}"):
        yield


def announce(line: str) -> None:
    """Print on standard error what a command is about to do; of the processes of a run, the first one to start does."""
    if is_first() and not is_relaunched():
        print(line, file=sys.stderr, flush=True)
