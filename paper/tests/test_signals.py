import numpy as np
import pytest

from r2mae.theory import Covariance, beta_spectrum, identity, latent, spiked, uniform_direction
from r2mae_paper.study import eigen_signals, random_signals


@pytest.mark.parametrize(
    "cov",
    [identity(200), spiked(10.0, uniform_direction(200)), latent(200, q=20), latent(200), beta_spectrum(200)],
    ids=["identity", "spiked", "thin", "latent", "Beta"],
)
def test_eigenvectors_at_places_of_the_spectrum(cov: Covariance) -> None:
    places = [0, 20, 150, 199]
    found = eigen_signals(cov, places, seed=3)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1.0)
    np.testing.assert_allclose(cov.apply(found), found * cov.eigenvalues[places], atol=1e-9)
    assert (1 / (found**4).sum(axis=0) > 20).all(), "spread over many features, within the bulk too"


def test_random_signals_are_unit_and_keyed() -> None:
    drawn = random_signals(50, 4, seed=1)
    np.testing.assert_allclose((drawn**2).sum(axis=0), 1.0)
    assert np.array_equal(drawn, random_signals(50, 4, seed=1))
    assert abs(drawn.T @ drawn - np.eye(4)).max() < 0.6
