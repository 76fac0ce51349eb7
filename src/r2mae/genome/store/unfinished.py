"""The folder in which a store is made: it survives a kill, and takes the store's name when it is whole."""

import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from r2mae.errors import UserError
from r2mae.files import sync, write_json

Progress = Callable[[str, float], None]
"""Hears of a stage ("finding species", "reading", "checking") and how much of it is done, from 0 to 1."""

_PLAN, _JOURNAL = "plan.json", "journal.json"
_EVERY = 5.0  # seconds between commits
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Unfinished:
    """A store that is being made.

    Every stage does its units in order and commits now and then how many are done, once their data are on the disk. A
    process that goes on after a kill repeats the units since the last commit.

    Parameters
    ----------
    folder : Path
    every : float
        Seconds between commits; 0 commits after every unit.
    """

    def __init__(self, folder: Path, every: float = _EVERY) -> None:
        self.folder, self.every = folder, every
        self._last = time.monotonic()
        try:
            values = json.loads((folder / _JOURNAL).read_text("utf-8"))
        except (OSError, ValueError):
            values = {}
        self._state: dict[str, Any] = values if isinstance(values, dict) else {}

    def state(self, stage: str) -> dict[str, Any]:
        """Return what was committed of a stage; `done` is 0 where nothing was."""
        return {"done": 0, **self._state.get(stage, {})}

    def due(self) -> bool:
        """Whether the last commit is long ago."""
        return time.monotonic() - self._last >= self.every

    def commit(self, stage: str, done: int, *files: Path, **state: Any) -> None:
        """Make files durable, then write down that so many units of a stage are done."""
        for file in files:
            sync(file)
        self._state[stage] = {"done": done, **state}
        write_json(self.folder / _JOURNAL, self._state)
        self._last = time.monotonic()

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / name

    def remove(self, *names: str) -> None:
        """Delete files that the store does not keep."""
        for name in (*names, _PLAN, _JOURNAL):
            (self.folder / name).unlink(missing_ok=True)


@contextmanager
def unfinished(out: Path, plan: dict[str, Any], every: float | None = None) -> Iterator[Unfinished]:
    """Make, or find again, the folder beside `out` in which it is made; it becomes `out` if no error occurs.

    After a kill or a full disk the folder stays, for the same build to go on; another build begins again.

    Parameters
    ----------
    out : Path
        The store.
    plan : dict
        Plain values that say what is built of what.
    every : float, optional
        As :class:`Unfinished`.

    Raises
    ------
    UserError
        If another process builds it, or the place cannot be written.
    """
    from filelock import FileLock, Timeout

    folder = out.with_name(f".{out.name}.unfinished")
    lock = FileLock(out.with_name(f".{out.name}.lock"))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with lock.acquire(timeout=0):
            if _read(folder / _PLAN) != json.loads(json.dumps(plan)):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                write_json(folder / _PLAN, plan)
            try:
                yield Unfinished(folder, _EVERY if every is None else every)
            except UserError:  # of the input: there is nothing to go on with
                shutil.rmtree(folder, ignore_errors=True)
                Path(lock.lock_file).unlink(missing_ok=True)
                raise
            for file in folder.iterdir():
                sync(file)
            folder.rename(out)
            sync(out.parent)
            Path(lock.lock_file).unlink(missing_ok=True)
    except BrokenProcessPool:
        raise UserError(
            f"{out}: a process ended unexpectedly (out of memory?): rerun the same command to resume"
        ) from None
    except Timeout:
        raise UserError(f"{out}: another process is building it: wait for it, or name another store") from None
    except OSError as error:
        raise UserError(
            f"{error.filename or out.parent}: cannot be written ({error.strerror or error}): choose a place with room; "
            "rerun the same command to resume"
        ) from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def in_order(
    function: Callable[[_In], _Out], units: Iterable[_In], executor: Executor | None, ahead: int
) -> Iterator[tuple[_In, _Out]]:
    """Apply a function to units, some ahead of time; results come in order.

    Parameters
    ----------
    function : callable
    units : iterable
        Read no further than is needed.
    executor : Executor, optional
        Without one, all is done here.
    ahead : int
        Units under way at a time.
    """
    if executor is None:
        for unit in units:
            yield unit, function(unit)
        return
    waiting: deque[tuple[_In, Future[_Out]]] = deque()
    try:
        for unit in units:
            waiting.append((unit, executor.submit(function, unit)))
            if len(waiting) >= ahead:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


@contextmanager
def processes(jobs: int, initial: Callable[..., None], values: tuple[Any, ...]) -> Iterator[Executor | None]:
    """Give a pool of spawned processes, or None for one job, after ``initial(*values)`` here or in each of them."""
    if jobs == 1:
        initial(*values)
        yield None
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, (initial, values))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _start(initial: Callable[..., None], values: tuple[Any, ...]) -> None:
    """Prepare a process: Ctrl-C is for the parent, and without the parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    initial(*values)
