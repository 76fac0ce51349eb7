import re
import warnings

import numpy as np
import pytest

from r2mae.errors import UserError
from r2mae.theory import InterpolationWarning, identity, risk
from r2mae_paper.studies import ENTRIES
from r2mae_paper.study import compared, get_study, paper_ratios

NAMES = list(dict.fromkeys(entry.name for entry in ENTRIES.values()))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("fig1f", "fig2c")])
def test_parts_have_names_of_files(name: str) -> None:
    study = get_study(name)
    if study.parts is None:
        return
    for scale in ("small", "full"):
        parts = study.parts(study.entry.size(scale))
        assert parts
        assert all(re.fullmatch(r"[\w.-]+", one, re.ASCII) for one in parts)
    assert study.entry.size("small") != study.entry.size("full")


@pytest.mark.parametrize("name", NAMES)
def test_the_smoke_scale_is_of_training_runs(name: str) -> None:
    study = get_study(name)
    if study.gather is not None:
        assert study.entry.size("smoke") == study.entry.size("full"), "tables of any scale"
    elif study.runs is None:
        with pytest.raises(UserError, match="the small scale takes seconds"):
            study.entry.size("smoke")
    else:
        smoke, small, full = (study.entry.size(scale) for scale in ("smoke", "small", "full"))
        assert smoke != small != full != smoke


def test_the_paper_s_ratios() -> None:
    assert paper_ratios().tolist() == [float(f"{0.05 * k:.2f}") for k in range(1, 20)]
    assert set(paper_ratios()) <= set(paper_ratios(0.01))


def test_a_comparison_needs_no_warning() -> None:
    beta = np.full(100, 0.1)
    with pytest.warns(InterpolationWarning):
        risk(identity(100), beta, 200, 0.49)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with compared():
            risk(identity(100), beta, 200, 0.49)
