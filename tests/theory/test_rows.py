import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.masking import Fixed, Ratio, Uniform
from r2mae.theory import kept_rows
from r2mae.theory.rows import nodes_of, ratios_of


class Given(Ratio):
    def __init__(self, p: list[float], weight: list[float]) -> None:
        self._nodes = np.array(p), np.array(weight)

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        return self._nodes


@given(st.floats(0.01, 0.9), st.floats(0.0, 0.09), st.integers(200, 10_000))
def test_kept_rows_of_a_range_are_those_of_a_density_proportional_to_p(low: float, width: float, n: int) -> None:
    high = low + width
    rows = kept_rows(n, Uniform(low, high))
    assert rows.weight.sum() == pytest.approx(1)
    assert rows.count == pytest.approx(n * (low + high) / 2)
    second, first = (low**2 + low * high + high**2) / 3, (low + high) / 2
    assert rows.weight @ rows.p == pytest.approx(second / first)


def test_a_discrete_distribution() -> None:
    rows = kept_rows(100, Given([0.2, 0.6, 0.0], [0.25, 0.5, 0.25]))
    np.testing.assert_allclose(rows.p, [0.2, 0.6])  # a row of ratio 0 is never kept
    np.testing.assert_allclose(rows.weight, [0.05 / 0.35, 0.3 / 0.35])
    assert rows.count == pytest.approx(35)


def test_a_constant_probability_does_not_reweight() -> None:
    rows = kept_rows(100, Given([0.2, 0.6], [0.25, 0.75]), keep=0.5)
    np.testing.assert_allclose(rows.weight, [0.25, 0.75])
    assert rows.count == 50
    assert kept_rows(100, 0.0, keep=0.5).count == 50  # unmasked rows count then


def test_ratio_zero_keeps_nothing() -> None:
    assert kept_rows(10, 0.0).count == 0


def test_what_is_one_ratio_and_what_a_curve() -> None:
    assert ratios_of(0.5) is None
    assert ratios_of(Uniform(0.1, 0.2)) is None
    assert ratios_of(np.array([0.1, 0.2])) == [0.1, 0.2]
    both = ratios_of([0.1, Fixed(0.3)])
    assert both is not None
    assert both[1] == Fixed(0.3)


@pytest.mark.parametrize(
    ("n", "ratio", "message"),
    [
        (1, 0.5, "n must be at least 2"),
        (10, 1.0, r"ratio must be at least 0 and below 1, not 1"),
        (10, -0.1, r"ratio must be .*, not -0\.1"),
        (10, float("nan"), "ratio must be .*, not nan"),
        (10, Uniform(0.5, 1.0), None),
        (10, Given([0.5, 1.5], [0.5, 0.5]), r"ratio must be .*, not 1\.5"),
        (10, Given([0.5], [0.5]), "ratio: the weights"),
        (10, Given([0.5, 0.6], [1.5, -0.5]), "ratio: the weights"),
        (10, Given([0.5, 0.6], [1.0]), "ratio: nodes"),
        (10, 0.05, r"ratio: too few kept rows: n·p = 0\.5"),
        (10, Uniform(0.0, 0.1), "ratio: too few kept rows"),
    ],
)
def test_bad_input(n: int, ratio: object, message: str | None) -> None:
    if message is None:
        assert nodes_of(ratio)[0].max() < 1  # type: ignore[arg-type]
        return
    with pytest.raises(ValueError, match=message):
        kept_rows(n, ratio)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [0.0, 1.5, "rows"])
def test_bad_keep(keep: object, unchecked: None) -> None:
    with pytest.raises(ValueError, match="keep must be"):
        kept_rows(10, 0.5, keep)  # type: ignore[arg-type]
