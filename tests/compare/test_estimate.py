"""``compare --dry-run``: what it counts is what the comparison does, and it leaves nothing behind."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.cli.dry_run import duration, size
from r2mae.cli.main import main
from r2mae.compare.compare import compare
from r2mae.compare.estimate import elapsed, estimate
from r2mae.errors import UserError
from r2mae.images.config import ImagesConfig
from r2mae.images.domain import DOMAIN
from r2mae.masking.schemes import scheme_names
from r2mae.sweep.runs import Variant, runs_of
from r2mae.sweep.train_run import pretrain
from r2mae.training.run import Run
from r2mae.training.timing import STEPS, time_steps

BASE = ImagesConfig(data="digits", steps=40, hidden=32, latent=16, threads=1, save_every=20)


@given(st.lists(st.floats(0.1, 100), max_size=12), st.integers(1, 5))
def test_the_last_run_ends_neither_too_early_nor_too_late(seconds: list[float], jobs: int) -> None:
    end = elapsed(seconds, jobs)
    assert end >= max([sum(seconds) / jobs, *seconds]) - 1e-6
    assert end <= sum(seconds) / jobs + max([0.0, *seconds]) + 1e-6
    assert elapsed(seconds, 1) == pytest.approx(sum(seconds))


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (86400, "24 h"), (864_000, "10 days")]
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_sizes() -> None:
    assert [size(n) for n in (0, 999, 1000, 2.5e9, 3e12)] == ["0 B", "999 B", "1 kB", "2.5 GB", "3 TB"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheme": "r2mae-cl", "accumulate": 2, "ema": 0.9},
        {"validation": 0.1, "scheme": "dynamic", "workers": 1},
        {"steps": 1},
    ],
    ids=["plain", "curriculum, accumulation, average", "validation, worker", "one step"],
)
def test_a_timing(options: dict[str, Any]) -> None:
    config = replace(BASE, **options)
    timing = time_steps(Run.resolve(config, DOMAIN), DOMAIN.load(config), seconds=2)
    assert 0 < timing.timed <= STEPS
    assert timing.seconds_per_step > 0
    assert (timing.seconds_per_validation > 0) == (config.validation > 0)
    assert timing.gradients <= timing.parameters
    assert timing.optimizer >= 2 * timing.gradients  # Adam's two moments
    assert timing.peak is None
    # at least the rows of the batch at the width of the first hidden layer
    assert timing.activations > 4 * config.batch_size // config.accumulate * config.hidden


@pytest.mark.slow
def test_activations_grow_with_the_batch() -> None:
    found = [
        time_steps(Run.resolve(replace(BASE, batch_size=size), DOMAIN), DOMAIN.load(BASE), seconds=0.2).activations
        for size in (64, 256)
    ]
    assert 3 < found[1] / found[0] < 4.5


@pytest.mark.slow
def test_every_scheme_can_be_timed_long_before_its_curriculum_ends() -> None:
    data = DOMAIN.load(BASE)
    for scheme in scheme_names():
        config = replace(BASE, scheme=scheme, steps=100_000)
        assert time_steps(Run.resolve(config, DOMAIN), data, seconds=0.1).timed > 0


@pytest.mark.slow
def test_the_counts_and_the_disk_are_those_of_the_comparison(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"schemes": ["r2mae", "cl"], "seeds": [0, 1], "out": tmp_path / "c"}
    found = estimate(BASE, DOMAIN, baselines=["pixels"], jobs=2, seconds=0.2, **plan)
    assert not list(tmp_path.iterdir())
    assert (found.runs, found.finished, found.baselines, found.jobs) == (4, 0, 2, 2)
    assert [(row.label, row.steps, row.steps_left) for row in found.rows] == [("r2mae", 40, 80), ("cl", 40, 80)]
    assert found.elapsed <= found.seconds <= 2 * found.elapsed + 1e-9

    compare(BASE, DOMAIN, jobs=1, **{**plan, "seeds": [0], "schemes": ["r2mae"]})
    files = [file for file in (tmp_path / "c" / "runs").rglob("*") if file.is_file()]
    assert found.rows[0].disk == pytest.approx(sum(file.stat().st_size for file in files), rel=0.25)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = estimate(BASE, DOMAIN, jobs=2, seconds=0.2, **plan)
    assert (again.finished, [row.finished for row in again.rows]) == (1, [1, 0])
    assert again.rows[0].steps_left == 40
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with pytest.raises(UserError, match="lr is"):
        estimate(replace(BASE, lr=0.5), DOMAIN, seconds=0.2, **plan)


@pytest.mark.slow
def test_data_that_have_changed_are_refused_as_by_the_comparison(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = tmp_path / "images.npy"
    plan: dict[str, Any] = {"schemes": ["r2mae"], "seeds": [0], "out": tmp_path / "c"}
    config = replace(BASE, data=str(data), steps=2)
    np.save(data, rng.integers(0, 255, (60, 8, 8), dtype=np.uint8))
    compare(config, DOMAIN, jobs=1, baselines=["mean"], **plan)
    assert estimate(config, DOMAIN, seconds=0.1, baselines=["mean"], **plan).finished == 1
    np.save(data, rng.integers(0, 255, (60, 8, 8), dtype=np.uint8))
    for schemes, baselines, says in (
        (["r2mae"], [], "has changed since"),
        (["mdlm"], ["mean"], "measured on other data"),
    ):
        with pytest.raises(UserError, match=says):
            estimate(config, DOMAIN, seconds=0.1, baselines=baselines, **{**plan, "schemes": schemes})


class _Cut(Exception):
    pass


@pytest.mark.slow
def test_a_half_finished_run_has_fewer_steps_left(tmp_path: Path) -> None:
    class CutOff:
        def start(self, step: int, total: int) -> None:
            return

        def update(self, pace: Any) -> None:
            if pace.step >= 40:
                raise _Cut

        def stop(self) -> None:
            return

    config = replace(BASE, steps=60)
    (run,) = runs_of([Variant("r2mae", replace(config, scheme="r2mae"))], [0], tmp_path)
    with pytest.raises(_Cut):
        pretrain(run.config, DOMAIN, run.folder, reporter=CutOff())
    found = estimate(config, DOMAIN, schemes=["r2mae"], seeds=[0], out=tmp_path, seconds=0.2)
    assert found.rows[0].steps == 60
    assert 20 <= found.rows[0].steps_left <= 40


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = "compare digits --schemes fixed mdlm --seeds 2 --steps 30 --hidden 16 --dry-run"
    assert main(words.split()) == 0
    told = capsys.readouterr().out
    for word in ("fixed 0.70", "mdlm", "8 runs", "240 steps", "estimate"):
        assert word in told
    assert main([*words.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 8
    assert found["rows"][0]["timing"]["memory"] > 0
    assert not list(tmp_path.iterdir())
    assert main([*words.split(), "--devices", "2"]) == 2
    assert main([*words.split(), "--cluster", "tcp://localhost:1"]) == 2
    assert "leave --cluster out" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
