"""What is said while libraries are loading."""

from collections.abc import Iterator
from contextlib import contextmanager

from r2mae.training.ranks import is_first, is_relaunched


@contextmanager
def loading(what: str = "torch", *, about: str | None = None) -> Iterator[None]:
    """Show on a terminal that libraries are loading, which takes seconds; the line disappears afterwards.

    `about`, if given, is printed first: what the command works on. Of several processes of a run only rank 0 shows
    anything; if a command has started them, that command has printed `about`.
    """
    if not is_first():
        yield
        return
    if about and not is_relaunched():
        print(about, flush=True)
    from r2mae.terminal import Terminal

    with Terminal(stderr=True).status(f"loading {what}"):
        yield
