"""Every example runs on tiny data, and is short enough to be read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import checkpoint, corpus

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "examples"
SHORT = ["--out", "run", "--steps", "3", "--batch", "8", "--length", "16"]
SHOWN = {
    "cells": ["25% of the genes hidden", "300 cells of the query are embedded"],
    "genome": ["400 of 400 variants have a score", "AUROC"],
    "images": ["accuracy of a linear probe: ", "1,797 images as vectors of 256 numbers"],
    "imputation": ["4 rows, 2 columns of numbers, 25% missing", "IterativeImputer: error ", "is filled in by "],
    "own_loop": ["50% hidden: mean squared error "],
    "proteins": ["60 proteins as"],
    "text": ["0.4 of the tokens hidden: ", "The capital of France is [blank]."],
}


def arguments(name: str) -> list[str]:
    """Write what an example needs, and return its arguments."""
    if name == "cells":
        return ["--out", "run", "--epochs", "1", "--hidden", "16"]
    if name == "genome":  # it simulates its data
        return SHORT
    if name == "images":
        return ["--epochs", "1", "--out", "run"]
    if name == "imputation":
        Path("mine.csv").write_text("a,b,name\n1,2,x\n3,,y\n,5,z\n4,6,w\n", encoding="utf-8")
        return ["--table", "mine.csv", "--epochs", "1"]
    if name == "own_loop":
        return ["--steps", "5"]
    kind, option = ("Esm", "--proteins") if name == "proteins" else ("Bert", "--corpus")
    return ["--init", str(checkpoint(kind, Path("model"))), option, str(corpus(kind, Path())), *SHORT]


@pytest.mark.parametrize(
    ("name", "options"), [*((path.stem, "") for path in sorted(FOLDER.glob("*.py"))), ("images", "--preset mlp-16-64")]
)
def test_an_example_runs(name: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    file = FOLDER / f"{name}.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 120
    command = [sys.executable, str(file), *arguments(name), *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    for words in SHOWN[name]:
        assert words.replace("256", "64") if options else words in done.stdout
