"""Calls the command line in a module's folder."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from r2mae.cli.main import main

Run: TypeAlias = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Take a command's words in one line; return its exit code, output and errors. `folder` is the module's fixture."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("R2MAE_CACHE", str(folder / "cache"))

    def call(line: str) -> tuple[int, str, str]:
        code = main(line.split())
        return code, *capsys.readouterr()

    return call
