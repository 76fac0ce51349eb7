"""A run of a comparison that falls silent is named, and one that does not end is killed."""

import multiprocessing
import signal
import time
from io import StringIO
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from r2mae.compare.variants import plan_variants
from r2mae.images.config import ImagesConfig
from r2mae.sweep import watch as module
from r2mae.sweep.runs import SweepRun, runs_of
from r2mae.sweep.watch import Watch, end


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def runs(tmp_path: Path) -> list[SweepRun]:
    rows = plan_variants(ImagesConfig(data="digits"), ["r2mae", "mdlm"], ratios=None)
    return runs_of(rows, [0], tmp_path)


def test_a_silent_run_is_named_once_and_then_rarely(runs: list[SweepRun]) -> None:
    clock, used = Clock(), {1: 0.0, 2: 0.0}
    watch = Watch(runs, clock=clock, processor=used.get)
    told = []
    for minute in range(0, 75):
        clock.now = 60.0 * minute
        used[2] = clock.now  # it computes
        told += [(minute, line) for line in watch.look([(5, 100, 1), (minute, 100, 2)])]
    assert [minute for minute, _ in told] == [10, 20, 40]
    assert "r2mae, seed 0: no sign for 10 min (at step 5 of 100; process 1, and does nothing)" in told[0][1]


def test_what_it_was_doing(runs: list[SweepRun]) -> None:
    clock = Clock()
    watch = Watch(runs, clock=clock, processor=lambda process: clock.now)
    states = [(0, 0, 7), (100, 100, 8)]
    assert watch.look(states) == []
    clock.now = 601.0
    first, second = watch.look(states)
    assert "(loading; process 7)" in first
    assert "mdlm, seed 0: no sign for 10 min (measuring; process 8)" in second
    watch.ended(runs[0])
    clock.now = 10_000.0
    assert len(watch.look(states)) == 1


def test_runs_that_have_not_begun_are_not_silent(runs: list[SweepRun]) -> None:
    clock = Clock()
    watch = Watch(runs, clock=clock)
    for clock.now in (0.0, 10_000.0):
        assert watch.look([(0, 0, 0), (0, 0, 0)]) == []


def test_patience_is_that_of_the_longest_step(runs: list[SweepRun]) -> None:
    clock = Clock()
    watch = Watch(runs, clock=clock)
    for step, clock.now in ((1, 0.0), (2, 40.0), (3, 50.0)):
        watch.look([(step, 100, 7), (0, 0, 0)])
    assert watch.patience(7) == (120.0, runs[0].folder)
    assert watch.patience(8) == (20.0, None)


def _deaf(ready: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(600)


def test_a_process_that_does_not_end_is_killed(runs: list[SweepRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORT", 0.2)
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_deaf, args=(ready,))
    process.start()
    ready.wait()
    process.terminate()
    text = StringIO()
    end([process], Watch(runs), Console(file=text))
    assert process.exitcode == -signal.SIGKILL
    assert f"process {process.pid} did not end within" in text.getvalue()


def test_a_process_that_saves_is_waited_for(runs: list[SweepRun], monkeypatch: pytest.MonkeyPatch) -> None:
    place = runs[0].folder / "checkpoints" / ".last.ckpt.x.tmp"
    place.parent.mkdir(parents=True)
    clock = Clock()

    class Saving(BaseProcess):
        pid, exitcode, joins = 7, None, 0  # type: ignore[assignment]

        def __init__(self) -> None:  # of a process that is not there
            return

        def join(self, timeout: float | None = None) -> None:
            self.joins += 1
            clock.now += 15.0
            if self.joins < 8:
                place.write_bytes(bytes(self.joins))
            else:
                self.exitcode = 1

        def kill(self) -> None:
            raise AssertionError("it was saving")

    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    watch = Watch(runs, clock=clock)
    watch.look([(1, 100, 7), (0, 0, 0)])
    saving = Saving()
    end([saving], watch, Console(file=StringIO()))
    assert saving.joins == 8
