"""Two machines do what one process does: two agents of torchrun, each with a process of its own, on one machine."""

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.training.interrupt import mark_of, signal_of
from r2mae.training.loop import fit
from r2mae.training.ranks import process_rank
from r2mae.training.rendezvous import JOIN_TIMEOUT
from r2mae.training.synced_norm import synced

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyWing

SCRIPT = Path(__file__).with_name("ddp.py")
NODES: dict[str, Any] = {"devices": 1, "nodes": 2}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL", **more}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def agents(*commands: list[str], restarts: int = 0, **more: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start an agent of torchrun for each command, as on machines of their own, and end all that is left of them."""
    port = free_port()
    ones = []
    for rank, command in enumerate(commands):
        line = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(commands)), "--nproc-per-node", "1"]
        line += ["--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", str(port)]
        line += ["--max-restarts", str(restarts), *command]
        ones.append(
            subprocess.Popen(line, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    try:
        yield ones
    finally:
        for one in ones:
            if one.poll() is None:
                one.kill()
            one.communicate()


def script(out: Path, **options: Any) -> list[str]:
    return [str(SCRIPT), str(out), json.dumps({**NODES, **options})]


def outputs(ones: list[subprocess.Popen[str]], timeout: float = 240) -> list[str]:
    return [one.communicate(timeout=timeout)[0] for one in ones]


def told(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("r2mae: ")]


def losses(out: Path) -> Any:
    return pd.read_csv(out / "metrics.csv")["loss"].to_numpy()


def alone(out: Path, **options: Any) -> Any:
    fit(ToyConfig(threads=1, **options), ToyWing(), out)
    return losses(out)


@pytest.mark.slow
def test_two_machines_equal_one_and_one_that_is_killed_is_made_up_for(tmp_path: Path) -> None:
    """One agent is killed in the middle; both are started again and go on."""
    one = alone(tmp_path / "one", steps=20, scheme="mdlm")
    out, options = tmp_path / "two", {"steps": 20, "scheme": "mdlm", "save_every": 5}
    with agents(*[script(out, **options)] * 2, R2MAE_TEST_WAIT="12") as (first, second):
        while not (out / "checkpoints" / "last.ckpt").exists():
            assert first.poll() is None, first.communicate()
            time.sleep(0.05)
        second.kill()
        began = time.monotonic()
        texts = outputs([first, second])
        assert time.monotonic() - began < 60
        assert first.returncode != 0
    assert len(told("".join(texts))) == 1, texts
    assert "the same command goes on from the last checkpoint" in told("".join(texts))[0]
    assert not (out / "model.json").exists()
    with agents(*[script(out, **options)] * 2) as ones:
        texts = outputs(ones)
        assert [one.returncode for one in ones] == [0, 0], texts
    assert losses(out) == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "line"),
    [
        ({"lr": 0.5}, "r2mae: the processes of this run differ: lr is 0.01 in process 1 of 2"),
        ({"samples": 60}, "r2mae: the processes of this run differ: samples is 100"),
    ],
)
def test_machines_that_are_told_different_things_are_refused(tmp_path: Path, second: dict[str, Any], line: str) -> None:
    with agents(script(tmp_path / "a", steps=9), script(tmp_path / "a", steps=9, **second)) as ones:
        texts = outputs(ones)
        assert all(one.returncode for one in ones)
    assert len(told("".join(texts))) == 1, texts
    assert told("".join(texts))[0].startswith(line)
    assert not (tmp_path / "a" / "config.yaml").exists()


@pytest.mark.slow
def test_machines_without_a_shared_folder_are_refused(tmp_path: Path, wing: ToyWing) -> None:
    """The first has a checkpoint, and the second sees none."""
    with pytest.raises(Interrupted):
        fit(ToyConfig(steps=20, threads=1), wing, tmp_path / "a", reporter=InterruptAt(14))
    with agents(script(tmp_path / "a", steps=20), script(tmp_path / "b", steps=20)) as ones:
        texts = outputs(ones)
    assert len(told("".join(texts))) == 1, texts
    assert "the checkpoint's step is 7 in process 1 of 2 and 0 in process 2 of 2 (rank 1)" in told(texts[0])[0]


@pytest.mark.slow
def test_a_signal_to_one_machine_stops_both_at_the_next_step_with_one_line(tmp_path: Path) -> None:
    with agents(
        *[script(tmp_path, steps=1_000_000, save_every=5)] * 2, R2MAE_TEST_WAIT="never", R2MAE_TEST_PIDS=str(tmp_path)
    ) as ones:
        while not (tmp_path / "checkpoints" / "last.ckpt").exists():
            assert ones[0].poll() is None, ones[0].communicate()
            time.sleep(0.05)
        os.kill(int((tmp_path / ".pid-1").read_text()), signal.SIGTERM)
        texts = outputs(ones)
    assert len(told("".join(texts))) == 1, texts
    assert told("".join(texts))[0].startswith("r2mae: stopping after this step")


@pytest.mark.slow
def test_a_rendezvous_that_nobody_joins_has_an_end(tmp_path: Path) -> None:
    """As a task of SLURM, since torchrun starts no process before all machines have come."""
    more = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", JOIN_TIMEOUT: "2"}
    more |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "SLURM_NTASKS_PER_NODE": "1"}
    line = [sys.executable, *script(tmp_path / "a", steps=5)]
    done = subprocess.run(line, check=False, capture_output=True, text=True, env=environment(**more), timeout=200)
    assert done.returncode != 0
    assert told(done.stderr)[0].startswith(
        "r2mae: only 1 of 2 processes have come within 2 seconds (rank 1 is missing)"
    )
    assert len(told(done.stderr)) == 1
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_synced_batch_statistics_are_those_of_one_process(tmp_path: Path) -> None:
    one = alone(tmp_path / "one", steps=20, norm=True)
    out = tmp_path / "two"
    with agents(*[script(out, steps=20, norm=True, sync_batchnorm=True)] * 2) as ones:
        texts = outputs(ones)
        assert [one.returncode for one in ones] == [0, 0], texts
    assert losses(out) == pytest.approx(one, rel=1e-5)


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
        ours, usual = synced(layer, mine), other(theirs)
        torch.testing.assert_close(ours, usual, rtol=1e-4, atol=1e-5)
        ours.square().mul(torch.arange(3.0).view([1, 3, *[1] * (len(shape) - 2)])).cumsum(0).sum().backward()
        usual.square().mul(torch.arange(3.0).view([1, 3, *[1] * (len(shape) - 2)])).cumsum(0).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(layer.state_dict()[name], value)


def test_models_without_batch_statistics_and_single_processes_have_nothing_to_sync(
    tmp_path: Path, wing: ToyWing
) -> None:
    with pytest.raises(UserError, match="this run has one"):
        ToyConfig(sync_batchnorm=True)
    with pytest.raises(UserError, match="has no batch normalisation: leave --sync-batchnorm out"):
        fit(ToyConfig(sync_batchnorm=True, devices=2, steps=2), wing, tmp_path / "a")
    assert not (tmp_path / "a" / "config.yaml").exists()


def test_processes_of_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--nodes 2 needs torchrun or srun"):
        process_rank(1, 2)
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert process_rank(2, 2) == 3
    with pytest.raises(UserError, match=r"4 processes were started for 2 device.*say --nodes 2 --devices 2"):
        process_rank(2)
    with pytest.raises(UserError, match="2 processes were started on this machine, and --devices says 4"):
        process_rank(4, 1)
    with pytest.raises(UserError, match="does not split among 3 devices on each of 2 machines"):
        ToyConfig(devices=3, nodes=2)


def test_signals_of_many_processes_add_up_to_one() -> None:
    heard = {None: 0, signal.SIGINT: 4095, signal.SIGTERM: 0}
    assert signal_of(sum(mark_of(number) * count for number, count in heard.items())) == signal.SIGINT
    assert signal_of(mark_of(signal.SIGINT) + mark_of(signal.SIGTERM)) == signal.SIGTERM
    assert signal_of(mark_of(None)) is None
