import re
import warnings

import numpy as np
import pytest

from r2mae.errors import UserError
from r2mae.theory import InterpolationWarning, identity, risk
from r2mae_paper.artefact import Computed, OfRuns, OfTables, Size, Tally, compared, get_artefact, paper_ratios
from r2mae_paper.targets import ARTEFACTS

COMPUTED = [name for name in ARTEFACTS if isinstance(get_artefact(name), Computed)]


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_says_what_it_is(name: str) -> None:
    artefact = get_artefact(name)
    assert 10 < len(artefact.TITLE) < 100
    assert artefact.PAPER.endswith((".", "?"))
    assert sum(isinstance(artefact, kind) for kind in (Computed, OfRuns, OfTables)) == 1


@pytest.mark.parametrize("name", [name for name in COMPUTED if name not in ("fig1f", "fig2c")])
def test_every_computation_has_parts_of_names_of_their_own(name: str) -> None:
    artefact = get_artefact(name)
    assert isinstance(artefact, Computed)
    names = {}
    for scale in ("small", "full"):
        size = artefact.SIZE.of(scale)
        assert isinstance(size, Size)
        names[scale] = [part.name for part in artefact.parts(size)]
        assert len(set(names[scale])) == len(names[scale])
        assert all(re.fullmatch(r"[\w.-]+", one, re.ASCII) for one in names[scale])
    assert artefact.SIZE.of("small") != artefact.SIZE.of("full")


def test_the_smoke_scale_is_of_training_runs() -> None:
    for name in ARTEFACTS:
        size = get_artefact(name).SIZE
        if isinstance(get_artefact(name), OfTables):
            assert size.of("smoke") == size.of("full"), "tables of any scale"
        elif not isinstance(get_artefact(name), OfRuns):
            with pytest.raises(UserError, match="the small scale takes seconds"):
                size.of("smoke")
        else:
            smoke, small, full = (size.of(scale) for scale in ("smoke", "small", "full"))
            assert smoke != small != full != smoke


def test_a_misspelt_artefact_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'table5'"):
        get_artefact("tabel5")


def test_the_paper_s_ratios() -> None:
    assert paper_ratios().tolist() == [float(f"{0.05 * k:.2f}") for k in range(1, 20)]
    assert set(paper_ratios()) <= set(paper_ratios(0.01))


def test_progress_is_one_count_over_all_parts() -> None:
    seen = []
    tally = Tally(lambda done, total: seen.append((done, total)), 7)
    simulation, heavier = tally.every(), tally.every(5)
    simulation(1, 2)
    simulation(2, 2)
    heavier(1, 1)
    assert seen == [(1, 7), (2, 7), (7, 7)]
    tally.reach(7)
    assert len(seen) == 3


def test_a_comparison_needs_no_warning() -> None:
    beta = np.full(100, 0.1)
    with pytest.warns(InterpolationWarning):
        risk(identity(100), beta, 200, 0.49)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with compared():
            risk(identity(100), beta, 200, 0.49)
