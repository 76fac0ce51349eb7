"""Claims about the estimate: tables that show them, and those that refute them."""

from collections.abc import Callable

import pytest
from paper.tests.claims.judged import Rows, words

from r2mae_paper.claims import Found

MODELS = ("identity", "spiked", "uniform")


def sides(*, fall: float = 0.5, tall: float = 0.0, error: float = 0.002, n: int = 200, up: float = 0.01) -> Rows:
    """Wide data whose bias falls by `fall` a unit of p, and tall data with a bias of at most `tall`; error and change.

    `error` is that of all biases, `up` the rise of the variance.
    """
    rows: Rows = []
    for model in MODELS:
        for p in (0.1, 0.5, 0.9):
            few = 0.0 if model == "identity" else tall * p
            wide = 0.9 - fall * (p - 0.1)
            common = {"model": model, "ratio": p, "draws": 5, "bias_error": error, "variance_error": 1e-4}
            common |= {"variance": 0.1 + up * p, "bias_formula": wide, "bias_whole": wide - 0.1}
            rows += [
                {"side": "d > n", "n": n, "d": 5 * n, "bias": wide, **common},
                {"side": "d < n", "n": 2000, "d": 100, "bias": few, **common},
            ]
    return rows


BIAS = "bias-overparametrised"


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("reproduced", {}),
        ("direction only", {"n": 100}),
        ("undecided", {"error": 0.5}),
        ("not reproduced", {"fall": -0.5}),
    ],
)
def test_the_bias_falls(word: str, given: dict[str, float], judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("bias-variance", {"bias-variance": sides(**given)})[BIAS]  # type: ignore[arg-type]
    assert found.verdict == word, found.reason
    assert found.ours == pytest.approx(max(0.0, 0.8 * given.get("fall", 0.5)))


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("reproduced", {}),
        ("direction only", {"n": 100}),
        ("undecided", {"error": 0.02}),
        ("not reproduced", {"tall": 0.5}),
        ("not reproduced", {"tall": 0.5, "n": 100}),
    ],
)
def test_tall_data_have_no_bias(word: str, given: dict[str, float], judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("bias-variance", {"bias-variance": sides(**given)})["bias-alone"]  # type: ignore[arg-type]
    assert found.verdict == word, found.reason


def test_the_reason_tells_what_was_found(judge: Callable[..., dict[str, Found]]) -> None:
    found = judge("bias-variance", {"bias-variance": sides(tall=0.5)})
    assert "spiked, first at p = 0.1, lowest at p = 0.9; uniform," in found[BIAS].reason
    assert "2 of 2 show it. The weakest is spiked." in found[BIAS].reason
    assert "1 of 3 show it. The weakest is spiked." in found["bias-alone"].reason


def test_one_side_alone_decides_nothing(judge: Callable[..., dict[str, Found]]) -> None:
    one = [row for row in sides() if row["side"] == "d > n"]
    found = judge("bias-variance", {"bias-variance": one})
    assert words(found, BIAS, "bias-alone") == ["reproduced", "not run"]


def estimates(apart: float = 0.0, change: float = 1e-6, n: int = 200) -> Rows:
    common = {"n": n, "d": 5 * n, "pseudo_inverse": 2.0, "range_minus_ratio": apart, "ridge_changes_at_most": 9.0}
    return [
        {"model": model, "ratio": p, "ridge_changes_percent": change * p, **common}
        for model in MODELS
        for p in (0.1, 0.5, 0.9)
    ]


def test_ways_to_one_estimate(judge: Callable[..., dict[str, Found]]) -> None:
    names = ("collapsed-range", "pseudo-inverse")
    assert words(judge("estimators", {"estimators": estimates()}), *names) == ["reproduced", "reproduced"]
    off = judge("estimators", {"estimators": estimates(apart=1e-9, change=5.0)})
    assert words(off, *names) == ["not reproduced", "not reproduced"]
    assert off["pseudo-inverse"].ours == pytest.approx(4.5)
    assert words(judge("estimators", {"estimators": estimates(n=100)}), *names) == ["direction only", "direction only"]
