"""``compare --plan-power``: what planned seeds can decide, from the scores of a pilot whose runs are made up here."""

import json
import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from r2mae.cli.main import main
from r2mae.cli.power import parse_matters, print_power
from r2mae.compare.finished import shared_fields
from r2mae.compare.power import FRACTION, WORTH, PowerPlan, matters_by_default, plan_power
from r2mae.compare.variants import plan_variants
from r2mae.errors import UserError
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.metrics import Metric
from r2mae.evaluation.power import detectable, seeds_needed, upper_limit
from r2mae.evaluation.statistics import best_fixed
from r2mae.files import write_json
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.sweep.runs import runs_of
from r2mae.training.folder import RunFolder
from r2mae.training.scheme_defaults import ratios_of

BASE = ImagesConfig(data="digits", epochs=100, steps=40, hidden=32, latent=16, device="cpu")
SCHEMES = ["fixed", "mdlm", "r2mae"]
SCORES = {
    "fixed 0.50": [0.90, 0.92, 0.91], "fixed 0.70": [0.93, 0.94, 0.92], "fixed 0.90": [0.80, 0.82, 0.81],
    "mdlm": [0.94, 0.97, 0.93], "r2mae": [0.95, 0.95, 0.94],
}  # fmt: skip


def pilot(out: Path, seeds: int = 3, base: ImagesConfig = BASE, schemes: list[str] = SCHEMES) -> Path:
    """Write the folder of a comparison as far as its scores are read."""
    rows = plan_variants(base, ratios_of(DOMAIN, base), schemes)
    write_json(out / "compare.json", shared_fields(base))
    for run in runs_of(rows, range(seeds), out):
        run.folder.mkdir(parents=True)
        (run.folder / "config.yaml").write_text(yaml.safe_dump(run.config.to_dict()))
        (run.folder / "model.json").write_text("{}")
        (run.folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
        scores = {"probe_accuracy": SCORES[run.variant.label][run.seed], "masked_mse": 0.02 + 0.001 * run.seed}
        write_json(
            run.folder / "results.json", {"scores": scores, "seconds": 10.0, "measured": base.measurement_settings()}
        )
    return out


def plan(out: Path, **options: Any) -> Any:
    asked = {"schemes": SCHEMES, "seeds": range(5), "out": out, "jobs": 1} | options
    return plan_power(asked.pop("base", BASE), DOMAIN, **{**asked, "seeds": list(asked["seeds"])})


def test_the_plan_follows_from_the_pilots_differences(tmp_path: Path) -> None:
    found = plan(pilot(tmp_path / "a"))
    assert [(one.label, one.against) for one in found.of("probe_accuracy")] == [
        ("mdlm", "best fixed"), ("r2mae", "best fixed"), ("mdlm", "r2mae"),
    ]  # fmt: skip
    one = found.of("probe_accuracy")[0]
    differences = np.subtract(SCORES["mdlm"], SCORES["fixed 0.70"])  # the best fixed ratio under every seed
    assert one.sd == pytest.approx(differences.std(ddof=1)) and one.difference == pytest.approx(differences.mean())
    assert one.sd_high == pytest.approx(upper_limit(one.sd, 3))
    assert (one.decides, one.decides_high) == (detectable(one.sd, 5), detectable(one.sd_high, 5))
    assert one.matters == pytest.approx(FRACTION * (1 - 0.93))
    assert (one.seeds, one.seeds_high) == (seeds_needed(one.sd, one.matters), seeds_needed(one.sd_high, one.matters))
    assert (found.runs, found.left, found.seconds, found.seconds_per_seed) == (25, 10, 100.0, 50.0)
    assert found.elapsed == pytest.approx(100.0) and not found.differs
    equal = found.of("masked_mse")[0]  # a spread of nothing is no spread
    assert math.isnan(equal.sd) and math.isnan(equal.decides) and equal.seeds is None
    json.dumps(found.to_dict())


def test_more_planned_seeds_decide_smaller_differences(tmp_path: Path) -> None:
    folder = pilot(tmp_path / "a")
    few, many = (plan(folder, seeds=range(n)).of("probe_accuracy") for n in (3, 12))
    assert all(late.decides < early.decides for early, late in zip(few, many, strict=True))
    sized = plan(folder, matters={"": 0.5, "masked_mse": 0.01})
    assert {one.matters for one in sized.of("probe_accuracy")} == {0.5}
    assert sized.given == {"probe_accuracy": 0.5, "masked_mse": 0.01}
    with pytest.raises(UserError, match="unknown metric 'masked_mze'"):
        plan(folder, matters={"masked_mze": 1.0})


def test_another_comparison_may_be_the_pilot_and_says_how_it_differs(tmp_path: Path) -> None:
    folder = pilot(tmp_path / "a")
    longer = replace(BASE, steps=400)
    found = plan(tmp_path / "new", pilot=folder, base=longer)
    assert found.differs == ("steps",) and found.left == 25
    assert np.isnan([found.seconds, found.seconds_per_seed, found.elapsed]).all(), "longer runs take longer"
    otherwise = plan(tmp_path / "new", pilot=folder, base=replace(BASE, bn_statistics="no"))
    assert "bn_statistics" in otherwise.differs, "how runs were measured is a difference, too"
    with pytest.raises(UserError, match="steps is 40 there and 400 here"):
        plan(folder, base=longer)
    (folder / "compare.json").write_text('{"domain": "text"}')
    with pytest.raises(UserError, match="of the domain text"):
        plan(tmp_path / "new", pilot=folder)
    assert not (tmp_path / "new").exists()


def test_without_a_pilot_one_line_says_how_to_make_one(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", pilot(tmp_path / "one", seeds=1), pilot(tmp_path / "part", schemes=["fixed"])):
        with pytest.raises(
            UserError, match=r"r2mae compare images digits --schemes fixed mdlm r2mae --seeds 3"
        ) as error:
            plan(folder)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="one row cannot be compared"):
        plan(tmp_path / "none", schemes=["r2mae"])


def test_what_matters_by_default() -> None:
    accuracy, error = Metric("a", "a", bounds=(0, 1)), Metric("e", "e", False, bounds=(0, math.inf))
    assert matters_by_default(accuracy, 0.9) == pytest.approx(FRACTION * 0.1)
    assert matters_by_default(error, 0.4) == pytest.approx(FRACTION * 0.4)
    assert matters_by_default(Metric("r", "r"), -3.0) == pytest.approx(FRACTION * 3.0)


def test_differences_that_matter_are_read() -> None:
    assert parse_matters(["0.01", "masked_mse=2e-3"]) == {"": 0.01, "masked_mse": 0.002}
    for words in (["x"], ["0"], ["-1"], ["nan"], ["=1"], ["a="], ["1", "2"]):
        with pytest.raises(UserError, match="--matters"):
            parse_matters(words)


def test_the_command_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pilot(tmp_path / "a")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    line = f"compare digits --schemes {' '.join(SCHEMES)} --steps 40 --hidden 32 --latent 16 --seeds 5 --plan-power"
    words = [*line.split(), "--out", str(tmp_path / "a")]
    assert main(words) == 0
    told = capsys.readouterr().out
    for word in ("linear probe accuracy", "mdlm", "best fixed", "3 seeds", "5 seeds", "worth running"):
        assert word in told
    assert main([*words, "--json", "--matters", "0.01"]) == 0
    assert json.loads(capsys.readouterr().out)["given"] == {"probe_accuracy": 0.01}
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def advised(plan: PowerPlan, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[int]]:
    """Return what is printed, and the numbers of seeds that it advises."""
    print_power(plan)
    told = capsys.readouterr().out
    return told, [int(number) for number in re.findall(r"--seeds (\d+)", told)]


def test_no_number_of_seeds_is_advised_that_nobody_would_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pilot(tmp_path / "a")
    sizes = [1e-5, 0.01, 0.5]
    some = 0
    for size in sizes:
        found = plan(folder, seeds=range(3), matters={"": size})
        needed = [one.seeds_high for one in found.of("probe_accuracy")]
        told, numbers = advised(found, capsys)
        affordable = [count for count in needed if count is not None and 3 < count <= WORTH]
        assert numbers == ([max(affordable)] if affordable else [])
        beyond = [count for count in needed if count is None or count > WORTH]
        assert ("worth running" in told) == bool(beyond)
        some += bool(affordable) and bool(beyond)
    assert some  # a size at which seeds decide some differences and not others
    assert advised(plan(folder, seeds=range(60), matters={"": 1e-3}), capsys)[1] == []


def test_one_planned_seed_is_said_to_decide_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(pilot(tmp_path / "a"), seeds=range(1), matters={"": 0.5})
    told, numbers = advised(found, capsys)
    assert "1 seed never decides" in told and "1 seed decide " not in told
    assert numbers == [max(one.seeds_high for one in found.of("probe_accuracy"))]


def test_no_two_columns_of_the_table_have_one_name_and_the_legend_explains_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = advised(plan(pilot(tmp_path / "a")), capsys)[0].splitlines()
    heads = re.split(r"\s{2,}", told[1].replace(" ≤", "≤").replace(" ", "  ").strip())
    assert len(heads) == len(set(heads)) == 10
    legend = " ".join(line.replace(" ≤", "≤") for line in told if ":" in line)
    for name in ("sd≤", "decides≤", "seeds≤", "decides:", "seeds:"):
        assert name in legend


def test_test_items_are_counted_where_the_report_counts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pilot(tmp_path / "a")
    alone = plan(folder)
    hard = np.random.default_rng(0).normal(0, 0.3, 200)  # items that are hard for one scheme and not for another
    for run in (one for one in runs_of(plan_variants(BASE, ratios_of(DOMAIN, BASE), SCHEMES), range(3), folder)):
        mean = SCORES[run.variant.label][run.seed]
        scores = mean + (hard - hard.mean()) * (run.variant.label == "mdlm")
        kept = ItemScores("f", len(hard), {"probe_accuracy": scores.astype(np.float32)})
        kept.write(RunFolder(run.folder).items_file, run.config.measurement_settings())
    found = plan(folder)
    for one, was in zip(found.of("probe_accuracy"), alone.of("probe_accuracy"), strict=True):
        assert (one.over, one.items, was.items) == ("seeds and items", 200, 0)
        assert one.sd == was.sd and math.isnan(was.items_sd)
        if "mdlm" in (one.label, one.against):
            assert one.items_sd == pytest.approx(hard.std(ddof=1) / math.sqrt(200), rel=0.01)
            assert one.decides > 1.9 * one.items_sd and one.seeds is None and was.seeds is not None
        else:
            assert one.items_sd == 0 and one.decides == pytest.approx(was.decides, rel=0.01)
    told = advised(found, capsys)[0]
    assert "intervals: over seeds and 200 test items, as all runs have scores of the same test items" in told
    assert "items: what the choice of test items adds" in told and "worth running" in told and "…" not in told
    told = advised(plan(folder, seeds=range(2)), capsys)[0]
    assert "intervals: over seeds alone, as there are fewer than 3 seeds" in told
    assert "seeds starts at 3: from there on intervals count test items, too" in told and "items: what" not in told
    told = advised(plan(folder, seeds=range(2), matters={"": 1e3}), capsys)[0]
    assert "2 seeds decide what matters, by the upper limits" in told, "without items, which two seeds leave out"
    assert "over seeds alone, as some runs have no scores of single items" in advised(alone, capsys)[0]
    json.dumps(found.to_dict())


@pytest.mark.parametrize(
    ("more", "told"),
    [("--plan-power --dry-run", "--dry-run would be ignored"), ("--matters 1", "--matters belongs to --plan-power"),
     ("--pilot x", "--pilot belongs to --plan-power"), ("--plan-power --baselines pca", "--baselines would be ignored"),
     ("--plan-power --cluster tcp://a:1", "--cluster would be ignored"), ("--plan-power --pilot nowhere", "nowhere")],
)  # fmt: skip
def test_options_that_would_be_ignored_are_refused(
    more: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "digits", *more.split()]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_plan_takes_the_spread_that_the_report_will_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios that are nearly alike, and a row without one of the seeds."""
    near = {
        **SCORES,
        "fixed 0.50": [0.90, 0.94, 0.91, 0.93], "fixed 0.70": [0.93, 0.91, 0.92, 0.90],
        "fixed 0.90": [0.91, 0.92, 0.93, 0.91], "mdlm": [0.94, 0.95, 0.93, 0.94], "r2mae": [0.95, 0.95, 0.94, 0.96],
    }  # fmt: skip
    monkeypatch.setattr(sys.modules[__name__], "SCORES", near)
    folder = pilot(tmp_path / "a", seeds=4)
    shutil.rmtree(next(folder.glob("runs/mdlm/seed-3")))
    found = plan(folder)
    table = pd.DataFrame([
        {"label": label, "seed": seed, "scheme": label.split()[0], "probe_accuracy": score}
        for label, scores in near.items() for seed, score in enumerate(scores) if (label, seed) != ("mdlm", 3)
    ])  # fmt: skip
    fixed = table[table["scheme"] == "fixed"].pivot_table(index="seed", columns="label", values="probe_accuracy")
    best = best_fixed(fixed.to_numpy())
    assert not np.allclose(best.scores, best.pseudo)
    for one in found.of("probe_accuracy")[:2]:
        seeds = [0, 1, 2] if one.label == "mdlm" else [0, 1, 2, 3]
        moved = best.pseudo[seeds] - best.pseudo[seeds].mean() + best.scores[seeds].mean()
        gaps = np.array(near[one.label])[seeds] - moved
        plain = np.array(near[one.label])[seeds] - best.scores[seeds]
        assert one.against == "best fixed" and one.pairs == len(seeds)
        assert one.difference == pytest.approx(plain.mean())
        assert one.sd == pytest.approx(max(gaps.std(ddof=1), plain.std(ddof=1)))
        assert one.sd > plain.std(ddof=1)
