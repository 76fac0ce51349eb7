"""Claims about the estimate: tables that show them, and those that refute them."""

from collections.abc import Callable

import pytest
from tests.reproduce.claims.judged import Rows, words

from r2mae.reproduce.claims import Verdict

MODELS = ("identity", "spiked", "uniform")


def sides(*, fall: float = 0.5, tall: float = 0.0, n: int = 200) -> Rows:
    """Wide data whose bias falls by `fall` from p = 0.1 to 0.9, and tall data with a bias of `tall` at most."""
    rows: Rows = []
    for model in MODELS:
        for p in (0.1, 0.5, 0.9):
            size = 0.0 if model == "identity" else 1.0
            error = {"bias_error": 0.002, "variance": 0.01 * p, "variance_error": 1e-4}
            wide, few = 0.9 - fall * (p - 0.1), tall * size * p
            rows += [
                {"side": "d > n", "model": model, "n": n, "d": 5 * n, "ratio": p, "bias": wide, **error},
                {"side": "d < n", "model": model, "n": 2000, "d": 100, "ratio": p, "bias": few, **error},
            ]
    return rows


def test_both_halves_count(judge: Callable[..., dict[str, Verdict]]) -> None:
    name = "bias-overparametrised"
    for word, tall in (("reproduced", 0.0), ("direction only", 0.5)):
        found = judge("bias-variance", {"bias-variance": sides(tall=tall)})[name]
        assert found.verdict == word, found.reason
        assert 0.3 < found.low < found.ours < found.high < 0.5
    rising = judge("bias-variance", {"bias-variance": sides(fall=-0.5)})[name]
    assert rising.verdict == "undecided", "the lowest risk is at the lowest ratio"
    told = judge("bias-variance", {"bias-variance": sides(tall=0.5)})[name].reason
    assert "identity 0 " in told
    assert "spiked 0.45 (p = 0.9)" in told
    assert judge("bias-variance", {"bias-variance": sides(n=100)})[name].verdict == "direction only", "a smaller size"
    one = [row for row in sides() if row["side"] == "d > n"]
    assert judge("bias-variance", {"bias-variance": one})[name].verdict == "not run"


def estimates(apart: float = 0.0, change: float = 1e-6, n: int = 200) -> Rows:
    common = {"n": n, "d": 5 * n, "pseudo_inverse": 2.0, "range_minus_ratio": apart}
    return [
        {"model": model, "ratio": p, "ridge_minus_pseudo_inverse": -change * p, **common}
        for model in MODELS
        for p in (0.1, 0.5, 0.9)
    ]


def test_ways_to_one_estimate(judge: Callable[..., dict[str, Verdict]]) -> None:
    names = ("collapsed-range", "pseudo-inverse")
    assert words(judge("estimators", {"estimators": estimates()}), *names) == ["reproduced", "reproduced"]
    off = judge("estimators", {"estimators": estimates(apart=1e-9, change=0.1)})
    assert words(off, *names) == ["not reproduced", "not reproduced"]
    assert off["pseudo-inverse"].ours == pytest.approx(4.5)
    assert "at p = 0.9" in off["pseudo-inverse"].reason
    assert words(judge("estimators", {"estimators": estimates(n=100)}), *names) == ["direction only", "direction only"]
