"""Cells at two widths: the runs, what gains are made of them, and the whole in small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from r2mae_paper import cell_tables
from r2mae_paper.runner import Reproduced
from r2mae_paper.studies import entry_of

SETS = ("csle", "pig-airway", "onek1k")
GAIN = {"small": 0.01, "paper": 0.03}


def results(seeds: int = 5) -> pd.DataFrame:
    """Runs in which r2mae is ahead of all others by 0.01 at the small width, and by 0.03 at the paper's."""
    rng = np.random.default_rng(0)
    lines: list[dict[str, Any]] = []
    for name in SETS:
        for width, gain in GAIN.items():
            for row in entry_of("cells-width").size().rows:
                for seed in range(seeds):
                    mean = 0.7 + gain * (row == "r2mae") + 0.002 * (row == "fixed 0.25")
                    score = mean + 1e-4 * rng.normal()
                    labels = {"set": name, "label": f"{width} {row}", "width": width, "row": row, "scheme": row}
                    lines.append({**labels, "seed": seed, "seconds": 1.0, "score": score, "reconstruction_r": score})
    return pd.DataFrame(lines)


def test_every_row_has_both_widths_and_the_papers_is_the_papers(tmp_path: Path) -> None:
    planned = cell_tables.runs_of_widths(entry_of("cells-width").size("small"), tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 6 * 2 * 6 * 5
    widths = {
        str(run.variant.values["width"]): (run.config.model.n_hidden, run.config.model.n_latent) for run in planned
    }
    assert widths == {"small": (256, 64), "paper": (2000, 1000)}
    assert {run.config.data.auroc_labels for run in planned if run.config.data.source == "csle"} == {("condition",)}
    assert {run.config.data.auroc_labels for run in planned if run.config.data.source == "onek1k"} == {()}
    assert {(run.config.optimizer.steps, run.config.optimizer.precision) for run in planned} == {(1000, "bf16")}


def test_gains_are_of_each_width_and_so_is_their_difference() -> None:
    tables = cell_tables.table_of_widths(results())
    pooled = {(row["width"], row["label"], row["against"]): row for row in tables["cells-width-pooled"]
              if row["score"] == "score"}  # fmt: skip
    for width, gain in GAIN.items():
        row = pooled[width, "r2mae", "best_fixed"]
        assert row["gain"] == pytest.approx(gain - 0.002, abs=2e-4)
        assert (row["sets"], row["is"]) == (3, "better")
    assert pooled["difference", "r2mae", "best_fixed"]["gain"] == pytest.approx(0.02, abs=2e-4)
    assert pooled["difference", "dynamic", "blind"]["is"] == "undecided"
    means = {(row["set"], row["width"], row["label"], row["score"]): row for row in tables["cells-width"]}
    row = means["csle", "paper", "r2mae", "score"]
    assert row["mean"] == pytest.approx(0.73, abs=2e-4)
    assert row["vs_best_fixed"] == pytest.approx(0.028, abs=2e-4)
    assert (row["vs_blind"], row["vs_blind_is"]) == (pytest.approx(0.028, abs=2e-4), "better")
    assert len(tables["cells-width-runs"]) == len(results())


def test_the_difference_between_widths_is_of_the_same_seeds_and_sets() -> None:
    runs = results()
    lost = (runs["width"] == "small") & (runs["set"] == "csle") & (runs["seed"] == 0) & (runs["row"] == "r2mae")
    lost |= (runs["width"] == "paper") & (runs["set"] == "onek1k") & (runs["seed"] == 4) & (runs["row"] == "r2mae")
    tables = cell_tables.table_of_widths(runs.assign(score=runs["score"].mask(lost)))
    pooled = {(row["score"], row["width"], row["label"], row["against"]): row for row in tables["cells-width-pooled"]}
    row = pooled["score", "difference", "r2mae", "blind"]
    assert (row["sets"], row["gain"]) == (3, pytest.approx(0.02, abs=2e-4))


def test_one_width_has_no_difference() -> None:
    runs = results()
    tables = cell_tables.table_of_widths(runs[runs["width"] == "paper"])
    assert {row["width"] for row in tables["cells-width-pooled"]} == {"paper"}


def test_one_seed_has_no_intervals() -> None:
    tables = cell_tables.table_of_widths(results(1))
    assert tables["cells-width-pooled"] == []
    assert all(np.isnan(row["low"]) for row in tables["cells-width"])
    assert list(cell_tables.plot_widths(tables, entry_of("cells-width").size("small"))) == ["cells-width"]


def test_the_figure_names_both_widths_once() -> None:
    tables = cell_tables.table_of_widths(results())
    figure = cell_tables.plot_widths(tables, entry_of("cells-width").size())["cells-width"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["256 and 64", "2000 and 1000"]
    assert len(figure.axes[0].get_yticks()) == len(entry_of("cells-width").size().rows) * (1 + len(SETS))


@pytest.mark.slow
@pytest.mark.usefixtures("shared_data")
def test_smoke(smoke: Callable[[str], Reproduced], tmp_path: Path) -> None:
    done = smoke("cells-width")
    assert (done.parts, done.kept) == (6, 0)
    names = [file.name for file in done.files]
    assert names[:3] == ["cells-width.csv", "cells-width-pooled.csv", "cells-width-runs.csv"]
    runs = pd.read_csv(done.files[2])
    assert set(runs["width"]) == {"small"}, "at the paper's width probes alone take half a minute"
    assert runs["score"].notna().all()
    assert json.loads((tmp_path / "made.json").read_text())["runs"] == 6
