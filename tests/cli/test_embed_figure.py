"""`r2mae embed --figure`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells import DOMAIN as CELLS
from r2mae.cells import CellsConfig
from r2mae.cli.main import main
from r2mae.compare.embedding_figure import columns_of, text_or_floats
from r2mae.images import DOMAIN as IMAGES
from r2mae.images.config import ImagesConfig
from r2mae.training.loop import fit

pytestmark = pytest.mark.slow

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cells with a run, and a run on digits."""
    folder = tmp_path_factory.mktemp("embed")
    rng, cells = np.random.default_rng(0), 40
    counts = rng.poisson(1.0, (cells, 12)).astype(np.float32) + np.eye(cells, 12, dtype=np.float32)
    counts[:, 0] += 1
    obs = pd.DataFrame(
        {
            "donor": [f"d{i % 4}" for i in range(cells)],
            "cell_type": pd.Categorical([f"type {i % 2}" for i in range(cells)]),
            "age": np.arange(cells) % 4 + 20,
            "phase": ["G1", "S"] * (cells // 2),
        },
        index=[f"c{i}" for i in range(cells)],
    )
    adata = anndata.AnnData(csr_matrix(counts), obs=obs, var=pd.DataFrame(index=[f"g{i}" for i in range(12)]))
    adata.write_h5ad(folder / "data.h5ad")
    config = CellsConfig.make(
        data=str(folder / "data.h5ad"), donor_key="donor", labels=("cell_type",), regress=("age",), n_hidden=8,
        n_latent=4, epochs=1, batch_size=20, threads=1,
    )  # fmt: skip
    fit(config, CELLS, folder / "run")
    fit(ImagesConfig.make(data="digits", hidden=8, latent=8, epochs=1, threads=1), IMAGES, folder / "digits")
    return folder


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)

    def call(line: str) -> tuple[int, str, str]:
        code = main(line.split())
        return code, *capsys.readouterr()

    return call


def titles(path: Path) -> list[str]:
    """The panels' titles: text of the SVG that is none of the legend's."""
    text = path.read_text(encoding="utf-8")
    return [name for name in ("cell_type", "age", "donor", "phase", "labels", "split") if f">{name}</text>" in text]


def test_labels_and_numbers_of_the_run(run: Run, folder: Path) -> None:
    code, out, _ = run("embed run data.h5ad -o a.h5ad --figure a.svg")
    assert code == 0
    assert "coloured by cell_type, age, is in a.svg" in out
    assert anndata.read_h5ad(folder / "a.h5ad").obsm["X_r2mae"].shape == (40, 4)
    assert titles(folder / "a.svg") == ["cell_type", "age"]
    text = (folder / "a.svg").read_text(encoding="utf-8")
    assert ">type 1</text>" in text
    assert "data: UMAP of the embedding by r2mae, 40 points" in text
    run("embed run data.h5ad -o b.h5ad --figure b.svg")
    assert (folder / "b.svg").read_bytes() == (folder / "a.svg").read_bytes()


def test_columns_and_points_by_choice(run: Run, folder: Path) -> None:
    code, out, _ = run("embed run data.h5ad -o c.npz --figure c.svg --color phase donor --max-points 20")
    assert code == 0
    assert "coloured by phase, donor" in out
    assert titles(folder / "c.svg") == ["donor", "phase"]
    assert "20 of 40" in (folder / "c.svg").read_text(encoding="utf-8")
    with np.load(folder / "c.npz", allow_pickle=False) as arrays:
        assert "phase" not in arrays


def test_images(run: Run, folder: Path) -> None:
    assert "coloured by labels" in run("embed digits digits -o d.npz --figure d.svg --max-points 60")[1]
    assert titles(folder / "d.svg") == ["labels"]
    assert all(f">{digit}</text>" in (folder / "d.svg").read_text(encoding="utf-8") for digit in range(10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--figure x.jpg", "figures are written as .svg, .png or .pdf, not '.jpg': --figure x.svg"),
        ("--figure x.svg --color cel_type", "data.h5ad has no column 'cel_type' (--color): did you mean 'cell_type'?"),
        ("--figure x.svg --max-points 1", "--max-points must be 5 or more, not 1"),
        ("--color age", "--color is for a figure: name its file, --figure umap.svg"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(run: Run, folder: Path, options: str, message: str) -> None:
    code, _, err = run(f"embed run data.h5ad -o x.h5ad {options}")
    assert code == 2
    assert err == f"r2mae: {message}\n"
    assert not (folder / "x.h5ad").exists()


def test_an_unknown_column_of_images(run: Run) -> None:
    code, _, err = run("embed digits digits -o x.npz --figure x.svg --color label")
    assert code == 2
    assert "digits has no column 'label' (--color): did you mean 'labels'?" in err


@pytest.mark.parametrize("words", [["--help"], ["embed", "--help"]])
def test_help_needs_no_library(words: list[str]) -> None:
    lines = ("import sys", "from r2mae.cli.main import main", "try:", f"    main({words})", "finally:", "    print()")
    code = "\n".join([*lines, "    print(*sys.modules)"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "r2mae" in loaded
    assert not loaded & {"umap", "numba", "torch", "matplotlib", "anndata"}


def test_columns_of_a_domain() -> None:
    arrays = {
        "embedding": np.zeros((3, 2), np.float32),
        "cells": np.array(["x", "y", "z"]),
        "labels": np.array([1, 0, 1]),
        "classes": np.array(["cat", "dog"]),
        "age": np.array(["17", "60-69", "nan"]),
        "grade": np.array([1, 2, 3]),
    }
    found = columns_of(arrays, ["age"])
    assert list(found) == ["cells", "labels", "age", "grade"]
    assert found["labels"].tolist() == ["dog", "cat", "dog"]
    np.testing.assert_array_equal(found["age"], [17, np.nan, np.nan])
    assert found["grade"].tolist() == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, 2]), [1.0, 2.0]),
        (pd.Series([1, None], dtype="Int64"), [1.0, np.nan]),
        (pd.Series([True, False]), ["True", "False"]),
        (pd.Series(["a", None], dtype="category"), ["a", ""]),
        (pd.Series([1, 2], dtype="category"), ["1", "2"]),
        (pd.Series(["a", None], dtype="string"), ["a", ""]),
    ],
)
def test_values_of_a_table(column: "pd.Series[str]", expected: list[object]) -> None:
    found = text_or_floats(column)
    assert found.dtype.kind == ("f" if isinstance(expected[0], float) else "U")
    np.testing.assert_array_equal(found, expected)


def test_the_layer_and_the_batch_of_another_file(run: Run, folder: Path) -> None:
    adata = anndata.read_h5ad(folder / "data.h5ad")
    adata.obs["plate"] = np.where(np.arange(40) % 2, "p", "q")
    adata.write_h5ad(folder / "plates.h5ad")
    config = CellsConfig.make(
        data=str(folder / "plates.h5ad"),
        batch_key="plate",
        n_hidden=8,
        n_latent=4,
        steps=1,
        batch_size=20,
        threads=1,
    )
    fit(config, CELLS, folder / "plates")
    adata.layers["counts"], adata.X = adata.X, adata.X / 2
    del adata.obs["plate"]
    adata.write_h5ad(folder / "other.h5ad")
    code, _, err = run("embed plates other.h5ad -o o.npz --device cpu")
    assert code == 2
    assert err.startswith(
        "r2mae: other.h5ad: batch_key: obs has no column 'plate', and the model tells batches apart: "
    )
    assert "such as transform_batch='p' (--transform-batch)" in err
    assert err.count("\n") == 1
    code, _, err = run("embed plates other.h5ad -o o.npz --device cpu --transform-batch p")
    assert code == 2
    assert "--layer counts" in err
    assert run("embed plates other.h5ad -o o.npz --device cpu --transform-batch p --layer counts")[0] == 0
    assert run("embed plates data.h5ad -o d.npz --device cpu --transform-batch p --layer X")[0] == 0
    with np.load(folder / "o.npz") as other, np.load(folder / "d.npz") as same:
        np.testing.assert_array_equal(other["embedding"], same["embedding"])
    code, _, err = run("embed digits digits -o x.npz --layer counts")
    assert code == 2
    assert "a run of the domain images, which has no --layer: omit it" in err


def test_columns_are_checked_without_the_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from r2mae.cells import table as sources

    monkeypatch.setattr(sources, "open_source", lambda *_, **__: pytest.fail("counts were looked at"))
    code, _, err = run("embed run data.h5ad -o x.h5ad --figure x.svg --color cel_type")
    assert code == 2
    assert "has no column 'cel_type' (--color): did you mean 'cell_type'?" in err


def test_domains_with_annotations(folder: Path) -> None:
    assert IMAGES.annotations("digits") is None
    found = CELLS.annotations(str(folder / "data.h5ad"))
    assert found is not None
    assert list(found.columns) == ["donor", "cell_type", "age", "phase"]
