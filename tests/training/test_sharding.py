"""Two processes that each hold a part of the model do what two do that hold the whole of it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from r2mae.errors import UserError
from r2mae.training.loop import fit

from .conftest import ToyConfig, ToyDomain, equal_bytes
from .ddp import begin

SCRIPT = Path(__file__).with_name("ddp.py")
STEPS = 20
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"clip": 1e-3},
    "average, best": {"ema": 0.9, "validation": 0.2, "validate_every": 5, "keep": "best", "schedule": "cosine"},
    "curriculum, accumulation, clipping": {
        "scheme": "r2mae-cl", "cl_warmup": 0, "accumulate": 2, "clip": 0.05, "optimizer": "adamw", "weight_decay": 0.1
    },
    "frozen weights": {"scheme": "r2mae-cl", "cl_warmup": 1},
    "dropout, momentum": {"dropout": 0.3, "optimizer": "sgd"},
}  # fmt: skip


def run_of(out: Path, strategy: str = "fsdp", **options: Any) -> list[str]:
    return [str(out), json.dumps({"steps": STEPS, "devices": 2, "strategy": strategy, **options})]


def train(words: list[str], launcher: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
    line = [*launcher, str(SCRIPT), *words]
    return subprocess.run(line, check=False, capture_output=True, text=True, env=environment, timeout=500)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do all runs with two pairs of processes, which take long to start: one that is killed, and one for the rest."""
    folder = tmp_path_factory.mktemp("sharded")
    done = train(run_of(folder / "cut", save_every=7, killed_at=12), [sys.executable])
    assert done.returncode != 0
    assert (folder / "cut" / "checkpoints" / "last.ckpt").exists(), done.stderr
    assert not (folder / "cut" / "model.json").exists()
    (folder / "cut" / "checkpoints" / ".last.ckpt.abc.tmp").write_bytes(b"half")  # as one that is killed while it saves
    fit(ToyConfig.make(steps=STEPS, threads=1, keep_every=10), ToyDomain(), folder / "one")
    runs = run_of(folder / "uncut", save_every=7) + run_of(folder / "cut", save_every=7)
    for number, options in enumerate(WAYS.values()):
        for way in ("ddp", "fsdp"):
            runs += run_of(folder / way / str(number), way, keep_every=10, **options)
        begun = {"begun": str(folder / "fsdp" / str(number)), "at": 10}
        runs += run_of(folder / "again" / str(number), keep_every=10, **options, **begun)
    runs += run_of(folder / "from one", begun=str(folder / "one"), at=10)
    runs += run_of(folder / "to ddp", "ddp", **WAYS["plain"], begun=str(folder / "fsdp" / "0"), at=10)
    done = train(runs, TORCHRUN)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return folder


def losses(out: Path) -> Any:
    return pd.read_csv(out / "metrics.csv")["loss"].to_numpy()


def same(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(WAYS)), ids=list(WAYS))
def test_shards_equal_complete_models_and_a_resumed_run_has_the_same_bytes(
    folder: Path, number: int, weights_of: Callable[[Path], dict[str, Tensor]]
) -> None:
    ddp, fsdp, again = (folder / way / str(number) for way in ("ddp", "fsdp", "again"))
    same(weights_of(ddp), weights_of(fsdp))
    assert losses(fsdp) == pytest.approx(losses(ddp), rel=1e-5)
    assert equal_bytes(fsdp, again)


@pytest.mark.slow
def test_a_killed_run_resumes_from_the_last_complete_checkpoint(folder: Path) -> None:
    assert equal_bytes(folder / "cut", folder / "uncut")
    assert [entry.name for entry in (folder / "cut" / "checkpoints").iterdir()] == ["last.ckpt"]


@pytest.mark.slow
def test_other_numbers_of_processes_and_ways_go_on(
    folder: Path, tmp_path: Path, weights_of: Callable[[Path], dict[str, Tensor]]
) -> None:
    """One process to shards, shards to two whole models, and shards to one process, each at step 10."""
    one = weights_of(folder / "one")
    same(one, weights_of(folder / "from one"), 1e-4)
    same(weights_of(folder / "fsdp" / "0"), weights_of(folder / "to ddp"), 1e-4)
    begin(folder / "fsdp" / "1", 10, tmp_path)
    fit(ToyConfig.make(steps=STEPS, threads=1, **WAYS["average, best"]), ToyDomain(), tmp_path)
    same(weights_of(folder / "fsdp" / "1"), weights_of(tmp_path), 1e-4)
    for name, first in (("from one", "one"), ("to ddp", "fsdp/0")):
        ratios = [pd.read_csv(folder / path / "metrics.csv")["ratio"].tolist() for path in (name, first)]
        assert ratios[0] == ratios[1]


@pytest.mark.slow
def test_a_checkpoint_at_the_last_step_is_made_a_model_by_one_process(
    folder: Path, tmp_path: Path, weights_of: Callable[[Path], dict[str, Tensor]]
) -> None:
    shutil.copytree(folder / "uncut", tmp_path / "a", ignore=shutil.ignore_patterns("model.*"))
    fit(ToyConfig.make(steps=STEPS, threads=1), ToyDomain(), tmp_path / "a")
    same(weights_of(folder / "uncut"), weights_of(tmp_path / "a"), 0.0)


def test_one_process_has_nothing_to_share() -> None:
    with pytest.raises(UserError, match="for several processes, and this run has one: omit it"):
        ToyConfig.make(strategy="fsdp")
    with pytest.raises(UserError, match="'fsdp' and compile do not go together"):
        ToyConfig.make(strategy="fsdp", devices=2, compile=True)
