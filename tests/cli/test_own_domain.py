"""The commands with a domain of one's own, which has no named sets: the one that docs/add-a-domain.md writes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.registry import BUILT_IN

PAGE = Path(__file__).parents[2] / "docs" / "add-a-domain.md"
Run = Callable[..., tuple[int, str]]


@pytest.fixture(params=["as on the page", "without presets"])
def waves(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the page's domain known, as its last section says."""
    before = PAGE.read_text(encoding="utf-8").split("\n## Use it")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", before, flags=re.DOTALL))
    if request.param == "without presets":
        code = code.replace('= {"small": {"hidden": 16}}', "= {}")
    name = f"waves_{request.param.replace(' ', '_')}"  # a module is imported once under its name
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(BUILT_IN, "waves", f"{name}:DOMAIN")


@pytest.fixture
def run(waves: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str]:
        try:
            code = main(line.split())
        except SystemExit as stop:
            code = int(stop.code or 0)
        told = capsys.readouterr()
        return code, told.out + told.err

    return call


@pytest.mark.parametrize("command", ["pretrain", "compare"])
def test_help(run: Run, command: str) -> None:
    code, told = run(f"{command} waves --help-all")
    assert code == 0
    assert "DATA is a path." in " ".join(told.split())
    assert f"r2mae {command} waves sines --scheme" in told
    assert "Presets: ." not in told
    assert "Width of the hidden layer." in told
    example = told.split("example:\n  r2mae ")[1].strip()
    assert run(f"{example} --print-config")[0] == 0


@pytest.mark.slow
def test_a_run(run: Run, tmp_path: Path) -> None:
    code, told = run("pretrain waves sines --steps 3 --threads 1 --out runs/a")
    assert (code, "linear probe accuracy" in told) == (0, True), told
    assert "domain: waves" in (tmp_path / "runs" / "a" / "config.yaml").read_text(encoding="utf-8")
    assert run("data list")[0] == 0
    code, told = run("evaluate runs/a --head-epochs 1 --json")
    assert (code, "probe_accuracy" in told) == (0, True), told
    code, told = run("evaluate runs/a --probe head")
    assert (code, "a run of the domain waves, which has no --probe: omit it" in told) == (2, True), told
    code, told = run("embed runs/a sines")
    assert (code, "embeddings of 64 numbers are in runs/a/embedding-sines.npz" in told) == (0, True), told
    code, told = run("pretrain waves sines --steps 3 --preset tiny")
    assert (code, told.count("\n")) == (2, 1)
