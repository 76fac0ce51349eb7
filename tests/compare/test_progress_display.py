from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from r2mae.compare.progress_display import ProgressDisplay
from r2mae.compare.runs import SweepRun, Variant, runs_of
from r2mae.errors import UserError
from r2mae.evaluation.metrics import Metric
from r2mae.images.config import ImagesConfig

METRIC = Metric("accuracy", "accuracy")


class Pipe:
    """A display in a pipe, under a clock that is moved by hand."""

    def __init__(self, runs: list[SweepRun], finished: int = 0) -> None:
        self.file, self.now = StringIO(), 0.0
        self.runs = runs[finished:]
        console = Console(file=self.file, width=200)
        self.display = ProgressDisplay(runs, self.runs, console, METRIC, clock=lambda: self.now).__enter__()

    def at(self, seconds: float, *steps: tuple[int, int]) -> str:
        """What the display adds at this time."""
        before = len(self.file.getvalue())
        self.now = seconds
        self.display.update(steps)
        return self.file.getvalue()[before:].strip()


@pytest.fixture
def runs() -> list[SweepRun]:
    config = ImagesConfig.make(data="digits")
    rows = [Variant(label, config) for label in ("fixed 0.50", "[r2mae]")]
    return runs_of(rows, (0, 1), Path("out"))


def test_a_pipe_hears_how_far_cells_are_until_one_is_finished(runs: list[SweepRun]) -> None:
    pipe = Pipe(runs)
    assert pipe.at(59, (5, 100), (0, 0), (0, 0), (0, 0)) == ""
    line = "all runs: 0 of 4 finished, 1 measuring, 24% done"
    assert pipe.at(61, (10, 100), (100, 100), (0, 0), (0, 0)) == line
    assert pipe.at(120, (20, 100), (100, 100), (0, 0), (0, 0)) == ""


def test_a_pipe_hears_the_time_left_once_a_cell_is_finished(runs: list[SweepRun]) -> None:
    pipe = Pipe(runs)
    pipe.at(1, (0, 1000), (0, 0), (0, 0), (0, 0))
    pipe.display.finished(runs[0], 600.0, {"accuracy": 0.5})
    # One of four is done in ten minutes: three are left.
    assert pipe.at(600, (1000, 1000), (0, 1000), (0, 0), (0, 0)) == "all runs: 1 of 4 finished, about 30 min left"
    assert pipe.at(601, (1000, 1000), (0, 1000), (0, 0), (0, 0)) == ""
    assert pipe.at(6000, (1000, 1000), (0, 1000), (0, 0), (0, 0)) == "all runs: 1 of 4 finished, about 5 h left"


def test_steps_of_an_earlier_call_do_not_count_as_pace(runs: list[SweepRun]) -> None:
    pipe = Pipe(runs, finished=2)
    assert pipe.file.getvalue() == "2 of 4 runs are finished already\n"
    pipe.at(0, (900, 1000), (0, 0))
    pipe.display.finished(runs[2], 300.0, {})
    # 100 steps and measuring (150) took 250 s: 1,150 are left.
    assert pipe.at(250, (1000, 1000), (0, 1000)) == "all runs: 3 of 4 finished, about 19 min left"


def test_cells_without_steps_and_cells_that_failed(runs: list[SweepRun]) -> None:
    pipe = Pipe(runs)
    pipe.display.failed(runs[0], UserError("broken"))
    assert pipe.at(100, (0, 0), (0, 0), (0, 0), (0, 0)) == "all runs: 0 of 4 finished, 25% done"
    pipe.display.finished(runs[1], 100.0, {})
    assert pipe.at(180, (0, 0), (0, 0), (0, 0), (0, 0)) == "all runs: 1 of 4 finished, about 6 min left"
    for run in runs[2:]:
        pipe.display.finished(run, 100.0, {})
    assert pipe.at(300, (0, 0), (0, 0), (0, 0), (0, 0)) == ""


def test_a_run_that_ends_before_its_steps_are_seen(runs: list[SweepRun]) -> None:
    pipe = Pipe(runs)
    pipe.display.finished(runs[0], 100.0, {})
    line = "all runs: 1 of 4 finished, about 5 min left"
    assert pipe.at(100, (1000, 1000), (0, 0), (0, 0), (0, 0)) == line


def test_a_terminal_has_a_bar_alone(runs: list[SweepRun]) -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    now = 0.0
    with ProgressDisplay(runs, runs, console, METRIC, clock=lambda: now) as display:
        now = 100.0
        display.update([(5, 100), (0, 0), (0, 0), (0, 0)])
    assert "all runs:" not in file.getvalue()
    assert "all runs" in file.getvalue()
