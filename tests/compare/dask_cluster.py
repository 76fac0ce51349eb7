"""A Dask cluster on this machine: a scheduler and workers, each a process with a folder of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise an error in the main thread after so many seconds: a test that waits for a cluster must not hang."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not finished within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def soon(condition: Callable[[], object]) -> None:
    """Wait until a condition holds. The test's own limit ends it, or the end of the thread that waits."""
    while not condition():
        time.sleep(0.02)


class LocalCluster:
    """Processes as a user starts them: `dask scheduler` and `dask worker`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        where = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        self.scheduler = self._start("scheduler", *where, "--scheduler-file", str(self.file))

    @property
    def address(self) -> str:
        """The scheduler's address, as soon as it has one."""
        soon(lambda: self.file.exists() and self.file.read_text(encoding="utf-8"))
        return str(json.loads(self.file.read_text(encoding="utf-8"))["address"])

    def worker(self, name: str, *more: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a worker with one thread, and a folder of its own as its home and scratch."""
        folder = self.root / name
        folder.mkdir()
        words = ("--nthreads", "1", "--no-dashboard", "--name", name, "--local-directory", str(folder))
        where = ("--scheduler-file", str(self.file), "--host", "127.0.0.1")
        self.workers[name] = self._start("worker", *where, *words, *more, cwd=folder, HOME=str(folder), **environment)
        return self.workers[name]

    def some(self, count: int) -> "list[subprocess.Popen[bytes]]":
        """Return workers that live and have joined; start what is missing of them."""
        names = [name for name, process in self.workers.items() if process.poll() is None]
        for _ in range(count - len(names)):
            names.append(f"worker-{len(self.workers)}")
            self.worker(names[-1])
        soon(lambda: all("Registered to" in self.log(name) for name in names))
        return [self.workers[name] for name in names]

    def log(self, name: str) -> str:
        """What the process of that name has printed."""
        return (self.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def _start(self, kind: str, *words: str, cwd: Path | None = None, **environment: str) -> "subprocess.Popen[bytes]":
        name = words[words.index("--name") + 1] if "--name" in words else kind
        with (self.root / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words],
                cwd=cwd,
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process


_HOLD = (
    "import sys; from pathlib import Path; from r2mae.training.folder import FolderLock\n"
    "with FolderLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def held(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process holds the lock of a folder."""
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()
