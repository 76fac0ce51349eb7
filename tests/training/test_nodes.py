"""Two machines do what one process does: agents of torchrun, each with a process of its own."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.distributed import synced
from r2mae.training.loop import build, fit
from r2mae.training.ranks import process_rank
from r2mae.training.run import Run

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyDomain
from .machines import Machine, free_port, two_machines

SCRIPT = Path(__file__).with_name("ddp.py")
NODES: dict[str, Any] = {"devices": 1, "nodes": 2}
LONG = 240.0  # seconds that none of these tests needs, even on a busy machine

# What two processes do one after the other: options of both, and other ones of the second.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "synced": ({"norm": True, "sync_batchnorm": True}, {}),
    "lr": ({}, {"lr": 0.5}),
    "samples": ({}, {"samples": 60}),
    "folder": ({}, {}),
    "signal": ({"steps": 1_000_000, "save_every": 5}, {}),
}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL", **more}


def process_of_torchrun(rank: int, port: int) -> dict[str, str]:
    """Return the variables of one of two processes, each alone on its machine."""
    numbers = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    return environment(MASTER_ADDR="127.0.0.1", **{name: str(value) for name, value in numbers.items()})


@contextmanager
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    """Give a list for processes, and end those of them that are left."""
    ones: list[subprocess.Popen[str]] = []
    try:
        yield ones
    finally:
        for one in ones:
            if one.poll() is None:
                one.kill()
            one.communicate()


def outputs(ones: list[subprocess.Popen[str]], timeout: float = LONG) -> list[str]:
    until = time.monotonic() + timeout
    return [one.communicate(timeout=max(1.0, until - time.monotonic()))[0] for one in ones]


def wait_for(file: Path, one: subprocess.Popen[str]) -> None:
    """Wait for a file that a process makes."""
    until = time.monotonic() + LONG
    while not file.exists():
        assert time.monotonic() < until, f"no {file}"
        assert one.poll() is None, one.communicate()
        time.sleep(0.05)


def words(out: Path, **options: Any) -> list[str]:
    return [str(out), json.dumps({"steps": 20, **NODES, **options})]


def messages(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("r2mae: ")]


def losses(out: Path) -> Any:
    return pd.read_csv(out / "metrics.csv")["loss"].to_numpy()


def alone(out: Path, **options: Any) -> Any:
    fit(ToyConfig.make(steps=20, threads=1, **options), ToyDomain(), out)
    return losses(out)


@pytest.mark.slow
def test_two_machines_equal_one_and_an_agent_that_is_killed_is_made_up_for(tmp_path: Path) -> None:
    """An agent of torchrun is killed in the middle and started again; the other one has waited for it."""
    one, out = alone(tmp_path / "one", scheme="mdlm"), tmp_path / "two"
    port, script = free_port(), [str(SCRIPT), *words(out, scheme="mdlm", save_every=5)]
    with two_machines() as (first, second), ended() as ones:
        line = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        line += ["--max-restarts", "1", "--master-addr", first.address, "--master-port", str(port), "--node-rank"]
        around = environment(R2MAE_TEST_WAIT="12")
        ones += [first.start([*line, "0", *script], around), second.start([*line, "1", *script], around)]
        wait_for(out / "checkpoints" / "last.ckpt", ones[0])
        ones[1].kill()
        ones.append(second.start([*line, "1", *script], around))
        texts = outputs(ones)
    assert [one.returncode for one in (ones[0], ones[2])] == [0, 0], texts
    ended_with = "r2mae: another process of this run ended; rerun the same command to resume from the last checkpoint"
    # The process of the first agent learns of the end from the other one's silence, or from its agent's SIGTERM.
    stopped_by = "r2mae: stopping after this step, to save it (again: at once); rerun the same command to resume"
    printed = set(messages("".join(texts)))
    assert printed and printed <= {ended_with, stopped_by}, (
        texts
    )  # again by an agent that counts its restarts by itself
    assert losses(out) == pytest.approx(one, rel=1e-5)


@dataclass(frozen=True)
class Pair:
    """What two processes have left behind and said."""

    folder: Path
    lines: list[str]
    codes: list[int]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Do all runs of `PAIRS` with the same two processes, which take long to start; a signal ends the last of them."""
    folder, port = tmp_path_factory.mktemp("pair"), free_port()
    with pytest.raises(Interrupted):  # the first process sees a checkpoint, and the second has another folder
        fit(ToyConfig.make(steps=20, threads=1), ToyDomain(), folder / "folder-0", reporter=InterruptAt(14))
    with ended() as ones:
        for rank in (0, 1):
            script = [str(SCRIPT)]
            for name, (options, other) in PAIRS.items():
                out = f"folder-{rank}" if name == "folder" else name
                script += words(folder / out, **options, **(other if rank else {}))
            around = {**process_of_torchrun(rank, port), "R2MAE_TEST_GO_ON": "1"}
            ones.append(Machine().start([sys.executable, *script], around))
        wait_for(folder / "signal" / "checkpoints" / "last.ckpt", ones[0])
        ones[1].send_signal(signal.SIGTERM)
        texts = outputs(ones)
        return Pair(folder, messages("".join(texts)), [one.returncode for one in ones])


@pytest.mark.slow
def test_synced_batch_statistics_are_those_of_one_process(tmp_path: Path, pair: Pair) -> None:
    one = alone(tmp_path / "one", norm=True)
    assert losses(pair.folder / "synced") == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
def test_machines_that_are_told_different_things_are_refused_with_one_line_each(pair: Pair) -> None:
    differ = ("lr is 0.01 in process 1 of 2 and 0.5 in process 2 (rank 1)", "samples is 100")
    for line, name, start in zip(pair.lines[:2], ("lr", "samples"), differ, strict=True):
        assert line.startswith(f"r2mae: the processes of this run differ: {start}")
        assert not (pair.folder / name / "config.yaml").exists()


@pytest.mark.slow
def test_machines_without_a_shared_folder_are_refused(pair: Pair) -> None:
    assert "the checkpoint's step is 7 in process 1 of 2 and 0 in process 2 (rank 1)" in pair.lines[2]


@pytest.mark.slow
def test_a_signal_to_one_machine_stops_both_at_the_next_step_with_one_line(pair: Pair) -> None:
    assert pair.lines[3].startswith("r2mae: stopping after this step")
    assert len(pair.lines) == 4
    assert pair.codes == [128 + signal.SIGTERM] * 2
    checkpoint = read_checkpoint(pair.folder / "signal" / "checkpoints" / "last.ckpt")
    assert checkpoint["r2mae_step"] == len(losses(pair.folder / "signal"))


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3, affine=False), nn.BatchNorm1d(3, momentum=None)]
)
def test_one_process_synced_with_itself(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: None)
    other = copy.deepcopy(layer)
    shape = (8, 3, 2, 2) if isinstance(layer, nn.BatchNorm2d) else (8, 3)
    torch.manual_seed(0)
    inputs = torch.randn(shape) + 3
    for _ in range(2):
        mine, theirs = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
        ours, default = synced(layer, mine), other(theirs)
        torch.testing.assert_close(ours, default, rtol=1e-4, atol=1e-5)
        ours.square().mul(torch.arange(3.0).view([1, 3, *[1] * (len(shape) - 2)])).cumsum(0).sum().backward()
        default.square().mul(torch.arange(3.0).view([1, 3, *[1] * (len(shape) - 2)])).cumsum(0).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(layer.state_dict()[name], value)


def test_models_without_batch_statistics_and_single_processes_have_nothing_to_sync(domain: ToyDomain) -> None:
    with pytest.raises(UserError, match="this run has one"):
        ToyConfig.make(sync_batchnorm=True)
    with pytest.raises(UserError, match="has no batch normalisation: omit --sync-batchnorm"):
        config = ToyConfig.make(sync_batchnorm=True, devices=2, steps=2)
        build(Run.resolve(config, domain), domain.load(config), fresh=True)


def test_processes_of_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--nodes 2 needs torchrun"):
        process_rank(1, 2)
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert process_rank(2, 2) == 3
    for devices, nodes in ((2, 1), (4, 1), (1, 4)):
        with pytest.raises(UserError, match=r"4 processes were started, 2 of them here.* --nodes 2 --devices 2$"):
            process_rank(devices, nodes)
    for rank in ("4", "-1"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(UserError, match=f"RANK is {rank} and WORLD_SIZE 4: the first of 4"):
            process_rank(2, 2)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UserError, match=r"start as many on each machine, with --nproc-per-node 2$"):
        process_rank(2, 2)
    with pytest.raises(UserError, match="does not split among 3 devices on each of 2 machines"):
        ToyConfig.make(devices=3, nodes=2)


def test_tasks_of_slurm_each_start_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert process_rank(1) == 0
    with pytest.raises(UserError, match="SLURM started 2 tasks, and each would start 4 processes: start one task"):
        process_rank(4)
