"""Reads and checks cells: a named set, an .h5ad file, or an AnnData object; and writes embeddings."""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from scipy.sparse import csr_matrix, issparse

from r2mae.catalogue import locate
from r2mae.cells.counts import (
    ENTRY,
    Counts,
    Rows,
    Stored,
    check_counts,
    copied,
    highly_variable_genes,
    mapped,
    packed,
)
from r2mae.cells.sets import SETS
from r2mae.cores import available_memory, gigabytes
from r2mae.errors import UserError, listed, nearest, reading, unknown
from r2mae.files import atomic_path, ordinary
from r2mae.registry import JOBS

if TYPE_CHECKING:
    from anndata import AnnData

RAW = "raw.X"
"""Name, used like that of a layer, of the matrix that AnnData keeps next to a normalised X."""
IN_MEMORY = "AnnData"
"""Name of the data in the configuration of a run on an AnnData object."""
_CONVERT = (
    "convert other formats, such as with anndata.read_zarr, scanpy.read_10x_h5, scanpy.read_10x_mtx, "
    "anndata.io.read_loom, mudata.read_h5mu or scanpy.read_csv, and write_h5ad"
)
_HINT = f"fetch or export it again; {_CONVERT}"
NO_BATCHES = ("all",)
_MIN_SHARED = 0.1
_WHOLE = set[tuple[Path, int, int]]()  # path, size and time of files that were found to be whole
_SLACK = 1 << 20  # bytes of an .h5ad file in addition to its arrays


@dataclass(frozen=True, eq=False)
class Source:
    """Counts and annotations of a source, not yet checked.

    `name` is for messages, `layer` the name of the matrix (X, raw.X, or that of a layer), and `layers` has the names of
    all matrices that could be used instead.
    """

    name: str
    layer: str
    matrix: csr_matrix | Stored
    genes: tuple[str, ...]
    obs: pd.DataFrame
    layers: tuple[str, ...]
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.layer if self.layer == 'X' else f'layer {self.layer}'}"

    @property
    def other_layer(self) -> str:
        """What to do if this matrix holds no raw counts, as the end of a message."""
        named = [layer for layer in self.layers if layer != self.layer]
        if not named:
            return ": raw counts are needed, and this file has no other matrix; use the file before normalisation"
        choice = f"layer={named[0]!r} or --layer {named[0]} (layers: {', '.join(named)})"
        return f": pass the layer that holds raw counts, such as {choice}"


def path_of(source: str | Path) -> Path:
    """Return the file of a named set, or the path itself; refuse what does not exist, and folders."""
    name = str(source)
    if name in SETS:
        return next(iter(locate(SETS[name]).values()))
    path = ordinary(Path(source).expanduser())
    if not path.exists() and name == IN_MEMORY:
        raise UserError(
            "the run was trained on an AnnData object in memory, and no file of it is known: use "
            "MaskedAutoencoder.load(RUN, adata), or embed a file with r2mae embed"
        )
    if not path.exists():
        raise UserError(f"{path} does not exist: name an .h5ad file or a set ({nearest(name, SETS)})")
    if path.is_dir():
        raise UserError(f"{path} is a folder, and cells are read from one .h5ad file: {_CONVERT}")
    return path


def memory_limit() -> int:
    """Return the memory that counts may use, in bytes: half of what is free (8 GiB if unknown).

    The processes of a comparison, which all read the counts, divide it among them.
    """
    free = available_memory() or 8 << 30
    return free // (2 * max(1, int(os.environ.get(JOBS, "1"))))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an .h5ad file that is whole; whatever a library raises in the block becomes one line."""
    import h5py

    with reading(path, f"not a readable AnnData file; {_HINT}"), h5py.File(path, "r") as file:
        _check_whole(path, file)
        yield file


def read_element(path: Path, store: Any, name: str) -> Any:
    """Read a part of an opened file by anndata, unless it is too large for the memory."""
    from anndata.io import read_elem

    _check_parts(path, store[name], name)
    return read_elem(store[name])


def read_obs(source: str | Path) -> pd.DataFrame:
    """Read only the annotations of the cells (obs) of an .h5ad file."""
    path = path_of(source)
    with opened(path) as store:
        return _read_frame(path, store, "obs")


@contextmanager
def open_source(source: "str | Path | AnnData", layer: str | None) -> Iterator[Source]:
    """Open a source; annotations are read, and counts that are stored by rows can be read while it is open.

    Raises
    ------
    UserError
        For a file or layer that cannot be used.
    """
    if isinstance(source, str | Path):
        path = path_of(source)
        with opened(path) as store:
            layers = (*map(str, store.get("layers", ())), *([RAW] if "X" in store.get("raw", ()) else ()))
            layer = _known_layer(str(source), layer, layers, "X" in store)
            group = {"X": "X", RAW: "raw/X"}.get(layer, f"layers/{layer}")
            obs, var = (_read_frame(path, store, part) for part in ("obs", "raw/var" if group == "raw/X" else "var"))
            by_rows = store[group].attrs.get("encoding-type") == "csr_matrix"
            matrix = _stored(path, store, group) if by_rows else to_csr(read_element(path, store, group), str(path))
            if matrix.shape != (len(obs), len(var)):
                sizes = f"{len(obs)} and {len(var)} rows"
                raise UserError(f"{path}: {group} has shape {matrix.shape}, obs and var {sizes}")
            yield Source(str(source), layer, matrix, tuple(map(str, var.index)), obs, layers, path)
    else:
        layers = (*map(str, source.layers), *([] if source.raw is None else [RAW]))
        layer = _known_layer(IN_MEMORY, layer, layers, source.X is not None)
        home = source.raw if layer == RAW else source
        counts = home.X if layer in ("X", RAW) else source.layers[layer]
        genes = tuple(map(str, home.var_names))
        yield Source(IN_MEMORY, layer, to_csr(counts, IN_MEMORY), genes, source.obs, layers)


def to_csr(matrix: Any, name: str) -> csr_matrix:
    """Return a matrix of any kind as CSR without duplicates; the original is not changed."""
    for method in ("to_memory", "compute"):  # of anndata's matrices in files, and of Dask's arrays
        if hasattr(matrix, method):
            matrix = getattr(matrix, method)()
    if issparse(matrix):
        result = csr_matrix(matrix)  # shares the arrays of a CSR matrix
        if not result.has_canonical_format:
            result = result.copy()
            result.sum_duplicates()
        return result
    dense = np.asarray(matrix)
    if dense.dtype.kind not in "iufb" or dense.ndim != 2:
        raise UserError(f"{name}: counts must be a matrix of numbers, not {dense.dtype} of shape {dense.shape}")
    return csr_matrix(dense.astype(np.float32) if dense.dtype == np.float16 else dense)  # scipy lacks float16


def _known_layer(name: str, layer: str | None, layers: tuple[str, ...], has_x: bool) -> str:
    """Return the name of a layer, by default X; refuse one that the source lacks."""
    layer = layer or "X"
    if layer == "X" and not has_x:
        todo = f"name the layer that holds raw counts (layers: {', '.join(layers)})"
        raise UserError(f"{name}: has no X{f': {todo}' if layers else f', and no layers at all: {_HINT}'}")
    if layer not in ("X", *layers):
        raise UserError(f"{name}: has no layer {layer!r}: {nearest(layer, (*layers, 'X'))}")
    return layer


def _read_frame(path: Path, store: Any, name: str) -> pd.DataFrame:
    frame = read_element(path, store, name)
    if not isinstance(frame, pd.DataFrame):
        raise UserError(
            f"{path}: {name} is no table of a current anndata: write the file again, "
            "anndata.read_h5ad(old).write_h5ad(new)"
        )
    for column, kind in frame.dtypes.items():
        if kind.kind == "V":
            raise UserError(f"{path}: the column {column!r} of {name} holds {kind}, which no table holds: remove it")
    return frame.loc[:, ~frame.columns.duplicated()]  # a name that the file lists twice is one column


def _stored(path: Path, store: Any, group: str) -> Stored:
    """Return a matrix stored by rows, after a look at the lengths of its parts."""
    data, indices, ends = (store[f"{group}/{part}"] for part in ("data", "indices", "indptr"))
    _check_parts(path, ends, f"{group}/indptr")
    indptr = np.asarray(ends[:], dtype=np.int64)
    cells, genes = map(int, store[group].attrs["shape"])
    fits = len(indptr) == cells + 1 and np.diff(indptr).max(initial=0) <= genes
    if not fits or not data.shape == indices.shape == (indptr[-1],):
        raise UserError(f"{path}: the parts of {group} contradict each other: fetch or export it again")
    return Stored(data, indices, indptr, (cells, genes))


def _check_parts(path: Path, element: Any, name: str) -> None:
    """Refuse arrays that take more than half of the memory, whatever the size of the file."""
    arrays = [part for part in _objects(element, soft=True) if hasattr(part, "shape")]
    size, limit = sum(int(array.nbytes or 0) for array in arrays), memory_limit()
    if size > limit:
        raise UserError(
            f"{path}: {name} needs {gigabytes(size)} of memory, and the limit is {gigabytes(limit)}: write "
            "counts as CSR, adata.X = scipy.sparse.csr_matrix(adata.X), or take what is needed out of the file"
        )


def _check_whole(path: Path, file: Any) -> None:
    """Refuse a file of which any part is kept in others: HDF5 fills it with a number where one of them is missing."""
    import h5py

    found = path.stat()
    version = (path.absolute(), found.st_size, found.st_mtime_ns)
    if version in _WHOLE:
        return
    for element in _objects(file, soft=False):
        names = [element.name] if getattr(element, "is_virtual", False) or getattr(element, "external", None) else []
        if isinstance(element, h5py.Group):
            links = ((name, element.get(name, getlink=True)) for name in element)
            names = [
                f"{element.name.rstrip('/')}/{name}" for name, link in links if isinstance(link, h5py.ExternalLink)
            ]
        if names:
            raise UserError(
                f"{path}: {names[0]} is kept in other files (HDF5 calls it linked, virtual or external): write all "
                "into one file, such as with adata.write_h5ad"
            )
    _WHOLE.add(version)


def _objects(element: Any, *, soft: bool) -> Iterator[Any]:
    """Yield an element of an opened file and all below it, each once; with `soft` links, in a checked file."""
    import h5py

    left, seen = [element], set[Any]()
    while left:
        found = left.pop()
        if found is not None and found.id not in seen:
            seen.add(found.id)
            yield found
            if isinstance(found, h5py.Group):
                links = ((name, found.get(name, getlink=True)) for name in found)
                left += [found.get(name) for name, link in links if soft or isinstance(link, h5py.HardLink)]


@dataclass(frozen=True, eq=False, repr=False)
class CellTable:
    """Cells of one source.

    Parameters
    ----------
    name : str
        Name of the source, for messages.
    counts : Counts
        Raw counts.
    genes : tuple of str
        Names of the columns.
    obs : DataFrame
        Annotations, a row per cell.
    batch : int64 array (cells,)
        Number of each cell's batch.
    batches : tuple of str
        Names of the batches; ("all",) if there is no batch covariate.
    notes : tuple of str
        Notes on what was omitted or filled in.
    missing : int64 array
        Columns of the genes that the source lacks.
    """

    name: str
    counts: Counts
    genes: tuple[str, ...]
    obs: pd.DataFrame
    batch: Int64[np.ndarray, " cells"]
    batches: tuple[str, ...] = NO_BATCHES
    notes: tuple[str, ...] = ()
    missing: Int64[np.ndarray, " missing"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.obs)

    def __repr__(self) -> str:
        batches = f"{len(self.batches)} batch{'es' if len(self.batches) > 1 else ''}"
        return f"CellTable({self.name!r}: {len(self):,} cells of {len(self.genes):,} genes, {batches})"


def load_cells(
    source: "str | Path | AnnData",
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    columns: Sequence[str] = (),
    n_top_genes: int | None = None,
    min_genes: int = 0,
    genes: Sequence[str] | None = None,
    batches: tuple[str, ...] | None = None,
    transform_batch: str | None = None,
) -> CellTable:
    """Read a named set, an .h5ad file or an AnnData object, which the table shares nothing with.

    Counts of a file are checked block by block, so that they need little memory before the genes are chosen. If the
    chosen counts then fit into half of the free memory, they are read; else they stay on disk. They are mapped
    from an .h5ad file in which they are neither compressed nor in chunks, if all of its genes and cells are used;
    otherwise they are copied once, uncompressed, into the cache folder, and mapped from there.

    Parameters
    ----------
    source : str, Path or AnnData
    layer : str, optional
        Layer of raw counts; by default X (also "X"). "raw.X" is the matrix in ``adata.raw``, with its own genes.
    batch_key : str, optional
        Column of obs with the batch; every cell must have a value.
    columns : sequence of str
        Further columns of obs that must exist; one that does not is refused before the counts are read.
    n_top_genes : int, optional
        Use this many highly variable genes; see :func:`r2mae.cells.counts.highly_variable_genes`.
    min_genes : int
        Leave out cells that express fewer of the (chosen) genes.
    genes : sequence of str, optional
        Map the cells onto these genes, those of a model, by name; missing genes are hidden, that is zero, and others
        ignored. All cells are kept then.
    batches, transform_batch
        Number the batches as a model does; see :func:`align_batches`.

    Raises
    ------
    UserError
        For files, columns or counts that cannot be used; the message gives the cause and the hint.
    """
    with open_source(source, layer) as raw:
        _check_names(raw, least=2 if genes is None else 1)
        for column in columns:
            column_of(raw, column)
        if batch_key is not None and batches is None:
            column_of(raw, batch_key, whole=True)
        numbers = align_batches(raw.name, raw.obs, batch_key, batches, transform_batch) if batches else None
        cells_of_gene, library = check_counts(raw)
        if genes is None:
            indices, more = _choose(raw, cells_of_gene, library, n_top_genes)
            names = tuple(raw.genes[index] for index in indices)
        else:
            (indices, more), names, min_genes = _map_genes(raw, genes), tuple(genes), 0
        entries = int(cells_of_gene[indices[indices >= 0]].sum())
        counts, kept, still_more = _take(raw, indices, min_genes, entries)
        if min_genes and len(kept) < 2:
            raise UserError(
                f"{raw.name}: {cells_in_words(len(kept))} with {min_genes} expressed genes (min_genes): ask for fewer"
            )
        notes = (*more, *still_more)
        if omitted := len(raw.obs) - len(kept):
            notes += (f"{cells_in_words(omitted)} with fewer than {min_genes} expressed genes omitted",)
        obs = raw.obs.iloc[kept].copy()
        empty = np.flatnonzero(np.diff(counts.matrix.indptr) == 0)
        number = cells_in_words(len(empty))
        if len(empty) and genes is not None:
            notes += (f"{number} without a count in the model's genes: their embedding says nothing",)
        elif len(empty):
            raise UserError(
                f"{raw.name}: {number} without a count in the chosen genes, such as {obs.index[empty[0]]!r}: "
                "omit them with --min-genes 1 (or scanpy.pp.filter_cells(adata, min_genes=1))"
            )
        if numbers is None or batches is None:
            numbers, batches = _batches(obs, batch_key)
        return CellTable(raw.name, counts, names, obs, numbers, batches, notes, np.flatnonzero(indices < 0))


def log_notes(table: CellTable) -> CellTable:
    """Log the table's notes as warnings to the logger ``r2mae`` (by default on standard error)."""
    for note in table.notes:
        logging.getLogger("r2mae").warning("%s: %s", table.name, note)
    return table


def cells_in_words(count: int) -> str:
    """Write "1 cell", "2 cells"."""
    return f"{count:,} cell{'' if count == 1 else 's'}"


def _check_names(source: Source, least: int) -> None:
    cells, genes = source.matrix.shape
    if cells < least or genes < least:
        what = "masking needs two cells and two genes" if least > 1 else "embedding needs one cell and one gene"
        raise UserError(f"{source.name}: {what} or more, not {cells} and {genes}")
    names = pd.Index(source.genes)
    if names.has_duplicates:
        raise UserError(
            f"{source.name}: the gene name {names[names.duplicated()][0]!r} occurs twice in var: call "
            "adata.var_names_make_unique() and write the file again"
        )


def column_of(source: "Source | CellTable", name: str, *, whole: bool = False) -> "pd.Series[Any]":
    """Return a column of obs; refuse one that does not exist or, if it must be whole, has missing values."""
    if name not in source.obs:
        known = [str(column) for column in source.obs]
        raise UserError(f"{source.name}: obs has no column {name!r}: {nearest(name, known)}")
    column: pd.Series[Any] = source.obs[name]
    if whole and (number := int(column.isna().sum())):
        raise UserError(
            f"{source.name}: {cells_in_words(number)} without a value in column {name!r} of obs: fill it in, or remove "
            "these cells"
        )
    return column


def _choose(
    source: Source,
    cells_of_gene: Int64[np.ndarray, " genes"],
    library: Float64[np.ndarray, " cells"],
    n_top_genes: int | None,
) -> tuple[Int64[np.ndarray, " chosen"], tuple[str, ...]]:
    """Leave out genes without a count, and choose the highly variable ones of the others."""
    empty = cells_of_gene == 0
    columns = np.arange(len(empty))
    if n_top_genes is not None:
        columns = highly_variable_genes(source.matrix, n_top_genes, library)
    columns = columns[~empty[columns]]
    if len(columns) < 2:
        raise UserError(
            f"{source} has counts in {len(columns)} of the chosen genes, and masking needs two: choose more"
        )
    return columns, (f"{int(empty.sum()):,} genes without a count are omitted",) if empty.any() else ()


def _map_genes(source: Source, genes: Sequence[str]) -> tuple[Int64[np.ndarray, " genes"], tuple[str, ...]]:
    """Return the columns of these genes (−1 if missing), and notes on missing genes."""
    columns = pd.Index(source.genes).get_indexer(pd.Index(genes)).astype(np.int64)
    missing, number = int((columns < 0).sum()), f"{len(genes):,}"
    if len(genes) - missing < _MIN_SHARED * len(genes) or missing == len(genes):
        raise UserError(
            f"{source.name}: only {len(genes) - missing:,} of the model's {number} genes are there (its first is "
            f"{genes[0]!r}, the first here {source.genes[0]!r}): name genes in var_names as in training"
        )
    found = len(genes) - missing
    others = len(source.genes) - found
    note = f"{found:,} of the model's {number} genes are there, {missing:,} missing (hidden), {others:,} others ignored"
    return columns, (note,) if missing or others else ()


def _take(
    source: Source, columns: Int64[np.ndarray, " genes"], min_genes: int, entries: int
) -> tuple[Counts, Rows, tuple[str, ...]]:
    """Prepare the chosen counts for reading batches: in memory, mapped from their file, or from a copy of it."""
    matrix = source.matrix
    if entries * ENTRY <= memory_limit() or not isinstance(matrix, Stored):
        return *packed(matrix, columns, min_genes, entries), ()
    cells, genes = matrix.shape
    everything = np.array_equal(columns, np.arange(genes)) and entries == matrix.indptr[-1]
    everything = everything and bool((np.diff(matrix.indptr) >= min_genes).all())
    if everything and (found := mapped(matrix)) is not None:
        return found, np.arange(cells), ()
    assert source.path is not None
    made, kept, folder = copied(matrix, columns, min_genes, entries, source.path, source.layer)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return made, kept, (f"counts are read from an uncompressed copy, {folder} ({gigabytes(size)})",)


def align_batches(
    name: str, obs: pd.DataFrame, batch_key: str | None, known: tuple[str, ...], transform_batch: str | None = None
) -> Int64[np.ndarray, " cells"]:
    """Number the batches of new cells as in training, for the encoder.

    A cell keeps its own batch if the model knows it; all other cells get `transform_batch`, one of the model's batches.

    Raises
    ------
    UserError
        If a batch is unknown to the model or missing, and no `transform_batch` is given; or if that is unknown itself.
    """
    if transform_batch is not None and transform_batch not in known:
        raise unknown("batch", transform_batch, known)
    if len(known) == 1:
        return np.zeros(len(obs), dtype=np.int64)
    if batch_key is None or batch_key not in obs:
        numbers = np.full(len(obs), -1)
        lack = "the run names no column of batches" if batch_key is None else f"obs has no column {batch_key!r}"
    else:
        numbers = pd.Index(known).get_indexer(pd.Index(obs[batch_key].astype(str)))
        numbers[obs[batch_key].isna()] = -1
        new = sorted(set(obs[batch_key][numbers < 0].dropna().astype(str)))
        lack = (
            f"the model has never seen the batches {listed(new)}"
            if new
            else f"cells have no value in column {batch_key!r}"
        )
    if transform_batch is not None:
        numbers[numbers < 0] = known.index(transform_batch)
    elif (numbers < 0).any():
        raise UserError(
            f"{name}: batch_key: {lack}, and the model tells batches apart: name a training batch to take for these "
            f"cells, such as transform_batch={known[0]!r} (--transform-batch), or add their batches to the model: "
            "load_query_data (r2mae pretrain cells --init)"
        )
    return numbers.astype(np.int64)


def _batches(obs: pd.DataFrame, key: str | None) -> tuple[Int64[np.ndarray, " cells"], tuple[str, ...]]:
    if key is None:
        return np.zeros(len(obs), dtype=np.int64), NO_BATCHES
    names, codes = np.unique(obs[key].astype(str).to_numpy().astype(str), return_inverse=True)
    return codes.astype(np.int64), tuple(map(str, names))


def write_h5ad(output: Path, arrays: Mapping[str, np.ndarray], source: str) -> None:
    """Write a copy of the source with ``.obsm["X_r2mae"]``, atomically; nothing else is changed or read into memory.

    Raises
    ------
    UserError
        If the source has other cells than were embedded, or an ``obsm`` of old versions, which is one array.
    OSError
        If the output cannot be written, or the disk is full.
    """
    import h5py
    from anndata.io import write_elem

    path = path_of(source)
    if list(arrays["cells"]) != list(read_obs(source).index.astype(str)):
        raise UserError(f"{source} has other cells than were embedded: it changed meanwhile; embed it again")
    with atomic_path(output) as temporary:
        shutil.copyfile(path, temporary)
        if hasattr(os, "posix_fallocate"):  # the HDF5 library ends the process if a full disk fails its writes
            with temporary.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size + arrays["embedding"].nbytes + _SLACK)
        with h5py.File(temporary, "r+") as store:
            if not isinstance(store.get("obsm", getlink=True, default=h5py.HardLink()), h5py.HardLink):
                raise UserError(f"{path}: obsm is a link to another place or file: name an output in .npz")
            if isinstance(store.get("obsm"), h5py.Dataset):
                raise UserError(f"{path}: obsm is one array, as in files before anndata 0.7: name an output in .npz")
            obsm = store.require_group("obsm")
            if not obsm.attrs:
                obsm.attrs["encoding-type"], obsm.attrs["encoding-version"] = "dict", "0.1.0"
            write_elem(obsm, "X_r2mae", arrays["embedding"])
