"""Table 1 on Tiny-ImageNet: its rows and sizes, its tables and figure, and the whole in small."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae_paper import scheme_tables
from r2mae_paper.runner import Reproduced
from r2mae_paper.scheme_tables import REFERENCE_OF_VITS, ROWS_OF_VITS, UNTRAINED
from r2mae_paper.studies import entry_of


def test_every_scheme_has_a_row() -> None:
    curricula = {"cl", "cl-k0", "r2mae-cl", "r2mae-cl-k0"}
    assert {row["scheme"] for row in ROWS_OF_VITS.values()} == {
        "fixed",
        "dynamic",
        "mdlm",
        "r2mae",
        "r2mae-dynamic",
    } | curricula


def test_the_full_size_is_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", "/somewhere")
    planned = scheme_tables.runs_of_vits(entry_of("table1").size("full"), tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 3 * (len(ROWS_OF_VITS) + 2)
    assert {run.config.data.source for run in planned} == {"/somewhere/imagenet"}
    config = next(run.config for run in planned if run.variant.label == "r2mae")
    assert (
        config.model.width,
        config.optimizer.epochs,
        config.evaluation.finetune_epochs,
        config.optimizer.batch_size,
    ) == (768, 150, 100, 4096)
    used = config.scheme.options
    assert (used["low"], used["high"]) == (0.6, 0.9), "those of ViT-MAE"
    assert (used["sampling"], used["per"]) == ("independent", "batch")


@pytest.mark.slow
def test_the_other_ways_of_drawing_differ_in_nothing_else(tmp_path: Path, shared_data: Path) -> None:
    found = {
        run.variant.label: run.config
        for run in scheme_tables.runs_of_vits(entry_of("table1").size("small"), tmp_path)
        if run.seed == 0
    }
    for label, options in (
        ("r2mae stratified", {"sampling": ("stratified", "independent")}),
        ("r2mae per sample", {"per": ("sample", "batch")}),
    ):
        assert found[label].differences(found["r2mae"]) == options
    assert found["pixels"].evaluation.finetune_epochs == 0


def test_tables_pair_seeds_and_say_what_is_better() -> None:
    rng = np.random.default_rng(0)
    levels = {REFERENCE_OF_VITS: 0.30, "r2mae": 0.33, UNTRAINED: 0.20}
    rows = [
        {
            "label": label,
            "scheme": label,
            "seed": seed,
            "seconds": 1.0,
            "finetune_top1": level + jitter,
            "loss_sd": jump,
        }
        for seed, jitter in enumerate(rng.normal(size=3) / 100)
        for (label, level), jump in zip(levels.items(), (0.01 - 1e-4 * seed, 0.02, np.nan), strict=True)
    ]
    tables = scheme_tables.table1(pd.DataFrame(rows))
    found = {(row["label"], row["score"]): row for row in tables["table1"]}
    assert found["r2mae", "finetune_top1"]["vs_reference"] == pytest.approx(0.03)
    assert found["r2mae", "finetune_top1"][f"vs_{UNTRAINED}"] == pytest.approx(0.13)
    assert found["r2mae", "loss_sd"]["vs_reference_is"] == "worse"
    assert (UNTRAINED, "loss_sd") not in found
    figure = scheme_tables.plot_table1(tables, entry_of("table1").size())["table1"]
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
def test_the_smoke_size_runs(smoke: Callable[[str], Reproduced], shared_data: Path, tmp_path: Path) -> None:
    done = smoke("table1")
    assert done.parts == 5
    runs = pd.read_csv(tmp_path / "table1-runs.csv").set_index(["label", "seed"])
    trained = runs.loc[[REFERENCE_OF_VITS, "r2mae per sample"]]
    assert np.isfinite(trained[["finetune_top1", "probe_accuracy", "knn_accuracy", "masked_mse", "loss_sd"]]).all(
        axis=None
    )
    assert trained["masked_mse"].max() < runs.loc[UNTRAINED]["masked_mse"].min(), "training lowers the error"
    assert runs.loc["pixels"]["finetune_top1"].isna().all()
    assert (tmp_path / "table1.png").stat().st_size > 0
