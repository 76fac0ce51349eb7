"""``compare --plan-power``: what planned seeds can decide, from the scores of finished runs that are made up here."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from r2mae.cli.main import main
from r2mae.compare.estimate import plan_power
from r2mae.compare.run_states import shared_fields
from r2mae.compare.runs import plan_variants, runs_of
from r2mae.errors import UserError
from r2mae.evaluation.power import detectable, seeds_needed
from r2mae.files import write_json
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN

BASE = ImagesConfig.make(data="digits", epochs=100, steps=40, hidden=32, latent=16, device="cpu")
SCHEMES = ["fixed", "mdlm", "r2mae"]
SCORES = {
    "fixed 0.50": [0.90, 0.92, 0.91], "fixed 0.70": [0.93, 0.94, 0.92], "fixed 0.90": [0.80, 0.82, 0.81],
    "mdlm": [0.94, 0.97, 0.93], "r2mae": [0.95, 0.95, 0.94],
}  # fmt: skip


def finished_runs_in(out: Path, seeds: int = 3, base: ImagesConfig = BASE, schemes: list[str] = SCHEMES) -> Path:
    """Write the folder of a comparison as far as its scores are read."""
    variants = plan_variants(base, schemes)
    write_json(out / "compare.json", shared_fields(base))
    for run in runs_of(variants, range(seeds), out):
        run.folder.mkdir(parents=True)
        (run.folder / "config.yaml").write_text(yaml.safe_dump(run.config.to_dict()))
        (run.folder / "model.json").write_text("{}")
        (run.folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
        scores = {"probe_accuracy": SCORES[run.variant.label][run.seed], "masked_mse": 0.02 + 0.001 * run.seed}
        measured = base.measurement_settings()
        write_json(run.folder / "results.json", {"scores": scores, "seconds": 10.0, "measured": measured})
    return out


def plan(out: Path, seeds: int) -> dict[str, dict[str, object]]:
    variants = plan_variants(BASE, SCHEMES)
    rows = plan_power(BASE, DOMAIN, variants, list(range(seeds)), out)
    assert [row["metric"] for row in rows] == [name for name in ("probe_accuracy", "masked_mse") for _ in range(2)]
    return {row["label"]: row for row in rows[:2]}


def test_the_plan_follows_from_the_differences_so_far(tmp_path: Path) -> None:
    rows = plan(finished_runs_in(tmp_path / "a"), seeds=5)
    assert set(rows) == {"mdlm", "r2mae"}
    own = rows["mdlm"]
    assert (own["against"], own["metric"], own["pairs"]) == ("best fixed", "probe_accuracy", 3)
    differences = np.array(SCORES["mdlm"]) - np.array(SCORES["fixed 0.70"])  # the best in every fold
    assert own["difference"] == pytest.approx(differences.mean())
    assert own["sd"] == pytest.approx(differences.std(ddof=1))
    confidence = 1 - 0.04 / 2  # a first look at two schemes
    assert own["decides"] == pytest.approx(detectable(float(differences.std(ddof=1)), 5, confidence=confidence))
    sd, mean = float(differences.std(ddof=1)), abs(float(differences.mean()))
    assert own["seeds"] == seeds_needed(sd, mean, confidence=confidence)


def test_more_planned_seeds_decide_smaller_differences(tmp_path: Path) -> None:
    folder = finished_runs_in(tmp_path / "a")
    sizes = [plan(folder, seeds)["r2mae"]["decides"] for seeds in (3, 5, 10)]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3


def test_one_seed_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs two finished seeds of every variant.*without --plan-power first"):
        plan(finished_runs_in(tmp_path / "a", seeds=1), seeds=3)
    with pytest.raises(UserError, match="two finished seeds"):
        plan(tmp_path / "none", seeds=3)


def test_the_command_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = finished_runs_in(tmp_path / "a")
    before = sorted(tmp_path.rglob("*"))
    line = f"compare digits --steps 40 --hidden 32 --latent 16 --device cpu --out {out} --plan-power"
    words = [*line.split(), "--schemes", *SCHEMES, "--seeds", "8"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "8 seeds decide" in told and "best fixed" in told and "mdlm" in told
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["label"] == "mdlm"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("schemes", "against"), [(["fixed"], None), (["r2mae"], "r2mae"), (["r2mae", "mdlm"], None)])
def test_one_side_alone_is_not_compared(tmp_path: Path, schemes: list[str], against: str | None) -> None:
    out, variants = finished_runs_in(tmp_path, schemes=schemes), plan_variants(BASE, schemes)
    with pytest.raises(UserError, match="another scheme in --schemes"):
        plan_power(BASE, DOMAIN, variants, range(8), out, against)


@pytest.mark.parametrize("more", ["--dry-run", "--cluster tcp://a:1", "--baselines pca"])
def test_options_that_would_be_ignored_are_refused(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "digits", "--plan-power", *more.split()]) == 2
    assert more.split(maxsplit=1)[0] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
