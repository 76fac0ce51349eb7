"""The imputers for scikit-learn."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from r2mae.errors import UserError
from r2mae.integrations.sklearn import GaussianImputer, MaskedAutoencoderImputer

QUICK = {"hidden": 16, "max_epochs": 5}
BOTH = [GaussianImputer(), MaskedAutoencoderImputer(**QUICK)]
both = pytest.mark.parametrize("imputer", BOTH, ids=["gaussian", "autoencoder"])

# The types of the constructor are checked in tests: scikit-learn gives it values of no type on purpose.
_UNTYPED = {"check_do_not_raise_errors_in_init_or_set_params": "types are checked in tests"}


@parametrize_with_checks(
    [GaussianImputer(), MaskedAutoencoderImputer(hidden=4, max_epochs=1)], expected_failed_checks=lambda _: _UNTYPED
)
def test_it_is_an_estimator_of_scikit_learn(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def table(share: float, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 12)) * np.arange(1, 13) + 5.0
    return whole, np.where(rng.random(whole.shape) < share, np.nan, whole)


def curves(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    t = rng.uniform(-3, 3, (rows, 1))
    whole = np.hstack([np.sin(t), np.cos(t), t**2, np.abs(t), t]) + 0.05 * rng.normal(size=(rows, 5))
    return whole, np.where(rng.random(whole.shape) < 0.3, np.nan, whole)


def error(filled: np.ndarray, whole: np.ndarray, given: np.ndarray) -> float:
    return float((((filled - whole) / whole.std(axis=0))[np.isnan(given)] ** 2).mean())


@both
def test_linear_relations_are_found(imputer: Any) -> None:
    whole, given = table(0.3)
    filled = clone(imputer).fit_transform(given)
    assert error(filled, whole, given) < 0.01
    np.testing.assert_array_equal(filled[~np.isnan(given)], given[~np.isnan(given)])


@pytest.mark.slow
@pytest.mark.parametrize("masks", ["per-sample", "table-patterns"])
def test_curves_are_for_the_networks(masks: Any) -> None:
    whole, given = curves(300)
    fitted, gaussian = MaskedAutoencoderImputer(masks=masks).fit(given), GaussianImputer().fit(given)
    assert error(fitted.transform(given), whole, given) < 0.8 * error(gaussian.transform(given), whole, given)
    assert fitted.correction_ > 0
    assert fitted.validation_error_ < fitted.gaussian_error_
    whole, fresh = curves(500)
    assert error(fitted.transform(fresh), whole, fresh) < 0.8 * error(gaussian.transform(fresh), whole, fresh)


def test_where_nothing_is_left_it_is_the_gaussian() -> None:
    rng = np.random.default_rng(0)
    given = np.where(rng.random((70, 5)) < 0.3, np.nan, rng.normal(size=(70, 3)) @ rng.normal(size=(3, 5)))
    made = MaskedAutoencoderImputer(max_epochs=20).fit(given)
    assert made.correction_ == 0
    np.testing.assert_allclose(made.transform(given), GaussianImputer().fit_transform(given), rtol=1e-2, atol=0.05)
    few = MaskedAutoencoderImputer().fit(given[:15])
    assert few.networks_ is None
    assert np.isnan(few.validation_error_)


@both
def test_it_is_deterministic_and_leaves_the_global_generators_alone(imputer: Any) -> None:
    _, given = table(0.5, 60)
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    first = clone(imputer).fit_transform(given)
    assert torch.equal(torch_state, torch.random.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002
    for seed in (0, np.int64(0), np.uint8(0), np.random.RandomState(0)):
        np.testing.assert_array_equal(first, clone(imputer).set_params(random_state=seed).fit_transform(given))
    assert np.isfinite(clone(imputer).set_params(random_state=None).fit_transform(given)).all()


@both
def test_a_pickle_fills_in_other_rows(imputer: Any) -> None:
    whole, given = table(0.4)
    fitted = clone(imputer).fit(given[:300])
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(given[300:]), fitted.transform(given[300:]))
    np.testing.assert_array_equal(fitted.transform(whole[:5]), whole[:5])
    assert np.isfinite(fitted.transform(np.full((2, 12), np.nan))).all()


@both
@settings(max_examples=25)
@given(st.data(), st.integers(2, 30), st.integers(1, 4), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_any_table_is_filled_in(imputer: Any, data: Any, n: int, d: int, kind: Any, keep: bool) -> None:
    """Also with empty rows, empty and constant columns: nothing observed changes, and nothing is left."""
    numbers = st.sampled_from([-1e3, -1.5, 0.0, 0.1, 2.0, 7.0, np.nan])
    given = data.draw(arrays.arrays(kind, (n, d), elements=numbers))
    if np.isnan(given).all():
        return
    empty = np.isnan(given).all(axis=0)
    made = clone(imputer).set_params(keep_empty_features=keep, min_value=-1000, max_value=7)
    filled = made.fit_transform(given)
    kept = given[:, ~empty | keep]
    assert filled.dtype == kind and filled.shape == kept.shape == (n, len(made.get_feature_names_out()))
    np.testing.assert_array_equal(filled[~np.isnan(kept)], kept[~np.isnan(kept)])
    assert ((filled >= -1000) & (filled <= 7)).all()
    for column in np.flatnonzero(~empty):
        seen = np.unique(given[:, column][~np.isnan(given[:, column])])
        if len(seen) == 1:
            assert (made.transform(given)[:, (~empty | keep)[:column].sum()] == seen).all(), "a constant column"
    if keep:
        assert (filled[:, empty] == 0).all()


@both
def test_data_frames(imputer: Any) -> None:
    _, given = table(0.3)
    frame = pd.DataFrame(given, columns=[f"c{number}" for number in range(12)], index=np.arange(400)[::-1])
    frame["c3"], frame["whole"], frame["yes"] = np.nan, pd.array([1, None] * 200, dtype="Int64"), [True, False] * 200
    filled = clone(imputer).set_output(transform="pandas").fit_transform(frame)
    assert list(filled.columns) == [name for name in frame.columns if name != "c3"]
    assert (filled.index == frame.index).all() and not filled.isna().any(axis=None)
    assert (filled["whole"] == 1).all()
    frame["word"] = pd.Categorical(["a", "b"] * 200)
    with pytest.raises(UserError, match="columns without numbers: word: leave them out"):
        clone(imputer).fit(frame)


@both
def test_draws_have_the_spread_of_what_is_missing(imputer: Any) -> None:
    whole, given = curves(300)
    means = clone(imputer).fit_transform(given)
    drawn = clone(imputer).set_params(sample_posterior=True)
    several = np.stack([clone(drawn).set_params(random_state=seed).fit_transform(given) for seed in range(4)])
    missing = np.isnan(given)
    spread, wrong = ((one - means)[..., missing].std() for one in (several, whole))
    assert 0.7 * wrong < spread < 1.4 * wrong
    assert (several[:, ~missing] == given[~missing]).all()
    assert (several.std(axis=0)[missing] > 0).all()
    again = [clone(drawn).fit(given) for _ in range(2)]
    calls = [[one.transform(given)[missing] for one in again] for _ in range(2)]
    assert all((one == other).all() for one, other in calls), "fits of one seed"
    assert not (calls[0][0] == calls[1][0]).any(), "calls differ, as those of IterativeImputer"


@both
def test_it_works_in_a_pipeline(imputer: Any) -> None:
    x, y = load_iris(return_X_y=True)
    x = np.where(np.random.default_rng(0).random(x.shape) < 0.2, np.nan, x)
    made = make_pipeline(clone(imputer), LogisticRegression(max_iter=500))
    assert cross_val_score(made, x, y, cv=3).min() > 0.75


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"low": low, "high": high}, "0 <= low <= high <= 1") for low, high in [(-0.1, 0.5), (0.5, 0.4), (0.2, 1.1)]),
        ({"hidden": 0}, "hidden must be 1 or more, not 0"),
        ({"max_epochs": 0}, "max_epochs must be 1 or more, not 0"),
        ({"max_epochs": 1.5}, "max_epochs must be a whole number, not 1.5"),
        ({"device": "nonsense"}, "unknown device 'nonsense'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"masks": "rows"}, "masks must be one of per-sample, table-patterns, not 'rows'"),
        ({"min_value": 2, "max_value": 1}, "min_value is above max_value"),
        ({"max_value": [1.0, 2.0]}, "max_value must be a number, or one for each of the 4 columns"),
    ],
)
def test_options_that_are_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MaskedAutoencoderImputer().set_params(**options).fit(np.eye(4))


def test_whole_numbers_of_any_type_and_tables_whose_columns_have_no_names() -> None:
    class Polars:
        """Its `dtypes` are a list, as those of polars."""

        def __init__(self, values: np.ndarray) -> None:
            self.values, self.shape, self.dtypes = values, values.shape, ["Float64"] * values.shape[1]

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self.values.astype(dtype or float)

    values, _ = table(0.2, 60)
    options: dict[str, Any] = {"max_epochs": 2.0, "hidden": np.float64(8), "device": "auto"}
    found = MaskedAutoencoderImputer().set_params(**options).fit_transform(Polars(values))
    np.testing.assert_array_equal(
        found, MaskedAutoencoderImputer(max_epochs=2, hidden=8, device="auto").fit_transform(values)
    )


@both
def test_a_table_without_numbers_is_refused(imputer: Any) -> None:
    with pytest.raises(UserError, match="no observed entry"):
        clone(imputer).fit(np.full((5, 2), np.nan))


def test_networks_beyond_the_memory_are_refused() -> None:
    with pytest.raises(UserError, match=r"hidden=1,000,000,000 needs about .* give less"):
        MaskedAutoencoderImputer(hidden=10**9).fit(table(0.3)[1])
