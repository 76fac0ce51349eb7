"""Ctrl-C and SIGTERM: finish the step, save, and say how to go on; a second signal stops at once."""

import multiprocessing
import os
import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LINE = b"r2mae: stopping after this step, to save it (once more: at once); the same command goes on from there\n"

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
    """

    def __init__(self) -> None:
        self.number: int | None = None
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
        # For a worker of a comparison its parent speaks, and for the processes of a run the first.
        if multiprocessing.parent_process() is None and os.environ.get("LOCAL_RANK", "0") == "0":
            os.write(2, b"\n" * os.isatty(2) + _LINE)  # on a terminal there is a bar, or ^C
