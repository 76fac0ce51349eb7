"""Where the randomness belongs: rows, differences, gains pooled over sets, and the whole in small."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae.compare.runs import SweepRun
from r2mae_paper.gains import BEST_FIXED, SETS
from r2mae_paper.randomness import (
    BEST_BY_SAMPLE,
    BLIND,
    BY_SAMPLE,
    BY_SAMPLE_ROWS,
    MASK_AWARE,
    SCHEMES,
    SPREAD,
    SWEEPS,
    DomainSweep,
)
from r2mae_paper.runner import Reproduced
from r2mae_paper.studies import entry_of

IMAGES, CELLS, TEXT, GENOME = SWEEPS
ALL = pytest.mark.parametrize("sweep", SWEEPS, ids=["images", "cells", "text", "genome"])


@pytest.fixture(scope="module")
def plans(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[SweepRun]]:
    """The small size's runs of every domain, planned once: that reads what the sets have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MAE_DATA", str(data_root))
        folder = tmp_path_factory.mktemp("plans")
        return {sweep.name: sweep.runs(entry_of(sweep.name).size("small"), folder) for sweep in SWEEPS}


@pytest.mark.slow
@ALL
def test_rows_differ_in_scheme_and_input_alone(sweep: DomainSweep, plans: dict[str, list[SweepRun]]) -> None:
    size, planned = entry_of(sweep.name).size("small"), plans[sweep.name]
    more = set(sweep.more) - set(SCHEMES)
    by_sample = {f"by sample {ratio:.2f}" for ratio in (0.1, 0.3, 0.7, 0.9)}
    assert more == (by_sample if sweep is CELLS else set()), "elsewhere all masks are by sample"
    rows = len(size.mask_aware) * len(SCHEMES) + len(more)
    assert len(planned) == len({run.folder for run in planned}) == len(size.sets) * rows * size.seeds
    assert size.seeds >= 5
    first = [run for run in planned if run.seed == 0 and run.variant.values["set"] == size.sets[0]]
    plain = [run.config.replace(scheme="fixed", ratio=0.5, mask_input=False) for run in first]
    assert all(config == plain[0] for config in plain)
    assert len({str(run.config.to_dict()) for run in first}) == rows
    mask_aware = {run.variant.label: run.config.model.mask_input for run in first}
    assert mask_aware == {
        label + MASK_AWARE * flag: flag for flag in size.mask_aware for label in SCHEMES
    } | dict.fromkeys(more, False)


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [IMAGES, CELLS], ids=["images", "cells"])
def test_no_batch_statistics_depend_on_the_ratio(sweep: DomainSweep, plans: dict[str, list[SweepRun]]) -> None:
    assert {run.config.model.norm for run in plans[sweep.name]} == {"layer"}


@pytest.mark.slow
@ALL
def test_all_rows_hide_exact_counts(sweep: DomainSweep, plans: dict[str, list[SweepRun]]) -> None:
    """As per-sample ratios do: else the noise of counts would be a difference between rows."""
    assert all(getattr(run.config.task, "exact", True) for run in plans[sweep.name])


def synthetic(gain: float, objective: str, probe: str) -> pd.DataFrame:
    """Three sets with errors of other sizes; per-sample ratios are lower by a fraction, mask-aware ones by a fifth."""
    rng = np.random.default_rng(0)
    rows = []
    for name, level in (("a", 0.02), ("b", 0.5), ("c", 1.0)):
        for seed in range(4):
            common = 1 + 0.05 * rng.normal()
            for label in SCHEMES:
                for mask_aware in (False, True):
                    own = 1.2 if label == "fixed 0.90" else 1 - gain if label == "r2mae-per-sample" else 1.0
                    error = level * common * own * (0.8 if mask_aware else 1.0) * (1 + 1e-4 * rng.normal())
                    by_ratio = {f"{objective}_{ratio}": error * (1 + ratio) for ratio in (0.1, 0.5, 0.9)}
                    row = {
                        "label": label + MASK_AWARE * mask_aware,
                        "scheme": label.split()[0],
                        "mask_aware": mask_aware,
                        "seed": seed,
                    }
                    rows.append({"set": name, **row, "seconds": 1.0, objective: error, probe: 0.9 - error, **by_ratio})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("sweep", "gain"), [*((sweep, 0.02) for sweep in SWEEPS), (IMAGES, -0.02)])
def test_gains_are_found_with_their_sign(sweep: DomainSweep, gain: float) -> None:
    name, objective, probe = sweep.name, sweep.objective, sweep.probe
    tables = sweep.table(synthetic(gain, objective, probe))
    pooled = {(row["label"], row["against"]): row for row in tables[f"{name}-pooled"]}
    for label in ("r2mae-per-sample", "r2mae-per-sample" + MASK_AWARE):
        for against in ("best_fixed", "blind", "r2mae"):
            row = pooled[label, against]
            assert row["gain_percent"] == pytest.approx(100 * gain, abs=0.05)
            assert (row["sets"], row["is"]) == (3, "better" if gain > 0 else "worse")
    assert pooled["r2mae" + MASK_AWARE, "mask_blind"]["gain_percent"] == pytest.approx(20, abs=0.1)
    assert ("r2mae", "r2mae") not in pooled
    rows = {(row["set"], row["label"], row["score"]): row for row in tables[name]}
    assert rows["b", "r2mae-per-sample", objective]["vs_blind_is"] == ("better" if gain > 0 else "worse")
    assert rows["b", "r2mae-per-sample", probe]["vs_blind_is"] == ("better" if gain > 0 else "worse")
    assert rows["c", "fixed 0.90", f"{objective}_0.9"]["vs_blind_is"] == "worse"
    assert rows["a", BLIND + MASK_AWARE, objective]["vs_mask_blind_is"] == "better"
    figures = sweep.plot(tables, entry_of(sweep.name).size())
    assert figures.keys() == {name, f"{name}-by-fraction", f"{name}-rules"}
    rules = {(row["rule"], row["score"], row["set"]): row for row in tables[f"{name}-rules"]}
    spread = rules["r2mae-per-sample, the same range", objective, SETS]
    assert spread["regret"] == pytest.approx(-100 * gain, abs=0.05), "of mask_blind networks: a gain is no regret"
    assert len(figures[f"{name}-by-fraction"].axes) == 3


def test_masks_by_sample_have_a_best_ratio_of_their_own() -> None:
    """On cells per-sample ratios hide other genes in each run: they are compared with fixed ratios that do so, too."""
    study = CELLS
    runs = synthetic(0.02, study.objective, study.probe)
    blind = runs[runs["label"] == BY_SAMPLE]
    lower = {"by sample 0.70": 0.9, "by sample 0.90": 0.95}
    others = [
        blind.assign(label=label, **{study.objective: blind[study.objective] * by}) for label, by in lower.items()
    ]
    tables = study.table(pd.concat([runs, *others], ignore_index=True))
    pooled = {(row["label"], row["against"]): row for row in tables[f"{study.name}-pooled"]}
    assert pooled[SPREAD, BEST_BY_SAMPLE]["gain_percent"] == pytest.approx(100 * (1 - 0.98 / 0.9), abs=0.1)
    assert pooled[SPREAD, BEST_BY_SAMPLE]["is"] == "worse"
    assert pooled[SPREAD, BEST_FIXED]["is"] == "better", "its reference is masks by mini-batch alone"
    assert (SPREAD + MASK_AWARE, BEST_BY_SAMPLE) not in pooled, "one such row is no choice"
    rows = {(row["set"], row["label"], row["score"]): row for row in tables[study.name]}
    assert rows["a", SPREAD, study.objective]["vs_best_by_sample_is"] == "worse"
    figures = study.plot(tables, entry_of(CELLS.name).size())
    named = {name for axes in figures[f"{study.name}-by-fraction"].axes for name in axes.get_legend_handles_labels()[1]}
    assert {BY_SAMPLE, "by sample 0.90", SPREAD} <= named
    assert not any(name.endswith(MASK_AWARE) for name in named)
    order = [label.get_text() for label in figures[study.name].axes[0].get_yticklabels()]
    assert order.index(BY_SAMPLE) < order.index("by sample 0.70") < order.index("by sample 0.90")


@pytest.mark.slow
def test_by_sample_is_one_ratio_with_a_mask_for_each_cell(plans: dict[str, list[SweepRun]]) -> None:
    for run in plans[CELLS.name]:
        if run.variant.label in BY_SAMPLE_ROWS:
            ratio = float(run.variant.label.split()[-1])
            assert (run.config.scheme.name, run.config.scheme.given_options) == (
                "r2mae-per-sample",
                {"low": ratio, "high": ratio},
            )


@pytest.mark.slow
@ALL
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
def test_the_smoke_size_runs(
    smoke: Callable[[str], Reproduced], sweep: DomainSweep, shared_data: Path, tmp_path: Path
) -> None:
    done = smoke(sweep.name)
    assert done.parts == 8 * len(entry_of(sweep.name).size("small").mask_aware) + 2 * (sweep is CELLS)
    runs = pd.read_csv(tmp_path / f"{sweep.name}-runs.csv")
    assert np.isfinite(runs[[sweep.objective, "loss_sd"]]).all(axis=None)
    assert len(pd.read_csv(tmp_path / f"{sweep.name}-pooled.csv"))
    assert (tmp_path / f"{sweep.name}.png").stat().st_size > 0
