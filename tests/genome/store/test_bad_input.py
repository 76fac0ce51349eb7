"""Bad input on the command line: one line that names file and line, exit code 2, and nothing left behind."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from r2mae.cli.main import main

Refused = Callable[..., None]
HEAD = "##maf version=1\n"
ROW = "s ref.chr1 0 4 + 10 ACGT\n"
MANY = "9" * 5000


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command line, and look at what it says and leaves."""
    monkeypatch.chdir(tmp_path)

    def call(line: str, *told: str) -> None:
        before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        folders = {path for path in Path().rglob("*") if path.is_dir()}
        assert main(["data", "alignment", *line.split()]) == 2
        err = capsys.readouterr().err
        assert err.startswith("r2mae: ")
        assert len(err.splitlines()) == 1, err
        for part in told:
            assert part in err, err
        assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
        assert {path for path in Path().rglob("*") if path.is_dir()} == folders

    return call


MAFS = {
    "other length of a row": (f"a\n{ROW}s x.c 0 3 + 9 ACG\n", "line 4", "has 3 columns, and the rows above it 4"),
    "other number of bases": ("a\ns ref.chr1 0 5 + 10 ACGT\n", "line 3", "says 5 bases and has 4", "truncated?"),
    "past the end": ("a\ns ref.chr1 7 4 + 10 ACGT\n", "line 3", "ends at 11, past the end of chr1 (10)"),
    "two lengths": (f"a\n{ROW}\na\ns ref.chr1 4 1 + 11 A\n", "line 6", "chr1 has 11 positions here, and 10 before"),
    "no strand": (f"a\n{ROW}s x.c 0 4 ? 9 ACGT\n", "line 4", "the strand + or -"),
    "no numbers": (f"a\n{ROW}s x.c 0 four + 9 ACGT\n", "line 4", "numbers of at most 15 digits"),
    "few fields": (
        f"a\n{ROW}s x.c 0 4 + 9\n",
        "line 4",
        "which are 7 fields, and this one has 6: is the file truncated?",
    ),
    "a letter": (f"a\n{ROW}s x.c 0 4 + 9 AC!T\n", "line 4", "holds '!', which is no letter of an alignment"),
    "rows before blocks": (f"{ROW}\na\n{ROW}", "line 2", "a row before the first block"),
    "other lines": (f"a\n{ROW}hello\n", "line 4", "begins with 'hello', which no line of a MAF does"),
    "no blocks": ("", "line 1", "has no block with a row"),
    "a length of 40 bits": (f"\na\ns ref.chr1 0 4 + {2**40} ACGT\n", "line 4", "1,099,511,627,776 positions"),
    "at the far end": (f"a\ns ref.chr1 {2**40 - 4} 4 + {2**40} ACGT\n", "line 3", "almost none of them is here"),
    "many lengths of 31 bits": (
        f"a\n{ROW}" + "".join(f"\na\ns ref.c{n} 0 4 + {2**31 + n} ACGT\n" for n in range(9)),
        "line 30",
        "says that c8",
    ),
    "a length of 70 bits": (f"a\ns ref.chr1 0 4 + {2**70} ACGT\n", "line 3", "of at most 15 digits"),
    "no length": ("a\ns ref.chr1 0 0 + 0 -\n", "line 3", "the length of chr1 must be above 0"),
    "a length of 5000 digits": (f"a\ns ref.chr1 0 4 + {MANY} ACGT\n", "line 3", "of at most 15 digits"),
    "a later length of 5000 digits": (f"a\n{ROW}\na\ns ref.chr1 4 1 + {MANY} A\n", "line 6", "at most 15 digits"),
    "a start of 5000 digits": (f"a\n{ROW}\na\ns ref.chr1 {MANY} 1 + 10 A\n", "line 6", "at most 15 digits"),
    "a size of 5000 digits": (f"a\ns ref.chr1 0 {MANY} + 10 ACGT\n", "line 3", "of at most 15 digits"),
}


@pytest.mark.parametrize("name", MAFS)
def test_wrong_maf(refused: Refused, name: str) -> None:
    text, *told = MAFS[name]
    Path("a.maf").write_text(HEAD + text)
    refused("build a.maf -o store", "a.maf, ", *told)


TWO_BLOCKS = f"{HEAD}a\n{ROW}\na\ns x.c 0 3 + 9 GGG\ns ref.chr1 4 3 + 10 CCC\n"
GORILLA = f"{HEAD}a\n{ROW}s gorilla.c 0 4 + 9 ACGT\n"
ROWS = ">ref\nAC\nGT\n>x\nAAAA\n"
# An alignment, the option for a file beside it, what this file holds (None: it is missing), and what is said.
BESIDE = {
    "another base": (TWO_BLOCKS, "reference", ">chr1\nACGTC\nTTTTT\n", "in, line 7: the reference has C at chr1:6"),
    "another length": (TWO_BLOCKS, "reference", ">chr1\nACGTC\n", "has 5 positions, and 10 in the alignment"),
    "another contig": (TWO_BLOCKS, "reference", ">7\nACGTC\n", "has no contig 'chr1', which the alignment has"),
    "a contig twice": (
        TWO_BLOCKS,
        "reference",
        ">chr1\nACGTCNNNNN\n>chr1\nCCTTTTT\n",
        "beside, line 3: chr1 comes twice",
    ),
    "no fasta": (TWO_BLOCKS, "reference", TWO_BLOCKS, "beside: --reference takes a FASTA file"),
    "another base of a row": (ROWS, "reference", ">chrV\nACGA\n", "in: the reference has T at chrV:4, and"),
    "a gap": (ROWS, "reference", ">chrV\nAC-A\n", "beside, line 1: chrV holds a gap"),
    "a misspelt species": (GORILLA, "species", "gorila\n", "unknown species 'gorila': did you mean 'gorilla'?"),
    "no species": (GORILLA, "species", "\n", "beside: lists no species"),
    "no list": (GORILLA, "species", None, "beside: there is no such file"),
    "an unknown species of fasta": (ROWS, "species", "y\n", "unknown species 'y'"),
    "one of several": (f"{ROWS}>b\nCCCC\n", "species", "x\nzz\n", "unknown species 'zz': choose from: ref, x, b"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_wrong_files_beside_an_alignment(refused: Refused, name: str) -> None:
    alignment, option, beside, told = BESIDE[name]
    Path("in").write_text(alignment)
    if beside is not None:
        Path("beside").write_text(beside)
    refused(f"build in -o store --{option} beside", told, "beside" if option == "reference" else "")


@pytest.mark.parametrize("kind", ["maf", "fasta"])
def test_a_truncated_archive(refused: Refused, kind: str) -> None:
    text = HEAD + f"\na\n{ROW}" * 3000 if kind == "maf" else ">ref\n" + "ACGT\n" * 30000
    data = gzip.compress(text.encode(), 1)
    Path("a.gz").write_bytes(data[:-30])
    refused("build a.gz -o store", "a.gz: ", "the file is truncated: fetch it again")
    Path("a.gz").write_bytes(data[:-8] + b"\0\0\0\0" + data[-4:])  # another checksum
    refused("build a.gz -o store", "a.gz: ", "fetch it again")


FASTAS = {
    "another length": (">ref\nACGT\n>x\nACG\n", "line 3: x has 3 letters, not the 4 of the first row"),
    "longer": (">ref\nACGT\n>x\nACGTA\n", "line 3: x has 5 letters, not the 4 of the first row"),
    "twice": (">ref\nACGT\n>x\nACGT\n>x\nACGT\n", "line 5: x comes twice: give each record a name"),
    "a letter": (">ref\nACGT\n>x\nAC\n.T\n", "line 5: holds '.', which is no letter of an alignment"),
    "no name": (">ref\nACGT\n>\nACGT\n", "line 3: a record without a name"),
    "no letters": (">ref\n>x\nAA\n", "line 1: ref has no letters"),
    "gaps alone": (">ref\n--\n>x\nAA\n", "the first row, which is the reference, has gaps alone"),
}


@pytest.mark.parametrize("name", FASTAS)
def test_wrong_fasta(refused: Refused, name: str) -> None:
    text, told = FASTAS[name]
    Path("a.fa").write_text(text)
    refused("build a.fa -o store", "a.fa", told)


def test_other_files(refused: Refused) -> None:
    Path("empty").write_bytes(b"")
    refused("build empty -o store", "empty: is empty, or neither MAF")
    Path("zipped").write_bytes(gzip.compress(b""))
    refused("build zipped -o store", "zipped: is empty, or neither MAF")
    Path("binary").write_bytes(bytes(range(256)) * 10)
    refused("build binary -o store", "binary: is empty, or neither MAF")
    Path("text").write_text("hello\n")
    refused("build text -o store", "text: is empty, or neither MAF")
    refused("build none -o store", "none: there is no such file")
    Path("a.maf").write_text(f"{HEAD}a\n{ROW}")
    Path("a.fa").write_text(">ref\nAC\n")
    refused("build a.maf a.fa -o store", "a.fa: is fasta, and a.maf is maf")
    refused("build a.fa a.fa -o store", "a.fa: a store is built of one FASTA alignment or zarr group: write several")
    refused("build a.maf -o text", "text: exists and is no alignment store")
    refused("build a.maf -o store --contig x", "--contig names the contig of a FASTA alignment")
    refused("build -o store", "the following arguments are required: IN")
    refused("nothing", "nothing")
    refused("info", "the following arguments are required")
    refused("info text", "text")
    refused("track a.maf --name x", "the following arguments are required")
