"""What is said while libraries are loading."""

from contextlib import AbstractContextManager

from r2mae.training.ranks import is_first


def loading(what: str = "torch") -> AbstractContextManager[object]:
    """Show that libraries are loading, in a line that disappears; of several processes only rank 0 shows it."""
    from r2mae.terminal import Terminal

    return Terminal(stderr=True, quiet=not is_first()).status(f"loading {what}")
