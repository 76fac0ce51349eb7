import csv
import warnings
from pathlib import Path

import numpy as np
import pytest

from r2mae.errors import UserError
from r2mae.reproduce.artefact import ARTEFACTS, Tally, compared, get_artefact, paper_ratios, write_table
from r2mae.theory import InterpolationWarning, identity, risk


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_says_what_it_is(name: str) -> None:
    artefact = get_artefact(name)
    assert 10 < len(artefact.TITLE) < 100
    assert artefact.PAPER.endswith((".", "?"))
    assert callable(artefact.run)


def test_a_misspelt_artefact_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'table5'"):
        get_artefact("tabel5")


def test_the_paper_s_ratios() -> None:
    assert paper_ratios().tolist() == [float(f"{0.05 * k:.2f}") for k in range(1, 20)]
    assert set(paper_ratios()) <= set(paper_ratios(0.01))


def test_tables_keep_six_digits_and_leave_cells_empty(tmp_path: Path) -> None:
    rows = [{"a": 1.23456789, "b": np.inf}, {"a": np.float64(0.1), "c": "x"}]
    with write_table(tmp_path, "t", rows).open(newline="") as file:
        assert list(csv.reader(file)) == [["a", "b", "c"], ["1.23457", "", ""], ["0.1", "", "x"]]


def test_progress_is_one_count_over_all_parts() -> None:
    seen = []
    tally = Tally(lambda done, total: seen.append((done, total)), 7)
    simulation, heavier = tally.every(), tally.every(5)
    simulation(1, 2)
    simulation(2, 2)
    heavier(1, 1)
    assert seen == [(1, 7), (2, 7), (7, 7)]


def test_a_comparison_needs_no_warning() -> None:
    beta = np.full(100, 0.1)
    with pytest.warns(InterpolationWarning):
        risk(identity(100), beta, 200, 0.49)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with compared():
            risk(identity(100), beta, 200, 0.49)
