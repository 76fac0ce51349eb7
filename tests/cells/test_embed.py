"""Embeddings as files: everything of the source stays, and a source that changed is told."""

import weakref
from collections.abc import Callable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from r2mae.cells import table as reading
from r2mae.cells.batches import CellBatches, embed_rows, embed_source
from r2mae.cells.config import CellsConfig
from r2mae.cells.models.mlp import CountAutoencoder
from r2mae.cells.table import align_batches, load_cells, write_h5ad
from r2mae.cells.task import GeneTask
from r2mae.errors import UserError
from r2mae.files import write_arrays
from r2mae.masking.keys import Key

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]
EMBEDDING = np.random.default_rng(0).random((30, 5), dtype=np.float32)
ARRAYS = {"embedding": EMBEDDING, "cells": np.array([f"c{i}" for i in range(30)])}


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_the_source_comes_along(make: Make, write: Write, tmp_path: Path, kind: str) -> None:
    adata = make()
    adata.obs["age"] = np.arange(30)
    adata.obs["words"] = pd.array([None, *map(str, range(29))], dtype="string")
    adata.uns["note"] = "kept"
    adata.obsm["X_other"] = EMBEDDING * 2
    options = {"compression": "gzip"} if kind == "gzip" else {}
    with anndata.settings.override(allow_write_nullable_strings=True):
        path = write(adata, tmp_path / "a.h5ad", **options)
    for output in (tmp_path / "new" / "out.h5ad", path):  # also in its own place
        write_h5ad(output, ARRAYS, str(path))
        found = anndata.read_h5ad(output)
        np.testing.assert_array_equal(found.obsm["X_r2mae"], EMBEDDING)
        np.testing.assert_array_equal(found.obsm["X_other"], EMBEDDING * 2)
        np.testing.assert_array_equal(found.X.toarray(), adata.X.toarray())
        np.testing.assert_array_equal(found.layers["raw"].toarray(), adata.X.toarray())
        assert found.obs["age"].tolist() == list(range(30))
        assert found.obs["words"].equals(adata.obs["words"])
        assert found.uns["note"] == "kept"
    if kind == "gzip":
        with h5py.File(tmp_path / "new" / "out.h5ad") as file:
            assert file["X/data"].compression == "gzip"


def test_an_earlier_embedding_is_replaced_and_the_file_does_not_grow(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(3000), tmp_path / "a.h5ad")
    names = np.array([f"c{i}" for i in range(3000)])
    sizes = []
    for number in range(4):
        embedding = np.full((3000, 64), number, dtype=np.float32)
        write_h5ad(path, {"embedding": embedding, "cells": names}, str(path))
        np.testing.assert_array_equal(anndata.read_h5ad(path).obsm["X_r2mae"], embedding)
        sizes.append(path.stat().st_size)
    assert sizes[-1] < sizes[0] + 64 * 3000


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
def test_files_without_obsm_and_names_that_occur_twice(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make()
    adata.obs.index = ["c0", "c0", *adata.obs.index[2:]]
    path = write(adata, tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file:
        del file["obsm"]
    arrays = {"embedding": EMBEDDING, "cells": np.array(["c0", "c0", *ARRAYS["cells"][2:]])}
    write_h5ad(tmp_path / "out.h5ad", arrays, str(path))
    np.testing.assert_array_equal(anndata.read_h5ad(tmp_path / "out.h5ad").obsm["X_r2mae"], EMBEDDING)


def test_an_obsm_in_another_file_is_not_written_to(make: Make, write: Write, tmp_path: Path) -> None:
    path, other = (write(make(), tmp_path / name) for name in ("a.h5ad", "other.h5ad"))
    before = other.read_bytes()
    with h5py.File(path, "r+") as file:
        del file["obsm"]
        file["obsm"] = h5py.ExternalLink("other.h5ad", "/obsm")
    with pytest.raises(UserError, match=r"a\.h5ad: /obsm is kept in other files"):
        write_h5ad(tmp_path / "out.h5ad", ARRAYS, str(path))
    assert other.read_bytes() == before
    assert not (tmp_path / "out.h5ad").exists()


@pytest.mark.filterwarnings("ignore::anndata.OldFormatWarning")
def test_an_old_file_in_which_obsm_is_one_array(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file:
        del file["obsm"]
        file["obsm"] = np.zeros(len(EMBEDDING), dtype=[("X_pca", "f4", (3,))])
    with pytest.raises(UserError, match=r"a\.h5ad: obsm is one array, .*: name an output in \.npz"):
        write_h5ad(tmp_path / "out.h5ad", ARRAYS, str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5ad"]


def test_a_source_that_changed_meanwhile(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make()[::-1].copy(), tmp_path / "a.h5ad")
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"a\.h5ad has other cells than were embedded"):
        write_h5ad(path, ARRAYS, str(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5ad"]


def test_places_that_cannot_be_written(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "a.h5ad")
    (tmp_path / "file").touch()
    (tmp_path / "folder.h5ad").mkdir()
    for output in (tmp_path / "file" / "out.h5ad", tmp_path / "folder.h5ad"):
        with pytest.raises(OSError) as caught:
            write_h5ad(output, ARRAYS, str(path))
        assert caught.value.filename in (str(output), str(output.parent))
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.h5ad", "file", "folder.h5ad"}


def model_of(genes: int = 12, batches: tuple[str, ...] = ("all",)) -> CountAutoencoder:
    torch.manual_seed(0)
    model = CountAutoencoder(genes, len(batches), 16, 4)
    model.gene_names, model.batch_names = tuple(f"g{i}" for i in range(genes)), batches
    return model


def test_rows_are_embedded_a_part_at_a_time_in_evaluation_mode(make: Make) -> None:
    table, model = load_cells(make()), model_of()
    whole = embed_rows(GeneTask(12), model, table)
    assert model.training  # the mode of before
    batch = CellBatches(table).batch(np.arange(30), Key.root(0))
    np.testing.assert_allclose(whole, GeneTask(12).embed(model.eval(), batch), atol=1e-6)
    rows = np.array([4, 7, 8, 20, 29])
    np.testing.assert_allclose(embed_rows(GeneTask(12), model, table, rows, size=2), whole[rows], atol=1e-6)


def test_parts_leave_the_device_one_by_one(make: Make) -> None:
    """What the device made of a part is gone before the next is made; half precision becomes float32."""
    made: list[weakref.ref[torch.Tensor]] = []
    expected: list[np.ndarray] = []

    class Halved(GeneTask):
        def embed(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], hidden: None) -> torch.Tensor:
            assert all(one() is None for one in made)
            part = super().embed(model, batch, hidden).bfloat16()
            made.append(weakref.ref(part))
            expected.append(part.float().numpy())
            return part

    found = embed_rows(Halved(12), model_of(), load_cells(make()), size=7)
    assert len(made) == 5
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.concatenate(expected))


def test_batches_of_cells_for_the_encoder() -> None:
    obs = pd.DataFrame({"plate": ["b", "new", None, "a"], "number": [1, 2, 3, 1]})
    known = ("a", "b")
    assert align_batches("x", obs[["plate"]].iloc[[0, 3]], "plate", known).tolist() == [1, 0]
    assert align_batches("x", obs, "plate", known, "a").tolist() == [1, 0, 0, 0]
    assert align_batches("x", obs, "plate", known, "b").tolist() == [1, 1, 1, 0]
    assert align_batches("x", obs, "number", ("1", "3"), "3").tolist() == [0, 1, 1, 0]
    for key in ("plat", None):
        assert align_batches("x", obs, key, known, "b").tolist() == [1, 1, 1, 1]
    assert align_batches("x", obs, None, ("all",)).tolist() == [0, 0, 0, 0]
    for key, told in {
        "plate": "the model has never seen the batches new",
        "number": "the model has never seen the batches 1, 2, 3",
        "plat": "obs has no column 'plat'",
        None: "the run names no column of batches",
    }.items():
        with pytest.raises(
            UserError, match=rf"^x: batch_key: {told}, .* transform_batch='a' \(--transform-batch\), or add"
        ):
            align_batches("x", obs, key, known)
    with pytest.raises(UserError, match=r"^x: batch_key: cells have no value in column 'plate', and the model tells"):
        align_batches("x", obs.iloc[[0, 2]], "plate", known)
    with pytest.raises(UserError, match="unknown batch 'c'"):
        align_batches("x", obs, "plate", known, "c")


def test_batches_are_checked_before_counts_are_read(
    make: Make, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(make(), tmp_path / "a.h5ad")
    config = CellsConfig.make(data="x", batch_key="plate")
    model = model_of(batches=("a", "b"))
    with pytest.raises(UserError, match=r"has no column 'plate'.*--transform-batch"):
        monkeypatch.setattr(reading, "check_counts", lambda _: pytest.fail("counts were read"))
        embed_source(config, GeneTask(12), model, str(path))


def test_counts_of_a_file_may_be_in_another_layer(make: Make, write: Write, tmp_path: Path) -> None:
    adata = make()
    config, model = CellsConfig.make(data="x", layer="raw"), model_of()
    as_trained = embed_source(config, GeneTask(12), model, str(write(adata, tmp_path / "a.h5ad")))
    del adata.layers["raw"]
    path = str(write(adata, tmp_path / "b.h5ad"))
    with pytest.raises(UserError, match="has no layer 'raw': choose from: X"):
        embed_source(config, GeneTask(12), model, path)
    for layer in ("X", ""):
        found = embed_source(config, GeneTask(12), model, path, layer=layer)
        np.testing.assert_array_equal(found["embedding"], as_trained["embedding"])


def test_columns_called_as_the_arrays_keep_their_own_place(make: Make, write: Write, tmp_path: Path) -> None:
    adata, named = make(), ("index", "cells", "embedding", "file")
    for name in named:
        adata.obs[name] = [f"{name} {i}" for i in range(30)]
    config = CellsConfig.make(data="x", labels=named)
    found = embed_source(config, GeneTask(12), model_of(), str(write(adata, tmp_path / "a.h5ad")))
    write_arrays(tmp_path / "out.npz", found)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as read:
        assert read["index"].tolist() == list(range(30)) and read["cells"][2] == "c2" and read["file"][3] == "file 3"
        assert [read[f"obs_{name}"][4] for name in named[:3]] == [f"{name} 4" for name in named[:3]]
