"""Processes of a sweep: forked from a server, a run after the other in each; a crash costs no other run its run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from io import StringIO
from multiprocessing import forkserver
from pathlib import Path

import pytest
from rich.console import Console

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep import processes, worker_start
from r2mae.sweep.processes import Processes
from r2mae.sweep.progress_display import ProgressDisplay
from r2mae.sweep.runner import finished, run_missing
from r2mae.sweep.runs import SweepParameter, SweepRun, grid, runs_of
from r2mae.sweep.watch import Watch

pytestmark = pytest.mark.slow

BASE = ImagesConfig(data="digits", device="cpu", steps=30, hidden=16, latent=8, threads=1)
forks = pytest.mark.skipif(not worker_start._can_fork(), reason="processes are spawned on this machine")


def run(runs: Sequence[SweepRun], jobs: int) -> str:
    written = StringIO()
    run_missing(runs, DOMAIN, Processes(jobs), console=Console(file=written, width=300))
    return written.getvalue()


def test_what_ran_before_in_a_process_makes_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third run of one process, against the same in a new process that loaded the libraries itself."""
    rows = grid(BASE, [SweepParameter.over("scheme", ["cl", "mdlm", "r2mae-cl"])])
    run(runs_of(rows, [3], tmp_path / "together"), 1)
    monkeypatch.setattr(worker_start, "_can_fork", lambda: False)
    run(runs_of(rows[2:], [3], tmp_path / "alone"), 1)
    (there,), (here,) = ([*(tmp_path / name).rglob("r2mae-cl/seed-3")] for name in ("together", "alone"))
    for name in ("model.safetensors", "statistics.safetensors", "metrics.csv", "config.yaml"):
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    scores = [json.loads((folder / "results.json").read_text())["scores"] for folder in (here, there)]
    assert scores[0] == scores[1]
    threads = [json.loads((folder / "environment.json").read_text())["torch_threads"] for folder in (here, there)]
    assert threads == [1, 1]


class Killing(Watch):
    """Kills the process of the first run, once it and the second both train."""

    killed = 0

    def look(self, states: Sequence[tuple[int, ...]]) -> list[str]:
        if not Killing.killed and all(0 < done < planned for done, planned, _ in states[:2]):
            Killing.killed = states[0][2]
            os.kill(states[0][2], signal.SIGKILL)
        return super().look(states)


def test_a_crash_costs_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "Watch", Killing)
    rows = grid(BASE, [SweepParameter.over("steps", [3000, 3001, 20])])
    runs = runs_of(rows, [0], tmp_path)
    written = StringIO()
    with pytest.raises(UserError, match=r"^3000, seed 0: a process .* ended unexpectedly .*; the other runs are kept$"):
        run_missing(runs, DOMAIN, Processes(2), console=Console(file=written, width=300))
    assert Killing.killed
    assert [finished(run) for run in runs] == [False, True, True]
    assert written.getvalue().count("failed: ") == 1
    monkeypatch.undo()
    run(runs, 1)
    assert finished(runs[0])


def test_a_process_has_the_environment_of_its_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not that of the time when the server was started."""
    worker_start.load_ahead()
    monkeypatch.setenv("R2MAE_ASKED", "later")
    monkeypatch.chdir(tmp_path)
    start = (None, dict(os.environ))
    with ProcessPoolExecutor(1, worker_start.worker_context(), processes._start_worker, start) as pool:
        assert pool.submit(os.getenv, "R2MAE_ASKED").result() == "later"
        assert pool.submit(os.getcwd).result() == str(tmp_path)
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


@pytest.fixture
def usual_interrupt() -> Iterator[None]:
    """Ctrl-C raises: a job in the background of a shell, and all that it starts, begin with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_interrupt")
def test_an_interrupt_that_comes_to_nothing_is_heard_at_the_next_look() -> None:
    with processes.one_interrupt():
        processes.check_interrupt()
        with suppress(KeyboardInterrupt):  # as where code that cannot raise was running
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            processes.check_interrupt()
    with processes.one_interrupt():
        processes.check_interrupt()


@forks
def test_a_folder_for_temporary_files_may_have_a_long_path(tmp_path: Path) -> None:
    """The server's socket has no room there: processes are spawned."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    line = "compare digits --schemes fixed --ratios 0.5 --seeds 1 --steps 2 --hidden 8 --latent 4 --device cpu"
    words = [sys.executable, "-m", "r2mae", *line.split(), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, env={**os.environ, "TMPDIR": str(long)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "results.json").is_file()


@forks
@pytest.mark.skipif(
    any(name in os.environ for name in worker_start.THREADS), reason="a server keeps the user's threads"
)
def test_the_server_has_the_libraries_and_one_thread() -> None:
    context = worker_start.worker_context()
    with ProcessPoolExecutor(1, context, processes._start_worker, (None, dict(os.environ))) as pool:
        pool.submit(os.getpid).result()
    server = Path(f"/proc/{forkserver._forkserver._forkserver_pid}")  # type: ignore[attr-defined]
    assert "libtorch" in (server / "maps").read_text()
    assert "\nThreads:\t1\n" in (server / "status").read_text()


ORPHANS = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from r2mae.sweep.processes import _start_worker
from r2mae.sweep.worker_start import worker_context

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, worker_context(), _start_worker, (None, dict(os.environ)))
    print(pool.submit(os.getpid).result(), pool.submit(os.getppid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(ORPHANS)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    numbers = [int(number) for number in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    left = {number for number in numbers if number != parent.pid}
    began = time.monotonic()
    while left and time.monotonic() - began < 60:
        left = {number for number in left if _lives(number)}
        time.sleep(0.1)
    parent.stdout.close()
    assert numbers
    assert not left


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_sweep_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str | None, str | None, str | None]] = []

    class Looks:
        failed: tuple[tuple[SweepRun, Exception], ...] = ()

        def __init__(self, *_: object) -> None:
            one, two, three = map(os.environ.get, ("R2MAE_JOBS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"))
            seen.append((one, two, three))

    monkeypatch.setattr(processes, "_Sweep", Looks)
    monkeypatch.delenv("R2MAE_JOBS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    metric = DOMAIN.metrics_of(ImagesConfig(data="digits"))[0]
    processes._run([], DOMAIN, ProgressDisplay([], [], Console(file=StringIO()), metric), 3)
    assert seen == [("3", "7", "1")], "a number of threads that the user has set stays"
    assert dict(os.environ) == before
