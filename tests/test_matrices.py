from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from r2mae.errors import UserError
from r2mae.matrices import load_matrix

VALUES = np.random.default_rng(0).standard_normal((12, 3)).round(4)


def refused(source: Path | str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load_matrix(source)
    assert "\n" not in str(caught.value)


def test_digits_without_the_pixels_that_never_vary() -> None:
    found = load_matrix("digits")
    x = load_digits().data
    np.testing.assert_allclose(found.values, np.rint(x[:, np.ptp(x, axis=0) > 0] * 255 / 16) / 255)
    assert found.notes == ("3 of 64 features never vary and are left out",)
    assert found.features[0] == "pixel 0,1"


def test_the_most_variable_features_are_kept_in_their_order() -> None:
    full, few = load_matrix("digits"), load_matrix("digits", max_features=10)
    top = np.sort(np.argsort(-full.values.var(axis=0))[:10])
    np.testing.assert_array_equal(few.values, full.values[:, top])
    assert few.features == tuple(full.features[j] for j in top)
    assert "the 10 most variable of 61 features are used" in few.notes


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "bool"])
def test_npy(tmp_path: Path, dtype: str) -> None:
    values = (VALUES > 0) if dtype == "bool" else (VALUES * 100).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    np.testing.assert_array_equal(load_matrix(tmp_path / "a.npy").values, values.astype(float))


def test_images_in_a_npy(tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (6, 4, 5, 3), np.uint8)
    np.save(tmp_path / "a.npy", images)
    found = load_matrix(tmp_path / "a.npy")
    np.testing.assert_allclose(found.values, images.reshape(6, -1) / 255)
    assert found.features[4] == "pixel 0,1 g"


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables(tmp_path: Path, name: str, separator: str) -> None:
    lines = [separator.join("abc"), *(separator.join(map(str, row)) for row in VALUES.tolist())]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    found = load_matrix(tmp_path / name)
    np.testing.assert_array_equal(found.values, VALUES)
    assert found.features == ("a", "b", "c")
    assert found.notes == ()


def test_a_table_with_a_mark_and_without_a_last_line_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n2,15")
    found = load_matrix(tmp_path / "a.csv")
    assert (found.features, found.values.tolist()) == (("a", "b"), [[1, 2], [2, 15]])
    assert "a.csv, line 3: the file ends within this line" in caplog.text


BROKEN: dict[str, tuple[bytes, str]] = {
    "text.npy": (b"hello", "not a valid .npy file"),
    "text.h5ad": (b"hello", "not a readable AnnData file"),
    "text.xyz": (b"hello", "unknown kind of file '.xyz'"),
    "empty.csv": (b"", "not a valid table"),
    "ragged.csv": (b"a,b\n1,2\n1,2,3\n", "not a valid table"),
    "binary.csv": (bytes(range(256)), "not a valid table"),
    "words.csv": (b"a,b\n1,y\n2,w\n", "row 1, column 'b' holds 'y', expected numbers with commas"),
    "typo.csv": (b"a,b\n1,2\n2,1.2.3\n", "row 2, column 'b' holds '1.2.3', expected numbers"),
    "underscore.csv": (b"a,b\n1,2\n2,1_0\n", "row 2, column 'b' holds '1_0', expected numbers"),
    "wide.csv": ("a,b\n1,2\n2,\uff11\n".encode(), "row 2, column 'b' holds '\uff11', expected numbers"),
    "commas.tsv": (b"a,b\n1,2\n2,3\n", "holds '1,2', expected numbers with tabs between them"),
    "missing.csv": (b"a,b\n1,2\n2,\n", "row 2, column 'b' holds nan: fill it in"),
    "headless.csv": (b"1,2\n2,3\n3,5\n", "its first line has to name each column"),
    "partly.csv": (b"cell,2\n2,3\n3,5\n", "its first line has to name each column"),
    "numbered.csv": (b",a,b\n0,2,3\n1,3,5\n", "a column that numbers the rows is to be omitted"),
    "names.csv": (b"0,1\n2,3\n3,5\n", "no name may be a number"),
    "none.csv": (b"a,b\n", "has 0 rows, expected at least 2"),
    "short.csv": (b"a\n2,3\n3,5\n", "its first line has to name each column"),
    "one.csv": (b"a,b\n1,2\n", "1 row, expected at least 2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path: Path, name: str) -> None:
    content, words = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, words)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones(4), r"has shape \(4,\)"),
        (np.ones((3, 3), complex), "holds complex128"),
        (np.array([["a", "b"]]), "holds <U1"),
        (np.where(VALUES[5, 1] == VALUES, np.nan, VALUES), "row 6, column 'column 2' holds nan"),
        (np.where(VALUES[5, 1] == VALUES, np.inf, VALUES), "holds inf"),
        (np.full((4, 3), 0.1), "0 of its features vary"),
        (np.ones((1, 3)), "1 row, expected at least 2"),
    ],
)
def test_arrays_that_are_no_data(tmp_path: Path, array: np.ndarray, words: str) -> None:
    np.save(tmp_path / "a.npy", array)
    refused(tmp_path / "a.npy", words)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    refused(tmp_path / "a.npy", "not a valid .npy file")


def test_names_and_paths_that_are_not_there() -> None:
    refused("minst", "did you mean 'mnist'")
    refused("some/where.npy", "no such file or folder")
    refused("gone.h5ad", "no such file or folder")


@pytest.fixture
def write_cells(tmp_path: Path) -> Callable[..., Path]:
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    def write(x: object, name: str = "a.h5ad") -> Path:
        rows, columns = x.shape  # type: ignore[attr-defined]
        names = [pd.Index([f"{kind}{i}" for i in range(n)], dtype=object) for kind, n in (("c", rows), ("g", columns))]
        anndata.AnnData(x, pd.DataFrame(index=names[0]), pd.DataFrame(index=names[1])).write_h5ad(tmp_path / name)
        return tmp_path / name

    return write


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_counts_are_normalised(write_cells: Callable[..., Path], kind: str) -> None:
    from scipy import sparse

    counts = np.random.default_rng(0).poisson(1.5, (20, 6))
    counts[:, 2] = 0
    counts[3] = 0
    x = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "dense": np.asarray}[kind](counts)
    found = load_matrix(write_cells(x))
    full = np.delete(np.delete(counts, 3, axis=0), 2, axis=1)
    totals = full.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.values, np.log1p(full / totals * np.median(totals)))
    assert found.features == ("g0", "g1", "g3", "g4", "g5")
    assert found.notes == (
        "counts are scaled to the median total of a cell, then log1p",
        "1 cells without counts are left out",
        "1 of 6 features never vary and are left out",
    )


def test_cells_without_counts(write_cells: Callable[..., Path], recwarn: pytest.WarningsRecorder) -> None:
    refused(write_cells(np.zeros((4, 3))), "fewer than 2 cells have any counts")
    assert not [one for one in recwarn if one.category is RuntimeWarning]


def test_normalised_values_are_taken_as_they_are(write_cells: Callable[..., Path]) -> None:
    found = load_matrix(write_cells(VALUES))
    np.testing.assert_array_equal(found.values, VALUES)
    assert found.notes == ("X holds no raw counts and is taken as already normalised",)


def test_the_most_variable_genes_are_those_of_the_normalised_counts(write_cells: Callable[..., Path]) -> None:
    from scipy import sparse

    counts = np.random.default_rng(1).poisson(0.4, (200, 12))
    path = write_cells(sparse.csr_matrix(counts))
    full, few = load_matrix(path), load_matrix(path, max_features=5)
    top = np.sort(np.argsort(-full.values.var(axis=0))[:5])
    np.testing.assert_array_equal(few.values, full.values[:, top])
    assert few.features == tuple(full.features[j] for j in top)
    assert few.notes[-1] == "the 5 most variable of 12 genes are used"


def test_a_gene_stored_twice_in_a_cell_counts_once_with_its_sum(write_cells: Callable[..., Path]) -> None:
    from scipy import sparse

    counts = np.random.default_rng(0).poisson(1.5, (20, 6)) + 1
    counts[:, 3:] = 0
    plain = load_matrix(write_cells(sparse.csr_matrix(counts)))
    once = sparse.csr_matrix(counts)
    parts = np.stack([np.ones(once.nnz), once.data - 1], axis=1).ravel()
    twice = sparse.csr_matrix((parts, np.repeat(once.indices, 2), 2 * once.indptr), shape=once.shape)
    np.testing.assert_array_equal(load_matrix(write_cells(twice)).values, plain.values)


def test_the_memory_that_cells_may_take_bounds_what_is_read(
    write_cells: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_cells(np.random.default_rng(0).poisson(1.5, (50, 40)).astype(np.float64))
    monkeypatch.setattr("r2mae.cells.table.memory_limit", lambda: 10_000)
    refused(path, "X needs .* of memory")
    from scipy import sparse

    path = write_cells(sparse.csr_matrix(np.random.default_rng(0).poisson(1.5, (50, 40))))
    monkeypatch.setattr("r2mae.images.arrays.memory_limit", lambda *_: 10_000)
    refused(path, "a.h5ad: needs .* of memory, the limit is .*: give fewer cells")


def test_cells_that_cannot_be_used(write_cells: Callable[..., Path]) -> None:
    broken = VALUES.copy()
    broken[2, 1] = np.nan
    refused(write_cells(broken), "a value of the gene 'g1' that is not finite")
    h5py = pytest.importorskip("h5py")
    with h5py.File(write_cells(VALUES), "a") as file:
        path = Path(file.filename)
        del file["X"]
    refused(path, "has no X, and no layers at all")


def test_real_cells(data_root: Path) -> None:
    pytest.importorskip("anndata")
    found = load_matrix(data_root / "cells" / "csle_44donors.h5ad", max_features=200)
    assert found.values.shape == (1000, 200)
    assert found.values.min() == 0 and found.values.max() < 12
    assert found.notes[-1].startswith("the 200 most variable of ")


def test_mnist_has_its_training_images(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(data_root))
    found = load_matrix("mnist", max_features=50)
    assert found.values.shape == (60_000, 50)
    assert found.notes[0] == "67 of 784 features never vary and are left out"


def test_named_sets_of_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    with pytest.raises(UserError, match="csle"):
        load_matrix("csle")  # known, and not there
    with pytest.raises(UserError, match="did you mean 'csle'"):
        load_matrix("cslee")
