"""``compare --dry-run``: what it counts is what the comparison does, and it leaves nothing behind."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from r2mae.cli.main import main
from r2mae.compare.estimate import estimate
from r2mae.compare.runs import plan_variants
from r2mae.compare.wording import duration
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.training.pretraining import pretrain

BASE = ImagesConfig.make(data="digits", steps=40, hidden=32, latent=16, threads=1, device="cpu")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (86400, "24 h"), (864_000, "10 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.slow
def test_finished_runs_are_not_counted_and_time_is_steps_times_runs(tmp_path: Path) -> None:
    variants = plan_variants(BASE, ["fixed", "mdlm"])
    first = variants[0].config
    out = tmp_path / "c"
    pretrain(first, DOMAIN, out / "runs" / variants[0].label.replace(" ", "-") / "seed-0")
    found = estimate(BASE, DOMAIN, variants, [0, 1], out, jobs=2)
    assert (found["runs"], found["finished"], found["steps"], found["timed"]) == (8, 1, 40, "fixed 0.50")
    assert found["seconds"] == pytest.approx(7 * 40 * found["seconds_per_step"])
    assert found["seconds_per_step"] > 0 and found["elapsed"] < found["seconds"]


def test_imports_of_the_first_run_are_not_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first run in a process takes seconds more than the next: they were subtracted from the time of the steps."""
    counts: list[int] = []

    def fit(config: ImagesConfig, *_: object, **__: object) -> SimpleNamespace:
        counts.append(config.optimizer.steps or 0)
        return SimpleNamespace(seconds=0.05 + counts[-1] * 0.001 + (9.0 if len(counts) == 1 else 0.0))

    monkeypatch.setattr("r2mae.compare.estimate.fit", fit)
    found = estimate(BASE.replace(steps=7000), DOMAIN, plan_variants(BASE.replace(steps=7000), ["mdlm"]), [0], tmp_path)
    assert found["seconds_per_step"] == pytest.approx(0.001)
    assert counts == [5, 5, 15, 45, 165, 645, 2565]


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = "compare digits --schemes fixed mdlm --seeds 2 --steps 30 --hidden 16 --dry-run"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    for word in ("fixed 0.50", "8 runs", "30 steps", "Nothing was written"):
        assert word in out
    assert main([*words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 8
    assert not list(tmp_path.iterdir())
    for more, reason in (("--devices 2", "omit --devices"), ("--cluster tcp://localhost:1", "--cluster would be")):
        assert main([*words.split(), *more.split()]) == 2
        assert reason in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
