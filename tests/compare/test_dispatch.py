"""What a sweep makes of the outcomes of its runs; the executor is a stand-in."""

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from r2mae.compare.progress_display import ProgressDisplay
from r2mae.compare.run import DiedError, Outcome, Progress, Request, Submit, compute_all, one_signal, request_of
from r2mae.compare.runs import Variant, runs_of
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

CONFIG = ImagesConfig.make(data="digits", device="cpu", steps=2)
FINISHED: Outcome = (1.0, {})
KILLED = DiedError("its process was killed by SIGKILL (out of memory?)")
Answer = Callable[[int, int, Progress], Outcome | Exception | None]  # None: it goes on


def compute(folder: Path, answer: Answer, count: int = 2) -> tuple[list[int], str]:
    """Run runs; `answer` says what a run comes to, given its place and how often it was tried before."""
    runs = runs_of([Variant("r2mae", CONFIG)], range(count), folder)
    asked: list[int] = []
    left: list[bool] = []

    @contextmanager
    def executor(progress: Progress) -> Iterator[tuple[Submit, tuple[type[Exception], ...]]]:
        def submit(request: Request) -> "Future[Outcome]":
            before = asked.count(request.index)
            asked.append(request.index)
            future: Future[Outcome] = Future()
            outcome = answer(request.index, before, progress)
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            elif outcome is not None:
                future.set_result(outcome)
            return future

        try:
            yield submit, (DiedError, CancelledError)
        finally:
            left.append(True)

    console = Console(file=StringIO(), width=300)
    requests = [request_of(run, index, DOMAIN) for index, run in enumerate(runs)]
    try:
        with ProgressDisplay(runs, runs, console, DOMAIN.metrics_of(CONFIG)[0]) as display:
            compute_all(runs, requests, display, executor)
    finally:
        assert left == [True]
        assert isinstance(console.file, StringIO)
        printed.append(console.file.getvalue())
    return asked, printed[-1]


printed: list[str] = []


def test_every_run_is_submitted_once(tmp_path: Path) -> None:
    asked, told = compute(tmp_path, lambda index, before, progress: FINISHED, 5)
    assert asked == [0, 1, 2, 3, 4]
    assert "[5/5] r2mae, seed 4 (1 s)" in told


def test_a_run_that_fails_costs_no_other(tmp_path: Path) -> None:
    def answer(error: Exception) -> Answer:
        return lambda index, before, progress: error if index == 0 else FINISHED

    with pytest.raises(UserError, match=r"^r2mae, seed 0: the loss is nan; the other runs are kept$"):
        compute(tmp_path, answer(UserError("the loss is nan")), 3)
    assert "failed: r2mae, seed 0: the loss is nan" in printed[-1]
    assert printed[-1].count("] r2mae, seed") == 2
    with pytest.raises(ZeroDivisionError):  # an error of the program comes as it is
        compute(tmp_path, answer(ZeroDivisionError()), 3)


@pytest.mark.parametrize(("death", "words"), [(KILLED, str(KILLED)), (CancelledError(), "its worker was lost")])
def test_a_lost_run_is_submitted_again_and_then_has_failed(tmp_path: Path, death: Exception, words: str) -> None:
    asked, told = compute(tmp_path, lambda index, before, progress: death if index + before == 0 else FINISHED)
    assert asked == [0, 1, 0]
    assert f"r2mae, seed 0: {words}; it resumes from its checkpoint" in told
    tries: list[int] = []

    def always(index: int, before: int, progress: Progress) -> Outcome | Exception:
        tries.append(index)
        return FINISHED if index else death

    with pytest.raises(UserError) as error:
        compute(tmp_path, always)
    assert str(error.value) == f"r2mae, seed 0: {words}, and 3 more tries got no further; the other runs are kept"
    assert tries == [0, 1, 0, 0, 0]


def test_a_run_that_gets_further_is_always_submitted_again(tmp_path: Path) -> None:
    """A run that is longer than the time of a job ends with each of them, and resumes in the next."""

    def answer(index: int, before: int, progress: Progress) -> Outcome | Exception:
        progress(index, before, 8)
        return FINISHED if before == 8 else KILLED

    assert compute(tmp_path, answer, 1)[0] == [0] * 9


@pytest.fixture
def usual_interrupt() -> Iterator[None]:
    """Ctrl-C raises: a job in the background of a shell, and all that it starts, begin with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_interrupt")
@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_the_first_signal_ends_a_sweep_and_a_second_is_ignored(number: int, kind: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with one_signal() as check:
        check()
        with suppress(kind):  # as where code that cannot raise was running
            signal.raise_signal(number)
        signal.raise_signal(number)
        with pytest.raises(kind):
            check()
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("usual_interrupt")
def test_ctrl_c_leaves_the_executor(tmp_path: Path) -> None:
    threading.Timer(0.3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        compute(tmp_path, lambda index, before, progress: None)
