"""Contigs of a store by the names of other files: variants, BED, bedGraph, regions, and the reference's own FASTA."""

from pathlib import Path

import numpy as np
import pytest

from genome.variants.conftest import build
from r2mae.errors import UserError, warn_once
from r2mae.genome import AlignmentStore, add_track, build_store
from r2mae.genome.store.alignment import Layout
from r2mae.genome.store.contigs import Contigs, read_renamed
from r2mae.genome.store.intervals import read_regions

BASES = "ACGTACGTAC"
MITOCHONDRIAL = ["chrM", "M", "MT", "chrMT", "NC_012920.1", "J01415.2", "mt", "NC_012920"]
SAME = [
    MITOCHONDRIAL,
    ["chr1", "1", "Chr1", "NC_000001.11", "NC_000001", "CM000663.2"],
    ["chrX", "X", "NC_000023.11", "CM000685.2"],
    ["chrY", "Y", "NC_000024.10", "CM000686.2"],
    ["chr22", "22", "NC_000022.11", "CM000684.1"],
    ["chrUn_KI270302v1", "KI270302.1"],
    ["chr1_KI270706v1_random", "KI270706.1"],
    ["NC_045512.2", "NC_045512v2"],
    ["hap1_tig00001.1"],
    ["hap2_tig00001.1"],
    ["a_KI270303.1"],
    ["KI270303.1"],
]


@pytest.fixture
def mitochondrial(tmp_path: Path) -> AlignmentStore:
    """A store of one contig, chrM."""
    warn_once.cache_clear()
    return build(tmp_path, {"chrM": [BASES, BASES]})


@pytest.mark.parametrize("names", SAME, ids=lambda names: names[0])
def test_every_name_of_a_chromosome_finds_each_of_the_others_and_nothing_else(names: list[str]) -> None:
    for own in names:
        contigs = Contigs(Layout(("s",), ("chr7", own), (5, 5)))
        assert {contigs.number(name) for name in names} == {1}
        others = {name for group in SAME if group is not names for name in group}
        assert {contigs.number(name) for name in others} == {-1}


def test_an_ambiguous_name_finds_nothing_and_an_exact_one_itself() -> None:
    contigs = Contigs(Layout(("s",), ("NC_000001.10", "NC_000001.11"), (5, 5)))
    assert [contigs.number(name) for name in ("chr1", "NC_000001.10", "NC_000001.11")] == [-1, 0, 1]


def test_another_version_of_an_accession_is_not_found_and_unknown_versions_are_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contigs = Contigs(Layout(("s",), ("NC_000001.11", "chr2"), (5, 5)))
    names = ("NC_000001.10", "NC_000001.11", "NC_000001", "chr1", "CM000663.1", "NC_000002.11")
    assert [contigs.number(name) for name in names] == [-1, 0, 0, 0, 0, 1]
    contigs.report("a.vcf")
    assert "the store lacks NC_000001.10" in caplog.text and "check that it is the same" in caplog.text


def test_the_report_names_what_was_found_and_what_was_not(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    layout = Layout(("s",), ("chr1", "chrM"), (5, 5))
    contigs = Contigs(layout, read_renamed(["one=chr1"]))
    assert [contigs.number(name) for name in ("MT", "one", "chrM", "mars")] == [1, 0, 1, -1]
    contigs.report("a.vcf")
    matched, missing = [record.getMessage() for record in caplog.records]
    assert "MT is chrM, one is chr1" in matched
    assert "lacks mars; it has chr1, chrM" in missing
    none = Contigs(layout)
    none.number("mars")
    with pytest.raises(UserError, match=r"a\.vcf: names mars, and the store has the contigs chr1, chrM"):
        none.report("a.vcf")


def test_an_inferred_name_of_another_length_is_not_found_and_two_of_a_contig_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    layout = Layout(("s",), ("chr1", "MT"), (9, 5))
    (tmp_path / "a.bed").write_text("1\t0\t4\nchrM\t0\t6\nchrM\t0\t5\nchrMT\t1\t2\n")
    assert read_regions([str(tmp_path / "a.bed")], layout).rows() == [(0, 0, 4), (1, 1, 2)]
    assert "lacks chrM; it has chr1, MT (chrM has another length)" in caplog.text
    (tmp_path / "a.bed").write_text("MT\t0\t6\n")
    with pytest.raises(UserError, match="line 1: 0 to 6 does not fit MT, which has 5 positions"):
        read_regions([str(tmp_path / "a.bed")], layout)
    (tmp_path / "a.bed").write_text("chrM\t0\t1\nchrMT\t1\t2\n")
    assert read_regions([str(tmp_path / "a.bed")], layout).rows() == [(1, 0, 2)]
    assert "chrM is MT, chrMT is MT; several names of the file are MT: leave one of them" in caplog.text


def test_names_are_renamed_by_texts_and_files(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("# old new\nb chrM\nc\tchr1\n")
    assert read_renamed(["a=chr1", str(tmp_path / "names.txt")]) == {"a": "chr1", "b": "chrM", "c": "chr1"}
    assert read_renamed([f"{'a' * 300}=chr1"]) == {"a" * 300: "chr1"}
    with pytest.raises(UserError, match="is neither"):
        read_renamed(["a" * 300])
    (tmp_path / "names.txt").write_text("b chrM x\n")
    with pytest.raises(UserError, match="line 1: a line has two names"):
        read_renamed([str(tmp_path / "names.txt")])
    with pytest.raises(UserError, match="--rename a: is neither"):
        read_renamed(["a"])
    with pytest.raises(UserError, match=r"unknown contig 'chrm'.*'chrM'"):
        Contigs(Layout(("s",), ("chrM",), (5,)), {"a": "chrm"})


@pytest.mark.parametrize("name", MITOCHONDRIAL)
def test_files_and_regions_name_contigs_as_they_like(mitochondrial: AlignmentStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "a.bed").write_text(f"{name}\t2\t6\nchr9\t0\t4\n")
    assert read_regions([str(tmp_path / "a.bed")], mitochondrial.layout).rows() == [(0, 2, 6)]
    assert read_regions([f"{name}:3-6"], mitochondrial.layout).rows() == [(0, 2, 6)]
    assert read_regions([name], mitochondrial.layout).rows() == [(0, 0, 10)]
    (tmp_path / "a.bedgraph").write_text(f"{name} 0 4 0.5\n")
    add_track(mitochondrial, tmp_path / "a.bedgraph", "w")
    assert np.nansum(mitochondrial.track("w")) == 2
    (tmp_path / "r.fa").write_text(f">{name}\n{BASES}\n>other\nAC\n")
    build_store(tmp_path / "a.maf", tmp_path / "again", reference=tmp_path / "r.fa")
    (tmp_path / "r.fa").write_text(f">chrM\n{BASES}\n>NC_012920.1\n{BASES}\n")
    with pytest.raises(UserError, match=r"line 3: NC_012920\.1 is chrM, which came before"):
        build_store(tmp_path / "a.maf", tmp_path / "twice", reference=tmp_path / "r.fa")


def test_a_track_is_renamed(mitochondrial: AlignmentStore, tmp_path: Path) -> None:
    (tmp_path / "a.bedgraph").write_text("mine 0 4 0.5\n")
    with pytest.raises(UserError, match="names mine, and the store has the contigs chrM: name others with --rename"):
        add_track(mitochondrial, tmp_path / "a.bedgraph", "w")
    add_track(mitochondrial, tmp_path / "a.bedgraph", "w", rename=["mine=chrM"])
    assert np.nansum(mitochondrial.track("w")) == 2


def test_a_table_without_a_last_line_end_is_read_with_a_warning(
    mitochondrial: AlignmentStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.bedgraph").write_bytes(b"\xef\xbb\xbfchrM 0 4 0.5\nchrM 4 8 0.2")
    add_track(mitochondrial, tmp_path / "a.bedgraph", "w")
    assert np.nansum(mitochondrial.track("w")) == pytest.approx(2.8, abs=1e-3)
    assert "a.bedgraph, line 2: the file ends within this line" in caplog.text
