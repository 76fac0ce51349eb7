"""What is said while libraries are loading."""

from collections.abc import Iterator
from contextlib import contextmanager

from r2mae.training.ranks import is_first


@contextmanager
def loading(what: str = "torch") -> Iterator[None]:
    """Show that libraries are loading, in a line that disappears; of several processes only rank 0 shows it."""
    if not is_first():
        yield
        return
    from r2mae.terminal import Terminal

    with Terminal(stderr=True).status(f"loading {what}"):
        yield
