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
from r2mae.cells.counts import Counts, StoredCounts
from r2mae.cells.sets import SETS
from r2mae.errors import UserError, nearest, unknown
from r2mae.registry import JOBS

if TYPE_CHECKING:
    from anndata import AnnData

RAW = "raw.X"
"""Name, used like that of a layer, of the matrix that AnnData keeps next to a normalised X."""
ENTRY = 8  # bytes of a count, in memory or on a device: float32 and int32
IN_MEMORY = "AnnData"
"""Name of the data in the configuration of a run on an AnnData object."""
_MAX_COMPRESSION = 1100  # deflate compresses zeros to a thousandth
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
    counts : Counts or StoredCounts
    genes : tuple of str
    obs : DataFrame
    layers : tuple of str
        Names of all matrices that could be used instead.
    path : Path, optional
        Path of the source, if it has one.
    """

    name: str
    where: str
    counts: Counts | StoredCounts
    genes: tuple[str, ...]
    obs: pd.DataFrame
    layers: tuple[str, ...]
    path: Path | None = None


def path_of(source: str | Path) -> Path:
    """Return the file of a named set, or the path itself.

    Raises
    ------
    UserError
        If it is neither, or the file of the set does not exist.
    """
    name = str(source)
    if name in SETS:
        return next(iter(locate(SETS[name]).values()))
    path = Path(source).expanduser()
    if not path.exists():
        if name == IN_MEMORY:
            raise UserError(
                "the run was trained on an AnnData object in memory, and no file of it is known: use "
                "MaskedAutoencoder.load(RUN, adata) and its evaluate(), or embed a file with r2mae embed"
            )
        if path.suffix or path.is_absolute() or os.sep in name:
            raise UserError(f"{path} does not exist: name an .h5ad file, a zarr folder, or a set ({', '.join(SETS)})")
        raise UserError(f"{unknown('set of cells', name, SETS)}, or give the path of an .h5ad file or a zarr folder")
    return path


def memory_limit() -> int:
    """Return the memory that counts may use, in bytes: half of the machine's (or the container's).

    The processes of a comparison, which all read the counts, divide it among them.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not POSIX
        total = 8 << 30
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (text := container.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total // (2 * max(1, int(os.environ.get(JOBS, "1"))))


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
    """Read a part of an opened file by anndata.

    Raises
    ------
    UserError
        If it declares more than half of the memory, or is kept in other files.
    """
    from anndata.io import read_elem

    _check_size(path, store[name], name)
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

        _check_size(path, store, "the file")
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
    if not isinstance(source, str | Path):
        yield _from_object(source, layer)
        return
    path = path_of(source)
    with opened(path) as store:
        layers = tuple(str(name) for name in store["layers"]) if "layers" in store else ()
        layers = (*layers, RAW) if "raw" in store and "X" in store["raw"] else layers
        layer = named_layer(layer, layers)
        if layer is None:
            group, var = "X", "var"
        else:
            group, var = ("raw/X", "raw/var") if layer == RAW and layers.count(RAW) == 1 else (f"layers/{layer}", "var")
        if (layer is not None and layer not in layers) or group not in store:
            raise _missing_layer_error(str(source), layer or "X", layers, _hint(path, store))
        obs, genes = _read_frame(path, store, "obs"), _read_frame(path, store, var).index
        if store[group].attrs.get("encoding-type") == "csr_matrix":
            counts: Counts | StoredCounts = _stored_counts(path, store[group], group)
        else:
            counts = Counts(to_csr(_read_matrix(path, store, group), str(path)))
        if counts.shape != (len(obs), len(genes)):
            raise UserError(f"{path}: {group} has shape {counts.shape}, obs and var {len(obs)} and {len(genes)} rows")
        yield Source(str(source), _matrix_name(layer), counts, tuple(map(str, genes)), obs, layers, path)


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


def _from_object(adata: "AnnData", layer: str | None) -> Source:
    """Use the counts and annotations of an AnnData object, which is not changed."""
    layers = (*map(str, adata.layers), *((RAW,) if adata.raw is not None else ()))
    layer = named_layer(layer, layers)
    if layer is not None and layer not in layers:
        raise _missing_layer_error(IN_MEMORY, layer, layers)
    named = layer is not None and layer in adata.layers
    home = adata.raw if layer == RAW and not named else adata
    matrix: Any = adata.layers[layer] if named else home.X
    if matrix is None:
        raise _missing_layer_error(IN_MEMORY, "X", layers)
    counts = Counts(to_csr(matrix, IN_MEMORY))
    return Source(IN_MEMORY, _matrix_name(layer), counts, tuple(map(str, home.var_names)), adata.obs, layers)


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


def _read_matrix(path: Path, store: Any, group: str) -> Any:
    """Read a matrix that is not stored by rows."""
    kind = str(store[group].attrs.get("encoding-type", ""))
    if kind != "csc_matrix" and not hasattr(store[group], "shape"):
        raise UserError(f"{path}: {group} is stored as {kind or 'something unknown'}: write it as CSR")
    # Counts by columns are, for a moment, in memory in both forms.
    _check_size(path, store[group], group, 2 if kind == "csc_matrix" else 1)
    return read_element(path, store, group)


def _stored_counts(path: Path, matrix: Any, group: str) -> StoredCounts:
    """Check that the parts of a matrix stored by rows agree."""
    data, columns = matrix["data"], matrix["indices"]
    shape = (int(matrix.attrs["shape"][0]), int(matrix.attrs["shape"][1]))
    for part in ("data", "indices", "indptr"):
        _check_place(path, matrix[part])
    _check_size(path, matrix["indptr"], f"{group}/indptr")
    indptr = np.asarray(matrix["indptr"][:], dtype=np.int64)
    lengths = np.diff(indptr)
    fits = len(lengths) == shape[0] and indptr[0] == 0 and lengths.min(initial=0) >= 0
    if not fits or lengths.max(initial=0) > shape[1] or not data.shape == columns.shape == (indptr[-1],):
        raise UserError(f"{path}: the parts of {group} contradict each other: fetch or export it again")
    for array in (data, columns):
        stored = array.id.get_storage_size() if hasattr(array, "id") else array.nbytes_stored()
        if array.nbytes > max(memory_limit(), _MAX_COMPRESSION * stored):
            raise UserError(f"{path}: {array.name} declares {array.nbytes / 2**30:,.3g} GiB in {stored:,} bytes")
    if not hasattr(data, "id") and data.nchunks_initialized < data.nchunks:  # zarr reads lost chunks as zeros
        raise UserError(f"{path}: chunks of {data.name} are missing: fetch or export it again")
    return StoredCounts(f"{path}: {group}", data, columns, indptr, shape)


def _check_size(path: Path, element: Any, name: str, copies: int = 1) -> None:
    """Refuse arrays that take more than half of the memory, whatever the size of the file."""
    if hasattr(element, "shape"):
        arrays = [element]
    elif hasattr(element, "id"):
        arrays = []
        element.visititems(lambda _, part: arrays.append(part) if hasattr(part, "shape") else None)
    else:
        arrays = [part for _, part in element.members(max_depth=None) if hasattr(part, "shape")]
    for array in arrays:
        _check_place(path, array)
    size, limit = copies * sum(int(array.nbytes or 0) for array in arrays), memory_limit()
    if size > limit:
        raise UserError(
            f"{path}: {name} needs {size / 2**30:,.3g} GiB of memory, and the limit is {limit / 2**30:,.3g} GiB: write "
            "counts as CSR, adata.X = scipy.sparse.csr_matrix(adata.X), or take what is needed out of the file"
        )


def _check_place(path: Path, array: Any) -> None:
    """Refuse an array that is kept in other files: HDF5 fills it with a number where one of them is missing."""
    if getattr(array, "is_virtual", False) or getattr(array, "external", None):
        raise UserError(
            f"{path}: {array.name} is kept in other files (HDF5 calls it virtual or external): write all into one "
            "file, such as with adata.write_h5ad"
        )


def _matrix_name(layer: str | None) -> str:
    return "X" if layer is None else f"layer {layer}"


def _hint(path: Path, store: Any = ()) -> str:
    """Return what to do with a file that is no AnnData file, by its name and its groups."""
    kinds = [kind for kind, group in ((".h5mu", "mod"), (".loom", "col_attrs"), (".h5", "matrix")) if group in store]
    suffix = kinds[0] if kinds else Path(path.name.removesuffix(".gz")).suffix
    reader = "scanpy.read_10x_mtx" if path.is_dir() and any(path.glob("matrix.mtx*")) else _READERS.get(suffix)
    if reader is None:
        return "fetch or export it again"
    part = "['rna']" if suffix == ".h5mu" else ""
    return f"convert it, such as with {reader}({path.name!r}){part}.write_h5ad('cells.h5ad')"


def _missing_layer_error(name: str, layer: str, layers: tuple[str, ...], hint: str = "choose another") -> UserError:
    if layer == "X" and not layers:
        return UserError(f"{name}: has no X, and no layers at all: {hint}")
    if not layers:
        return UserError(f"{name}: has no layer {layer!r}, and no layers at all: for X say layer='X' (--layer X)")
    if layer == "X":
        return UserError(f"{name}: has no X: name the layer that holds raw counts (layers: {', '.join(layers)})")
    return UserError(f"{name}: has no layer {layer!r}: {nearest(layer, (*layers, 'X'))}")
