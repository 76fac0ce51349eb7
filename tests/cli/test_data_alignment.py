"""``r2mae data alignment``: from files to a store, and what it tells."""

from pathlib import Path

import pytest

from r2mae.cli.main import main
from r2mae.genome import AlignmentStore

MAF = """##maf version=1
a score=5
s ref.chr1 2 4 + 9 ACg-T
s x.c     0 5 + 9 ACGTA

a score=5
s ref.chr2 0 2 - 3 AC
s x.c     5 2 - 9 GG
"""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.maf").write_text(MAF)

    def run(line: str) -> str:
        assert main(["data", "alignment", *line.split()]) == 0
        return capsys.readouterr().out

    return run


def test_from_maf_to_zarr_and_back(call) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("zarr")
    out = call("build a.maf -o store")
    assert "12 positions of 2 contigs x 2 species" in out
    assert "6 positions of the reference are unknown" in out
    Path("w.bg").write_text("chr2 0 3 0.5\n")
    call("track store w.bg --name weights")
    call("export store -o a.zarr")
    call("build a.zarr -o again")
    assert AlignmentStore("store").fingerprint == AlignmentStore("again").fingerprint
    shown = call("info store --verify")
    assert "all checksums match" in shown
    assert "tracks: weights" in shown
    assert [line.split() for line in shown.splitlines()[-4:-2]] == [["chr1", "9"], ["chr2", "3"]]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux has /proc")
def test_a_place_that_cannot_be_written_is_one_line(call, capsys) -> None:  # type: ignore[no-untyped-def]
    call("build a.maf -o store")
    for line in ("build a.maf -o /proc/x", "export store -o /proc/x"):
        assert main(["data", "alignment", *line.split()]) == 2
        err = capsys.readouterr().err
        assert err.startswith("r2mae: /proc")
        assert err.count("\n") == 1
        assert "cannot be written" in err


def test_help(call, capsys) -> None:  # type: ignore[no-untyped-def]
    assert "\n  data alignment build " in call("--help")
    assert main(["data", "alignment"]) == 2
    assert "data alignment what? choose from: build, info" in capsys.readouterr().err
    for action in ("build", "info", "track", "export"):
        with pytest.raises(SystemExit) as ended:
            main(["data", "alignment", action, "--help"])
        assert ended.value.code == 0
