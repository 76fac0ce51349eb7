"""Processes that run the script again which started them, as Python's start methods spawn and forkserver do.

Without ``if __name__ == "__main__":`` the script then trains in its worker, and Python waits for ever for a worker that
died early if it had much to send to it. So one that does nothing is tried first.
"""

import multiprocessing
import os
import sys

from r2mae.errors import UserError

UNGUARDED = 78
"""Exit code of a process in which the script without a guard trains again."""
GUARD = (
    "each worker process runs this script again from its first line: put what the script does below "
    '`if __name__ == "__main__":`'
)
_SECONDS = 300.0  # in which a process has imported the script; on a busy machine it takes a minute


class UnguardedError(UserError):
    """The script has no guard, so that none of its processes can work."""

    def __init__(self) -> None:
        super().__init__(GUARD)


def end_if_started_by_script() -> None:
    """End this process if it is still running the script of the process that started it, which has no guard."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)  # a forkserver turns SystemExit into 1


def check_guard() -> None:
    """Refuse a script whose worker processes would run it again, by starting one.

    Raises
    ------
    UserError
        If the process does not end well, or does not end.
    """
    if multiprocessing.get_start_method() == "fork" or not hasattr(sys.modules["__main__"], "__file__"):
        return
    process = multiprocessing.Process(target=_nothing, daemon=True)
    process.start()
    process.join(_SECONDS)
    if process.exitcode != 0:
        process.kill()
        raise UnguardedError


def _nothing() -> None:
    """Be a worker that has nothing to do."""
