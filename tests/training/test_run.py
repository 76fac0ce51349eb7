"""What a configuration means on this machine: found out once, and before anything is read or written."""

from pathlib import Path
from typing import Any

import pytest
import torch

from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training import run as module
from r2mae.training.loop import fit
from r2mae.training.pretrain import pretrain
from r2mae.training.run import Run

from .conftest import ToyConfig, ToyDomain


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
        ({"threads": 4096}, "cores"),
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

    for name in ("process_rank", "torch_device"):
        monkeypatch.setattr(module, name, counted(name))
    pretrain(ImagesConfig.make(data="digits", steps=3, hidden=8, latent=4, threads=1), DOMAIN, tmp_path)
    assert sorted(calls) == ["process_rank", "torch_device"]
