"""The registry of baselines."""

from typing import Any

import pytest

from r2mae.domains import baselines
from r2mae.domains.baselines import baseline, known_baselines
from r2mae.errors import UserError


def test_a_function_that_is_defined_again_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as in a cell of a notebook that runs twice; another function does not."""
    monkeypatch.setattr(baselines, "_REGISTRY", dict(baselines._REGISTRY))
    for number in (1.0, 2.0):

        @baseline("again", "images", gives=("filling",), help=f"{number}")
        def again(*given: Any, number: float = number, **options: Any) -> dict[str, float]:
            return {"masked_mse": number}

    assert known_baselines("images")["again"].score(None, None, None) == {"masked_mse": 2.0}
    for name, domain in (("again", "images"), ("mean", "images"), ("untrained", "images")):
        with pytest.raises(UserError, match="there is already a baseline called"):
            baseline(name, domain, gives=("filling",), help="")(lambda *given, **options: {})
