import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy, ortho_group

from r2mae.errors import UserError
from r2mae.evaluation.spectrum import effective_rank


def reference(matrix):
    return entropy(np.linalg.svd(matrix, compute_uv=False))


@pytest.mark.parametrize("shape", [(500, 20), (20, 500), (30, 20), (20, 20), (7, 1)])
def test_is_the_entropy_of_the_singular_values(shape):
    matrix = np.random.default_rng(0).standard_normal(shape) + 0.3
    spectrum = effective_rank(matrix)
    assert spectrum.entropy == pytest.approx(reference(matrix), abs=1e-10)
    assert spectrum.rank == pytest.approx(np.exp(reference(matrix)))


def test_equal_singular_values_have_full_rank():
    basis = ortho_group.rvs(40, random_state=0)
    assert effective_rank(basis).rank == pytest.approx(40)
    assert effective_rank(np.repeat(basis[:, :8], 3, axis=0)).rank == pytest.approx(8)


@pytest.mark.parametrize("smallest", [-4, -9, -14])
def test_long_ill_conditioned_matrices_are_exact_enough(smallest):
    rng = np.random.default_rng(1)
    left, right = np.linalg.qr(rng.standard_normal((3000, 64)))[0], ortho_group.rvs(64, random_state=2)
    matrix = left * np.logspace(0, smallest, 64) @ right
    assert effective_rank(matrix).entropy == pytest.approx(reference(matrix), abs=2e-5)


def test_rank_one():
    assert effective_rank(np.outer(np.arange(1.0, 500.0), np.ones(30))).rank == pytest.approx(1, abs=1e-4)


def test_a_large_mean_is_one_direction():
    assert effective_rank(np.random.default_rng(3).standard_normal((200, 10)) + 100.0).rank < 2


@given(seed=st.integers(0, 2**31), n=st.integers(1, 60), d=st.integers(1, 12), power=st.integers(-150, 150))
def test_scale_and_rotation_do_not_matter(seed, n, d, power):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, d))
    rank = effective_rank(matrix).rank
    assert 1 - 1e-9 <= rank <= min(n, d) + 1e-9
    assert effective_rank(matrix * 10.0**power).rank == pytest.approx(rank, rel=1e-5)
    assert effective_rank(matrix @ np.linalg.qr(rng.standard_normal((d, d)))[0]).rank == pytest.approx(rank, rel=1e-5)


def test_the_features_are_left_as_they_are():
    matrix = np.random.default_rng(4).standard_normal((50, 5))
    before = matrix.copy()
    effective_rank(matrix)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((4, 3)), "all features are zero"),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), "1 of 2 rows of features contain NaN or infinity"),
        (np.zeros((0, 3)), "one row and one feature"),
    ],
)
def test_bad_input(matrix, message):
    with pytest.raises(UserError, match=message):
        effective_rank(matrix)
