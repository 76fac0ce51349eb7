"""Reads and checks cells: counts, gene names, annotations and batches."""

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Int64
from scipy.sparse import csr_matrix

from r2mae.catalogue import data_root
from r2mae.cells.counts import ChosenCounts, Counts, MemoryCounts, Totals, check_counts, chunks
from r2mae.cells.declared import memory_limit
from r2mae.cells.genes import highly_variable_genes
from r2mae.cells.rules import cells_in_words
from r2mae.cells.sources import ENTRY, Source, column_notes, from_file, from_object, read_adata
from r2mae.cells.stored import StoredCounts, read_copy, write_copy
from r2mae.errors import UserError, nearest
from r2mae.training.fingerprint import files_below

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["CellTable", "check_columns", "from_anndata", "load_cells", "log_notes", "read_adata", "with_batches"]

NO_BATCHES = ("all",)
_MIN_SHARED = 0.1


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
    """

    name: str
    counts: Counts
    genes: tuple[str, ...]
    obs: pd.DataFrame
    batch: Int64[np.ndarray, " cells"]
    batches: tuple[str, ...] = NO_BATCHES
    notes: tuple[str, ...] = ()

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
    donor_key: str | None = None,
    columns: Sequence[str] = (),
    n_top_genes: int | None = None,
    min_genes: int = 0,
    backed: bool | None = None,
    genes: Sequence[str] | None = None,
    copy: bool = False,
) -> CellTable:
    """Read a named set, an .h5ad file, a zarr folder or an AnnData object.

    Counts of an .h5ad file are checked block by block, so that they need little memory before the genes are chosen. If
    the chosen counts then fit into memory (half of the machine's), they are read; else they stay on disk. To stay on
    disk, a compressed file, or one of which at most half of the entries are needed, is copied once, uncompressed, into
    the data folder.

    Parameters
    ----------
    source : str, Path or AnnData
    layer : str, optional
        Layer of raw counts; by default X (also "X"). "raw.X" is the matrix in ``adata.raw``, with its own genes.
    batch_key, donor_key : str, optional
        Columns of obs; every cell must have a value.
    columns : sequence of str
        Further columns that must exist; missing values stay missing, and are counted in the notes.
    n_top_genes : int, optional
        Use this many highly variable genes; see :func:`r2mae.cells.genes.highly_variable_genes`.
    min_genes : int
        Leave out cells that express fewer of the (chosen) genes.
    backed : bool, optional
        True: leave counts on disk; False: read them into memory.
    genes : sequence of str, optional
        Map the cells onto these genes, those of a model; missing genes count as zero. All cells are kept then.
    copy : bool
        Copy counts and annotations of an AnnData object, so that later changes of the object do not affect the table.

    Raises
    ------
    UserError
        For files, columns or counts that cannot be used; the message gives the cause and the hint.
    """
    raw = from_file(source, layer, backed=backed) if isinstance(source, str | Path) else from_object(source, layer)
    _check_names(raw, least=2 if genes is None else 1)
    notes = raw.notes + check_columns(raw, batch_key, donor_key, columns)
    if raw.path is not None:
        notes += column_notes(raw.path, (batch_key, donor_key, *columns))
    totals = check_counts(raw.counts, raw.name, raw.where, raw.genes, raw.layers, list(raw.obs.index))
    if genes is not None:
        indices, names, more = _map_genes(raw, genes)
        chosen = _Chosen(indices, names, totals, 0)
    else:
        indices, more = _choose(raw, totals, n_top_genes)
        chosen = _Chosen(indices, tuple(raw.genes[index] for index in indices), totals, min_genes)
    counts, kept, expressed, still_more = _load_chosen(raw, chosen, backed)
    if copy and counts is raw.counts and isinstance(counts, MemoryCounts):
        counts = MemoryCounts(counts.matrix.copy())
    notes += (*more, *still_more)
    obs = raw.obs if len(kept) == len(raw.obs) else raw.obs.iloc[kept]
    obs = obs.copy() if copy else obs
    notes += _check_empty(raw.name, obs, expressed, mapped=genes is not None)
    codes, batches = _batches(obs, batch_key)
    return CellTable(raw.name, counts, chosen.names, obs, codes, batches, notes)


def log_notes(table: CellTable) -> CellTable:
    """Log the table's notes as warnings to the logger ``r2mae`` (by default on standard error)."""
    for note in table.notes:
        logging.getLogger("r2mae").warning("%s: %s", table.name, note)
    return table


def from_anndata(
    adata: "AnnData",
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    donor_key: str | None = None,
    columns: Sequence[str] = (),
    n_top_genes: int | None = None,
    min_genes: int = 0,
    genes: Sequence[str] | None = None,
) -> CellTable:
    """Copy the cells of an AnnData object; arguments are those of :func:`load_cells`."""
    return load_cells(
        adata,
        layer=layer,
        batch_key=batch_key,
        donor_key=donor_key,
        columns=columns,
        n_top_genes=n_top_genes,
        min_genes=min_genes,
        genes=genes,
        copy=True,
    )


def with_batches(table: CellTable, batch_key: str | None) -> CellTable:
    """Number the cells' batches by a column of obs.

    Raises
    ------
    UserError
        If the column is not there, or cells have no value in it.
    """
    check_columns(table, batch_key, None, ())
    codes, batches = _batches(table.obs, batch_key)
    return replace(table, batch=codes, batches=batches)


@dataclass(frozen=True, eq=False)
class _Chosen:
    """The chosen genes, the totals of the counts, and the number of genes that a cell must express."""

    columns: Int64[np.ndarray, " genes"]
    names: tuple[str, ...]
    totals: Totals
    min_genes: int

    @property
    def entries(self) -> int:
        """Number of counts above zero in the chosen genes."""
        return int(self.totals.cells_of_gene[self.columns[self.columns >= 0]].sum())

    def all_of(self, counts: Counts) -> bool:
        """Return whether these are all genes of the counts, in the same order."""
        return len(self.columns) == counts.shape[1] and bool((self.columns == np.arange(len(self.columns))).all())


_Loaded = tuple[Counts, Int64[np.ndarray, " kept"], Int64[np.ndarray, " kept"], tuple[str, ...]]


def _check_names(source: Source, least: int) -> None:
    cells, genes = source.counts.shape
    if cells < least or genes < least:
        what = "masking needs two cells and two genes" if least > 1 else "embedding needs one cell and one gene"
        raise UserError(f"{source.name}: {what} or more, not {cells} and {genes}")
    names = pd.Index(source.genes)
    if names.has_duplicates:
        raise UserError(
            f"{source.name}: the gene name {names[names.duplicated()][0]!r} occurs twice in var: call "
            "adata.var_names_make_unique() and write the file again"
        )


def check_columns(
    source: "Source | CellTable", batch_key: str | None, donor_key: str | None, columns: Sequence[str]
) -> tuple[str, ...]:
    """Check that columns of obs exist, and that every cell has a batch and a donor; return notes on missing values."""
    known = [str(column) for column in source.obs.columns]
    keys = (("batch_key: ", batch_key), ("donor_key: ", donor_key))
    for field, wanted in (*keys, *(("", column) for column in columns)):
        if wanted is not None and wanted not in known:
            raise UserError(f"{source.name}: {field}obs has no column {wanted!r}: {nearest(wanted, known)}")
    for field, column in (("batch_key", batch_key), ("donor_key", donor_key)):
        if column is not None and (missing := int(source.obs[column].isna().sum())):
            raise UserError(
                f"{source.name}: {cells_in_words(missing)} without a value in column {column!r} of obs ({field}): "
                "fill it in, or remove these cells"
            )
    missing_in = {column: int(source.obs[column].isna().sum()) for column in dict.fromkeys(columns)}
    return tuple(
        f"{cells_in_words(number)} without a value in {column}" for column, number in missing_in.items() if number
    )


def _choose(
    source: Source, totals: Totals, n_top_genes: int | None
) -> tuple[Int64[np.ndarray, " genes"], tuple[str, ...]]:
    """Leave out genes without a count, and choose the highly variable ones of the others."""
    empty = totals.cells_of_gene == 0
    notes = (f"{int(empty.sum()):,} genes without a count are omitted",) if empty.any() else ()
    columns = np.flatnonzero(~empty)
    if len(columns) < 2:
        raise UserError(f"{source.name}: {source.where} has {len(columns)} genes with a count, and masking needs two")
    if n_top_genes is not None:
        columns = highly_variable_genes(source.counts, n_top_genes, library=totals.library)
        columns = columns[~empty[columns]]
        if len(columns) < 2:
            few = f"{len(columns)} gene{'' if len(columns) == 1 else 's'} with a count"
            raise UserError(f"{source.name}: n_top_genes leaves {few}, and masking needs two: ask for more genes")
    return columns, notes


def _map_genes(
    source: Source, genes: Sequence[str]
) -> tuple[Int64[np.ndarray, " genes"], tuple[str, ...], tuple[str, ...]]:
    """Return the columns of these genes (−1 if missing), their names, and notes on missing genes."""
    columns = pd.Index(source.genes).get_indexer(pd.Index(genes)).astype(np.int64)
    missing = int((columns < 0).sum())
    if len(genes) - missing < _MIN_SHARED * len(genes) or missing == len(genes):
        raise UserError(
            f"{source.name}: only {len(genes) - missing:,} of the model's {len(genes):,} genes are there (its first is "
            f"{genes[0]!r}, the first here {source.genes[0]!r}): name genes in var_names as in training"
        )
    notes = (f"{missing:,} of the model's {len(genes):,} genes are missing and count as zero",) if missing else ()
    return columns, tuple(genes), notes


def _load_chosen(source: Source, chosen: _Chosen, backed: bool | None) -> _Loaded:
    """Prepare the chosen counts for reading batches: unchanged, in memory, or in a copy on disk."""
    counts, everything = source.counts, chosen.all_of(source.counts)
    wanted = counts if everything else ChosenCounts(counts, chosen.columns)
    if isinstance(counts, MemoryCounts):
        enough = chosen.totals.genes_of_cell >= chosen.min_genes
        if everything and enough.all():
            return counts, np.arange(len(enough)), chosen.totals.genes_of_cell, ()
        return _gather(source.name, wanted, chosen)
    size = chosen.entries * ENTRY
    if not (size > memory_limit() if backed is None else backed):
        return _gather(source.name, wanted, chosen)
    assert isinstance(counts, StoredCounts)
    notes: tuple[str, ...] = ()
    if not counts.direct or chosen.entries * 2 <= counts.entries:
        copy = _copy_path(source, chosen)
        copied, kept = read_copy(copy) if copy.exists() else write_copy(wanted, copy, chosen.min_genes, chosen.entries)
        _refuse_no_cells(source.name, kept, chosen.min_genes)
        notes = (f"counts are read from an uncompressed copy, {copy} ({copy.stat().st_size / 2**30:.2f} GiB)",)
        return (
            copied,
            kept,
            np.diff(copied.indptr),
            (*notes, *_omission_notes(len(source.obs) - len(kept), chosen.min_genes)),
        )
    expressed = chosen.totals.genes_of_cell
    if not everything:
        expressed = np.concatenate([_count_expressed(block) for _, block in chunks(wanted)])
    kept = np.flatnonzero(expressed >= chosen.min_genes)
    _refuse_no_cells(source.name, kept, chosen.min_genes)
    notes = _omission_notes(len(expressed) - len(kept), chosen.min_genes)
    if len(kept) == len(expressed):
        return wanted, kept, expressed, notes
    return ChosenCounts(counts, chosen.columns, kept), kept, expressed[kept], notes


def _gather(name: str, wanted: Counts, chosen: _Chosen) -> _Loaded:
    """Read the wanted counts into memory, a block at a time, without the cells that express too few genes."""
    data, columns = np.empty(chosen.entries, dtype=np.float32), np.empty(chosen.entries, dtype=np.int32)
    lengths, every_kept, filled = [], [], 0
    for first, block in chunks(wanted):
        block.eliminate_zeros()
        enough = np.flatnonzero(np.diff(block.indptr) >= chosen.min_genes)
        part = block if len(enough) == block.shape[0] else block[enough]
        data[filled : filled + part.nnz], columns[filled : filled + part.nnz] = part.data, part.indices
        filled += part.nnz
        lengths.append(np.diff(part.indptr))
        every_kept.append(first + enough)
    kept, expressed = np.concatenate(every_kept), np.concatenate(lengths).astype(np.int64)
    _refuse_no_cells(name, kept, chosen.min_genes)
    indptr = np.concatenate([[0], np.cumsum(expressed)])
    gathered = csr_matrix((data[:filled], columns[:filled], indptr), shape=(len(kept), wanted.shape[1]))
    return MemoryCounts(gathered), kept, expressed, _omission_notes(wanted.shape[0] - len(kept), chosen.min_genes)


def _copy_path(source: Source, chosen: _Chosen) -> Path:
    """Return the path of the copy for these genes and this state of the file."""
    assert source.path is not None
    files = [source.path] if source.path.is_file() else sorted(path for _, path, _ in files_below(source.path))
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(f"{path.absolute()}\0{path.stat().st_size}\0{path.stat().st_mtime_ns}\0".encode())
    digest.update("\0".join((source.where, str(chosen.min_genes), *chosen.names)).encode())
    return _copies() / f"{source.path.stem}-{digest.hexdigest()}.h5"


def _copies() -> Path:
    """Return the folder for copies: in the data folder if that can be written, else in the user's cache folder."""
    import pooch

    root = data_root()
    return (root if os.access(root, os.W_OK) else Path(pooch.os_cache("r2mae"))) / "unpacked"


def _check_empty(
    name: str, obs: pd.DataFrame, expressed: Int64[np.ndarray, " cells"], *, mapped: bool
) -> tuple[str, ...]:
    empty = np.flatnonzero(expressed == 0)
    if not len(empty):
        return ()
    if mapped:
        return (f"{cells_in_words(len(empty))} without a count in the model's genes: their embedding says nothing",)
    raise UserError(
        f"{name}: {cells_in_words(len(empty))} without a count in the chosen genes, such as {obs.index[empty[0]]!r}: "
        "omit them with --min-genes 1 (or scanpy.pp.filter_cells(adata, min_genes=1))"
    )


def _refuse_no_cells(name: str, kept: Int64[np.ndarray, " kept"], min_genes: int) -> None:
    if min_genes and len(kept) < 2:
        raise UserError(
            f"{name}: {cells_in_words(len(kept))} with {min_genes} expressed genes (min_genes): ask for fewer"
        )


def _omission_notes(number: int, min_genes: int) -> tuple[str, ...]:
    return (f"{cells_in_words(number)} with fewer than {min_genes} expressed genes omitted",) if number else ()


def _count_expressed(block: csr_matrix) -> Int64[np.ndarray, " cells"]:
    block.eliminate_zeros()
    expressed: Int64[np.ndarray, " cells"] = np.diff(block.indptr).astype(np.int64)
    return expressed


def _batches(obs: pd.DataFrame, key: str | None) -> tuple[Int64[np.ndarray, " cells"], tuple[str, ...]]:
    if key is None:
        return np.zeros(len(obs), dtype=np.int64), NO_BATCHES
    names, codes = np.unique(obs[key].astype(str).to_numpy().astype(str), return_inverse=True)
    return codes.astype(np.int64), tuple(map(str, names))
