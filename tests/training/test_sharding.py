"""Two processes that each hold a part of the model do what two do that hold the whole of it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from r2mae.errors import UserError
from r2mae.training.checkpoint import STEP, read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit
from r2mae.training.shards import SHARDS, whole

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyWing, equal_bytes

SCRIPT = Path(__file__).with_name("sharded.py")
STEPS = 20
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29733"]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"clip": 1e-3},
    "average, best": {"ema": 0.9, "validation": 0.2, "validate_every": 5, "keep": "best", "schedule": "cosine"},
    "curriculum, accumulation, clipping": {
        "scheme": "r2mae-cl", "cl_warmup": 0, "accumulate": 2, "clip": 0.05, "optimizer": "adamw", "weight_decay": 0.1
    },
    "frozen weights, lars": {"scheme": "r2mae-cl", "cl_warmup": 100, "optimizer": "lars", "lr": 1.0, "weight_decay": 0.01},
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
    """Do all runs with two pairs of processes, which take long to start: one that is killed, and one for all the rest."""
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "killed").mkdir()
    killed = {**run_of(folder / "cut", save_every=7), "killed_at": 12}
    done = train([killed], folder / "killed", [sys.executable])
    assert done.returncode != 0
    assert (folder / "cut" / "checkpoints" / "last.ckpt").exists(), done.stderr
    assert not (folder / "cut" / "model.json").exists()
    fit(ToyConfig(steps=STEPS, threads=1, keep_every=10), ToyWing(), folder / "one")
    runs = [run_of(folder / strategy / str(n), strategy, keep_every=10, **options)
            for n, options in enumerate(WAYS.values()) for strategy in ("ddp", "fsdp")]  # fmt: skip
    runs += [run_of(folder / "uncut", save_every=7), run_of(folder / "cut", save_every=7)]
    for n, options in enumerate(WAYS.values()):
        begun = {"begun": str(folder / "fsdp" / str(n)), "step": 10}
        runs.append({**run_of(folder / "again" / str(n), keep_every=10, **options), **begun})
    runs.append({**run_of(folder / "one to two"), "begun": str(folder / "one"), "step": 10})
    runs.append(
        {**run_of(folder / "fsdp to ddp", "ddp", **WAYS["plain"]), "begun": str(folder / "fsdp" / "0"), "step": 10}
    )
    done = train(runs, folder, TORCHRUN)
    assert done.returncode == 0, done.stderr
    return folder
