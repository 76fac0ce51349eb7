"""Examples of several runs: data are read once for those that read the same."""

from pathlib import Path

import numpy as np
import pytest

from r2mae.compare.gather import examples_of
from r2mae.compare.runs import SweepRun, Variant
from r2mae.errors import UserError
from r2mae.images import ImagesConfig
from r2mae.images.domain import DOMAIN, ImagesDomain
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow


class Counting(ImagesDomain):
    """The domain, which counts how often it reads."""

    def __init__(self) -> None:
        self.reads = 0

    def load(self, config: ImagesConfig) -> object:  # type: ignore[override]
        self.reads += 1
        return super().load(config)


def test_data_are_read_once_for_runs_of_one_division(tmp_path: Path) -> None:
    base = ImagesConfig.make(data="digits", hidden=8, latent=4, steps=2, threads=1, device="cpu")
    configs = [base, base.replace(scheme="mdlm"), base.replace(seed=1)]
    runs = [SweepRun(Variant(str(i), one), one.seed, one, tmp_path / str(i)) for i, one in enumerate(configs)]
    for run in runs:
        fit(run.config, DOMAIN, run.folder)
    domain = Counting()
    found = examples_of(runs[:2], domain)
    assert domain.reads == 1
    assert found is not None
    assert list(found) == ["0", "1"]
    assert np.array_equal(found["0"].original, found["1"].original)
    assert np.array_equal(found["0"].masked, found["1"].masked)
    assert not np.array_equal(found["0"].prediction, found["1"].prediction)
    with pytest.raises(UserError, match="0 and 2 have different test images"):  # another division
        examples_of(runs, domain)
    assert {one.ratio for one in found.values()} == {0.7}
    half = examples_of(runs[:1], domain, ratio=0.5)
    assert half is not None
    assert half["0"].ratio == 0.5
    domain.has_examples = False
    assert examples_of(runs, domain) is None
