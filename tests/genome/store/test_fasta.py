"""A store of aligned FASTA holds its rows as columns."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genome.alignments import shrink, tokens_in, tokens_of
from r2mae.genome import build_store
from r2mae.genome.store.readers import read_fasta


@st.composite
def rows(draw: st.DrawFn) -> list[str]:
    length = draw(st.integers(1, 60))
    row = st.text("ACGTNacgtn-", min_size=length, max_size=length)
    first, *others = draw(st.lists(row, min_size=1, max_size=5))
    return ["A" + first, *("-" + other for other in others)]


def written(rows: list[str], width: int, blank: str) -> str:
    """Rows as FASTA, so many letters a line."""
    text = ""
    for number, row in enumerate(rows):
        lines = [row[place : place + width] for place in range(0, len(row), width)]
        text += f">s{number} of the test\n{blank}" + "\n".join(lines) + "\n"
    return text


@given(
    rows=rows(),
    width=st.integers(1, 70),
    zipped=st.booleans(),
    blank=st.sampled_from(["", "\n", " \n"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
@example(rows=["AAAAAAAAAAAAAAAA-"], width=1, zipped=False, blank="", end="\n")
@settings(max_examples=30)
def test_a_store_equals_its_source(rows: list[str], width: int, zipped: bool, blank: str, end: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch.setattr)
        text = written(rows, width, blank)
        path = Path(folder) / "a.fa"
        data = text.replace("\n", end).encode()
        path.write_bytes(gzip.compress(data) if zipped else data)
        for line, name, _ in read_fasta(path):
            assert text.split("\n")[line - 1].startswith(f">{name} ")
        store = build_store(path, Path(folder) / "store")
        columns = [column for column in zip(*rows, strict=True) if column[0] != "-"]
        expected = [(first, *(other.upper() for other in others)) for first, *others in columns]
        assert store.species == tuple(f"s{number}" for number in range(len(rows)))
        assert store.contigs == ("s0",)
        assert (tokens_in(store) == tokens_of(expected)).all()
        assert store.layout.counts["inserted_columns"] == rows[0].count("-")
        store.verify()


def test_the_contig_is_named_by_whoever_knows(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_text(">ref|2019\nACGT\n>x\nAC-T\n")
    (tmp_path / "ref.fa").write_text(">MN908947 complete genome\nAcGT\n")
    named = build_store(tmp_path / "a.fa", tmp_path / "b", reference=tmp_path / "ref.fa")
    assert (named.contigs, named.species) == (("MN908947",), ("ref|2019", "x"))
    assert named.reference.tolist() == [0, 1 | 0x80, 2, 3]
    assert build_store(tmp_path / "a.fa", tmp_path / "c", contig="chrV").contigs == ("chrV",)


def test_species_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_text(">ref\nACGT\n>x\nAC-T\n>y\nTTTT\n>z\nCCCC\n")
    store = build_store(tmp_path / "a.fa", tmp_path / "b", species=["z", "x"])
    assert store.species == ("ref", "z", "x")
    assert (tokens_in(store) == tokens_of(list(zip("ACGT", "CCCC", "AC-T", strict=True)))).all()


def test_a_byte_order_mark_is_no_letter(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_bytes(b"\xef\xbb\xbf>ref\nACGT\n>x\nACGA")
    assert (tokens_in(build_store(tmp_path / "a.fa", tmp_path / "store")) == [[0, 0], [1, 1], [2, 2], [3, 0]]).all()
