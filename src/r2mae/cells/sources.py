"""Opens the sources of cells: a named set, an .h5ad file, a zarr folder, or an AnnData object."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, issparse

from r2mae.catalogue import locate
from r2mae.cells.counts import Stored
from r2mae.cells.sets import SETS
from r2mae.cores import available_memory
from r2mae.errors import UserError, nearest
from r2mae.registry import JOBS

if TYPE_CHECKING:
    from anndata import AnnData

RAW = "raw.X"
"""Name, used like that of a layer, of the matrix that AnnData keeps next to a normalised X."""
IN_MEMORY = "AnnData"
"""Name of the data in the configuration of a run on an AnnData object."""
_READERS = {
    ".h5": "scanpy.read_10x_h5",
    ".loom": "anndata.io.read_loom",
    ".h5mu": "mudata.read_h5mu",
    ".mtx": "scanpy.read_mtx",
    ".csv": "scanpy.read_csv",
    ".tsv": "scanpy.read_text",
    ".txt": "scanpy.read_text",
}
"""Functions that read other formats into AnnData objects, by the suffix of the file."""


@dataclass(frozen=True, eq=False)
class Source:
    """Counts and annotations of a source, not yet checked.

    Parameters
    ----------
    name, where : str
        Names of source and matrix, for messages.
    matrix : csr_matrix or Stored
    genes : tuple of str
    obs : DataFrame
    layers : tuple of str
        Names of all matrices that could be used instead.
    path : Path, optional
        Path of the source, if it has one.
    """

    name: str
    where: str
    matrix: csr_matrix | Stored
    genes: tuple[str, ...]
    obs: pd.DataFrame
    layers: tuple[str, ...]
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.where}"

    @property
    def other_layer(self) -> str:
        """What to do if this matrix holds no raw counts, as the end of a message."""
        named = [layer for layer in self.layers if layer not in (self.where, self.where.removeprefix("layer "))]
        if not named:
            return ": raw counts are needed, and this file has no other matrix; use the file before normalisation"
        likely = next((one for one in named if "count" in one.lower() or "raw" in one.lower()), named[0])
        return (
            f": pass the layer that holds raw counts, layer={likely!r} or --layer {likely} (layers: {', '.join(named)})"
        )


def path_of(source: str | Path) -> Path:
    """Return the file of a named set, or the path itself; refuse what does not exist."""
    name = str(source)
    if name in SETS:
        return next(iter(locate(SETS[name]).values()))
    path = Path(source).expanduser()
    if not path.exists() and name == IN_MEMORY:
        raise UserError(
            "the run was trained on an AnnData object in memory, and no file of it is known: use "
            "MaskedAutoencoder.load(RUN, adata) and its evaluate(), or embed a file with r2mae embed"
        )
    if not path.exists():
        raise UserError(f"{path} does not exist: name an .h5ad file, a zarr folder, or a set ({nearest(name, SETS)})")
    return path


def memory_limit() -> int:
    """Return the memory that counts may use, in bytes: half of what is free (8 GiB if unknown).

    The processes of a comparison, which all read the counts, divide it among them.
    """
    free = available_memory() or 8 << 30
    return free // (2 * max(1, int(os.environ.get(JOBS, "1"))))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an .h5ad file or a zarr folder; whatever a library raises in the block becomes one line."""
    try:
        if path.is_dir():
            from r2mae.zarr_folder import open_zarr

            yield open_zarr(path)
        else:
            import h5py

            with h5py.File(path, "r") as file:
                yield file
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(f"reading {path} needs {error.name!r}: pip install 'r2mae[cells]'") from None
    except Exception as error:  # decoders raise many types
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{path} is not a readable AnnData file ({reason}): {_hint(path)}") from error


def read_element(path: Path, store: Any, name: str) -> Any:
    """Read a part of an opened file by anndata, unless it is too large for the memory or kept in other files."""
    from anndata.io import read_elem

    _check_parts(path, store[name], name)
    return read_elem(store[name])


def read_obs(source: str | Path) -> pd.DataFrame:
    """Read only the annotations of the cells (obs) of an .h5ad file or zarr folder."""
    path = path_of(source)
    with opened(path) as store:
        return _read_frame(path, store, "obs")


def read_adata(source: str | Path) -> "AnnData":
    """Read everything of an .h5ad file or zarr folder."""
    path = path_of(source)
    with opened(path) as store:
        import anndata

        _check_parts(path, store, "the file")
        return anndata.read_zarr(store) if path.is_dir() else anndata.read_h5ad(path)


def named_layer(layer: str | None, layers: Iterable[str]) -> str | None:
    """Return the name of the layer, or None for X. "" and "X" mean X unless a layer has this name."""
    return None if layer in ("", "X") and layer not in layers else layer


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
            group, where = _place_of(str(source), layer, layers, "X" in store, _hint(path, store))
            group = group if group in store else "raw/X"
            obs, var = (_read_frame(path, store, part) for part in ("obs", "raw/var" if group == "raw/X" else "var"))
            by_rows = store[group].attrs.get("encoding-type") == "csr_matrix"
            matrix = _stored(path, store, group) if by_rows else to_csr(read_element(path, store, group), str(path))
            if matrix.shape != (len(obs), len(var)):
                sizes = f"{len(obs)} and {len(var)} rows"
                raise UserError(f"{path}: {group} has shape {matrix.shape}, obs and var {sizes}")
            yield Source(str(source), where, matrix, tuple(map(str, var.index)), obs, layers, path)
    else:
        layers = (*map(str, source.layers), *([] if source.raw is None else [RAW]))
        group, where = _place_of(IN_MEMORY, layer, layers, source.X is not None, "choose another")
        name = group.removeprefix("layers/")
        home = source.raw if group != "X" and name not in source.layers else source
        counts = source.layers[name] if group != "X" and home is source else home.X
        genes = tuple(map(str, home.var_names))
        yield Source(IN_MEMORY, where, to_csr(counts, IN_MEMORY), genes, source.obs, layers)


def to_csr(matrix: Any, name: str) -> csr_matrix:
    """Return a matrix of any kind as CSR without duplicates; the original is not changed."""
    if hasattr(matrix, "to_memory"):
        matrix = matrix.to_memory()
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


def _place_of(name: str, layer: str | None, layers: tuple[str, ...], has_x: bool, hint: str) -> tuple[str, str]:
    """Return where the counts of a layer are, as a path in a file and in words; the matrix in raw is one of them."""
    layer = named_layer(layer, layers)
    if layer is None and not has_x:
        todo = f"name the layer that holds raw counts (layers: {', '.join(layers)})"
        raise UserError(f"{name}: has no X{f': {todo}' if layers else f', and no layers at all: {hint}'}")
    if layer is not None and layer not in layers:
        raise UserError(f"{name}: has no layer {layer!r}: {nearest(layer, (*layers, 'X'))}")
    return ("X", "X") if layer is None else (f"layers/{layer}", f"layer {layer}")


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
    if (frame.index == "").sum() > 1:  # zarr reads lost chunks of names as empty names
        raise UserError(f"{path}: names in {name} are empty or lost: fetch or export it again")
    return frame.loc[:, ~frame.columns.duplicated()]  # a name that the file lists twice is one column


def _stored(path: Path, store: Any, group: str) -> Stored:
    """Return a matrix stored by rows, after a look at the lengths of its parts."""
    data, indices, ends = (store[f"{group}/{part}"] for part in ("data", "indices", "indptr"))
    _check_place(path, data, indices)
    _check_parts(path, ends, f"{group}/indptr")
    indptr = np.asarray(ends[:], dtype=np.int64)
    cells, genes = map(int, store[group].attrs["shape"])
    fits = len(indptr) == cells + 1 and np.diff(indptr).max(initial=0) <= genes
    if not fits or not data.shape == indices.shape == (indptr[-1],):
        raise UserError(f"{path}: the parts of {group} contradict each other: fetch or export it again")
    if not hasattr(data, "id") and data.nchunks_initialized < data.nchunks:  # zarr reads lost chunks as zeros
        raise UserError(f"{path}: chunks of {data.name} are missing: fetch or export it again")
    return Stored(data, indices, indptr, (cells, genes))


def _check_parts(path: Path, element: Any, name: str) -> None:
    """Refuse arrays that take more than half of the memory, whatever the size of the file."""
    parts = [element]
    if hasattr(element, "members"):
        parts = [part for _, part in element.members(max_depth=None)]
    elif hasattr(element, "visititems"):
        element.visititems(lambda _, part: parts.append(part))
    arrays = [part for part in parts if hasattr(part, "shape")]
    _check_place(path, *arrays)
    size, limit = sum(int(array.nbytes or 0) for array in arrays), memory_limit()
    if size > limit:
        raise UserError(
            f"{path}: {name} needs {size / 2**30:,.3g} GiB of memory, and the limit is {limit / 2**30:,.3g} GiB: write "
            "counts as CSR, adata.X = scipy.sparse.csr_matrix(adata.X), or take what is needed out of the file"
        )


def _check_place(path: Path, *arrays: Any) -> None:
    """Refuse arrays that are kept in other files: HDF5 fills them with a number where one of them is missing."""
    for array in arrays:
        if getattr(array, "is_virtual", False) or getattr(array, "external", None):
            raise UserError(
                f"{path}: {array.name} is kept in other files (HDF5 calls it virtual or external): write all into one "
                "file, such as with adata.write_h5ad"
            )


def _hint(path: Path, store: Any = ()) -> str:
    """Return what to do with a file that is no AnnData file, by its name and its groups."""
    kinds = [kind for kind, group in ((".h5mu", "mod"), (".loom", "col_attrs"), (".h5", "matrix")) if group in store]
    suffix = kinds[0] if kinds else Path(path.name.removesuffix(".gz")).suffix
    reader = "scanpy.read_10x_mtx" if path.is_dir() and any(path.glob("matrix.mtx*")) else _READERS.get(suffix)
    if reader is None:
        return "fetch or export it again"
    part = "['rna']" if suffix == ".h5mu" else ""
    return f"convert it, such as with {reader}({path.name!r}){part}.write_h5ad('cells.h5ad')"
