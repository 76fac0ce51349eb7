"""Processes of a sweep: forked from a server, one a run; a killed one costs no run."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from io import StringIO
from multiprocessing import forkserver
from pathlib import Path

import pytest
from rich.console import Console

from locks import is_locked
from r2mae.compare import run as processes
from r2mae.compare.checks import run_missing
from r2mae.compare.progress_display import ProgressDisplay
from r2mae.compare.run import ONE_THREAD, Outcome, Processes, Request, start_server
from r2mae.compare.runs import SweepRun, Variant, runs_of
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.metrics import read_metrics

pytestmark = pytest.mark.slow

BASE = ImagesConfig.make(data="digits", device="cpu", steps=30, hidden=16, latent=8, threads=1)
FORKS = start_server("images").get_start_method() == "forkserver"
forks = pytest.mark.skipif(not FORKS, reason="processes are spawned on this machine")


def run(runs: Sequence[SweepRun], jobs: int) -> str:
    written = StringIO()
    run_missing(runs, DOMAIN, Processes(jobs), console=Console(file=written, width=300))
    return written.getvalue()


def test_how_a_process_is_started_makes_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of three runs, against the same in a process that loaded the libraries itself."""
    rows = [Variant(name, BASE.replace(scheme=name)) for name in ("cl", "mdlm", "r2mae-cl")]
    run(runs_of(rows, [3], tmp_path / "together"), 1)
    monkeypatch.setattr(processes, "start_server", lambda domain: multiprocessing.get_context("spawn"))
    run(runs_of(rows[2:], [3], tmp_path / "alone"), 1)
    (there,), (here,) = ([*(tmp_path / name).rglob("r2mae-cl/seed-3")] for name in ("together", "alone"))
    for name in ("model.safetensors", "statistics.safetensors", "metrics.csv", "config.yaml"):
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    scores = [json.loads((folder / "results.json").read_text())["scores"] for folder in (here, there)]
    assert scores[0] == scores[1]
    threads = [json.loads((folder / "environment.json").read_text())["torch_threads"] for folder in (here, there)]
    assert threads == [1, 1]


def test_a_killed_process_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run resumes, and ends with the same bytes; the other run is not disturbed."""
    rows = [Variant(f"{steps}", BASE.replace(save_every=10, steps=steps)) for steps in (400, 401)]
    run(runs_of(rows, [0], tmp_path / "whole"), 2)
    killed: list[int] = []
    update = ProgressDisplay.update

    def kill(display: ProgressDisplay, steps: Sequence[tuple[int, int]]) -> None:
        update(display, steps)
        if not killed and all(done > 50 for done, _ in steps):
            killed.append(holder_of(display.waiting[0].folder))
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(ProgressDisplay, "update", kill)
    told = run(runs_of(rows, [0], tmp_path / "killed"), 2)
    assert killed
    assert told.count("400, seed 0: its process was killed by SIGKILL (out of memory?); it resumes") == 1
    assert told.count("resumes from its checkpoint") == 1
    for name in ("400/seed-0/model.safetensors", "400/seed-0/metrics.csv", "401/seed-0/model.safetensors"):
        whole, resumed = ((tmp_path / out / "runs" / name).read_bytes() for out in ("whole", "killed"))
        assert whole == resumed, name


def holder_of(run: Path) -> int:
    """The process that holds the lock of a run."""
    inode = (run / ".lock").stat().st_ino
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return next(int(words[4]) for words in locks if int(words[5].split(":")[2]) == inode)


COMPARE = "compare digits --schemes r2mae --seeds 2 --steps 1000000 --save-every 5 --hidden 16 --device cpu --jobs 2"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_save_their_steps_and_end_with_the_command(tmp_path: Path, number: int) -> None:
    """A signal to the command and its processes; or the sudden end of the command alone."""
    words = [sys.executable, "-m", "r2mae", *COMPARE.split(), "--baselines", "none", "--out", str(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True) as command:
        while len(list(tmp_path.glob("runs/*/*/checkpoints/last.ckpt"))) < 2:
            time.sleep(0.05)
            assert command.poll() is None
        runs = [file.parents[1] for file in tmp_path.glob("runs/*/*/checkpoints/last.ckpt")]
        holders = [holder_of(run) for run in runs]
        (os.killpg if number == signal.SIGTERM else os.kill)(command.pid, number)
        assert command.wait(timeout=120) == (128 + number if number == signal.SIGTERM else -number)
    while any(map(lives, holders)):
        time.sleep(0.05)
    for run in runs:  # the step of the signal is saved, and not the last multiple of five alone
        saved = read_checkpoint(run / "checkpoints" / "last.ckpt")["r2mae_step"]
        assert read_metrics(run / "metrics.csv")["step"].iloc[-1] == saved
        assert not is_locked(run)


def lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
@pytest.mark.skipif(any(name in os.environ for name in ONE_THREAD), reason="a server keeps the user's")
def test_the_server_has_the_libraries_and_one_thread(tmp_path: Path) -> None:
    run(runs_of([Variant("r2mae", BASE.replace(steps=2))], [0], tmp_path), 1)
    server = Path(f"/proc/{forkserver._forkserver._forkserver_pid}")  # type: ignore[attr-defined]
    assert "libtorch" in (server / "maps").read_text()
    assert "\nThreads:\t1\n" in (server / "status").read_text()


def test_a_process_has_the_environment_of_its_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the number of processes, and one thread unless the user has set another number; here nothing changes."""
    seen: list[Request] = []

    def compute(request: Request, *_: object) -> Outcome:
        seen.append(request)
        return 0.0, {}

    monkeypatch.setattr(processes, "compute", compute)
    monkeypatch.setenv("R2MAE_ASKED", "later")
    before = dict(os.environ)
    run(runs_of([Variant("r2mae", BASE)], [0, 1, 2], tmp_path), 2)
    assert dict(os.environ) == before
    assert [request.environment["R2MAE_JOBS"] for request in seen] == ["2"] * 3
    assert seen[0].environment["R2MAE_ASKED"] == "later"
    assert seen[0].cwd == str(Path.cwd())
