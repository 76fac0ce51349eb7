"""A store becomes a zarr group and comes back."""

from pathlib import Path

import numpy as np
import pytest

from genome.alignments import tokens_in
from r2mae.errors import UserError
from r2mae.genome import AlignmentStore, build_store, export_zarr
from r2mae.genome.store import zarr_exchange

zarr = pytest.importorskip("zarr")


@pytest.mark.usefixtures("small_chunks")
def test_there_and_back(store: AlignmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_exchange, "_CHUNK", 16)
    export_zarr(store, tmp_path / "a.zarr")
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    letters = np.array(group[store.contigs[0]])
    assert letters.dtype == "S1"
    assert set(letters[:, 1:].tobytes().decode()) <= set("ACGT-N")
    again = build_store(tmp_path / "a.zarr", tmp_path / "again")
    assert (again.species, again.contigs) == (store.species, store.contigs)
    assert (tokens_in(again) == tokens_in(store)).all()
    chosen = build_store(tmp_path / "a.zarr", tmp_path / "chosen", species=[store.species[-1]])
    assert chosen.species == (store.species[0], store.species[-1])
    assert (tokens_in(chosen) == tokens_in(store)[:, [0, -1]]).all()
    with pytest.raises(UserError, match="exists: delete it"):
        export_zarr(store, tmp_path / "a.zarr")


def group(path: Path, array: np.ndarray, **attributes: object) -> Path:
    made = zarr.open_group(str(path), mode="w", zarr_format=2)
    made.attrs.update(attributes)
    made.create_array("chr1", data=array)
    return path


def test_a_group_that_names_no_species(tmp_path: Path) -> None:
    path = group(tmp_path / "a.zarr", np.array([list("AcG-"), list("gTTN")], "S1").T)
    with pytest.raises(UserError, match="does not name its 2 species: list them, in order, with --species FILE"):
        build_store(path, tmp_path / "b")
    with pytest.raises(UserError, match="has 2 species, and 1 names are given"):
        build_store(path, tmp_path / "b", species=["ref"])
    with pytest.raises(UserError, match="chr1:4 of ref is '-'"):
        build_store(path, tmp_path / "b", species=["ref", "x"])
    path = group(tmp_path / "c.zarr", np.array([list("AcGt"), list("gTT-")], "S1").T)
    (path / "chr1" / "gone").symlink_to("nowhere")
    (tmp_path / "ref.fa").write_text(">chr1\nACCT\n")
    with pytest.raises(UserError, match=r"the reference has G at chr1:3, and .*ref\.fa has C"):
        build_store(path, tmp_path / "b", species=["ref", "x"], reference=tmp_path / "ref.fa")
    store = build_store(path, tmp_path / "b", species=["ref", "x"])
    assert store.tokens(0).tolist() == [[0, 2], [1 | 0x80, 3], [2, 3], [3 | 0x80, 4]]


def test_groups_of_something_else(tmp_path: Path) -> None:
    path = group(tmp_path / "a.zarr", np.zeros((4, 2), np.float32), species=["ref", "x"])
    with pytest.raises(UserError, match="is float32 of shape"):
        build_store(path, tmp_path / "b")
    path = group(tmp_path / "e.zarr", np.array(65, np.uint8), species=["ref", "x"])
    with pytest.raises(UserError, match=r"is uint8 of shape \(\)"):
        build_store(path, tmp_path / "b")
    path = group(tmp_path / "c.zarr", np.array([list("A!"), list("gT")], "S1").T, species=["ref", "x"])
    with pytest.raises(UserError, match="chr1:2 of ref is '!'"):
        build_store(path, tmp_path / "b")
    zarr.open_group(str(tmp_path / "d.zarr"), mode="w", zarr_format=2)
    with pytest.raises(UserError, match="the group has no arrays"):
        build_store(tmp_path / "d.zarr", tmp_path / "b")
    with pytest.raises(UserError, match="is a folder: name the MAF or FASTA files in it"):
        build_store(tmp_path, tmp_path / "b")
    with pytest.raises(UserError, match="--contig names the contig of a FASTA alignment"):
        build_store(path, tmp_path / "b", contig="chr1")


def test_an_array_that_declares_far_more_than_is_there(tmp_path: Path) -> None:
    made = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=2)
    made.attrs.update({"species": ["ref", "x"]})
    made.create_array("chr1", shape=(2**40, 2), chunks=(1 << 14, 2), dtype="S1", fill_value=b"N")
    with pytest.raises(UserError, match=r"a\.zarr: array 'chr1': says that chr1 has 1,099,511,627,776 positions"):
        build_store(tmp_path / "a.zarr", tmp_path / "b")
    assert not list(tmp_path.glob(".b*"))


def test_attributes_that_are_no_names(tmp_path: Path) -> None:
    letters = np.array([list("AC"), list("GT")], "S1").T
    path = group(tmp_path / "a.zarr", letters, species=7, contigs=["chr1"])
    with pytest.raises(UserError, match="does not name its 2 species"):
        build_store(path, tmp_path / "b")
    path = group(tmp_path / "c.zarr", letters, species=["ref", "x"], contigs=7)
    assert build_store(path, tmp_path / "d").contigs == ("chr1",)


def test_a_chunk_that_is_shorter_than_declared(tmp_path: Path) -> None:
    made = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=2)
    made.attrs.update({"species": ["ref", "x"]})
    made.create_array("chr1", data=np.array([list("ACGT"), list("GTTN")], "S1").T, compressors=None)
    (tmp_path / "a.zarr" / "chr1" / "0.0").write_bytes(b"A")
    with pytest.raises(UserError, match=r"array 'chr1' cannot be read \(.*\): export or fetch it again"):
        build_store(tmp_path / "a.zarr", tmp_path / "b")
    assert not list(tmp_path.glob(".b*"))
