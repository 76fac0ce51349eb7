import csv
from pathlib import Path

import numpy as np

from r2mae_paper import simulated
from r2mae_paper.runner import run_study
from r2mae_paper.studies import entry_of
from r2mae_paper.study import get_study


def test_it_writes_both_panels(tmp_path: Path) -> None:
    size = entry_of("fig1a").size(settings=((20, 100), (40, 20)), repetitions=3)
    counted = []
    files = run_study(
        get_study("fig1a"), tmp_path, size=size, progress=lambda done, total: counted.append((done, total))
    ).files
    assert [file.name for file in files] == ["fig1a.csv", "fig1a.png", "fig1a.svg"]
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 19
    by_place = {(row["gamma"], row["ratio"]): row for row in rows}
    # Theorem 1 by hand: 1 − p/γ + p(p + κ)/((1 − p)(γ − p)), and (p + κ)γ/((1 − p)(p − γ))
    assert float(by_place["5.0", "0.5"]["theorem1"]) == 1.02
    assert np.isclose(float(by_place["0.5", "0.75"]["theorem1"]), 0.79 * 0.5 / (0.25 * 0.25))
    assert by_place["0.5", "0.5"]["theorem1"] == ""
    assert counted[-1] == (2, 2)


def test_simulation_follows_theorem_1() -> None:
    rows = simulated.measure_isotropic(200, 1000, 30, 1)
    gap = np.array([row["risk"] / row["theorem1"] - 1 for row in rows if row["ratio"] <= 0.8])
    assert np.abs(gap).max() < 0.06
    assert np.abs(gap.mean()) < 0.02
