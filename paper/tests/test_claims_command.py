"""`r2mae reproduce --claims`: what it prints, writes and refuses."""

from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae_paper.claims import CLAIMS
from r2mae_paper.claims.page import BEGIN, END


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with results of a target, which it is run in."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "reproduce" / "table5"
    folder.mkdir(parents=True)
    rows = [f"{model},{seed},0.00{seed},0.01{seed},0.6{seed}" for model in ("beta", "latent") for seed in range(1, 6)]
    (folder / "table5.csv").write_text("\n".join(["model,seed,gain,over_best,r2mae", *rows]) + "\n")
    return tmp_path


@pytest.mark.parametrize("folders", [[], ["runs"], ["runs/reproduce/table5"]])
def test_every_claim_has_a_verdict(here: Path, folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--claims", *folders]) == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert f"{len(CLAIMS)} claims: " in words
    for part in dict.fromkeys(claim.part for claim in CLAIMS):
        assert part in words
    assert "not reproduced" in words


def test_a_page_takes_the_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "page.md").write_text(f"# Page\n{BEGIN}\n{END}\n")
    assert main(["reproduce", "--claims", "runs", "--markdown", "page.md"]) == 0
    assert all(claim.sentence in (here / "page.md").read_text("utf-8") for claim in CLAIMS)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--claims nowhere", "no folder nowhere"),
        ("--claims empty", "no results"),
        ("table5 --claims runs", "table5"),
        ("--claims runs --scale small", "--scale"),
        ("--claims runs --out=a", "--out"),
        ("--list --claims runs", "--list"),
        ("--claims runs --markdown missing.md", "missing.md"),
        ("--markdown page.md", "--claims"),
        ("table5 --markdown page.md", "--claims"),
    ],
)
def test_mistakes_are_one_line(here: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    assert main(["reproduce", *line.split()]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert not told.out
