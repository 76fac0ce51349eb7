"""The command that runs the benchmarks; what they measure is no test."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"__init__", "__main__", "timing"}


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_lists_every_benchmark_and_runs_none(word: str) -> None:
    done = run(word)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {words[0] for words in lines if len(words) > 1} >= NAMES
    assert "==" not in done.stdout


def test_an_unknown_one_is_refused_before_any_runs() -> None:
    done = run("startup", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'nothing'" in done.stderr


@pytest.mark.slow
def test_the_sweeps_benchmark_runs_on_a_few_cells() -> None:
    words = ["--cells", "12", "--ended", "6", "--rounds", "1"]
    command = [sys.executable, "-m", "benchmarks.sweep", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "12 cells" in done.stdout


def test_the_benchmark_of_cells_has_the_papers_sizes() -> None:
    from benchmarks.cells import paper_config

    config = paper_config(7)
    assert (config.model.n_hidden, config.model.n_latent, config.optimizer.batch_size) == (2000, 1000, 400)
    assert (config.optimizer.steps, config.optimizer.weight_decay) == (7, 1e-4)
