"""Fig. 1F's transformation: what it fixes, and what it leaves out of account."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.errors import UserError
from r2mae_paper.curves import error_curves

RATIOS = (0.15, 0.3, 0.4, 0.5, 0.8)


def table(**errors: list[float]) -> pd.DataFrame:
    rows = [(task, ratio, 1 - e) for task, curve in errors.items() for ratio, e in zip(RATIOS, curve, strict=True)]
    return pd.DataFrame(rows, columns=["task", "ratio", "accuracy"])


def test_by_hand() -> None:
    # The line through (0.15, 0.20) and (0.3, 0.17) begins at 0.23; the slope from 0.4 to 0.8 is 0.5.
    curves = error_curves(table(a=[0.20, 0.17, 0.2, 0.3, 0.4]))
    np.testing.assert_allclose(curves["intercept"], 0.23)
    np.testing.assert_allclose(curves["factor"], 1.0)
    np.testing.assert_allclose(curves["scaled"], [-0.03, -0.06, -0.03, 0.07, 0.17], atol=1e-12)
    assert list(curves.columns) == ["task", "ratio", "accuracy", "error", "intercept", "factor", "scaled"]


increasing = st.tuples(
    st.lists(st.floats(0.01, 0.4), min_size=3, max_size=3), st.floats(0.01, 0.4), st.floats(0.01, 0.4)
).map(lambda parts: [*parts[0][:2], parts[0][2], parts[1], parts[0][2] + parts[2]])


@given(st.lists(increasing, min_size=1, max_size=4))
def test_all_curves_begin_at_zero_with_a_common_slope(curves: list[list[float]]) -> None:
    made = error_curves(table(**{f"t{i}": curve for i, curve in enumerate(curves)}))
    slopes = [(curve[4] - curve[2]) / 0.4 for curve in curves]
    for _, own in made.groupby("task"):
        y = own["scaled"].to_numpy()
        assert y[0] - (y[1] - y[0]) / 0.15 * 0.15 == pytest.approx(0, abs=1e-9)
        assert (y[4] - y[2]) / 0.4 == pytest.approx(np.mean(slopes))


@given(increasing, st.floats(0.1, 1), st.floats(0, 0.19))
def test_any_shift_and_scale_of_a_task_is_undone(curve: list[float], scale: float, shift: float) -> None:
    other = [scale * error + shift for error in curve]
    made = error_curves(table(one=curve, other=other))
    one, moved = (made.loc[made["task"] == name, "scaled"].to_numpy() for name in ("one", "other"))
    np.testing.assert_allclose(one, moved, rtol=1e-6, atol=1e-9)


def test_rows_in_any_order_and_seeds_are_averaged() -> None:
    curves = table(b=[0.20, 0.17, 0.2, 0.3, 0.4], a=[0.3, 0.2, 0.2, 0.3, 0.5])
    up, down = (curves.assign(accuracy=curves["accuracy"] + change) for change in (0.01, -0.01))
    shuffled = pd.concat([up, down]).sample(frac=1, random_state=0)
    expected, found = error_curves(curves), error_curves(shuffled)
    assert list(expected["task"].unique()) == ["b", "a"]
    for name in ("a", "b"):
        one, other = (part[part["task"] == name].drop(columns="task") for part in (expected, found))
        np.testing.assert_allclose(one, other)


def test_the_table_that_is_given_stays_as_it_is() -> None:
    given_table = table(a=[0.20, 0.17, 0.2, 0.3, 0.4])
    before = given_table.copy()
    error_curves(given_table)
    pd.testing.assert_frame_equal(given_table, before)


FINE = table(a=[0.20, 0.17, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (FINE[FINE["ratio"] != 0.3], r"task 'a' has no accuracy at ratio 0.3 \(it has 0.15, 0.4, 0.5, 0.8\)"),
        (table(a=[0.3, 0.2, 0.4, 0.3, 0.3]), "task 'a': the error does not rise from ratio 0.4 to 0.8"),
        (table(a=[0.3, 0.2, 0.4, 0.3, 0.4]), "task 'a': the error does not rise"),
    ],
)
def test_bad_tables(wrong: pd.DataFrame, message: str) -> None:
    with pytest.raises(UserError, match=message):
        error_curves(wrong)
