"""What a configuration means on this machine: found out once, and before anything is read or written."""

from pathlib import Path
from typing import Any

import pytest
import torch

from r2mae.environment import sum_dtype
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training import run as module
from r2mae.training.loop import fit
from r2mae.training.pretraining import pretrain
from r2mae.training.run import Run, torch_device, uses_bf16

from .conftest import ToyConfig, ToyDomain

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class Unread(ToyDomain):
    """A domain whose data must not be touched."""

    def load(self, config: ToyConfig) -> Any:
        raise AssertionError

    def fingerprint(self, config: ToyConfig) -> str:
        raise AssertionError


def test_what_is_resolved(domain: ToyDomain) -> None:
    config = ToyConfig.make(scheme="r2mae", high=0.6, device="cpu", seed=4)
    run = Run.resolve(config, domain)
    assert run.config is config
    assert (run.device, run.rank) == (torch.device("cpu"), 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"scheme": "dynamc"}, "dynamc"),
        ({"scheme": "fixed", "per": "sample"}, "per"),
        ({"device": "tpu"}, "device"),
        ({"devices": 5}, "2 processes were started, 2 of them here, for 5"),
    ],
)
def test_mistakes_are_found_before_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: str
) -> None:
    if "devices" in options:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=told):
        fit(ToyConfig.make(**options), Unread(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_fingerprint_is_taken_once_and_only_when_it_is_asked_for() -> None:
    class Counting(ToyDomain):
        taken = 0

        def fingerprint(self, config: ToyConfig) -> str:
            self.taken += 1
            return super().fingerprint(config)

    domain = Counting()
    run = Run.resolve(ToyConfig.make(), domain)
    assert domain.taken == 0
    assert run.fingerprint == run.fingerprint
    assert domain.taken == 1


@pytest.mark.slow
def test_a_run_that_is_trained_and_measured_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> Any:
        original = getattr(module, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return original(*arguments)

        return call

    for name in ("process_rank", "check_logger"):
        monkeypatch.setattr(module, name, counted(name))
    pretrain(ImagesConfig.make(data="digits", steps=3, hidden=8, latent=4, threads=1), DOMAIN, tmp_path)
    assert sorted(calls) == ["check_logger", "process_rank"]


@pytest.mark.parametrize(
    ("precision", "device", "fast", "found"),
    [
        ("bf16", CPU, True, True),
        ("auto", CPU, True, False),
        ("32", CPU, False, False),
        ("auto", GPU, True, True),
        ("auto", GPU, False, False),
        ("32", GPU, True, False),
    ],
)
def test_formats(
    precision: str, device: torch.device, fast: bool, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_fast_bf16", lambda device: fast)
    assert uses_bf16(precision, device) == found


def test_bf16_without_instructions_is_refused_before_anything_is_written(
    tmp_path: Path, domain: ToyDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_fast_bf16", lambda device: False)
    with pytest.raises(UserError, match="this processor has no bf16 instructions: give --precision 32, or use a GPU"):
        fit(ToyConfig.make(precision="bf16", device="cpu"), domain, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_apples_gpu_is_chosen_by_name(domain: ToyDomain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert torch_device("mps") == torch.device("mps")
    assert torch_device("auto").type in ("cpu", "cuda"), "only by name"
    run = Run.resolve(ToyConfig.make(device="mps"), domain)
    assert (run.device.type, run.bf16) == ("mps", False)
    assert sum_dtype(run.device) == torch.float32, "it has no 64-bit floats"
    with pytest.raises(UserError, match="give --precision 32 with --device mps"):
        Run.resolve(ToyConfig.make(device="mps", precision="bf16"), domain)
    with pytest.raises(UserError, match="--device mps is one device"):
        Run.resolve(ToyConfig.make(device="mps", devices=2), domain, single_process=True)
    with pytest.raises(UserError, match="unknown device 'mps:1'"):
        torch_device("mps:1")


def test_a_machine_without_apples_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match="this machine has no device 'mps'"):
        torch_device("mps")
