"""A Dask cluster on this machine: a scheduler and workers, each a process with a folder of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


class LocalCluster:
    """Processes as a user starts them: `dask scheduler` and `dask worker`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        where = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        self.scheduler = self._start("scheduler", *where, "--scheduler-file", str(self.file))

    @property
    def address(self) -> str:
        """The scheduler's address, as soon as it has one."""
        until = time.monotonic() + 900
        while time.monotonic() < until:
            if self.file.exists() and (text := self.file.read_text(encoding="utf-8")):
                return str(json.loads(text)["address"])
            time.sleep(0.1)
        raise AssertionError("no scheduler")

    def worker(self, name: str, *more: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start a worker with one thread, and a folder of its own as its home and scratch."""
        folder = self.root / name
        folder.mkdir()
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name, "--local-directory", str(folder))
        where = ("--scheduler-file", str(self.file), "--host", "127.0.0.1")
        return self._start("worker", *where, *words, *more, cwd=folder, **environment)

    def log(self, name: str) -> str:
        """What the process of that name has printed."""
        return (self.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
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
