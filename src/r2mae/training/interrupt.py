"""Ctrl-C and SIGTERM: finish the step, save, and say how to go on; a second signal stops at once."""

import multiprocessing
import os
import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LINE = b"r2mae: stopping after this step, to save it (once more: at once); the same command goes on from there\n"

_MARKS = {int(signal.SIGINT): 1.0, int(signal.SIGTERM): 65536.0}  # more than all processes of a run

TOLD = "told"
"""Argument of a KeyboardInterrupt whose line has been written already."""


class Stopped(BaseException):
    """Raised between two steps after a signal, once everything is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopRequest:
    """Handles Ctrl-C and SIGTERM while a run trains.

    Signals that the caller ignores stay ignored: a worker of a comparison leaves Ctrl-C to its parent. Outside the main
    thread, where Python delivers no signals, this does nothing.

    Parameters
    ----------
    rank : int
        Of this process; the first of a run speaks for all.
    """

    def __init__(self, rank: int = 0) -> None:
        self.number: int | None = None
        self.rank = rank
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        """Begin to handle signals."""
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.getsignal(n) for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN}
        self.listen()
        return self

    def listen(self) -> None:
        """Install the handlers, again if need be: Lightning replaces them by its own, which stop without saving."""
        for number in self._before:
            signal.signal(number, self._hear)

    def __exit__(self, *details: object) -> None:
        """Restore the handlers of before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a loader's worker, forked with this handler: its parent ends it
            return
        if self.number is not None:
            raise Stopped(number)
        self.number = number
        self.tell()

    def tell(self) -> None:
        """Say that the run stops. For a worker of a comparison its parent does, and for a run's processes the first."""
        if multiprocessing.parent_process() is None and self.rank == 0:
            os.write(2, b"\n" * os.isatty(2) + _LINE)  # on a terminal there is a bar, or ^C


def mark_of(number: int | None) -> float:
    """Return a number for a signal, or for none, whose sum over processes :func:`signal_of` understands."""
    return 0.0 if number is None else _MARKS[number]


def signal_of(marks: float) -> int | None:
    """Return the signal that any of the processes has heard, SIGTERM if several did; None if none has."""
    return next((number for number, mark in reversed(_MARKS.items()) if marks >= mark), None)
