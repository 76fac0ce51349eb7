"""How far the training of a BPE has come, which its library tells on file descriptor 2 alone."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

_LINE = re.compile(rb'\{"stage":"[^"]*","current":\d+,"total":\d+\}\n?')
_BEGUN = re.compile(rb'\{"stage":"[^}]*$')
_MERGING = "Compute merges"


class Hearing:
    """Hears of merges between the last document and the end of training; whatever else is written there goes through.

    Parameters
    ----------
    told : callable
        Called, in a thread of its own, with merges done and merges in all.
    """

    def __init__(self, told: Callable[[int, int], None]) -> None:
        self._told = told
        self._over = False
        self._saved: int | None = None
        self._thread: threading.Thread | None = None

    def after(self, documents: Iterable[str]) -> Iterator[str]:
        """Yield documents, then begin to hear; the library goes on to the merges where documents fail, too."""
        try:
            yield from documents
        finally:
            with suppress(OSError):  # without a standard error there is nobody to be told
                self._begin()

    def _begin(self) -> None:
        if self._over:
            return
        self._saved = os.dup(2)
        reading, writing = os.pipe()
        self._thread = threading.Thread(target=self._hear, args=(reading, self._saved), daemon=True)
        self._thread.start()
        os.dup2(writing, 2)
        os.close(writing)

    def end(self) -> None:
        """Give standard error back."""
        self._over = True
        if self._saved is not None and self._thread is not None:
            os.dup2(self._saved, 2)  # which closes the pipe, so that the thread ends
            self._thread.join()
            os.close(self._saved)
            self._saved = self._thread = None

    def _hear(self, reading: int, saved: int) -> None:
        kept = b""
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while piece := stream.read(1 << 16):
                whole = kept + piece
                half = _BEGUN.search(whole)
                kept = whole[half.start() :] if half else b""
                whole = whole[: half.start()] if half else whole
                for found in _LINE.findall(whole):
                    stage = json.loads(found)
                    if stage["stage"] == _MERGING and stage["total"]:
                        self._told(min(stage["current"], stage["total"]), stage["total"])
                if rest := _LINE.sub(b"", whole):
                    os.write(saved, rest)
        if kept:
            os.write(saved, kept)


@contextmanager
def heard(told: Callable[[int, int], None] | None) -> Iterator[Hearing | None]:
    """Hear of merges meanwhile, where somebody wants to know."""
    hearing = Hearing(told) if told is not None else None
    try:
        yield hearing
    finally:
        if hearing is not None:
            hearing.end()
