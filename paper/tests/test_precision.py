"""bf16 against 32 bits: what differs between the runs, verdicts with known answers, and the whole in small."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae_paper.randomness import EXACT, FINAL_LOSS, QUICK, plot_formats, table_of_formats
from r2mae_paper.runner import Reproduced
from r2mae_paper.studies import entry_of
from r2mae_paper.study import Study, get_study

DOMAINS = ("images", "cells", "text", "genome")
ALL = pytest.mark.parametrize("study", [get_study(f"precision-{name}") for name in DOMAINS], ids=DOMAINS)


@pytest.mark.slow
@ALL
def test_runs_differ_in_the_format_alone(study: Study, tmp_path: Path, shared_data: Path) -> None:
    size = study.entry.size("small")
    planned = study.runs(size, tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 2 * size.seeds * len(size.settings)
    assert size.seeds == 5
    for model in size.settings:
        first = [run for run in planned if run.seed == 0 and run.variant.values["model"] == model]
        assert [(run.variant.label, run.config.optimizer.precision) for run in first] == [
            (EXACT, "32"),
            (QUICK, "bf16"),
        ]
        assert all(run.config.replace(precision="auto") == first[0].config.replace(precision="auto") for run in first)


tables_of = partial(table_of_formats, name="study", scores=("score", "absent"))


def synthetic(shift: float, wobble: float) -> pd.DataFrame:
    """Runs whose seeds have a standard deviation of about 1; bf16 adds `shift`, and noise of its own."""
    rng = np.random.default_rng(0)
    rows = []
    for seed, level in enumerate((-1.2, -0.6, 0.0, 0.6, 1.2)):
        for name in (EXACT, QUICK):
            own = 0.0 if name == EXACT else shift + wobble * rng.normal()
            row = {"label": name, "model": "m", "format": name, "seed": seed}
            rows.append({**row, "score": 5 + level + own, FINAL_LOSS: 3 + level + own})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("shift", "wobble", "verdict"), [(0.05, 0.01, "equal"), (-3.0, 0.01, "different"), (0.9, 0.5, "undecided")]
)
def test_formats_are_equal_within_the_noise_of_the_seeds(shift: float, wobble: float, verdict: str) -> None:
    tables = tables_of(synthetic(shift, wobble))
    assert [row["score"] for row in tables["study"]] == [FINAL_LOSS, "score"]
    for row in tables["study"]:
        assert row["is"] == verdict
        assert row["seeds"] == 5
        assert row["sd_32"] == pytest.approx(0.949, abs=1e-3)
        assert row["difference"] == pytest.approx(row["mean_bf16"] - row["mean_32"])
        assert row["low"] < row["difference"] < row["high"]
    assert len(tables["study-runs"]) == 10
    assert plot_formats(tables, entry_of("precision-cells").size(), name="study").keys() == {"study"}


def test_a_single_seed_and_runs_without_a_partner_decide_nothing() -> None:
    runs = synthetic(0.0, 0.01)
    alone = tables_of(runs[runs["seed"] == 2])["study"]
    assert [(row["seeds"], row["is"]) for row in alone] == [(1, "undecided")] * 2
    plot_formats({"study": alone}, entry_of("precision-cells").size(), name="study")
    assert tables_of(runs[runs["format"] == EXACT])["study"] == []


@pytest.mark.slow
@ALL
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
def test_the_smoke_size_runs(
    smoke: Callable[[str], Reproduced], study: Study, shared_data: Path, tmp_path: Path
) -> None:
    done = smoke(study.entry.name)
    assert done.parts == 4
    rows = pd.read_csv(tmp_path / f"{study.entry.name}.csv")
    assert FINAL_LOSS in set(rows["score"])
    assert rows["score"].nunique() > 2
    assert (rows["seeds"] == 2).all()
    assert (tmp_path / f"{study.entry.name}.png").stat().st_size > 0
