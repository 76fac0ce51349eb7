"""The summary over domains: gains with known answers, and what is said of tables that are not there."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae_paper.randomness import MASK_AWARE, SCHEMES, SWEEPS
from r2mae_paper.runner import run_study
from r2mae_paper.state import MADE, begin
from r2mae_paper.study import get_study

SUMMARY = get_study("randomness")


def write_study(folder: Path, domain: str, sets: tuple[str, ...], *, mask_aware: tuple[bool, ...] = (False,)) -> None:
    """Runs whose random ratios are 5 % below the best fixed ratio, per-sample ones 10 %; mask-aware ones 20 %."""
    (sweep,) = (one for one in SWEEPS if one.domain == domain)
    rng = np.random.default_rng(len(domain))
    levels = {name: np.exp(0.1 * rng.normal(size=3)) for name in sets}
    factors = {
        "fixed 0.30": 1.3,
        "fixed 0.50": 1.0,
        "fixed 0.70": 1.2,
        "r2mae": 0.95,
        "r2mae-per-sample": 0.9,
        "by sample 0.50": 0.92,
    }
    rows = [
        {
            "set": name,
            "label": label + MASK_AWARE * flag,
            "scheme": SCHEMES[label]["scheme"],
            "mask_aware": flag,
            "seed": seed,
        }
        | {sweep.objective: level * factor * (0.8 if flag else 1.0), sweep.probe: 0.9 - 0.1 * factor}
        for name in sets
        for flag in mask_aware
        for seed, level in enumerate(levels[name])
        for label, factor in factors.items()
    ]
    target = folder / f"randomness-{domain}"
    target.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(target / f"randomness-{domain}-runs.csv", index=False)


def test_gains_are_those_of_the_tables(tmp_path: Path) -> None:
    write_study(tmp_path, "images", ("digits", "mnist"), mask_aware=(False, True))
    write_study(tmp_path, "genome", ("virus",))
    done = run_study(SUMMARY, tmp_path / "randomness", scale="small")
    assert {path.name for path in done.files} >= {
        f"randomness{end}" for end in (".csv", ".png", "-pooled.csv", "-rules.csv", "-mask-aware.png", "-rules.png")
    }
    table = pd.read_csv(tmp_path / "randomness" / "randomness.csv").set_index(["set", "score", "label", "against"])
    for name in ("digits", "mnist", "virus"):
        assert table.loc[(name, "error", "r2mae", "best_fixed"), "gain"] == pytest.approx(5)
        assert table.loc[(name, "error", "r2mae-per-sample", "best_fixed"), "gain"] == pytest.approx(10)
        if name != "virus":
            assert table.loc[(name, "probe", "r2mae-per-sample", "best_fixed"), "gain"] == pytest.approx(0.01)
    assert ("virus", "probe") not in {key[:2] for key in table.index}, "the accuracy at hidden bases is no probe"
    assert table.loc[("virus", "error", "r2mae-per-sample", "by_sample"), "gain"] == pytest.approx(
        100 * (1 - 0.9 / 0.92), abs=1e-3
    )
    assert table.loc[("mnist", "error", "r2mae" + MASK_AWARE, "mask_blind"), "gain"] == pytest.approx(20)
    assert table.loc[("virus", "error", "r2mae", "best_fixed"), "domain"] == "genome"
    pooled = pd.read_csv(tmp_path / "randomness" / "randomness-pooled.csv").set_index(["score", "label", "against"])
    assert pooled.loc[("error", "r2mae-per-sample", "best_fixed"), ["sets", "gain"]].tolist() == pytest.approx([3, 10])
    assert pooled.loc[("probe", "r2mae-per-sample", "best_fixed"), "sets"] == 2
    assert pooled.loc[("error", "r2mae" + MASK_AWARE, "mask_blind"), "sets"] == 2, "text and genomes have mask tokens"
    rules = pd.read_csv(tmp_path / "randomness" / "randomness-rules.csv")
    assert set(rules["set"]) == {"digits", "mnist", "virus", "all sets"}


def test_one_set_without_a_network_that_is_told_is_drawn(tmp_path: Path) -> None:
    write_study(tmp_path, "text", ("wiki",))
    done = run_study(SUMMARY, tmp_path / "randomness", scale="small")
    assert not any("mask-aware" in path.name for path in done.files)


def test_studies_of_another_scale_or_unfinished_are_not_mixed_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for domain in ("images", "cells"):
        write_study(tmp_path, domain, (f"set of {domain}",))
        write_json(tmp_path / f"randomness-{domain}" / MADE, {"scale": "small"})
    with pytest.raises(
        UserError, match="randomness-images is of the scale small, not full: give --scale small for all"
    ):
        run_study(SUMMARY, tmp_path / "randomness")
    run_study(SUMMARY, tmp_path / "randomness", scale="small")
    assert json.loads((tmp_path / "randomness" / "made.json").read_text())["scale"] == "small"
    assert "without randomness-text, randomness-genome" in caplog.text
    folder = tmp_path / "randomness-cells"
    begin(folder, "small", "runs", [folder / "absent"])
    with pytest.raises(UserError, match=r"randomness-cells is not finished \(0 of 1 runs, small\): run it to its end"):
        run_study(SUMMARY, tmp_path / "randomness", scale="small")


def test_tables_that_are_missing_or_of_another_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no tables of randomness-images.*run one of them with the same --out"):
        run_study(SUMMARY, tmp_path / "randomness", scale="small")
    (tmp_path / "randomness-cells").mkdir()
    (tmp_path / "randomness-cells" / "randomness-cells-runs.csv").write_text("set,label,mask_aware,seed\na,b,False,0\n")
    with pytest.raises(UserError, match="has no column 'masked_loss', so it is no table of these runs"):
        run_study(SUMMARY, tmp_path / "randomness", scale="small")
