"""Rows of variants: read, compared with a store, and written again."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genome.variants.conftest import build, letters
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore
from r2mae.genome.variants.files import REASONS, Block, check_output, open_variants, substitutions, text_file

HEADER = (
    '##fileformat=VCFv4.2\n##INFO=<ID=AF,Number=A,Type=Float,Description="x">\n'
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tme\n"
)
WORDS = list(REASONS)


def reasons_of(store: AlignmentStore, *rows: tuple[str, int, str, str]) -> list[str]:
    return [WORDS[code] for code in substitutions(rows, store).reasons]


def numbered(source: Any, size: int) -> Iterator[tuple[Block, np.ndarray, np.ndarray]]:
    """Scores that say where an alternative stands; every fifth has none."""
    count = 0
    for block in source.blocks(size):
        places = np.arange(count, count + len(block.owners))
        count += len(block.owners)
        reasons = np.where(places % 5 == 4, 3, 0).astype(np.uint8)
        yield block, np.where(reasons > 0, np.nan, places).astype(np.float32), reasons


def test_every_alternative_has_a_reason_or_none(small: AlignmentStore) -> None:
    ref = letters("chr1")
    first, other = ref[0].upper(), "ACGT"[("ACGT".index(ref[0].upper()) + 1) % 4]
    assert reasons_of(
        small,
        ("chr1", 1, first, other),
        ("chr1", 1, first.lower(), other.lower()),
        ("1", 1, first, other),
        ("chrtiny", 1, "A", "N"),
        ("chr9", 1, first, other),
        ("chr1", 0, first, other),
        ("chr1", 91, first, other),
        ("chr1", 1, other, first),
        ("chr1", 1, first, first.lower()),
        ("chr1", 1, first, first + "A"),
        ("chr1", 1, ref[:2], ref[1].upper()),
        ("chr1", 1, first, "R"),
        ("chr1", 1, first, "n"),
        ("chr1", 1, first, "."),
        ("chr1", 1, first, "*"),
        ("chr1", 1, first, "<DEL>"),
        ("chr1", 1, first, "G]17:198982]"),
        ("chr1", 1, first, ""),
        ("chr1", 1, first, "7"),
    ) == [
        "", "", "", "no_substitution", "unknown_contig", "outside_contig", "outside_contig", "reference_mismatch",
        *["no_substitution"] * 11,
    ]  # fmt: skip


def test_a_longer_allele_that_differs_in_one_base_is_a_substitution(small: AlignmentStore) -> None:
    ref = letters("chr1")[4:8].upper()
    alt = ref[:2] + "ACGT"[("ACGT".index(ref[2]) + 1) % 4] + ref[3]
    found = substitutions([("chr1", 5, ref, alt), ("chr1", 5, ref, alt[::-1])], small)
    assert (found.positions[0], found.refs[0], found.alts[0]) == (6, "ACGT".index(ref[2]), "ACGT".index(alt[2]))
    assert WORDS[found.reasons[0]] == ""
    assert WORDS[found.reasons[1]] == "no_substitution"


def test_unknown_reference(tmp_path: Path) -> None:
    store = build(tmp_path, {"c": ["ANGT" * 10, "ACGT" * 10], "d": ["ACGT", "ACGT"]})
    assert reasons_of(store, ("c", 2, "C", "T"), ("c", 1, "A", "T")) == ["reference_unknown", ""]


ALLELE = st.text(st.sampled_from("ACGTacgtN"), min_size=1, max_size=3)
FIELD = st.text(st.sampled_from("abcXYZ09:;=/|"), max_size=6)
ROW = st.tuples(
    st.sampled_from(["chr1", "chr2", "other"]), st.integers(0, 10**7), ALLELE, st.lists(ALLELE, min_size=1, max_size=3),
    FIELD,
)  # fmt: skip


@settings(max_examples=40)
@given(
    rows=st.lists(ROW, max_size=25), size=st.integers(1, 9), packed=st.booleans(), end=st.sampled_from(["\n", "\r\n"])
)
def test_every_row_of_a_vcf_comes_out_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], size: int, packed: bool, end: str
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    lines = [
        f"{contig}\t{position}\t.\t{ref}\t{','.join(alts)}\t.\tPASS\t{field or '.'}\tGT\t0/1"
        for contig, position, ref, alts, field in rows
    ]
    text = (HEADER + "".join(line + "\n" for line in lines)).replace("\n", end).encode()
    path = folder / ("a.vcf.gz" if packed else "a.vcf")
    path.write_bytes(gzip.compress(text) if packed else text)
    source, out = open_variants(path), folder / path.name.replace("a", "b", 1)
    source.check_column("score")
    source.write(out, "score", numbered(source, size))
    written = (gzip.decompress(out.read_bytes()) if packed else out.read_bytes()).decode().split("\n")
    assert written[:2] == HEADER.split("\n")[:2]
    assert written[2].startswith("##INFO=<ID=score,Number=A,Type=Float,")
    assert written[3].startswith("##INFO=<ID=score_reason,Number=A,Type=String,")
    assert written[4] == HEADER.split("\n")[2]
    assert written[-1] == ""
    place = 0
    for line, (_, _, _, alts, _), found in zip(lines, rows, written[5:-1], strict=True):
        before, after = line.split("\t"), found.split("\t")
        assert [*after[:7], *after[8:]] == [*before[:7], *before[8:]]
        places = range(place, place + len(alts))
        place += len(alts)
        scores = ",".join("." if n % 5 == 4 else str(n) for n in places)
        reasons = ",".join(WORDS[3] if n % 5 == 4 else "." for n in places)
        new = f"score={scores}" + (f";score_reason={reasons}" if WORDS[3] in reasons else "")
        assert after[7] == (new if before[7] == "." else f"{before[7]};{new}")


@pytest.mark.parametrize("name", ["a.tsv", "a.txt.gz", "a.csv", "a.parquet"])
def test_every_row_of_a_table_comes_out_once_in_order(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "gene": [f"g{n}" for n in range(40)],
            "CHROM": rng.choice(["chr1", "x"], 40),
            "POS": rng.integers(1, 99, 40),
            "Ref": "A",
            "alt": "T",
            "phyloP": rng.normal(size=40),
        }
    )
    path, out = tmp_path / name, tmp_path / f"out{name[1:]}"
    if name.endswith("parquet"):
        table.to_parquet(path)
    else:
        table.to_csv(path, sep="," if "csv" in name else "\t", index=False)
    source = open_variants(path)
    for size in (7, 100):
        source.write(out, "llr", numbered(source, size))
        read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
        more = {} if name.endswith(("parquet", "csv")) else {"sep": "\t"}
        found = read(out, **more)
        pd.testing.assert_frame_equal(found[list(table)], table, check_dtype=False)
        places = np.arange(40)
        np.testing.assert_array_equal(found["llr"], np.where(places % 5 == 4, np.nan, places))
        assert found["llr_reason"].isna().tolist() == (places % 5 != 4).tolist()
        assert list(found.columns) == [*table, "llr", "llr_reason"]


@pytest.mark.parametrize("count", [0, 3])
def test_parquet_with_few_rows(tmp_path: Path, count: int) -> None:
    table = pd.DataFrame({"chrom": ["chr1"] * count, "pos": [5] * count, "ref": ["A"] * count, "alt": ["C"] * count})
    table.astype({"pos": np.int64}).to_parquet(tmp_path / "a.parquet")
    source = open_variants(tmp_path / "a.parquet")
    source.write(tmp_path / "b.parquet", "score", numbered(source, 2))
    found = pd.read_parquet(tmp_path / "b.parquet")
    assert (len(found), list(found)) == (count, [*table, "score", "score_reason"])


def test_quotes_of_csv(tmp_path: Path) -> None:
    text = 'gene,chrom,pos,ref,alt\n"a, ""b""",chr1,5,A,C\n'
    (tmp_path / "a.csv").write_text(text)
    source = open_variants(tmp_path / "a.csv")
    (block,) = source.blocks(9)
    assert source.values(block, "gene") == ['a, "b"']
    source.write(tmp_path / "b.csv", "score", numbered(source, 9))
    assert (tmp_path / "b.csv").read_text() == text.replace("alt\n", "alt,score,score_reason\n")[:-1] + ",0,\n"
    (tmp_path / "a.tsv").write_text("gene\tchrom\tpos\tref\talt\n\"5' end\tchr1\t5\tA\tC\n")
    source = open_variants(tmp_path / "a.tsv")
    source.write(tmp_path / "b.tsv", "score", numbered(source, 9))
    assert (tmp_path / "b.tsv").read_text().endswith("\n\"5' end\tchr1\t5\tA\tC\t0\t\n")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.tsv", "\nchrom\tpos\tref\talt\n\n", "chr1\t5\tA\tC"),
        ("a.csv", "##made by hand\n\nchrom,pos,ref,alt\n", "chr1,5,A,C"),
        ("a.vcf", HEADER.replace("##INFO", "\n\n##INFO"), "chr1\t5\t.\tA\tC\t.\tPASS\t.\tGT\t0/1"),
    ],
)
def test_blank_lines_and_a_mark_before_the_columns(
    tmp_path: Path, name: str, header: str, row: str, end: str, mark: bytes
) -> None:
    """As spreadsheets and editors write them; nothing of them is in the output."""
    path, out = tmp_path / name, tmp_path / f"out{name[1:]}"
    path.write_bytes(mark + f"{header}{row}\n".replace("\n", end).encode())
    source = open_variants(path)
    (block,) = source.blocks(9)
    assert block.alleles == [("chr1", 5, "A", "C")]
    source.write(out, "score", numbered(source, 9))
    written = out.read_bytes().decode().split("\n")
    assert written[0] in ("chrom\tpos\tref\talt\tscore\tscore_reason", "##made by hand", "##fileformat=VCFv4.2")
    assert "" not in written[:-1]
    assert len(list(open_variants(out).blocks(9))) == 1


TABLE = "chrom\tpos\tref\talt\nchr1\t5\tA\tC\n"
FULL = "chr1\t5\t.\tA\tC\t.\t.\t.\tGT\t0/1\n"
BAD = {
    "no header": ("a.vcf", "chr1\t5\t.\tA\tC\t.\t.\t.\n", "line 1: a VCF has a header"),
    "half a header": ("a.vcf", "##fileformat=VCFv4.2\nchr1\t5\t.\tA\tC\t.\t.\t.\n", "line 2: a VCF has a header"),
    "nothing": ("a.vcf", "##fileformat=VCFv4.2\n", "a.vcf: a VCF has a header"),
    "short row": ("a.vcf", HEADER + "chr1\t5\t.\tA\tC\n", "line 4: has 5 columns"),
    "fewer columns": ("a.vcf", HEADER + FULL[:-5] + "\n", "line 4: has 9 columns divided by tabs, and the header 10"),
    "more columns": ("a.vcf", HEADER + FULL + FULL[:-1] + "\t0/1\n", "line 5: has 11 columns"),
    "no position": ("a.vcf", HEADER + FULL.replace("\t5\t", "\tfive\t"), "line 4: 'five' is no position"),
    "header again": ("a.vcf", HEADER + FULL + HEADER.split("\n")[2] + "\n", "line 5: 'POS' is no position"),
    "no end": ("a.vcf", HEADER + FULL + FULL[:-1], "line 5: the file ends within this line"),
    "binary": ("a.vcf", "\0\1\2", "line 1: the file ends within this line"),
    "no names": ("a.tsv", "chr1\t5\tA\tC\n", "line 1: no column is called chrom"),
    "a name twice": ("a.tsv", "chrom\tchr\tpos\tref\talt\n", "line 1: chrom and chr may both be chrom"),
    "columns": ("a.tsv", TABLE + "chr1\t5\tA\n", "line 3: has 3 columns divided by tabs, and the header 4"),
    "tabs alone": ("a.tsv", TABLE + "\t\t\t\n", "line 3: '' is no position"),
    "spaces alone": ("a.csv", TABLE.replace("\t", ",") + " \n", "line 3: has 1 columns divided by commas"),
    **{
        f"a position {shown!r} of {name}": (
            name,
            before + f"chr1{end}{shown}{after}",
            f"{re.escape(repr(shown))} is no position",
        )
        for shown in ("1_2", "+12", " 12", "12 ", "\uff11\uff12", "-5", "")
        for name, before, end, after in (
            ("a.vcf", HEADER, "\t", "\t.\tA\tC\t.\t.\t.\tGT\t0\n"),
            ("a.tsv", TABLE, "\t", "\tA\tC\n"),
            ("a.csv", "chrom,pos,ref,alt\n", ",", ",A,C\n"),
        )
    },
    "no position of a table": ("a.csv", "pos,chrom,ref,alt\n1.5,1,A,C\n", "line 2: '1.5' is no position"),
    "an open quote": ("a.csv", TABLE.replace("\t", ",") + '"chr1,5,A,C\n', "line 3: unexpected end of data"),
    "no names in a gap": ("a.tsv", "\n \n", "no line that names columns"),
    "no parquet": ("a.parquet", "PAR1", "a.parquet cannot be read \\(Could not open"),
    "bcf": ("a.bcf", "BCF", "variants are read from VCF .* not from BCF"),
    "other": ("a.xlsx", "", "variants are read from VCF .* not from XLSX"),
    "no suffix": ("variants", HEADER + FULL, "variants are read from VCF .* not from a file without a suffix"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_files_are_told_by_file_and_line(case: str, tmp_path: Path) -> None:
    name, text, told = BAD[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=told) as caught:
        list(open_variants(tmp_path / name).blocks(10))
    assert str(tmp_path / name) in str(caught.value)


def test_a_truncated_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    data = gzip.compress((HEADER + FULL * 5000).encode())
    (tmp_path / "a.vcf.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="truncated"):
        list(open_variants(tmp_path / "a.vcf.gz").blocks(10))
    with text_file(tmp_path / "B.VCF.GZ") as write:
        write(HEADER + FULL * 5000)
    data = (tmp_path / "B.VCF.GZ").read_bytes()
    (tmp_path / "a.vcf.gz").write_bytes(data[:-28])
    with pytest.raises(UserError, match=r"a\.vcf\.gz: the file is truncated \(the last block of bgzip"):
        open_variants(tmp_path / "a.vcf.gz")
    (tmp_path / "B.VCF.GZ").unlink()
    with pytest.raises(UserError, match="no such file"):
        open_variants(tmp_path / "b.vcf.gz")


def test_text_of_a_parquet_file_that_is_damaged(tmp_path: Path) -> None:
    places = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    text = pa.Array.from_buffers(pa.string(), 2, [None, places, pa.py_buffer(b"A\xff")])
    pq.write_table(pa.table({"chrom": text, "pos": [1, 2], "ref": text, "alt": text}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet cannot be read"):
        open_variants(tmp_path / "a.parquet")


def test_names_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(TABLE.replace("alt", "alt\tscore_reason").replace("\tC", "\tC\tx"))
    with pytest.raises(UserError, match="'score_reason' already"):
        open_variants(tmp_path / "a.tsv").check_column("score")
    (tmp_path / "a.vcf").write_text(HEADER)
    with pytest.raises(UserError, match="'AF' already"):
        open_variants(tmp_path / "a.vcf").check_column("AF")
    open_variants(tmp_path / "a.vcf").check_column("score")


@pytest.mark.parametrize("key", ["score", "score_reason"])
def test_an_undeclared_key_of_info_is_a_name_that_is_taken(tmp_path: Path, key: str) -> None:
    path = tmp_path / "a.vcf"
    path.write_text(HEADER + f"chr1\t5\tscore\tA\tC\t.\t.\tX=score;{key}=3\tGT\t0\n")
    source = open_variants(path)
    (block,) = source.blocks(9)
    source.check_rows(block, "X_score")
    source.check_rows(block, "S")
    with pytest.raises(UserError, match=f"'{key}' already: name the new column otherwise"):
        source.check_rows(block, "score")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_table_without_a_last_line_end(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / name
    path.write_text(("chrom\tpos\tref\talt\nchr1\t5\tA\tC").replace("\t", "," if name == "a.csv" else "\t"))
    assert [allele for block in open_variants(path).blocks(9) for allele in block.alleles] == [("chr1", 5, "A", "C")]
    assert f"{name}, line 2: the file ends within this line" in caplog.text


def test_keys_of_info_are_columns(tmp_path: Path) -> None:
    (tmp_path / "a.vcf").write_text(
        HEADER + "1\t5\trs1\tA\tC,G\t.\t.\tAF=.1,.2;DB;N=7\tGT\t.\n1\t6\t.\tA\tC\t.\t.\t.\tGT\t.\n"
    )
    source = open_variants(tmp_path / "a.vcf")
    (block,) = source.blocks(10)
    assert source.values(block, "AF") == [".1", ".2", ""]
    assert source.values(block, "N") == ["7", "7", ""]
    assert source.values(block, "DB") == ["true", "true", ""]
    assert source.values(block, "ID") == ["rs1", "rs1", "."]
    assert source.names[-1] == "AF"


def test_outputs_have_the_format_of_the_input(tmp_path: Path) -> None:
    check_output(tmp_path / "a.vcf.gz", "vcf")
    for name, kind in (("a.tsv", "vcf"), ("a.parquet.gz", "parquet"), ("a", "tsv")):
        with pytest.raises(UserError, match="written as they were read"):
            check_output(tmp_path / name, kind)  # type: ignore[arg-type]
