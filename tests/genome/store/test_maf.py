"""A store of a MAF holds just what its blocks say."""

import gzip
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genome.alignments import Alignment, Block, random_alignment, shrink, tokens_in, tokens_of
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, build_store
from r2mae.genome.store import readers, sources


def by_contig(store: AlignmentStore) -> dict[str, np.ndarray]:
    return {name: store.tokens(number) for number, name in enumerate(store.contigs)}


def check(store: AlignmentStore, alignment: Alignment) -> None:
    """The store equals its source."""
    assert store.species[0] == "ref"
    assert set(store.species) == set(alignment.species)
    assert list(store.contigs) == alignment.contigs
    order = [alignment.species.index(name) for name in store.species]
    expected = alignment.letters()
    for name, tokens in by_contig(store).items():
        assert (tokens == tokens_of(expected[name])[:, order]).all()
    assert (store.reference == tokens_in(store)[:, 0]).all()
    store.verify()


@given(seed=st.integers(0, 2**32 - 1), blocks=st.integers(1, 20), contigs=st.integers(1, 3))
@settings(max_examples=30)
def test_a_store_equals_its_source(seed: int, blocks: int, contigs: int) -> None:
    alignment = random_alignment(seed, blocks=blocks, contigs=contigs)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch.setattr)
        path = Path(folder) / "a.maf"
        path.write_text(alignment.maf(seed))
        check(build_store(path, Path(folder) / "store"), alignment)


def test_gzip_and_bgzip_are_read_alike(tmp_path: Path) -> None:
    alignment = random_alignment(5, blocks=20)
    text = alignment.maf().encode()
    (tmp_path / "plain.maf").write_bytes(text)
    (tmp_path / "one.maf.gz").write_bytes(gzip.compress(text))
    members = (gzip.compress(text[place : place + 100]) for place in range(0, len(text), 100))
    (tmp_path / "many.maf.gz").write_bytes(b"".join(members))  # as bgzip: many members
    (tmp_path / "windows.maf").write_bytes(text.replace(b"\n", b"\r\n"))
    for path in [path for path in tmp_path.iterdir() if path.is_file()]:
        check(build_store(path, tmp_path / f"{path.name}.store"), alignment)


def test_several_files_are_one_alignment(tmp_path: Path) -> None:
    alignment = random_alignment(7, blocks=20, contigs=3)
    half = len(alignment.blocks) // 2
    paths = [tmp_path / "a.maf", tmp_path / "b.maf"]
    for path, blocks in zip(paths, (alignment.blocks[:half], alignment.blocks[half:]), strict=True):
        path.write_text(Alignment(alignment.lengths, alignment.species, blocks).maf())
    check(build_store(paths, tmp_path / "store"), alignment)


def test_overlaps_copies_and_foreign_blocks_are_counted(tmp_path: Path) -> None:
    blocks = [
        Block("chr1", 2, {"ref": "AACC", "x": "TTTT"}),
        Block("chr1", 0, {"ref": "GGAACCGG", "x": "CCCCCCCC", "y": "GGGGGGGG"}),
    ]
    text = Alignment({"chr1": 10}, ("ref", "x", "y"), blocks).maf()
    text += "s x.other 0 8 + 500 AAAAAAAA\n\na\ns y.scaffold 0 2 + 500 AA\ns x.scaffold 0 2 + 500 AA\n"
    (tmp_path / "a.maf").write_text(text)
    store = build_store(tmp_path / "a.maf", tmp_path / "store")
    shown = ["".join("ACGT-N"[token & 7] for token in column) for column in store.tokens(0).T]
    assert shown == ["GGAACCGGNN", "CCTTTTCCNN", "GGNNNNGGNN"]
    assert store.layout.counts == {"second_rows": 1, "without_reference": 1, "unknown_reference_positions": 2}


def test_species_are_kept_in_the_order_of_the_list(tmp_path: Path) -> None:
    alignment = random_alignment(11, blocks=15)
    while len(alignment.species) < 4:
        alignment = random_alignment(random.randrange(1000), blocks=15)
    (tmp_path / "a.maf").write_text(alignment.maf())
    chosen = [alignment.species[3], alignment.species[1]]
    (tmp_path / "species.txt").write_text("# chosen\n" + "\n".join(chosen) + "\n")
    listed = build_store(tmp_path / "a.maf", tmp_path / "b", species=tmp_path / "species.txt")
    assert listed.species == ("ref", *chosen)
    everything = build_store(tmp_path / "a.maf", tmp_path / "c")
    columns = [everything.species.index(name) for name in listed.species]
    assert (tokens_in(listed) == tokens_in(everything)[:, columns]).all()


def test_a_reference_fills_what_no_block_covers(tmp_path: Path) -> None:
    (tmp_path / "a.maf").write_text(
        Alignment({"chr1": 8, "chr2": 3}, ("ref", "x"), [
            Block("chr2", 1, {"ref": "N", "x": "A"}), Block("chr1", 2, {"ref": "AcG", "x": "TTT"}),
        ]).maf()
    )  # fmt: skip
    (tmp_path / "ref.fa").write_text(">chr1 first\nggACGt\ntT\n>unused\nAAA\n>chr2\nCaC\n")
    store = build_store(tmp_path / "a.maf", tmp_path / "store", reference=tmp_path / "ref.fa")
    assert store.contigs == ("chr2", "chr1")
    expected = [("C", "N"), ("a", "A"), ("C", "N"), *zip("ggAcGttT", "NNTTTNNN", strict=True)]
    assert (tokens_in(store) == tokens_of(expected)).all()


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE", 1000)
    (tmp_path / "a.maf").write_text("##maf version=1\na\ns ref.c 0 2000 + 2000 " + "A" * 2000 + "\n")
    with pytest.raises(UserError, match="line 3: is longer than 1,000 bytes"):
        build_store(tmp_path / "a.maf", tmp_path / "store")


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.maf").write_bytes(b"a\ns r\xff.c\xfe 0 2 + 2 AC\ns x\xff.c 0 2 + 2 GT\n")
    store = build_store(tmp_path / "a.maf", tmp_path / "store")
    assert store.tokens(0).tolist() == [[0, 2], [1, 3]]
    assert store.species == ("r\udcff", "x\udcff")
    assert AlignmentStore(store.folder).contigs == ("c\udcfe",)


def test_a_reference_vouches_for_the_length_of_a_contig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_SPREAD", 1)
    (tmp_path / "a.maf").write_text("##maf version=1\na\ns ref.chr1 0 4 + 400 ACGT\n")
    with pytest.raises(UserError, match=r"line 3: says that chr1 has 400 positions, and almost none of them is here"):
        build_store(tmp_path / "a.maf", tmp_path / "store")
    (tmp_path / "ref.fa").write_text(f">chr1\n{'ACGT' * 100}\n")
    store = build_store(tmp_path / "a.maf", tmp_path / "store", reference=tmp_path / "ref.fa")
    assert store.layout.lengths == (400,)


DOTTED = (
    "a\ns T.kok.chr1 0 4 + 8 ACGT\ns L.vir.s1 0 4 + 9 CCCC\n\na\ns T.kok.chr1 4 4 + 8 AAAA\ns L.sal.s9 1 4 + 9 GGGG\n"
)


def test_a_name_with_several_dots_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.maf"
    path.write_text(DOTTED)
    with pytest.raises(
        UserError, match=r"line 2: 'T\.kok\.chr1' has several dots, and its species may be T or T\.kok:"
    ):
        build_store(path, tmp_path / "store")
    path.write_text(DOTTED.replace("T.kok", "Tkok"))
    with pytest.raises(UserError, match=r"line 3: 'L\.vir\.s1' has several dots.*--species FILE"):
        build_store(path, tmp_path / "store")
    with pytest.raises(UserError, match=r"line 2: 'T\.kok\.chr1' has several dots"):  # the reference is not listed
        path.write_text(DOTTED)
        build_store(path, tmp_path / "store", species=["L.vir"])


def test_species_with_dots_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.maf").write_text(DOTTED)
    store = build_store(tmp_path / "a.maf", tmp_path / "store", species=["L.sal", "T.kok", "L.vir"])
    assert (store.species, store.contigs) == (("T.kok", "L.sal", "L.vir"), ("chr1",))
    assert (store.tokens(0) == tokens_of(list(zip("ACGTAAAA", "NNNNGGGG", "CCCCNNNN", strict=True)))).all()
    one = build_store(tmp_path / "a.maf", tmp_path / "one", species=["T", "L"])
    assert (one.species, one.contigs) == (("T", "L"), ("kok.chr1",))
    with pytest.raises(UserError, match=r"unknown species 'L\.ser'"):
        build_store(tmp_path / "a.maf", tmp_path / "other", species=["T.kok", "L.ser"])


def test_a_contig_with_only_a_second_row(tmp_path: Path) -> None:
    (tmp_path / "a.maf").write_text("a\ns ref.c 0 2 + 2 AC\ns ref.d 0 2 + 3 GG\n")
    store = build_store(tmp_path / "a.maf", tmp_path / "store")
    assert store.contigs == ("c", "d")
    assert [store.tokens(number)[:, 0].tolist() for number in (0, 1)] == [[0, 1], [5, 5, 5]]


def test_a_row_of_another_mark(tmp_path: Path) -> None:
    (tmp_path / "a.maf").write_text("##maf\na\ns ref.chr1 0 2 + 8 GT\n\na\nsx ref.chr1 6 2 + 8 AC\n")
    with pytest.raises(UserError, match=r"line 6: a row is 's name start size strand length text', numbers of at most"):
        build_store(tmp_path / "a.maf", tmp_path / "store")
