"""`r2mae logits`; that its numbers are those of the scores is tested with these."""

from pathlib import Path

import pytest

from r2mae.cli.main import main


@pytest.mark.parametrize("place", [0, 1])
def test_the_regions_are_not_written_over(tmp_path: Path, place: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is opened before, not even the run, which is not there."""
    bed = tmp_path / "r.tsv"
    bed.write_text("chr1\t0\t9\n")
    regions = ["chr1:1-9"]
    regions.insert(place, str(bed))
    assert main(["logits", str(tmp_path / "run"), *regions, "-o", str(bed)]) == 2
    assert capsys.readouterr().err == f"r2mae: {bed} is the input file: name another output\n"
    assert bed.read_text() == "chr1\t0\t9\n"
