"""Frozen losses of short runs: whoever changes them changes every user's results, and says so in the changelog."""

from pathlib import Path

import pandas as pd
import pytest

from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow

# Losses of the first, second and twelfth step on digits, seed 0.
FROZEN = {
    "fixed": [0.1927121, 0.1518564, 0.06543367],
    "dynamic": [0.1936208, 0.1541134, 0.06169837],
    "mdlm": [0.1931425, 0.161883, 0.04981642],
    "r2mae": [0.1926601, 0.1529267, 0.06114488],
    "r2mae-dynamic": [0.1936208, 0.1534994, 0.06422588],
    "cl": [0.1927226, 0.1518787, 0.0818766],
    "cl-k0": [0.1927226, 0.1518787, 0.04652428],
    "r2mae-cl": [0.192412, 0.1529511, 0.06105144],
    "r2mae-cl-k0": [0.192412, 0.1529511, 0.06289999],
}


def losses(out: Path, scheme: str) -> list[float]:
    config = ImagesConfig.make(data="digits", steps=12, scheme=scheme, threads=1, device="cpu", precision="32")
    fit(config, DOMAIN, out)
    column = pd.read_csv(out / "metrics.csv")["loss"]
    return [float(column[step]) for step in (0, 1, 11)]


@pytest.mark.parametrize("scheme", FROZEN)
def test_losses_are_those_of_old(tmp_path: Path, scheme: str) -> None:
    assert losses(tmp_path, scheme) == pytest.approx(FROZEN[scheme], rel=1e-4)
