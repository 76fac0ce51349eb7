"""HDF5 files that are written whole or not at all, whatever the disk says."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from r2mae.cells.counts import MemoryCounts
from r2mae.cells.hdf5 import atomic_hdf5
from r2mae.cells.stored import write_copy
from r2mae.errors import UserError


@contextmanager
def file_size(limit: int) -> Iterator[None]:
    """Fail writes beyond a size, as a disk does that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(made: h5py.File) -> None:
    for number in range(60):
        made.create_dataset(f"group{number % 7}/names{number}", data=[f"text{i}" for i in range(20)])
        made[f"group{number % 7}/names{number}"].attrs["long"] = "v" * 500
    growing = made.create_dataset("growing", (0,), "f4", maxshape=(None,), chunks=(500,))
    for _ in range(20):
        growing.resize(len(growing) + 500, axis=0)
        growing[-500:] = np.random.default_rng(0).random(500)
    made["whole"] = np.arange(30_000.0)


def test_files_are_those_of_the_library(tmp_path: Path) -> None:
    with atomic_hdf5(tmp_path / "new" / "ours.h5") as made:
        fill(made)
    with h5py.File(tmp_path / "theirs.h5", "w") as made:
        fill(made)
    with h5py.File(tmp_path / "new" / "ours.h5") as ours, h5py.File(tmp_path / "theirs.h5") as theirs:
        np.testing.assert_array_equal(ours["growing"][:], theirs["growing"][:])
        np.testing.assert_array_equal(ours["whole"][:], theirs["whole"][:])
        assert ours["group3/names3"][7] == theirs["group3/names3"][7] == b"text7"
    with atomic_hdf5(tmp_path / "more.h5", tmp_path / "theirs.h5") as made:
        made["more"] = [1, 2]
    with h5py.File(tmp_path / "more.h5") as made, h5py.File(tmp_path / "theirs.h5") as theirs:
        assert {*theirs, "more"} == {*made}


@pytest.fixture(scope="module")
def size(tmp_path_factory: pytest.TempPathFactory) -> int:
    path = tmp_path_factory.mktemp("size") / "x.h5"
    with atomic_hdf5(path) as made:
        fill(made)
    return path.stat().st_size


@settings(max_examples=40)
@given(share=st.floats(0, 0.999), start=st.booleans())
def test_a_full_disk_leaves_what_was_there(
    share: float, start: bool, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("full")
    (folder / "x.h5").write_bytes(b"before")
    with h5py.File(folder / "start.h5", "w") as made:
        made["some"] = np.arange(1000.0)
    limit = int(share * size)
    with (
        pytest.raises(OSError, match="File too large") as caught,
        file_size(limit),
        atomic_hdf5(folder / "x.h5", folder / "start.h5" if start else None) as made,
    ):
        fill(made)
    assert caught.value.filename == str(folder / "x.h5")
    assert (folder / "x.h5").read_bytes() == b"before"
    assert sorted(path.name for path in folder.iterdir()) == ["start.h5", "x.h5"]


def test_errors_of_the_block_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(KeyError), atomic_hdf5(tmp_path / "x.h5") as made:
        made["nothing"]
    with pytest.raises(FileNotFoundError, match=r"none\.h5"), atomic_hdf5(tmp_path / "x.h5", tmp_path / "none.h5"):
        pass
    (tmp_path / "text").write_text("no HDF5")
    with pytest.raises(OSError, match="signature"), atomic_hdf5(tmp_path / "x.h5", tmp_path / "text"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_copy_of_counts_on_a_full_disk(tmp_path: Path) -> None:
    counts = MemoryCounts(csr_matrix(np.random.default_rng(0).poisson(0.1, (3000, 100)).astype(np.float32)))
    told = r"copy\.h5: cannot be written \(File too large\): point R2MAE_DATA at"
    with pytest.raises(UserError, match=told), file_size(20_000):
        write_copy(counts, tmp_path / "copy.h5")
    assert not list(tmp_path.iterdir())
