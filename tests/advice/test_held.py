"""What the advice says of itself is what results/ hold: whoever measures again changes held.py with them."""

import csv
from pathlib import Path

import numpy as np
import pytest

from r2mae.advice.held import DEEP, LINEAR, SWEPT, caveat, span

RESULTS = Path(__file__).resolve().parents[2] / "paper" / "results"


def rows(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / path).read_text().splitlines()))


def test_the_figures_of_the_trained_autoencoder() -> None:
    accuracy: dict[float, list[float]] = {}
    for row in rows("mnist/results.csv"):
        if row["scheme"] == "fixed":
            accuracy.setdefault(float(row["ratio"]), []).append(float(row["probe_accuracy"]))
    mean = {ratio: float(np.mean(values)) for ratio, values in accuracy.items()}
    advised = [mean[ratio] for ratio in (0.1, 0.2)]
    best = [mean[ratio] for ratio in mean if DEEP.best[0] <= ratio <= DEEP.best[1]]
    assert (min(advised), max(advised)) == pytest.approx(DEEP.at_advised, abs=5e-4)
    assert best == pytest.approx([DEEP.at_best] * len(best), abs=1e-3)
    assert max(advised) < min(best) - 0.005
    assert max(mean.values()) == max(best)


def test_the_figures_of_linear_regression() -> None:
    cases: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows("theory/realdata/summary.csv"):
        if "all pixels" not in row["data"]:
            key = (row["data"], row["scaling"], row["n"])
            cases.setdefault(key, []).append((float(row["best_ratio_agrees"]), float(row["regret"])))
    assert len(cases) == LINEAR.cases
    assert all(agrees == 1 for pairs in cases.values() for agrees, _ in pairs)
    worst = sorted(max(regret for _, regret in pairs) for pairs in cases.values())
    assert worst[-1] == pytest.approx(LINEAR.worst, abs=5e-4)
    assert worst[-2] == pytest.approx(LINEAR.cost, abs=5e-4)


def test_the_figures_of_the_swept_networks() -> None:
    found = [row for row in rows("randomness/randomness/randomness-rules.csv") if row["rule"].startswith("closed form")]
    by_set = [row for row in found if row["set"] != "all sets"]
    errors = [float(row["regret"]) / 100 for row in by_set if row["score"] == "error"]
    assert len(errors) == SWEPT.sets
    assert sum(float(row["low"]) > 0 for row in by_set if row["score"] == "error") == SWEPT.failed
    assert (min(errors), max(errors)) == pytest.approx(SWEPT.error, abs=5e-4)
    (probe,) = [row for row in found if row["set"] == "all sets" and row["score"] == "probe"]
    assert [float(probe[key]) for key in ("regret", "low", "high")] == pytest.approx(SWEPT.probe, abs=5e-4)


def test_the_caveat_names_its_sources() -> None:
    for source in (DEEP.source, LINEAR.source, SWEPT.source):
        assert source in caveat()
        assert (RESULTS.parent / source / "README.md").is_file()


@pytest.mark.parametrize(
    ("low", "high", "written"),
    [(0.1, 0.19, "0.10 to 0.19"), (0.15, 0.15, "0.15"), (0.1461, 0.1539, "0.15"), (0.149, 0.156, "0.15 to 0.16")],
)
def test_a_span_of_one_number_is_written_as_one(low: float, high: float, written: str) -> None:
    assert span(low, high) == written
