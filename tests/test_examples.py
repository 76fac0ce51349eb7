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
KINDS = {"text": "Bert", "proteins": "Esm"}


def arguments(name: str) -> list[str]:
    """Write what an example needs, and return its arguments."""
    if name == "cells":
        return ["--out", "run", "--epochs", "1", "--hidden", "16"]
    data, kind = ("--proteins" if name == "proteins" else "--corpus"), KINDS[name]
    return ["--init", str(checkpoint(kind, Path("model"))), data, str(corpus(kind, Path())), *SHORT]


SHOWN = {
    "cells": ["25% of the genes hidden", "300 cells of the query are embedded"],
    "text": ["0.4 of the tokens hidden: ", "The capital of France is [blank]."],
    "proteins": ["60 proteins as"],
}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("R2MAE_CACHE", str(tmp_path / "cache"))
    file = FOLDER / f"{name}.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 120
    command = [sys.executable, str(file), *arguments(name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    for words in SHOWN[name]:
        assert words in done.stdout
