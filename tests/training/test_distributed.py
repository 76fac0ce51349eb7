"""Which process ended the others, who reports it, and signals to several processes; in one process."""

import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from r2mae.cli import launch
from r2mae.cli.launch import run_on_devices
from r2mae.cli.parsing import loading
from r2mae.errors import UserError
from r2mae.training import checkpoint, distributed
from r2mae.training.checkpoint import CheckpointKeeper
from r2mae.training.config import RunConfig
from r2mae.training.distributed import together
from r2mae.training.interrupt import StopRequest
from r2mae.training.ranks import NotStartedError, ProcessLostError, is_first
from r2mae.training.step import Pretraining

from .conftest import ToyConfig

LOST = 75
GLOO = RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:4711")


@pytest.mark.parametrize(
    ("codes", "code", "told"),
    [
        ({0: -15, 1: -9}, 1, "process 2 of 2 (rank 1) was ended by SIGKILL (out of memory?); rerun the same command"),
        ({0: -9, 1: LOST}, 1, "process 1 of 2 (rank 0) was ended by SIGKILL (out of memory?)"),
        ({0: LOST, 1: 1}, 1, "process 2 of 2 (rank 1) ended with exit code 1"),
        ({0: LOST, 1: LOST}, 1, "process 1 of 2 (rank 0) lost the others (RuntimeError: timed out); rerun"),
        ({0: -11}, 1, "process 1 of 2 (rank 0) was ended by SIGSEGV"),
        ({0: 2, 1: -15}, 2, ""),
        ({0: -15, 1: 2}, 2, ""),
        ({0: 143, 1: -15}, 143, ""),
        ({0: 130, 1: 130}, 130, ""),
    ],
)
def test_the_cause_is_not_who_ended_first(
    codes: dict[int, int], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = {rank: ProcessFailure(rank, 1, one, "") for rank, one in codes.items()}
    for failure in failures.values():
        failure.message = "RuntimeError: timed\nout"
    assert launch._exit_code(failures, 2) == code
    text = capsys.readouterr().err
    assert text.startswith(f"r2mae: {told}") if told else not text


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("launched", [True, False])
@pytest.mark.parametrize("error", [GLOO, UserError("a mistake"), RuntimeError("mat1 and mat2 cannot be multiplied")])
def test_the_first_process_reports_what_all_meet(
    rank: int, launched: bool, error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", 2), ("LOCAL_WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    if launched:
        monkeypatch.setenv("R2MAE_LAUNCHED", "1")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    waits: list[float] = []
    monkeypatch.setattr(distributed, "time", SimpleNamespace(sleep=waits.append))
    monkeypatch.setattr(launch.threading, "Thread", Mock())

    def command() -> int:
        with together(ToyConfig.make(devices=2)):
            raise error

    kind = ProcessLostError if error is GLOO else type(error)
    with pytest.raises(kind):
        command()
    assert bool(waits) == (rank == 1)
    if launched and error is GLOO:
        assert run_on_devices(command) == LOST
    else:
        with pytest.raises(kind):
            run_on_devices(command)
    assert (tmp_path / "error.json").exists() == (launched and error is GLOO)


def train() -> int:
    with together(ToyConfig.make(devices=2)):
        pytest.fail("this process trains nothing")


def test_only_a_command_starts_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotStartedError, match="torchrun --nproc-per-node 2 SCRIPT"):
        train()
    with monkeypatch.context() as patch:
        patch.setattr(launch, "launch", lambda devices: 40 + devices)
        assert run_on_devices(train) == 42
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(UserError, match="2 devices need a command or a script"):  # of a notebook
        run_on_devices(train)


def test_a_second_signal_stops_several_processes_at_once_but_not_the_echo_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("r2mae.training.interrupt.time", clock)
    with StopRequest(0, 2) as stop:
        stop._handle(signal.SIGINT, None)
        stop._handle(signal.SIGINT, None)  # torchrun passes on what the terminal has sent to all
        now += 2
        with pytest.raises(KeyboardInterrupt):
            stop._handle(signal.SIGINT, None)
    with StopRequest(1) as alone:
        alone._handle(signal.SIGTERM, None)
        with pytest.raises(SystemExit):
            alone._handle(signal.SIGTERM, None)


def test_a_signal_to_another_process_counts_as_the_first_here(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper: Any = object.__new__(CheckpointKeeper)
    stop = StopRequest(1, 2)
    stop.__enter__()
    stop.__exit__()
    monkeypatch.setattr(checkpoint, "all_finite", lambda state: True)
    monkeypatch.setattr(checkpoint, "highest", lambda run, number: signal.SIGTERM)
    module = Mock(spec=Pretraining, ratio=0.5, total_steps=9)
    keeper.__dict__.update(stop=stop, step=0, module=module, validation=None, _losses=[], _pending=[], _latest={})
    keeper.__dict__.update(folder=Mock(), metrics=Mock(), tracker=None, _flush=lambda validate: None)
    keeper.run = SimpleNamespace(ranks=2, config=RunConfig.make(data="x", save_every=5))
    module.end_step.return_value = torch.ones(())
    clock = [0.0, 0.5, 5.0]
    monkeypatch.setattr("r2mae.training.interrupt.time", SimpleNamespace(monotonic=lambda: clock.pop(0)))

    def save(*ignored: Any) -> None:
        stop._handle(signal.SIGTERM, None)  # the same signal, which has reached this process later
        stop._handle(signal.SIGINT, None)

    keeper._save = save
    with pytest.raises(KeyboardInterrupt):
        keeper.after_step(torch.optim.SGD([torch.ones(1)], lr=0.1))


@pytest.mark.parametrize(
    ("around", "first"),
    [({}, True), ({"RANK": "0", "WORLD_SIZE": "2"}, True), ({"RANK": "1", "WORLD_SIZE": "2"}, False)],
)
def test_the_first_of_several_processes_says_that_libraries_are_loaded(
    around: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    console = Mock()
    console.return_value.status.return_value.__enter__ = Mock()
    console.return_value.status.return_value.__exit__ = Mock(return_value=None)
    monkeypatch.setattr("r2mae.terminal.Terminal", console)
    assert is_first() is first
    with loading():
        assert console.call_args.kwargs == {"stderr": True, "quiet": not first}


def test_variables_that_hold_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(UserError, match="WORLD_SIZE must be a whole number: unset it"):
        is_first()


def test_a_handler_that_was_not_installed_from_python_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda number: None)
        with StopRequest():
            pass
    for number, handler in before.items():
        signal.signal(number, handler)
