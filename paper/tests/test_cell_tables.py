"""Tables 4 and 6 to 8: the runs on every set, what is made of them, and the whole in small."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from r2mae.cells.sets import SETS
from r2mae.compare.comparison import BASELINE
from r2mae.errors import UserError
from r2mae_paper.bases import CELL_SETS
from r2mae_paper.cell_tables import EXPRESSION, REFERENCE, SCHEMES
from r2mae_paper.runner import Reproduced, run_study
from r2mae_paper.study import Study, get_study

TABLE4, TABLE6 = get_study("table4"), get_study("table6")
BOTH = pytest.mark.parametrize("study", [TABLE4, TABLE6], ids=["table4", "table6"])


def results(sets: tuple[str, ...], columns: dict[str, tuple[str, ...]]) -> pd.DataFrame:
    """Runs of three rows in which r2mae is ahead by 0.02, by the seed's jitter common to all rows."""
    levels = {REFERENCE: 0.70, "r2mae": 0.72, EXPRESSION: 0.60}
    rng = np.random.default_rng(0)
    rows = []
    for name in sets:
        for seed, jitter in enumerate(rng.normal(size=3) / 100):
            for label, level in levels.items():
                row = {"label": label, "set": name, "scheme": label, "seed": seed, "seconds": 1.0}
                own = ["score", "effective_rank", *columns[name]]
                if label != EXPRESSION:
                    own += [f"reconstruction_r_{ratio}" for ratio in (0.1, 0.2, 0.3, 0.5, 0.7)] + ["reconstruction_r"]
                rows.append({**row, **{score: level + jitter + 1e-4 * rng.normal() for score in own}})
    return pd.DataFrame(rows)


COLUMNS = {
    "csle": ("cell_type_bacc", "cell_type_f1", "condition_auroc", "condition_auroc_donor", "age_spearman_donor"),
    "pig-airway": ("cell_type_bacc", "cell_type_f1", "condition_auroc"),
}


@pytest.mark.slow
def test_vectors_of_obsm_are_rows_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    kinds, donors = np.arange(240) % 3, np.arange(240) // 24
    obs = pd.DataFrame({"cell_type": [f"t{kind}" for kind in kinds], "donor_id": [f"d{donor}" for donor in donors]})
    cells = anndata.AnnData(rng.poisson(1.0, (240, 30)).astype(np.float32), obs.set_index(obs.index.astype(str)))
    cells.obsm["X_scgpt"] = np.eye(3, 8)[kinds] + 0.01 * rng.normal(size=(240, 8))
    cells.write_h5ad(file := tmp_path / "cells.h5ad")
    own = {"data": str(file), "labels": ("cell_type",), "donor_key": "donor_id"}
    monkeypatch.setitem(CELL_SETS, "own", own)
    size = TABLE6.entry.size("smoke", sets=("own",), baselines=("expression", "X_scgpt"))
    with pytest.raises(UserError, match="unknown baseline 'X_uce'"):
        TABLE6.runs(size.replace(baselines=("X_uce",)), tmp_path)
    run_study(TABLE6, tmp_path / "out", size=size, console=Console(file=StringIO()))
    table = pd.read_csv(tmp_path / "out" / "table6.csv").set_index(["label", "score"])
    assert table.loc[("X_scgpt", "cell_type_bacc"), "mean"] > 0.95
    assert table.loc[("X_scgpt", "score"), "rank"] == 1


@BOTH
def test_the_full_size_is_the_papers(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2mae_paper.cell_tables.check_baselines", lambda base, domain, names: None)
    planned = study.runs(study.entry.size("full"), tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 5 * (len(SCHEMES) + 2)
    assert {run.config.data.source for run in planned} == {"sea-ad" if study is TABLE4 else "hlca"}
    for run in planned:
        config = run.config
        assert (config.model.n_hidden, config.model.n_latent, config.optimizer.epochs, config.optimizer.batch_size) == (
            2000,
            1000,
            50,
            400,
        )
        assert (
            config.optimizer.lr,
            config.optimizer.weight_decay,
            config.data.n_top_genes,
            config.optimizer.steps,
        ) == (1e-3, 1e-4, 5000, None)
        assert config.timing == ("sea-ad" if study is TABLE4 else "hlca")
        assert config.data.auroc_labels == (("ADNC",) if study is TABLE4 else ())
        assert (config.evaluation.bn_statistics, config.data.only) == ("both", ())
    chosen = study.runs(study.entry.size("full", only=("Supertype:Subclass=Sst",)), tmp_path)
    assert {run.config.data.only for run in chosen} == {("Supertype:Subclass=Sst",)}


@BOTH
def test_scvi_is_asked_for_before_anything_runs(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2mae.domains.baselines.find_spec", lambda name: None)
    with pytest.raises(UserError, match="the baseline scvi needs"):
        study.runs(study.entry.size("full"), tmp_path)


def test_together_the_small_sizes_have_every_shared_set(tmp_path: Path) -> None:
    planned = [run for study in (TABLE4, TABLE6) for run in study.runs(study.entry.size("small"), tmp_path)]
    assert {run.config.data.source for run in planned} == SETS.keys() - {"hlca", "sea-ad"}
    assert len(planned) == len({run.folder for run in planned}) == 3 * (5 + 5) * (len(SCHEMES) + 2)
    for run in planned:
        assert run.variant.values["set"] == run.config.data.source
        assert run.variant.baseline == (run.variant.label in (EXPRESSION, "pca"))
        assert run.config.data.donor_key == "donor"
        assert (run.config.model.n_hidden, run.config.optimizer.steps) == (256, 1000)
        if not run.variant.baseline:
            assert run.config.scheme.name == SCHEMES[run.variant.label]["scheme"]


def test_every_set_has_means_differences_and_ranks_of_its_own() -> None:
    tables = TABLE4.tables_of(results(("csle", "pig-airway"), COLUMNS))
    found = {(row["set"], row["label"], row["score"]): row for row in tables["table4"]}
    for name in ("csle", "pig-airway"):
        row = found[name, "r2mae", "score"]
        assert row["vs_reference"] == pytest.approx(0.02, abs=1e-3)
        assert row["vs_expression"] == pytest.approx(0.12, abs=1e-3)
        assert row["vs_reference_is"] == "better"
        assert [found[name, label, "score"]["rank"] for label in ("r2mae", REFERENCE, EXPRESSION)] == [1, 2, 3]
        assert "rank" not in found[name, "r2mae", "cell_type_bacc"]
    assert ("pig-airway", "r2mae", "age_spearman_donor") not in found
    assert ("csle", "r2mae", "age_spearman_donor") in found
    rebuilt = {(row["set"], row["label"], row["score"]) for row in tables["table7"]}
    assert ("csle", "r2mae", "reconstruction_r_0.7") in rebuilt
    assert not any(label == EXPRESSION for _, label, _ in rebuilt), "expression reconstructs nothing"
    assert len(tables["table4-runs"]) == 2 * 3 * 3


def test_scores_with_the_statistics_of_training_have_rows_of_their_own() -> None:
    runs = results(("csle",), COLUMNS)
    for name in ("score", "reconstruction_r", "reconstruction_r_0.1", "cell_type_bacc"):
        runs[f"as_trained_{name}"] = runs[name] - 0.1
    tables = TABLE4.tables_of(runs)
    probes, rebuilt = (
        {row["score"] for row in tables[name] if row["label"] == "r2mae"} for name in ("table4", "table7")
    )
    assert {"cell_type_bacc", "as_trained_cell_type_bacc", "as_trained_score"} <= probes
    assert {"reconstruction_r", "as_trained_reconstruction_r", "as_trained_reconstruction_r_0.1"} <= rebuilt
    assert not probes & rebuilt
    assert "as_trained_reconstruction_r" in tables["table4-runs"][0]
    ranks = [row["rank"] for row in tables["table4"] if "rank" in row]
    assert ranks == [row["rank"] for row in TABLE4.tables_of(results(("csle",), COLUMNS))["table4"] if "rank" in row]


def test_a_lower_loss_is_better_and_of_ranks_neither() -> None:
    runs = results(("csle",), {"csle": ("masked_loss",)})
    tables = TABLE4.tables_of(runs)
    found = {(row["label"], row["score"]): row for row in tables["table4"]}
    assert found["r2mae", "masked_loss"]["vs_reference"] == pytest.approx(0.02, abs=1e-3)
    assert found["r2mae", "masked_loss"]["vs_reference_is"] == "worse"
    assert found["r2mae", "score"]["vs_reference_is"] == "better"
    rank = found["r2mae", "effective_rank"]
    assert rank["vs_reference"] == pytest.approx(0.02, abs=1e-3) and "vs_reference_is" not in rank


def test_gains_are_pooled_over_sets() -> None:
    runs = results(("csle", "pig-airway"), COLUMNS)
    runs["scheme"] = runs["scheme"].replace(EXPRESSION, BASELINE)
    worse = runs[runs["label"] == REFERENCE].assign(label="fixed 0.10", scheme="fixed")
    for score in ("score", "reconstruction_r"):
        worse[score] -= 0.05
    pooled = TABLE4.tables_of(pd.concat([runs, worse]))["table4-pooled"]
    found = {(row["score"], row["label"], row["against"]): row for row in pooled}
    for score in ("score", "reconstruction_r"):
        for against in ("best_fixed", "blind"):
            row = found[score, "r2mae", against]
            assert row["gain"] == pytest.approx(0.02, abs=1e-3)
            assert (row["sets"], row["is"]) == (2, "better")
        assert found[score, "fixed 0.10", "blind"]["gain"] == pytest.approx(-0.05, abs=1e-3)
    assert {row["label"] for row in pooled} == {"r2mae", "fixed 0.10"}, "no baseline, and no ratio against itself"


def test_a_condition_is_ranked_by_its_aurocs_in_table_4_alone() -> None:
    """In table 6 the order of the rows by a condition's balanced accuracy counts."""
    runs = results(("csle",), {"csle": ("condition_auroc", "condition_bacc")})
    runs["condition_bacc"] = -runs["condition_bacc"]
    ranks = {
        study.entry.name: {
            row["label"]: row["rank"] for row in study.tables_of(runs)[study.entry.name] if row["score"] == "score"
        }
        for study in (TABLE4, TABLE6)
    }
    assert ranks["table4"]["r2mae"] == 1
    assert ranks["table6"]["r2mae"] == 3


def test_figures_have_a_panel_for_each_set_and_ratio() -> None:
    tables = TABLE4.tables_of(results(("csle", "pig-airway"), COLUMNS))
    figures = TABLE4.plot(tables, TABLE4.entry.size("small"))
    shown = {name: [axes for axes in figure.axes if axes.get_visible()] for name, figure in figures.items()}
    assert {name: len(axes) for name, axes in shown.items()} == {"table4": 2, "table7": 12}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sets"), [("table4", ["csle", "pig-airway"]), ("table6", ["onek1k"])])
@pytest.mark.usefixtures("shared_data")
def test_the_smoke_size_runs(smoke: Callable[[str], Reproduced], name: str, sets: list[str], tmp_path: Path) -> None:
    done = smoke(name)
    assert done.parts == 3 * len(sets)
    runs = pd.read_csv(tmp_path / f"{name}-runs.csv")
    assert list(zip(runs["set"], runs["label"], strict=True)) == [
        (one, label) for one in sets for label in (REFERENCE, "r2mae", EXPRESSION)
    ]
    assert np.isfinite(runs["score"]).all()
    assert np.isfinite(runs.loc[runs["label"] != EXPRESSION, "reconstruction_r_0.5"]).all()
    figures = {"table4": ("table4", "table7"), "table6": ("table6", "table8")}[name]
    assert all((tmp_path / f"{figure}.png").stat().st_size > 0 for figure in figures)
    again = smoke(name)
    assert again.kept == again.parts
