"""Every example runs on tiny data, and is short enough to be read."""

import json
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
RUNS = [*((path.stem, "") for path in sorted(FOLDER.glob("*.py"))), ("images", "--preset mlp-16-64")]
# Loads the libraries once. Each example has a process of its own, a folder, and files for what it prints.
DRIVER = """
import json, os, runpy, sys
import anndata, sklearn.linear_model, torch, transformers, r2mae.compare.run, r2mae.training.pretraining
for folder, words in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.chdir(folder)
        os.environ["R2MAE_CACHE"] = "cache"
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
        open("done", "w").close()
        break
    os.wait()
"""


def arguments(name: str, folder: Path) -> list[str]:
    """Write what an example needs into its folder, and return its arguments."""
    if name == "cells":
        return ["--out", "run", "--epochs", "1", "--hidden", "16"]
    if name == "genome":  # it simulates its data
        return SHORT
    if name == "images":
        return ["--epochs", "1", "--out", "run"]
    if name == "imputation":
        (folder / "mine.csv").write_text("a,b,name\n1,2,x\n3,,y\n,5,z\n4,6,w\n", encoding="utf-8")
        return ["--table", "mine.csv", "--epochs", "1"]
    if name == "own_loop":
        return ["--steps", "5"]
    kind, option = ("Esm", "--proteins") if name == "proteins" else ("Bert", "--corpus")
    return ["--init", str(checkpoint(kind, folder / "model")), option, str(corpus(kind, folder)), *SHORT]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """The folders in which all examples have run."""
    found = {run: tmp_path_factory.mktemp(run[0]) for run in RUNS}
    jobs = [
        (str(folder), [str(FOLDER / f"{name}.py"), *arguments(name, folder), *options.split()])
        for (name, options), folder in found.items()
    ]
    subprocess.run([sys.executable, "-c", DRIVER, json.dumps(jobs)], check=True, env=dict(os.environ))
    return found


@pytest.mark.parametrize(("name", "options"), RUNS)
def test_an_example_runs(name: str, options: str, folders: dict[tuple[str, str], Path]) -> None:
    assert len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 120
    folder = folders[name, options]
    assert (folder / "done").exists(), (folder / "err").read_text(encoding="utf-8")
    printed = (folder / "out").read_text(encoding="utf-8")
    for words in SHOWN[name]:
        assert (words.replace("256", "64") if options else words) in printed
