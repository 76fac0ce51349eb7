"""The imputer for scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from r2mae.errors import UserError
from r2mae.integrations.sklearn import MaskedAutoencoderImputer

QUICK = {"hidden": 16, "min_steps": 40, "max_epochs": 2}


# The types of the constructor are checked in tests: scikit-learn gives it values of no type on purpose.
_UNTYPED = {"check_do_not_raise_errors_in_init_or_set_params": "types are checked in tests"}


@parametrize_with_checks(
    [MaskedAutoencoderImputer(hidden=4, min_steps=2, max_epochs=1)], expected_failed_checks=lambda _: _UNTYPED
)
def test_it_is_an_estimator_of_scikit_learn(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def table(share: float, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 12)) * np.arange(1, 13) + 5.0
    return whole, np.where(rng.random(whole.shape) < share, np.nan, whole)


def test_it_is_better_than_the_mean() -> None:
    whole, given = table(0.3)
    filled = MaskedAutoencoderImputer(hidden=64, min_steps=196, max_epochs=1, learning_rate=1e-2).fit_transform(given)
    missing, scale = np.isnan(given), whole.std(axis=0)
    error, of_mean = (
        float((((one - whole) / scale)[missing] ** 2).mean()) for one in (filled, SimpleImputer().fit_transform(given))
    )
    assert error < 0.6 * of_mean
    np.testing.assert_array_equal(filled[~missing], given[~missing])


def test_it_is_deterministic_and_leaves_the_global_generator_alone() -> None:
    import torch

    _, given = table(0.5)
    state = torch.random.get_rng_state()
    first = MaskedAutoencoderImputer(**QUICK).fit_transform(given)
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_array_equal(first, MaskedAutoencoderImputer(**QUICK).fit_transform(given))
    assert not np.array_equal(first, MaskedAutoencoderImputer(**QUICK, random_state=1).fit_transform(given))


def test_other_rows_are_filled_and_complete_ones_returned() -> None:
    whole, given = table(0.4)
    imputer = MaskedAutoencoderImputer(**QUICK).fit(given[:300])
    assert np.isfinite(imputer.transform(given[300:])).all()
    np.testing.assert_array_equal(imputer.transform(whole[:5]), whole[:5])


def test_the_best_weights_are_kept() -> None:
    _, given = table(0.3)
    imputer = MaskedAutoencoderImputer(hidden=32, min_steps=0, max_epochs=30).fit(given)
    assert 0 < imputer.validation_error_ < 1.5
    assert imputer.n_epochs_ <= 30
    assert np.isnan(clone(imputer).set_params(max_epochs=1).fit(given[:19]).validation_error_)


def test_it_works_in_a_pipeline() -> None:
    data = load_digits()
    x = np.where(np.random.default_rng(0).random(data.data.shape) < 0.2, np.nan, data.data)
    made = make_pipeline(MaskedAutoencoderImputer(**QUICK), LogisticRegression(max_iter=20, tol=0.1)).fit(
        x, data.target
    )
    assert made.score(x, data.target) > 0.7


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.5), (0.5, 0.4), (0.2, 1.1)])
def test_bad_ranges(low: float, high: float) -> None:
    with pytest.raises(UserError, match="0 <= low <= high <= 1"):
        MaskedAutoencoderImputer(low, high).fit(np.eye(4))


def test_an_empty_column_is_refused() -> None:
    x = np.eye(5)
    x[:, 2] = np.nan
    with pytest.raises(UserError, match="column 2 has no observed entry"):
        MaskedAutoencoderImputer().fit(x)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(UserError, match="batch_size must be 1 or more"):
        MaskedAutoencoderImputer(batch_size=0).fit(np.eye(4))


def test_other_random_states_and_names_of_columns() -> None:
    _, given = table(0.3)
    for state in (None, np.random.RandomState(0)):
        imputer = MaskedAutoencoderImputer(**QUICK, random_state=state).set_output(transform="pandas")
        assert list(imputer.fit_transform(given).columns) == [f"x{number}" for number in range(12)]
