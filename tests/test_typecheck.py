"""Annotations are checked while the tests run: without shapes, of dataclasses, and with shapes."""

from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError

from r2mae.cores import gigabytes
from r2mae.evaluation.metrics import Metric
from r2mae.masking.curriculum import sinkhorn

number: Any = 1


def test_what_is_wrong_is_refused() -> None:
    assert gigabytes(number), "an int is a float"
    with pytest.raises(TypeCheckError):
        gigabytes(str(number))  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError):
        Metric(number, "accuracy")
    with pytest.raises(TypeCheckError):
        sinkhorn(torch.ones(2), 1)


def test_checks_can_be_switched_off(unchecked: None) -> None:
    assert Metric(number, "accuracy").label == "accuracy"
