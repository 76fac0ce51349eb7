"""Table 2: its rows and sizes, its tables and figures, and the whole in small."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae_paper import scheme_tables
from r2mae_paper.runner import Reproduced
from r2mae_paper.scheme_tables import REFERENCE_OF_TEXTS, SCHEMES_OF_TEXTS, UNTRAINED
from r2mae_paper.studies import entry_of

TASKS = ("mnli", "qqp", "sst2", "qnli")


def test_the_full_size_is_the_papers(tmp_path: Path) -> None:
    planned = scheme_tables.runs_of_texts(entry_of("table2").size("full"), tmp_path)
    assert len(planned) == len({run.folder for run in planned}) == 2 * 5 * 3
    rates = {"roberta-medium": (512, 8, 7e-4), "roberta-base": (768, 12, 3e-4)}
    for run in planned:
        config = run.config
        assert (config.model.hidden_size, config.model.layers, config.optimizer.lr) == rates[
            run.variant.values["model"]
        ]
        assert (config.data.source, config.data.vocab_size, config.evaluation.glue) == ("fineweb", 50_265, TASKS)
        assert (
            config.optimizer.batch_size,
            config.data.sequence_length,
            config.optimizer.warmup,
            config.optimizer.weight_decay,
        ) == (
            2048,
            128,
            0.03,
            0.01,
        )
        assert (config.optimizer.epochs, config.optimizer.steps, config.scheme.name) == (
            1,
            None,
            SCHEMES_OF_TEXTS[run.variant.label]["scheme"],
        )


def test_the_small_size_has_no_fine_tuning(tmp_path: Path) -> None:
    planned = scheme_tables.runs_of_texts(entry_of("table2").size("small"), tmp_path)
    assert len(planned) == 30
    assert {(run.config.data.source, run.config.evaluation.glue) for run in planned} == {("wiki", ())}
    assert {(run.variant.values["scheme"] == "none", run.config.optimizer.steps) for run in planned} == {
        (False, 4000),
        (True, 1),
    }
    assert {(frozenset(run.config.evaluation.glue_probes), run.config.evaluation.glue_limit) for run in planned} == {
        (frozenset(TASKS), 9000)
    }


def results(models: tuple[str, ...]) -> pd.DataFrame:
    """Runs in which r2mae is ahead on three tasks of four, and in loss."""
    rng = np.random.default_rng(0)
    rows = []
    for model in models:
        for seed, jitter in enumerate(rng.normal(size=3) / 100):
            for label in (REFERENCE_OF_TEXTS, "r2mae"):
                ahead = 0.02 if label == "r2mae" else 0.0
                row = {"label": label, "model": model, "scheme": label, "seed": seed, "seconds": 1.0}
                row |= {f"{task}_accuracy": 0.8 + jitter + ahead for task in TASKS[:3]}
                row |= {"qnli_accuracy": 0.8 + jitter - ahead, "loss": 3 - ahead + jitter + 1e-4 * rng.normal()}
                rows.append(row)
    return pd.DataFrame(rows)


def test_models_have_tables_and_ranks_of_their_own() -> None:
    tables = scheme_tables.table2(results(("roberta-medium", "roberta-base")))
    found = {(row["model"], row["label"], row["score"]): row for row in tables["table2"]}
    for model in ("roberta-medium", "roberta-base"):
        assert found[model, "r2mae", "rank"]["mean"] == 1.25
        assert found[model, REFERENCE_OF_TEXTS, "rank"]["mean"] == 1.75
        assert found[model, "r2mae", "mnli_accuracy"]["vs_reference"] == pytest.approx(0.02)
        assert found[model, "r2mae", "loss"]["vs_reference_is"] == "better", "a lower loss"
    assert len(tables["table2-runs"]) == 12
    figures = scheme_tables.plot_table2(tables, entry_of("table2").size())
    assert set(figures) == {"table2-roberta-medium", "table2-roberta-base"}
    assert len([axes for axes in figures["table2-roberta-base"].axes if axes.get_visible()]) == 5


def test_probes_stand_beside_those_of_a_model_that_nobody_trained() -> None:
    runs = results(("tiny",)).rename(columns={f"{task}_accuracy": f"{task}_probe_accuracy" for task in TASKS})
    none = runs[runs["label"] == REFERENCE_OF_TEXTS].assign(label=UNTRAINED, scheme="none", loss=9.0)
    none[[f"{task}_probe_accuracy" for task in TASKS]] -= 0.2
    tables = scheme_tables.table2(pd.concat([runs, none]))
    found = {(row["label"], row["score"]): row for row in tables["table2"]}
    assert found["r2mae", "probe_rank"]["mean"] == 1.25
    assert (UNTRAINED, "probe_rank") not in found, "it is no rival"
    assert found["r2mae", "mnli_probe_accuracy"][f"vs_{UNTRAINED}"] == pytest.approx(0.22)
    (figure,) = scheme_tables.plot_table2(tables, entry_of("table2").size()).values()
    titles = [axes.get_title() for axes in figure.axes if axes.get_visible()]
    lines = {axes.get_title(): len(axes.lines) for axes in figure.axes}
    assert "MNLI, accuracy of a probe" in titles
    assert lines["MNLI, accuracy of a probe"] > lines["masked loss, mean"], "random weights have no loss to speak of"


def test_without_glue_there_is_no_rank() -> None:
    runs = results(("tiny",)).drop(columns=[f"{task}_accuracy" for task in TASKS])
    assert {row["score"] for row in scheme_tables.table2(runs)["table2"]} == {"loss"}


@pytest.mark.slow
@pytest.mark.usefixtures("shared_data")
def test_the_smoke_size_runs(smoke: Callable[[str], Reproduced], tmp_path: Path) -> None:
    done = smoke("table2")
    assert done.parts == 2
    runs = pd.read_csv(tmp_path / "table2-runs.csv")
    assert list(runs["label"]) == [REFERENCE_OF_TEXTS, "r2mae"]
    assert np.isfinite(runs[["loss", "loss_0.15", "accuracy"]]).all(axis=None)
    assert (tmp_path / "table2-tiny.png").stat().st_size > 0
