"""Claims about text models at fixed ratios: tables that show a claim, those that refute it, and those that cannot."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pytest

from r2mae_paper import curves
from r2mae_paper.claims import Found

Judge = Callable[..., dict[str, Found]]
TENTHS = tuple(round(0.1 * k, 1) for k in range(1, 10))
SST2, QNLI = "sst2_probe_accuracy", "qnli_probe_accuracy"


def texts(best: Mapping[str, Mapping[str, float]], seeds: int = 5) -> pd.DataFrame:
    """Models whose best ratios by task are given; under the first seed the wider one has them a step higher."""
    rng = np.random.default_rng(0)
    rows = []
    for model, tasks in best.items():
        for ratio in TENTHS:
            for seed in range(seeds):
                row = {"model": model, "label": f"{model} {ratio:.2f}", "ratio": f"{ratio:.2f}", "seed": seed}
                row |= {"seconds": 1.0, "loss": 5.0, "accuracy_0.8": ratio}
                more = 0.1 * (seed == 0 and model == "2x256")
                for task, own in tasks.items():
                    row[task] = 0.5 - (ratio - own - more) ** 2 + 1e-5 * rng.normal()
                rows.append(row)
    return pd.DataFrame(rows)


def judged(judge: Judge, best: Mapping[str, Mapping[str, float]]) -> tuple[Found, Found]:
    found = judge("text-ratios", curves.table_of_texts(texts(best)))
    return found["roberta-size"], found["roberta-task"]


def test_larger_models_with_higher_best_ratios_show_it_and_the_order_of_the_table_does_not(judge: Judge) -> None:
    best = {"mini": {SST2: 0.7, QNLI: 0.8}, "2x256": {SST2: 0.5, QNLI: 0.5}, "2x128": {SST2: 0.2, QNLI: 0.2}}
    size, _ = judged(judge, {name: best[name] for name in ("2x256", "2x128")})
    assert size.verdict == "direction only", "our models are not those of the figure"
    assert size.ours == pytest.approx(0.32, abs=0.01)
    assert "not those of the figure" in size.reason
    size, _ = judged(judge, best)
    assert size.ours == pytest.approx(0.5), "the smallest and the largest, by their weights"
    assert size.verdict == "undecided", "every seed has the same difference"
    assert "seeds that differ" in size.reason


def test_one_task_without_the_difference_is_enough_to_doubt_it(judge: Judge) -> None:
    size, _ = judged(judge, {"2x128": {SST2: 0.2, QNLI: 0.5}, "2x256": {SST2: 0.6, QNLI: 0.5}})
    assert size.verdict == "undecidable at this scale", "within a step of the grid"
    assert "The weakest is QNLI, accuracy of a probe" in size.reason
    size, _ = judged(judge, {"2x128": {SST2: 0.2, QNLI: 0.8}, "2x256": {SST2: 0.6, QNLI: 0.2}})
    assert size.verdict == "not reproduced"


def test_tasks_with_other_best_ratios_show_that_the_task_decides(judge: Judge) -> None:
    models = texts({"2x128": {SST2: 0.2, QNLI: 0.7}, "2x256": {SST2: 0.2, QNLI: 0.8}})
    first = (models["model"] == "2x128") & (models["seed"] == 1)
    models.loc[first, SST2] = models.loc[first, SST2].to_numpy() - 2 * (models.loc[first, "ratio"] != "0.30")
    task = judge("text-ratios", curves.table_of_texts(models))["roberta-task"]
    assert task.verdict == "direction only"
    assert "Shown is the clearest, 2x128." in task.reason
    _, task = judged(judge, {"2x128": {SST2: 0.4, QNLI: 0.4}, "2x256": {SST2: 0.4, QNLI: 0.4}})
    assert task.verdict == "undecided", "no case has a spread"


def test_what_cannot_be_judged_is_not_run(judge: Judge) -> None:
    size, task = judged(judge, {"2x128": {SST2: 0.2}})
    assert (size.verdict, task.verdict) == ("not run", "not run")
    assert "1 models" in size.reason
    assert "1 tasks" in task.reason
    size, _ = judged(judge, {"2x128": {}, "2x256": {}})
    assert "0 tasks" in size.reason
