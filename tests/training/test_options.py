"""Options that people expect: the best weights, kept checkpoints, trackers, compilation, loading by folder."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from r2mae import load
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.checkpoint import read_checkpoint
from r2mae.training.folder import RunFolder
from r2mae.training.loop import fit
from r2mae.training.saving import load_weights, save_weights

from .conftest import InterruptAt, Interrupted, ToyConfig, ToyDomain, equal_bytes

pytestmark = pytest.mark.slow

Weights = Callable[[Path], dict[str, torch.Tensor]]


def test_the_best_weights_are_kept(tmp_path: Path, domain: ToyDomain, weights_of: Weights) -> None:
    options = {"steps": 60, "validation": 0.2, "validate_every": 5, "lr": 0.2}
    fit(ToyConfig.make(**options, keep="best"), domain, tmp_path / "best")
    losses = pd.read_csv(tmp_path / "best" / "metrics.csv").dropna()
    best = int(losses["step"].iloc[losses["validation_loss"].argmin()])
    assert best < 60
    fit(ToyConfig.make(**{**options, "steps": best}), domain, tmp_path / "short")
    for name, value in weights_of(tmp_path / "short").items():
        assert torch.equal(weights_of(tmp_path / "best")[name], value)
    with pytest.raises(Interrupted):
        fit(ToyConfig.make(**options, keep="best"), domain, tmp_path / "cut", reporter=InterruptAt(best + 5))
    fit(ToyConfig.make(**options, keep="best"), domain, tmp_path / "cut")
    assert equal_bytes(tmp_path / "best", tmp_path / "cut")
    with pytest.raises(UserError, match="needs a validation loss"):
        ToyConfig.make(keep="best")


def test_checkpoints_are_kept_every_n_steps(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ToyConfig.make(steps=20, keep_every=6), domain, tmp_path)
    kept = sorted(path.name for path in RunFolder(tmp_path).checkpoint.parent.glob("step-*.ckpt"))
    assert kept == ["step-00000006.ckpt", "step-00000012.ckpt", "step-00000018.ckpt"]
    assert read_checkpoint(RunFolder(tmp_path).checkpoint.with_name(kept[1]))["r2mae_step"] == 12


def test_tensorboard_hears_of_the_metrics(tmp_path: Path, domain: ToyDomain) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(ToyConfig.make(steps=120, logger="tensorboard"), domain, tmp_path / "a")
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    told = {event.step: event.value for event in events.Scalars("loss")}
    metrics = pd.read_csv(tmp_path / "a" / "metrics.csv").set_index("step")["loss"]
    assert {50, 100, 120} <= told.keys()
    assert all(value == pytest.approx(metrics[step], rel=1e-6) for step, value in told.items())
    fit(ToyConfig.make(steps=120), domain, tmp_path / "b")
    assert equal_bytes(tmp_path / "a", tmp_path / "b")


@pytest.mark.usefixtures("no_trackers")
@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, domain: ToyDomain, name: str) -> None:
    with pytest.raises(UserError, match=rf"'{name}' needs the package {name}, .* install {name}, or omit --logger$"):
        fit(ToyConfig.make(steps=3, logger=name), domain, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_has_the_losses_of_a_plain_one(tmp_path: Path, domain: ToyDomain) -> None:
    for compiled in (False, True):
        fit(ToyConfig.make(steps=12, compile=compiled, threads=1), domain, tmp_path / str(compiled))
    plain, fast = (pd.read_csv(tmp_path / str(c) / "metrics.csv")["loss"] for c in (False, True))
    assert fast.to_numpy() == pytest.approx(plain.to_numpy(), rel=1e-4)


def test_another_version_of_the_library_reads_the_model(tmp_path: Path) -> None:
    fit(ImagesConfig.make(data="digits", steps=3, hidden=8, latent=4, threads=1), DOMAIN, tmp_path / "a")
    expected = load(tmp_path / "a").model.state_dict()
    file = tmp_path / "a" / "model.json"
    description = json.loads(file.read_text())
    file.write_text(json.dumps({**description, "r2mae": "7.3.0", "licence": "a field of a later version"}))
    code = "import sys, torch; from r2mae import load\ntorch.save(load(sys.argv[1]).model.state_dict(), sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "w.pt")], check=True)
    there = torch.load(tmp_path / "w.pt", weights_only=True)
    assert all(torch.equal(there[name], value) for name, value in expected.items())
    file.write_text(json.dumps({**description, "r2mae": "7.3.0", "format": 3}))
    with pytest.raises(
        UserError, match=r"has format 3, and this version reads 1: it was written by another version \(r2mae 7\.3\.0\)"
    ):
        load(tmp_path / "a")


def test_tied_weights_survive(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False)
            self.head.weight = self.embedding.weight

    first, second = Tied(), Tied()
    save_weights(tmp_path / "w.safetensors", first)
    load_weights(tmp_path / "w.safetensors", second.load_state_dict)
    assert torch.equal(second.embedding.weight, first.embedding.weight)
    assert second.head.weight is second.embedding.weight


def test_a_run_loads_by_its_folder(tmp_path: Path, domain: ToyDomain) -> None:
    fit(ImagesConfig.make(data="digits", steps=3, hidden=8, latent=4, threads=1), DOMAIN, tmp_path / "a")
    loaded = load(tmp_path / "a")
    assert loaded.embed(torch.zeros(5, 64, dtype=torch.uint8)).shape == (5, 4)
    assert loaded.config.data.source == "digits"
    fit(ToyConfig.make(steps=3), domain, tmp_path / "b")
    with pytest.raises(UserError, match="names no domain of this version"):
        load(tmp_path / "b")
