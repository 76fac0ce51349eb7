"""Values of positions come from bedGraph and bigWig, and stand where they belong."""

import gzip
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from genome.alignments import maf_of
from r2mae.errors import UserError
from r2mae.files import exclusive
from r2mae.genome import AlignmentStore, add_track, build_store
from r2mae.genome.store import tracks


@pytest.fixture
def store(tmp_path: Path) -> AlignmentStore:
    (tmp_path / "a.maf").write_text(maf_of({"chr1": {"ref": "ACGTACGTAC"}, "chr2": {"ref": "ACGTA"}}))
    return build_store(tmp_path / "a.maf", tmp_path / "store")


def test_bedgraph(store: AlignmentStore, tmp_path: Path) -> None:
    text = b"track type=bedGraph\nbrowser x\n#c\nchr2\t1\t3\t0.5\nchr1 0 2 -1.25\nchr1\t9\t10\tnan\nchr7 0 900 3\n"
    (tmp_path / "a.bg.gz").write_bytes(gzip.compress(text))
    add_track(store, tmp_path / "a.bg.gz", "phylo-P")
    assert store.tracks == ("phylo-P",)
    nan = math.nan
    np.testing.assert_equal(store.track("phylo-P").tolist(), [-1.25, -1.25, *[nan] * 8, nan, 0.5, 0.5, nan, nan])
    found = store.track_windows("phylo-P", np.array([1, 0]), np.array([-1, 1]), 4)
    assert found.tolist() == [[0, 0, 0.5, 0.5], [-1.25, 0, 0, 0]]
    store.verify()


def test_a_track_is_replaced_and_verified(store: AlignmentStore, tmp_path: Path) -> None:
    for value in (1, 2):
        (tmp_path / "a.bg").write_text(f"chr1 0 10 {value}\n")
        add_track(store, tmp_path / "a.bg", "w")
    assert store.track("w")[0] == 2
    path = store.folder / "tracks" / "w.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"tracks/w\.npy has changed"):
        store.verify()
    path.write_bytes(data[:-1])
    with pytest.raises(UserError, match=r"tracks/w\.npy cannot be read"):
        AlignmentStore(store.folder).track("w")
    with pytest.raises(UserError, match="unknown track 'v'"):
        store.track("v")
    path.unlink()
    with pytest.raises(UserError, match=r"tracks/w\.npy has changed"):
        store.verify()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("chr1 0 5\n", "line 1: a line of bedGraph is contig, start, end and value"),
        (f"chr1 0 5 1\nchr1 5 {'9' * 5000} 1\n", "line 2: a line of bedGraph is contig, start, end and value"),
        ("chr1 0 5 1\nchr1 5 6 high\n", "line 2: the value must be a number, not 'high'"),
        ("chr1 0 5 1_0\n", "line 1: the value must be a number, not '1_0'"),
        ("chr1 0 5 inf\n", "line 1: the value must be a number, not 'inf'"),
        ("chr1 0 11 1\n", "line 1: 0 to 11 does not fit chr1, which has 10 positions"),
        ("chr1 0 5 1\nchr1 4 6 2\n", "line 2: overlaps an earlier interval at chr1:5"),
        ("chr1 0 5 70000\n", "line 1: 70000 is larger than 65,504: scale the values"),
        ("7 0 5 1\n", "names 7, and the store has the contigs chr1, chr2"),
        ("", "has no intervals"),
    ],
)
def test_wrong_bedgraph(store: AlignmentStore, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.bg").write_text(text)
    with pytest.raises(UserError, match=told) as caught:
        add_track(store, tmp_path / "a.bg", "w")
    assert str(caught.value).startswith(str(tmp_path / "a.bg"))
    assert store.tracks == ()
    assert not list((store.folder / "tracks").glob("*"))


def test_two_tracks_of_one_name_at_once(store: AlignmentStore, tmp_path: Path) -> None:
    (tmp_path / "a.bg").write_text("chr1 0 10 1\n")
    with exclusive(store.folder / "tracks" / "w.npy"), pytest.raises(UserError, match="another process is writing it"):
        add_track(store, tmp_path / "a.bg", "w")
    add_track(store, tmp_path / "a.bg", "w")


@pytest.mark.usefixtures("unchecked")
def test_wrong_names(store: AlignmentStore, tmp_path: Path) -> None:
    (tmp_path / "a.bg").write_text("chr1 0 5 1\n")
    with pytest.raises(UserError, match="letters, digits, _ and - alone"):
        add_track(store, tmp_path / "a.bg", "../w")
    with pytest.raises(UserError, match="there is no such file"):
        add_track(store, tmp_path / "b.bg", "w")
    with pytest.raises(UserError, match="has no tracks"):
        AlignmentStore(store.folder).track("w")


class BigWig:
    """An open file of pyBigWig."""

    def __init__(self, lengths: dict[str, int]) -> None:
        self.lengths = lengths

    def chroms(self) -> dict[str, int]:
        return self.lengths

    def values(self, name: str, first: int, last: int, numpy: bool = False) -> np.ndarray:
        assert numpy
        values = np.arange(first, last, dtype=float)
        values[values == 3] = math.nan
        return values


def test_bigwig(store: AlignmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the library, which is not here; the file has no more than a bigWig's first bytes."""
    (tmp_path / "a.bw").write_bytes(b"\x26\xfc\x8f\x88")
    monkeypatch.setitem(sys.modules, "pyBigWig", None)
    with pytest.raises(UserError, match=r"a\.bw needs the library pyBigWig: pip install 'r2mae\[bigwig\]'"):
        add_track(store, tmp_path / "a.bw", "w")
    lengths = {"chr1": 10, "other": 3}
    monkeypatch.setitem(sys.modules, "pyBigWig", SimpleNamespace(open=lambda path: BigWig(lengths)))
    monkeypatch.setattr(tracks, "_STEP", 4)
    add_track(store, tmp_path / "a.bw", "w")
    np.testing.assert_equal(store.track("w").tolist(), [0, 1, 2, math.nan, *range(4, 10), *[math.nan] * 5])
    lengths["2"] = 6  # chr2, were it as long
    add_track(store, tmp_path / "a.bw", "v")
    np.testing.assert_equal(store.track("v"), store.track("w"))
    del lengths["2"]
    lengths["chr1"] = 11
    with pytest.raises(UserError, match="chr1 has 11 positions, and 10 in the store"):
        add_track(store, tmp_path / "a.bw", "w")
    del lengths["chr1"]
    with pytest.raises(UserError, match="names other, and the store has the contigs chr1, chr2"):
        add_track(store, tmp_path / "a.bw", "w")

    def broken(path: str) -> None:
        raise RuntimeError("not a bigWig")

    monkeypatch.setitem(sys.modules, "pyBigWig", SimpleNamespace(open=broken))
    with pytest.raises(UserError, match=r"a.bw cannot be read \(not a bigWig\): fetch it again"):
        add_track(store, tmp_path / "a.bw", "w")

    lengths["chr1"] = 10
    cut = SimpleNamespace(chroms=lambda: lengths, values=lambda *where, numpy: broken(""))
    monkeypatch.setitem(sys.modules, "pyBigWig", SimpleNamespace(open=lambda path: cut))
    with pytest.raises(UserError, match=r"a.bw cannot be read \(not a bigWig\): fetch it again"):
        add_track(store, tmp_path / "a.bw", "w")
