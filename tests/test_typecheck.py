"""Annotations are checked while the tests run: with shapes, without, and of dataclasses."""

from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError

from r2mae.cores import gigabytes
from r2mae.evaluation.metrics import Metric
from r2mae.masking.curriculum import sinkhorn

text: Any = "2"


def wrong_calls() -> None:
    """Call what takes other types and shapes; each call fails by itself where nothing is checked, but differently."""
    for call in (lambda: gigabytes(text), lambda: Metric(1, text), lambda: sinkhorn(torch.ones(2), 1)):  # type: ignore[arg-type]
        with pytest.raises(TypeCheckError):
            call()


def test_what_is_wrong_is_refused() -> None:
    wrong_calls()
    assert gigabytes(3 * 10**9) == "3.0 GB"  # int is float


def test_checks_can_be_switched_off(unchecked: None) -> None:
    assert Metric(1, text).name == 1  # type: ignore[arg-type, comparison-overlap]
