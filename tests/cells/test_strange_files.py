"""Files that people have: of other programs and versions, damaged or moved. Each is read, or refused in one line."""

from collections.abc import Callable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2mae.cells.config import CellsConfig
from r2mae.cells.domain import DOMAIN
from r2mae.cells.table import load_cells, read_obs
from r2mae.errors import UserError

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]


def test_tables_of_an_old_anndata(make: Make, write: Write, tmp_path: Path) -> None:
    """Versions before 0.7 wrote obs as one structured array."""
    path = write(make(), tmp_path / "old.h5ad")
    with h5py.File(path, "r+") as file:
        del file["obs"]
        file["obs"] = np.array([(f"c{i}".encode(), i % 3) for i in range(30)], dtype=[("index", "S8"), ("donor", "i4")])
        file["obs"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    for read in (read_obs, load_cells):
        with pytest.raises(UserError, match=r"old\.h5ad: obs is no table of a current anndata: write the file again"):
            read(path)


def test_a_column_of_no_known_type(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "opaque.h5ad")
    with h5py.File(path, "r+") as file:
        attributes = dict(file["obs/donor"].attrs)
        del file["obs/donor"]
        file["obs"].create_dataset("donor", data=np.arange(30, dtype="u4").view("V4")).attrs.update(
            {**attributes, "encoding-type": "array", "encoding-version": "0.2.0"}
        )
    for read in (read_obs, load_cells):
        with pytest.raises(
            UserError, match=r"opaque\.h5ad: the column 'donor' of obs holds \|V4, which no table holds"
        ):
            read(path)


def test_a_column_that_is_listed_twice_is_one(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "twice.h5ad")
    with h5py.File(path, "r+") as file:
        file["obs"].attrs["column-order"] = np.array(["donor", "donor"], dtype=object)
    assert list(load_cells(path).obs.columns) == ["donor"]


@pytest.mark.parametrize(
    ("name", "groups", "function"),
    [
        ("filtered.h5", ["matrix/features"], "scanpy.read_10x_h5"),
        ("a.loom", ["col_attrs", "row_attrs"], "anndata.io.read_loom"),
        ("a.h5mu", ["mod/rna/X", "obs"], "mudata.read_h5mu"),
        ("renamed.h5ad", ["mod/rna/X", "obs"], "mudata.read_h5mu"),
    ],
)
def test_other_containers_name_the_function_that_converts_them(
    tmp_path: Path, name: str, groups: list[str], function: str
) -> None:
    with h5py.File(tmp_path / name, "w") as file:
        for group in groups:
            file.create_group(group)
    with pytest.raises(UserError, match=r"has no X, and no layers at all: .*convert other formats") as caught:
        load_cells(tmp_path / name)
    assert function in str(caught.value)


def test_text_names_the_function_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("gene,c1,c2\n")
    with pytest.raises(UserError, match=r"cannot be read .*not a readable AnnData file; .* scanpy\.read_csv"):
        load_cells(tmp_path / "counts.csv")


def test_a_folder_of_10x(tmp_path: Path) -> None:
    (tmp_path / "matrix.mtx.gz").touch()
    with pytest.raises(UserError, match=r"scanpy\.read_10x_mtx"):
        load_cells(tmp_path)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from cells.conftest import make_cells, write_cells

    path = write_cells(make_cells(), tmp_path_factory.mktemp("valid") / "x.h5ad", compression="gzip")
    return path.read_bytes()


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_one_line(
    valid: bytes, tmp_path_factory: pytest.TempPathFactory, place: float, bit: int
) -> None:
    broken = bytearray(valid)
    broken[int(place * len(valid))] ^= 1 << bit
    path = tmp_path_factory.mktemp("flipped") / "x.h5ad"
    path.write_bytes(broken)
    try:
        load_cells(path)
    except UserError as error:
        assert "\n" not in str(error)
        assert "x.h5ad" in str(error)
        assert "<c" not in str(error)  # <class …>, <cyfunction …>


def test_moved_data_are_the_same(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "a.h5ad")
    before = DOMAIN.fingerprint(CellsConfig.make(data=str(path)))
    assert DOMAIN.fingerprint(CellsConfig.make(data=str(path.rename(tmp_path / "b.h5ad")))) == before


def test_counts_in_blocks_of_dask(make: Make) -> None:
    dask = pytest.importorskip("dask.array")
    adata = make()
    before = load_cells(adata).counts.matrix
    for blocks in (type(adata.X), np.asarray):  # sparse and dense
        adata.X = dask.from_array(before.toarray(), chunks=(7, 5)).map_blocks(blocks)
        assert (load_cells(adata).counts.matrix != before).nnz == 0
