"""Which runs have products in bf16, and the refusal where the device has no instructions for them."""

from pathlib import Path

import pytest
import torch

from r2mae.errors import UserError
from r2mae.training import devices
from r2mae.training.devices import uses_bf16
from r2mae.training.loop import fit

from .conftest import ToyConfig, ToyDomain

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


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
    monkeypatch.setattr(devices, "has_fast_bf16", lambda device: fast)
    assert uses_bf16(precision, device) == found


def test_bf16_without_instructions_is_refused_before_anything_is_written(
    tmp_path: Path, domain: ToyDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "has_fast_bf16", lambda device: False)
    with pytest.raises(UserError, match="this processor has no bf16 instructions: give --precision 32, or use a GPU"):
        fit(ToyConfig.make(precision="bf16", device="cpu"), domain, tmp_path / "run")
    assert not (tmp_path / "run").exists()
