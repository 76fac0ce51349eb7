"""The notebooks of the documentation: plain, without outputs, and every cell runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from r2mae.cli.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
# Runs the code cells in order in one namespace, and says which one failed.
DRIVER = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        try:
            exec(compile("".join(cell["source"]), "cell " + cell["id"], "exec"), names)
        except BaseException:
            print("failed: cell " + cell["id"], file=sys.stderr)
            raise
print("finished")
"""


def execute(notebook: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a notebook's cells in a fresh process, one thread, warnings as a reader has them."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}
    environment.pop("PYTHONWARNINGS", None)
    command = [sys.executable, "-c", DRIVER, str(notebook)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def read(notebook: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return content


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_plain_and_without_outputs(notebook: Path) -> None:
    content = read(notebook)
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in content["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in ids)
    for cell in content["cells"]:
        source = "".join(cell["source"])
        keys = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            compile(source, cell["id"], "exec")  # no magics
            keys |= {"outputs", "execution_count"}
        assert set(cell) == keys
        assert max(len(line) for line in source.splitlines()) <= 120
        assert not re.search(r"(^|[\s\"'(])/(?!/)\w", source), f"cell {cell['id']} names an absolute path"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_commands_parse(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join("".join(cell["source"]) for cell in read(notebook)["cells"] if cell["cell_type"] == "markdown")
    found = re.findall(r"^    r2mae ((?:pretrain|compare) .*)$", text.replace("\\\n", " "), flags=re.MULTILINE)
    assert found
    for line in found:
        assert main([*line.split(), "--print_config"]) == 0
        assert f"domain: {line.split()[1]}" in capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(notebook: Path, data_root: Path, tmp_path: Path) -> None:
    done = execute(notebook, tmp_path, R2MAE_DATA=str(data_root))
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("finished\n")
    assert not list(tmp_path.iterdir())


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "id": name, "source": [line]} for name, line in (("good", "x = 1\n"), ("bad", "x + y"))
    ]
    (tmp_path / "broken.ipynb").write_text(json.dumps({"cells": cells}))
    done = execute(tmp_path / "broken.ipynb", tmp_path)
    assert done.returncode != 0
    assert "failed: cell bad" in done.stderr
    assert "'y' is not defined" in done.stderr
