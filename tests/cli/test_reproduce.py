from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.reproduce import fig1b
from r2mae.reproduce.artefact import ARTEFACTS, get_artefact
from r2mae.reproduce.spiked import SpikedSize

pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and a Fig. 1B of no cost."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SpikedSize, "small", {"n": 40, "d": 80, "repetitions": 2, "fresh": 2, "step": 0.05})
    return tmp_path


@pytest.mark.parametrize("line", ["reproduce", "reproduce --help"])
def test_all_artefacts_are_listed_with_their_titles(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(line.split())
    except SystemExit as stop:
        code = stop.code
    assert code == 0
    out = capsys.readouterr().out
    for name in ARTEFACTS:
        assert f"\n  {name} " in out
        assert get_artefact(name).TITLE in out


def test_an_artefact_goes_to_a_folder_of_its_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig1b", "fig1b", "--scale", "small"]) == 0
    files = sorted(path.name for path in (here / "runs" / "reproduce" / "fig1b").glob("[!.]*"))
    assert files == ["fig1b.csv", "fig1b.png", "fig1b.svg"]
    out = capsys.readouterr().out
    assert out.count(fig1b.TITLE) == 1
    assert str(Path("runs") / "reproduce" / "fig1b" / "fig1b.csv") in out


def test_out_and_jobs(here: Path) -> None:
    assert main(["reproduce", "fig1b", "--scale", "small", "--out", "a"]) == 0
    assert main(["reproduce", "fig1b", "--scale", "small", "--out", "b", "--jobs", "2"]) == 0
    assert (here / "a" / "fig1b" / "fig1b.csv").read_bytes() == (here / "b" / "fig1b" / "fig1b.csv").read_bytes()


def test_what_was_computed_before_is_told_and_again_computes_it_anew(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["reproduce", "fig1b", "--scale", "small"]
    told = []
    for more in ([], [], ["--again"]):
        assert main([*line, *more]) == 0
        told.append("1 of 1 parts computed before" in capsys.readouterr().out)
    assert told == [False, True, False]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("reproduce fig1b fig1x", "unknown artefact 'fig1x'"),
        ("reproduce fig1b --scale tiny", "--scale"),
        ("reproduce fig1b --jobs 0", "--jobs must be 1 or more, not 0"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(
    here: Path, line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert len(err.splitlines()) == 1
    assert not out
    assert not list(here.iterdir())
