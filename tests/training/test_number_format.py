"""Which number format a run has on a device, and what is said of it."""

from pathlib import Path
from typing import Literal

import pytest
import torch

from r2mae import errors
from r2mae.training import number_format
from r2mae.training.loop import fit

from .conftest import ToyConfig, ToyDomain

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
Precision = Literal["auto", "32", "bf16"]


def on(monkeypatch: pytest.MonkeyPatch, *, quick: bool, known: bool) -> None:
    """Be a machine with bf16 instructions or without, and with kernels of oneDNN or without."""
    monkeypatch.setattr(number_format, "has_fast_bf16", lambda device: quick)
    monkeypatch.setattr(number_format, "onednn_takes_bf16", lambda: known)


@pytest.mark.parametrize(
    ("precision", "device", "quick", "known", "compiled", "found", "told"),
    [
        ("bf16", CPU, True, True, False, "bf16", ""),
        ("bf16", CPU, False, False, False, "rounded", "with the results of bf16 up to rounding"),
        ("bf16", CPU, False, False, True, "bf16", "may be slower"),
        ("bf16", CPU, False, True, False, "bf16", "may be slower"),
        ("auto", CPU, True, True, False, "32", ""),
        ("32", CPU, False, False, False, "32", ""),
        ("auto", GPU, True, True, False, "bf16", ""),
        ("auto", GPU, False, True, False, "32", ""),
        ("32", GPU, True, True, False, "32", ""),
        ("bf16", GPU, True, False, False, "bf16", ""),
    ],
)
def test_formats(
    precision: Precision,
    device: torch.device,
    quick: bool,
    known: bool,
    compiled: bool,
    found: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on(monkeypatch, quick=quick, known=known)
    config = ToyConfig(precision=precision, compile=compiled)
    assert number_format.number_format(config, device) == found
    said = number_format.precision_warning(config, device)
    assert told in said
    assert bool(said) == bool(told)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "quick", "told"), [("bf16", False, 1), ("bf16", True, 0), ("32", False, 0)])
def test_a_process_says_once_what_its_processor_lacks(
    precision: Precision,
    quick: bool,
    told: int,
    domain: ToyDomain,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on(monkeypatch, quick=quick, known=quick)
    errors.warn_once.cache_clear()
    for number in range(2):
        fit(ToyConfig(precision=precision, steps=2, device="cpu"), domain, tmp_path / str(number))
    assert caplog.text.count("no bf16 instructions") == told
