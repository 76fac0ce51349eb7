import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.masking import Uniform
from r2mae.theory.ranges import Range

ends = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


@given(ends, st.integers(0, 17))
def test_nodes_integrate_polynomials_over_the_range(pair: list[float], degree: int) -> None:
    low, high = pair
    p, weight = Range(low, high).nodes()
    exact = (
        low**degree if high - low < 1e-9 else (high ** (degree + 1) - low ** (degree + 1)) / (degree + 1) / (high - low)
    )
    assert weight @ p**degree == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_it_is_the_uniform_ratio_of_masking() -> None:
    np.testing.assert_allclose(Range(0.3, 0.6).nodes(), Uniform(0.3, 0.6).nodes())


@given(ends, st.floats(0, 1))
def test_quantiles_lie_in_the_range(pair: list[float], u: float) -> None:
    low, high = pair
    assert low - 1e-12 <= Range(low, high).quantile(np.array([u]))[0] <= high + 1e-12


@pytest.mark.parametrize("pair", [(0.5, 0.4), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5)])
def test_what_is_no_range_is_refused(pair: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="low <= high"):
        Range(*pair)
