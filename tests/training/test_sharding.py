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
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.distributed import SHARDS, check_shards
from r2mae.training.loop import fit

from .conftest import ToyConfig, ToyDomain, equal_bytes
from .sharded import begin

SCRIPT = Path(__file__).with_name("sharded.py")
STEPS = 20
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"clip": 1e-3},
    "average, best": {"ema": 0.9, "validation": 0.2, "validate_every": 5, "keep": "best", "schedule": "cosine"},
    "curriculum, accumulation, clipping": {
        "scheme": "r2mae-cl", "cl_warmup": 0, "accumulate": 2, "clip": 0.05, "optimizer": "adamw", "weight_decay": 0.1
    },
    "frozen weights, lars": {"scheme": "r2mae-cl", "cl_warmup": 100, "optimizer": "lars", "lr": 1.0},
    "dropout, momentum": {"dropout": 0.3, "optimizer": "sgd"},
}  # fmt: skip


def run_of(out: Path, strategy: str = "fsdp", **options: Any) -> dict[str, Any]:
    return {"out": str(out), "options": {"steps": STEPS, "devices": 2, "strategy": strategy, **options}}


def train(runs: list[dict[str, Any]], folder: Path, launcher: list[str]) -> "subprocess.CompletedProcess[str]":
    (folder / "runs.json").write_text(json.dumps(runs), encoding="utf-8")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
    line = [*launcher, str(SCRIPT), str(folder / "runs.json")]
    return subprocess.run(line, check=False, capture_output=True, text=True, env=environment, timeout=500)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do all runs with two pairs of processes, which take long to start: one that is killed, and one for the rest."""
    folder = tmp_path_factory.mktemp("sharded")
    killed = {**run_of(folder / "cut", save_every=7), "killed_at": 12}
    done = train([killed], folder, [sys.executable])
    assert done.returncode != 0
    assert (folder / "cut" / "checkpoints" / "last.ckpt").exists(), done.stderr
    assert not (folder / "cut" / "model.json").exists()
    partial = folder / "cut" / "checkpoints" / ".last.00000014.shards.tmp"  # as one that is killed while it saves
    partial.mkdir()
    (partial / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"half")
    fit(ToyConfig.make(steps=STEPS, threads=1, keep_every=10), ToyDomain(), folder / "one")
    runs = [run_of(folder / "uncut", save_every=7), run_of(folder / "cut", save_every=7)]
    for number, options in enumerate(WAYS.values()):
        runs += [run_of(folder / way / str(number), way, keep_every=10, **options) for way in ("ddp", "fsdp")]
        begun = {"begun": str(folder / "fsdp" / str(number)), "step": 10}
        runs.append({**run_of(folder / "again" / str(number), keep_every=10, **options), **begun})
    runs.append({**run_of(folder / "from one"), "begun": str(folder / "one"), "step": 10})
    runs.append({**run_of(folder / "to ddp", "ddp", **WAYS["plain"]), "begun": str(folder / "fsdp" / "0"), "step": 10})
    done = train(runs, folder, TORCHRUN)
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
    names = [entry.name for entry in (folder / "cut" / "checkpoints").iterdir()]
    assert sorted(names) == ["last.00000020.shards", "last.ckpt"]


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


@pytest.mark.slow
def test_shards_that_are_missing_or_truncated_are_refused(folder: Path, tmp_path: Path) -> None:
    begin(folder / "fsdp" / "0", 10, tmp_path)
    config = ToyConfig.make(steps=STEPS, threads=1, **WAYS["plain"])
    path = tmp_path / "checkpoints" / "last.ckpt"
    shards = sorted((path.parent / read_checkpoint(path)[SHARDS]["folder"]).iterdir())
    good = shards[1].read_bytes()
    for bad in (good[:-1], b"", None):
        if bad is None:
            shards[1].unlink()
        else:
            shards[1].write_bytes(bad)
        with pytest.raises(UserError, match=f"{shards[1].name} is missing or truncated; delete last.ckpt"):
            fit(config, ToyDomain(), tmp_path)
    shards[1].write_bytes(good)
    for record in ({"folder": "../elsewhere", "files": {}}, {"folder": "last", "files": {"../a": 1}}, {}, None):
        with pytest.raises(UserError, match="is not a checkpoint of r2mae"):
            check_shards(path, record)
    (path.parent / "last.00000007.shards").mkdir()  # of the checkpoint that the next one replaces
    fit(config, ToyDomain(), tmp_path)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["last.ckpt", shards[0].parent.name]


def test_one_process_has_nothing_to_share() -> None:
    with pytest.raises(UserError, match="for several processes, and this run has one: omit it"):
        ToyConfig.make(strategy="fsdp")
    with pytest.raises(UserError, match="'fsdp' and compile do not go together"):
        ToyConfig.make(strategy="fsdp", devices=2, compile=True)
    with pytest.raises(UserError, match="activation_checkpointing and compile do not go together"):
        ToyConfig.make(activation_checkpointing=True, compile=True)
