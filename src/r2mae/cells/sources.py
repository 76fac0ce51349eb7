"""Opens the sources of cells: a named set, an .h5ad file, a zarr folder, or an AnnData object."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, issparse

from r2mae.catalogue import locate
from r2mae.cells.counts import Counts, MemoryCounts
from r2mae.cells.declared import check_part, memory_limit
from r2mae.cells.pieces import check_columns, check_dense, check_frame, lost_in_sparse
from r2mae.cells.sets import SETS
from r2mae.cells.stored import StoredCounts, damaged, opened
from r2mae.errors import UserError, nearest, unknown

if TYPE_CHECKING:
    from anndata import AnnData

RAW = "raw.X"
"""Name, used like that of a layer, of the matrix that AnnData keeps next to a normalised X."""
ENTRY = 8  # bytes of a count, in memory or on a device: float32 and int32
IN_MEMORY = "AnnData"
"""Name of the data in the configuration of a run on an AnnData object."""


@dataclass(frozen=True, eq=False)
class Source:
    """Counts and annotations of a source, not yet checked.

    Parameters
    ----------
    name, where : str
        Names of source and matrix, for messages.
    counts : Counts
    genes : tuple of str
    obs : DataFrame
    layers : tuple of str
        Names of all matrices that could be used instead.
    path : Path, optional
        Path of the source, if it has one.
    notes : tuple of str
        Notes on what is not stored of the counts.
    """

    name: str
    where: str
    counts: Counts
    genes: tuple[str, ...]
    obs: pd.DataFrame
    layers: tuple[str, ...]
    path: Path | None = None
    notes: tuple[str, ...] = ()


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


def read_obs(source: str | Path) -> pd.DataFrame:
    """Read only the annotations of the cells (obs) of an .h5ad file or zarr folder."""
    path = path_of(source)
    with opened(path) as store:
        return _read_obs(path, store)


def column_notes(source: str | Path, columns: Iterable[str | None]) -> tuple[str, ...]:
    """Return notes on what is not stored of columns of obs, in a zarr folder.

    Raises
    ------
    UserError
        If nothing is stored of a column with several values.
    """
    path = path_of(source)
    if not path.is_dir():
        return ()
    with opened(path) as store:
        return check_columns(path, store["obs"], [column for column in columns if column is not None])


def named_layer(layer: str | None, layers: Iterable[str]) -> str | None:
    """Return the name of the layer, or None for X. "" and "X" mean X unless a layer has this name."""
    return None if layer in ("", "X") and layer not in layers else layer


def read_adata(source: str | Path) -> "AnnData":
    """Read a whole .h5ad file or zarr folder."""
    path = path_of(source)
    with opened(path) as store:  # raises a UserError if the file is damaged
        import anndata

        try:
            check_part(path, store, "the file", whole=True)
            return anndata.read_zarr(store) if path.is_dir() else anndata.read_h5ad(path)
        except UserError:
            raise
        except Exception as error:
            raise _unreadable_error(path, error) from None


def from_file(source: str | Path, layer: str | None, *, backed: bool | None) -> Source:
    """Open a file: annotations are read; counts that are stored by rows stay in the file.

    Raises
    ------
    UserError
        For a file or layer that cannot be used.
    """
    path = path_of(source)
    with opened(path) as store:
        layers = tuple(str(name) for name in store["layers"]) if "layers" in store else ()
        layers = (*layers, RAW) if "raw" in store and "X" in store["raw"] else layers
        layer = named_layer(layer, layers)
        group, var = _group_names(layer, layers)
        if layer is not None and layer not in layers:
            raise _missing_layer_error(str(source), layer, layers)
        if group not in store:
            raise _missing_layer_error(str(source), "X", layers)
        obs = _read_obs(path, store)
        try:
            from anndata.io import read_elem

            check_part(path, store[var], var)
            check_frame(path, store[var], var)
            names = read_elem(store[var]).index
            kind = str(store[group].attrs.get("encoding-type", ""))
        except UserError:
            raise
        except Exception as error:
            raise _unreadable_error(path, error) from None
        counts: Counts
        notes: tuple[str, ...] = ()
        if kind == "csr_matrix":
            counts = StoredCounts(path, group)
        else:
            counts = MemoryCounts(_read_complete(path, store[group], group, kind, backed))
            notes = check_dense(path, store[group], group) if kind != "csc_matrix" else ()
    if counts.shape != (len(obs), len(names)):
        raise UserError(f"{path}: {group} has shape {counts.shape}, obs and var {len(obs)} and {len(names)} rows")
    return Source(str(source), _matrix_name(layer), counts, tuple(map(str, names)), obs, layers, path, notes)


def from_object(adata: "AnnData", layer: str | None) -> Source:
    """Use the counts and annotations of an AnnData object, which is not changed.

    Raises
    ------
    UserError
        For a layer that does not exist.
    """
    layers = (*map(str, adata.layers), *((RAW,) if adata.raw is not None else ()))
    layer = named_layer(layer, layers)
    if layer is not None and layer not in layers:
        raise _missing_layer_error(IN_MEMORY, layer, layers)
    named = layer is not None and layer in adata.layers
    home = adata.raw if layer == RAW and not named else adata
    matrix: Any = adata.layers[layer] if named else home.X
    if matrix is None:
        raise _missing_layer_error(IN_MEMORY, "X", layers)
    matrix = to_csr(matrix, IN_MEMORY)
    return Source(
        IN_MEMORY, _matrix_name(layer), MemoryCounts(matrix), tuple(map(str, home.var_names)), adata.obs, layers
    )


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


def _read_complete(path: Path, matrix: Any, group: str, kind: str, backed: bool | None) -> csr_matrix:
    """Read a matrix that is not stored by rows."""
    from anndata.io import read_elem

    stored = kind.removesuffix("_matrix").upper() if kind == "csc_matrix" else "a dense array"
    if kind == "csc_matrix":
        # Both forms, by columns and by rows, are in memory for a moment.
        size = 2 * ENTRY * int(matrix["data"].shape[0])
    elif hasattr(matrix, "shape") and len(matrix.shape) == 2:
        size = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    else:
        raise UserError(f"{path}: {group} is stored as {kind or 'something unknown'}: write it as CSR")
    hint = "write it as CSR, adata.X = scipy.sparse.csr_matrix(adata.X)"
    if backed:
        raise UserError(f"{path}: {group} is stored as {stored}, and cells on disk are read by rows: {hint}")
    if size > memory_limit():
        raise UserError(f"{path}: {group} is stored as {stored} and needs {size / 2**30:.3g} GiB of memory: {hint}")
    check_part(path, matrix, group)
    try:
        if kind == "csc_matrix" and (lost := lost_in_sparse(matrix)):
            raise damaged(path, group, lost)
        return to_csr(read_elem(matrix), str(path))
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable_error(path, error) from None


def _read_obs(path: Path, store: Any) -> pd.DataFrame:
    try:
        from anndata.io import read_elem

        check_part(path, store["obs"], "obs")
        check_frame(path, store["obs"], "obs")
        obs: pd.DataFrame = read_elem(store["obs"])
    except UserError:
        raise
    except Exception as error:
        raise _unreadable_error(path, error) from None
    return obs


def _group_names(layer: str | None, layers: tuple[str, ...]) -> tuple[str, str]:
    """Return the names of the groups of a matrix and of its genes."""
    if layer is None:
        return "X", "var"
    return ("raw/X", "raw/var") if layer == RAW and layers.count(RAW) == 1 else (f"layers/{layer}", "var")


def _matrix_name(layer: str | None) -> str:
    return "X" if layer is None else f"layer {layer}"


def _missing_layer_error(name: str, layer: str, layers: tuple[str, ...]) -> UserError:
    if layer == "X" and not layers:
        return UserError(f"{name}: has no X, and no layers at all")
    if not layers:
        return UserError(f"{name}: has no layer {layer!r}, and no layers at all: for X say layer='X' (--layer X)")
    if layer == "X":
        return UserError(f"{name}: has no X: name the layer that holds raw counts (layers: {', '.join(layers)})")
    return UserError(f"{name}: has no layer {layer!r}: {nearest(layer, (*layers, 'X'))}")


def _unreadable_error(path: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return UserError(f"{path} is not a readable AnnData file ({reason}): read it with anndata and write it again")
