"""Bad input on the command line and through the facade: one line that names file, field and hint; nothing lost."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from r2mae.cells import MaskedAutoencoder
from r2mae.cells.table import load_cells, read_obs
from r2mae.cli.main import main
from r2mae.errors import UserError

Make = Callable[..., anndata.AnnData]
Write = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]
SMALL = "--n-hidden 8 --n-latent 4 --batch-size 10 --steps 2 --threads 1 --device cpu"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str, str]:
        code = main(line.split())
        out, err = capsys.readouterr()
        return code, out, err

    return call


def refused(run: Run, line: str, *told: str) -> None:
    """One line on stderr that says all this, exit code 2, and nothing that was not there before."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    code, _, err = run(line)
    assert code == 2
    assert err.startswith("r2mae: ")
    assert len(err.splitlines()) == 1, err
    for part in told:
        assert part in err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def pretrain(data: str, options: str = "") -> str:
    return f"pretrain cells {data} {SMALL} --json --out run {options}"


VALUES = {"negative": (-1.0, "-1"), "fraction": (1.5, "1.5"), "nan": (np.nan, "nan"), "infinite": (np.inf, "inf")}


@pytest.mark.parametrize("name", VALUES)
def test_values_that_are_no_counts(make: Make, write: Write, run: Run, name: str) -> None:
    value, shown = VALUES[name]
    told = f"X of cell 'c3', gene 'g4' is {shown}, and counts are whole numbers of 0 or more"
    adata = make(at3_4=value)
    write(adata, Path("a.h5ad"))
    refused(run, pretrain("a.h5ad"), f"a.h5ad: {told}")
    MaskedAutoencoder.setup_anndata(adata)
    with pytest.raises(UserError) as caught:
        MaskedAutoencoder(adata)
    assert str(caught.value).startswith(f"AnnData: {told}")


@pytest.mark.slow
def test_normalised_data_with_a_layer_of_counts(make: Make, write: Write, run: Run) -> None:
    adata = make()
    adata.layers["counts"], adata.X = adata.X.copy(), adata.X / 2
    del adata.layers["raw"]
    write(adata, Path("a.h5ad"))
    hint = "whole numbers of 0 or more: pass the layer that holds raw counts, such as layer='counts' or --layer counts"
    refused(run, pretrain("a.h5ad"), "a.h5ad: X of cell 'c0'", hint, "(layers: counts)")
    refused(run, pretrain("a.h5ad", "--layer cuonts"), "a.h5ad: has no layer 'cuonts': did you mean 'counts'?")
    MaskedAutoencoder.setup_anndata(adata)
    with pytest.raises(UserError, match="layer='counts'"):
        MaskedAutoencoder(adata)
    MaskedAutoencoder.setup_anndata(adata, layer="counts")
    MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    assert run(pretrain("a.h5ad", "--layer counts"))[0] == 0


def without(adata: anndata.AnnData, *, cell: int | None = None, gene: int | None = None) -> anndata.AnnData:
    counts = adata.X.toarray()
    if cell is not None:
        counts[cell] = 0
    if gene is not None:
        counts[:, gene] = 0
    adata.X = csr_matrix(counts)
    return adata


@pytest.mark.slow
def test_a_cell_without_counts(make: Make, write: Write, run: Run) -> None:
    adata = without(make(), cell=4)
    write(adata, Path("a.h5ad"))
    told = "a.h5ad: 1 cell without a count in the chosen genes, such as 'c4': omit them with --min-genes 1 (or "
    refused(run, pretrain("a.h5ad"), told, "scanpy.pp.filter_cells(adata, min_genes=1)")
    MaskedAutoencoder.setup_anndata(adata)
    with pytest.raises(UserError, match=r"1 cell without a count .*scanpy\.pp\.filter_cells"):
        MaskedAutoencoder(adata)
    assert run(pretrain("a.h5ad", "--min-genes 1"))[0] == 0


@pytest.mark.slow
def test_a_gene_without_counts_is_a_note(make: Make, write: Write, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    adata = without(make(), gene=7)
    write(adata, Path("a.h5ad"))
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=8, n_latent=4)
    assert caplog.messages == ["AnnData: 1 genes without a count are omitted"]
    model.train(1, batch_size=10, progress=False, threads=1)
    assert model.get_latent_representation().shape == (30, 4)
    table = model.get_normalized_expression()
    fitting = adata[:, table.columns].copy()
    fitting.layers["denoised"] = table
    caplog.clear()
    others = adata[:, 1:].copy()  # without a gene of the model
    others.obsm["denoised"] = model.get_normalized_expression(others)
    assert others.obsm["denoised"].shape == (30, 11)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("1 missing (hidden), 1 others ignored")
    with pytest.raises(UserError, match="unknown gene 'g7'"):
        model.impute(["g7"])
    caplog.clear()
    assert run(pretrain("a.h5ad"))[0] == 0
    assert caplog.messages == ["1 genes without a count are omitted"]


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
def test_duplicate_genes(make: Make, write: Write, run: Run) -> None:
    adata = make()
    adata.var_names = ["g0", "g0", *adata.var_names[2:]]
    write(adata, Path("a.h5ad"))
    told = "the gene name 'g0' occurs twice in var: call adata.var_names_make_unique()"
    refused(run, pretrain("a.h5ad"), f"a.h5ad: {told}")
    MaskedAutoencoder.setup_anndata(adata)
    with pytest.raises(UserError) as caught:
        MaskedAutoencoder(adata)
    assert told in str(caught.value)


def test_columns(make: Make, write: Write, run: Run) -> None:
    adata = make()
    adata.obs["kind"], adata.obs["one"] = ["x", "y"] * 15, "d0"
    adata.obs["some"] = np.array(["x", "y", None] * 10, dtype=object)
    write(adata, Path("a.h5ad"))
    refused(run, pretrain("a.h5ad", "--batch-key kidn"), "a.h5ad: obs has no column 'kidn': did you mean 'kind'?")
    refused(run, pretrain("a.h5ad", "--donor-key doner"), "a.h5ad: obs has no column 'doner': did you mean 'donor'?")
    refused(run, pretrain("a.h5ad", "--labels knid"), "a.h5ad: ", "obs has no column 'knid': did you mean 'kind'?")
    refused(
        run,
        pretrain("a.h5ad", "--batch-key some"),
        "a.h5ad: 10 cells without a value in column 'some' of obs: ",
    )
    refused(
        run,
        pretrain("a.h5ad", "--labels one"),
        "one: no probe, as the training donors have fewer than two values",
    )
    one_donor = "kind: 30 cells removed of classes in one donor only: x, y"
    refused(run, pretrain("a.h5ad", "--donor-key one --labels kind"), "a.h5ad: no column", one_donor)
    some = "a.h5ad: 10 cells without a value in column 'some' of obs: fill it in, or remove these cells"
    refused(run, pretrain("a.h5ad", "--donor-key some --labels kind"), some)
    MaskedAutoencoder.setup_anndata(adata, batch_key="some")
    with pytest.raises(UserError, match=r"10 cells without a value in column 'some' of obs: fill it in"):
        MaskedAutoencoder(adata)


@pytest.mark.slow
def test_labels_that_are_missing_stay_missing(make: Make, write: Write, run: Run) -> None:
    adata = make()
    adata.obs["some"] = np.array(["x", "y", None] * 10, dtype=object)
    adata.obs["donor"] = [f"d{i // 5}" for i in range(30)]
    path = write(adata, Path("a.h5ad"))
    found = load_cells(path)
    assert found.obs["some"].isna().sum() == 10
    code, out, _ = run(pretrain("a.h5ad", "--donor-key donor --labels some"))
    assert code == 0
    assert "some_bacc" in json.loads(out)["scores"]


def test_files_that_are_none(make: Make, write: Write, run: Run) -> None:
    Path("text.h5ad").write_text("cell,gene,count\n1,2,3\n")
    Path("empty.h5ad").touch()
    Path("folder.zarr").mkdir()
    Path("folder").mkdir()
    Path("folder/notes.txt").write_text("no cells")
    for name in ("folder.zarr", "folder"):
        refused(
            run, pretrain(name), f"{name} is a folder, and cells are read from one .h5ad file: ", "anndata.read_zarr, "
        )
    for name in ("text.h5ad", "empty.h5ad"):
        refused(
            run,
            pretrain(name),
            f"{name} cannot be read (",
            "): not a readable AnnData file; fetch or export it again; ",
        )
    refused(run, pretrain("nothing.h5ad"), "nothing.h5ad does not exist: name an .h5ad file or a set (")
    adata = make()
    adata.X = None
    write(adata, Path("a.h5ad"))
    refused(run, pretrain("a.h5ad"), "a.h5ad: has no X: name the layer that holds raw counts (layers: raw)")
    MaskedAutoencoder.setup_anndata(adata)
    with pytest.raises(UserError, match=r"has no X: name the layer .* \(layers: raw\)"):
        MaskedAutoencoder(adata)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_truncated_files(make: Make, write: Write, run: Run, compression: str | None) -> None:
    whole = write(make(400, 60), Path("whole.h5ad"), compression=compression).read_bytes()
    half = len(whole) // 2
    for kept in (100, half // 2, half, half + half // 2, len(whole) - 100, len(whole) - 10, len(whole) - 1):
        Path("cut.h5ad").write_bytes(whole[:kept])
        refused(
            run,
            pretrain("cut.h5ad"),
            "cut.h5ad cannot be read (",
            "not a readable AnnData file",
            "truncated file",
            "fetch or export it again",
        )


def test_holes_in_files(make: Make, write: Write, run: Run) -> None:
    """The length is right, but a download left zeros."""
    path = write(make(400, 60), Path("a.h5ad"), compression="gzip")
    with h5py.File(path) as file:
        start, size = (getattr(file["X/data"].id.get_chunk_info(0), name) for name in ("byte_offset", "size"))
    broken = bytearray(path.read_bytes())
    broken[start : start + size] = bytes(size)
    path.write_bytes(broken)
    refused(
        run, pretrain("a.h5ad"), "a.h5ad cannot be read (", "): not a readable AnnData file; fetch or export it again; "
    )


@pytest.mark.slow
def test_what_is_embedded_is_checked_alike(make: Make, write: Write, run: Run) -> None:
    write(make(), Path("a.h5ad"))
    assert run(pretrain("a.h5ad"))[0] == 0
    write(make(at3_4=1.5), Path("b.h5ad"))
    refused(run, "embed run b.h5ad -o b.npz --device cpu", "b.h5ad: X of cell 'c3', gene 'g4' is 1.5, and counts")
    other = make()
    other.var_names = [f"other{i}" for i in range(12)]
    write(other, Path("c.h5ad"))
    told = "c.h5ad: only 0 of the model's 12 genes are there (its first is 'g0', the first here 'other0'): name "
    refused(run, "embed run c.h5ad -o d.h5ad --device cpu", told)
    Path("file").touch()
    refused(run, "embed run a.h5ad -o file/out.h5ad --device cpu", "file: File exists")


@pytest.mark.slow
def test_folders_that_cannot_be_written(make: Make, write: Write, run: Run) -> None:
    """A file in the way stops root, too, whom permissions do not."""
    adata = make()
    write(adata, Path("a.h5ad"))
    Path("file").touch()
    refused(
        run, pretrain("a.h5ad").replace("--out run", "--out file/run"), "cannot write to file/run (", "another --out"
    )
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    model.train(1, batch_size=10, progress=False, threads=1)
    with pytest.raises(UserError, match=r"^file is a file: name a folder$"):
        model.save("file")
    with pytest.raises(OSError, match="file"):
        model.save("file/model")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root")
def test_read_only_folders(make: Make, write: Write, run: Run) -> None:
    adata = make()
    write(adata, Path("a.h5ad"))
    assert run(pretrain("a.h5ad"))[0] == 0
    Path("closed").mkdir()
    Path("closed").chmod(0o555)
    refused(run, pretrain("a.h5ad").replace("--out run", "--out closed/run"), "cannot write to closed/run (Permission")
    refused(run, "embed run a.h5ad -o closed/b.h5ad --device cpu", "closed/b.h5ad: Permission denied")
    MaskedAutoencoder.setup_anndata(adata)
    model = MaskedAutoencoder(adata, n_hidden=4, n_latent=2)
    model.train(1, batch_size=10, progress=False, threads=1)
    with pytest.raises(PermissionError, match="closed"):
        model.save("closed/model")


@pytest.mark.parametrize("part", ["X/data", "X/indices", "X/indptr", "layers/dense", "obsm/X_pca", "obs/age"])
@pytest.mark.parametrize("how", ["virtual", "external", "linked"])
def test_parts_in_other_files(make: Make, write: Write, tmp_path: Path, part: str, how: str) -> None:
    """HDF5 reads them as zeros where the other file is missing."""
    adata = make()
    adata.layers["dense"] = adata.X.toarray()
    adata.obs["age"] = np.arange(30.0)
    adata.obsm["X_pca"] = np.ones((30, 2), np.float32)
    path = write(adata, tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file:
        values, attributes = file[part][:], dict(file[part].attrs)
        del file[part]
        if how == "virtual":
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            layout[...] = h5py.VirtualSource("gone.h5", "x", values.shape, values.dtype)
            made = file.create_virtual_dataset(part, layout, fillvalue=1)
        elif how == "external":
            made = file.create_dataset(part, values.shape, values.dtype, external=[("gone.bin", 0, values.nbytes)])
        else:
            with h5py.File(tmp_path / "other.h5", "w") as other:
                made = other.create_dataset(part, data=values)
                made.attrs.update(attributes)
            file[part] = h5py.ExternalLink("other.h5", f"/{part}")
            made = file[part]
        made.attrs.update(attributes)
    for layer in (None, "dense"):
        with pytest.raises(UserError, match=f"/{part} is kept in other files"):
            load_cells(path, layer=layer)


@pytest.mark.parametrize("part", ["X", "obs", "obs/donor", "var", "layers", "layers/dense", "obsm", "uns", "uns/x/y"])
def test_groups_in_other_files(make: Make, write: Write, tmp_path: Path, part: str) -> None:
    adata = make()
    adata.layers["dense"] = adata.X.toarray()
    adata.uns["x"] = {"y": {"z": 1}}
    path = write(adata, tmp_path / "a.h5ad")
    write(adata, tmp_path / "other.h5ad")
    with h5py.File(path, "r+") as file:
        del file[part]
        file[part] = h5py.ExternalLink("other.h5ad", f"/{part}")
    for read in (load_cells, read_obs):
        with pytest.raises(UserError, match=f"/{part} is kept in other files"):
            read(path)
    with h5py.File(path, "r+") as file:  # the same by a detour
        del file[part]
        file["hidden/way"] = h5py.ExternalLink("other.h5ad", f"/{part}")
        file[part] = h5py.SoftLink("/hidden/way")
    with pytest.raises(UserError, match="/hidden/way is kept in other files"):
        load_cells(path)


def test_links_within_a_file_are_followed(make: Make, write: Write, tmp_path: Path) -> None:
    path = write(make(), tmp_path / "a.h5ad")
    before = load_cells(path)
    with h5py.File(path, "r+") as file:
        file.move("obs", "elsewhere")
        file["obs"] = h5py.SoftLink("/elsewhere")
        file["elsewhere/circle"] = file["/"]
        file["uns/nowhere"] = h5py.SoftLink("/nothing")
    after = load_cells(path)
    assert after.obs.equals(before.obs)
    assert (after.counts.matrix != before.counts.matrix).nnz == 0
    with h5py.File(path, "r+") as file:
        del file["obs"]
        file["obs"] = h5py.SoftLink("/nothing")
    with pytest.raises(UserError, match=r"a\.h5ad cannot be read"):
        load_cells(path)
