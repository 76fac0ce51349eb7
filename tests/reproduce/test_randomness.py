"""Where the randomness belongs: rows, differences, gains pooled over sets, and the whole in small."""

from io import StringIO
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from r2mae.reproduce import randomness_cells, randomness_images
from r2mae.reproduce.randomness import BLIND, SCHEMES, TOLD
from r2mae.reproduce.runner import run_artefact

MODULES = pytest.mark.parametrize("module", [randomness_images, randomness_cells], ids=["images", "cells"])


@pytest.mark.slow
@MODULES
def test_rows_differ_in_scheme_and_input_alone(module: ModuleType, tmp_path: Path, shared_data: Path) -> None:
    size = module.SIZE.of("small")
    cells = module.cells(size, tmp_path)
    assert len(cells) == len({cell.folder for cell in cells}) == len(size.sets) * 2 * len(SCHEMES) * size.seeds
    assert size.seeds == 10
    first = [cell for cell in cells if cell.seed == 0 and cell.row.values["set"] == size.sets[0]]
    own = ("scheme", "ratio", "low", "high", "mask_input")
    assert len({str({k: v for k, v in cell.config.to_dict().items() if k not in own}) for cell in first}) == 1
    told = {cell.row.label: cell.config.mask_input for cell in first}
    assert told == {label + TOLD * flag: flag for flag in (False, True) for label in SCHEMES}
    assert {cell.config.norm for cell in cells} == {"layer"}, "no batch statistics that depend on the ratio"


def synthetic(gain: float, objective: str, probe: str) -> pd.DataFrame:
    """Three sets with errors of other sizes; spread ratios are lower by a fraction, told networks by a fifth."""
    rng = np.random.default_rng(0)
    rows = []
    for name, level in (("a", 0.02), ("b", 0.5), ("c", 1.0)):
        for seed in range(4):
            common = 1 + 0.05 * rng.normal()
            for label in SCHEMES:
                for told in (False, True):
                    own = 1.2 if label == "fixed 0.90" else 1 - gain if label == "r2mae-spread" else 1.0
                    error = level * common * own * (0.8 if told else 1.0) * (1 + 1e-4 * rng.normal())
                    by_ratio = {f"{objective}_{ratio}": error * (1 + ratio) for ratio in (0.1, 0.5, 0.9)}
                    row = {"label": label + TOLD * told, "scheme": label.split()[0], "told": told, "seed": seed}
                    rows.append({"set": name, **row, "seconds": 1.0, objective: error, probe: 0.9 - error, **by_ratio})
    return pd.DataFrame(rows)


@MODULES
@pytest.mark.parametrize("gain", [0.02, -0.02])
def test_gains_are_found_with_their_sign(module: ModuleType, gain: float) -> None:
    name, objective, probe = module._NAME, module._OBJECTIVE, module._PROBE
    tables = module.table(synthetic(gain, objective, probe))
    pooled = {(row["label"], row["against"]): row for row in tables[f"{name}-pooled"]}
    for label in ("r2mae-spread", "r2mae-spread" + TOLD):
        for against in ("best_fixed", "blind", "r2mae"):
            row = pooled[label, against]
            assert row["gain_percent"] == pytest.approx(100 * gain, abs=0.05)
            assert (row["sets"], row["is"]) == (3, "better" if gain > 0 else "worse")
    assert pooled["r2mae" + TOLD, "untold"]["gain_percent"] == pytest.approx(20, abs=0.1)
    assert ("r2mae", "r2mae") not in pooled
    rows = {(row["set"], row["label"], row["score"]): row for row in tables[name]}
    assert rows["b", "r2mae-spread", objective]["vs_blind_is"] == ("better" if gain > 0 else "worse")
    assert rows["b", "r2mae-spread", probe]["vs_blind_is"] == ("better" if gain > 0 else "worse")
    assert rows["c", "fixed 0.90", f"{objective}_0.9"]["vs_blind_is"] == "worse"
    assert rows["a", BLIND + TOLD, objective]["vs_untold_is"] == "better"
    figures = module.draw(tables, module.SIZE())
    assert figures.keys() == {name, f"{name}-by-fraction"}
    assert len(figures[f"{name}-by-fraction"].axes) == 3


@pytest.mark.slow
@MODULES
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated.*")
def test_the_smoke_size_runs(module: ModuleType, shared_data: Path, tmp_path: Path) -> None:
    done = run_artefact(module, tmp_path, scale="smoke", console=Console(file=StringIO()))
    assert done.parts == 16
    runs = pd.read_csv(tmp_path / f"{module._NAME}-runs.csv")
    assert np.isfinite(runs[[module._OBJECTIVE, "loss_sd"]]).all(axis=None)
    assert len(pd.read_csv(tmp_path / f"{module._NAME}-pooled.csv"))
    assert (tmp_path / f"{module._NAME}.png").stat().st_size > 0
