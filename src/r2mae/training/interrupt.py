"""Ctrl-C and SIGTERM: finish the step, save, and say how to resume; a second signal stops at once."""

import multiprocessing
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOTICE = b"r2mae: stopping after this step, to save it (again: at once); rerun the same command to resume\n"
_SAME = 1.0  # seconds in which a second signal is the first one, which torchrun also passes on


def stopped_by(number: int) -> BaseException:
    """Return what ends a run after a signal, whose message is on the screen already."""
    return KeyboardInterrupt("reported") if number == signal.SIGINT else SystemExit(128 + number)


class StopRequest:
    """Handles Ctrl-C and SIGTERM while a run trains.

    Signals that the caller ignores stay ignored: a worker of a comparison leaves Ctrl-C to its parent. Outside the main
    thread, where Python delivers no signals, this class does nothing. Of several `ranks`, rank 0 prints the message
    when all know of the signal, since torchrun also sends one when another process has ended.
    """

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        self.number: int | None = None
        self.rank, self.ranks = rank, ranks
        self._first = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        """Start to handle signals."""
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.getsignal(n) for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN}
        for number in self._before:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *details: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            if handler is not None:  # one that was not installed from Python cannot be restored
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker of the loader, forked with this handler; its parent ends it
            return
        if self.number is None:
            self.number, self._first = number, time.monotonic()
            if self.ranks == 1:
                self._announce()
        elif self.ranks == 1 or time.monotonic() - self._first > _SAME:
            raise stopped_by(number)

    def agree(self, number: int) -> None:
        """Take note of a signal that all processes of the run know of now."""
        if self.number is None:
            self.number, self._first = number, time.monotonic()
        self._announce()

    def _announce(self) -> None:
        """Print that the run stops, only in rank 0, and not in workers of a comparison, whose parent prints it."""
        if multiprocessing.parent_process() is None and self.rank == 0:
            os.write(2, b"\n" * os.isatty(2) + _NOTICE)  # on a terminal there is a bar, or ^C
