"""Reads and checks cells: counts, gene names, annotations and batches."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Int64

from r2mae.cells.counts import (
    ENTRY,
    Choice,
    Counts,
    Rows,
    Stored,
    Totals,
    check_counts,
    copied,
    highly_variable_genes,
    mapped,
    packed,
)
from r2mae.cells.sources import Source, memory_limit, open_source
from r2mae.errors import UserError, nearest, unknown

if TYPE_CHECKING:
    from anndata import AnnData

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
    donor_key: str | None = None,
    columns: Sequence[str] = (),
    n_top_genes: int | None = None,
    min_genes: int = 0,
    backed: bool | None = None,
    genes: Sequence[str] | None = None,
    batches: tuple[str, ...] | None = None,
    transform_batch: str | None = None,
) -> CellTable:
    """Read a named set, an .h5ad file, a zarr folder or an AnnData object, which the table shares nothing with.

    Counts of a file are checked block by block, so that they need little memory before the genes are chosen. If the
    chosen counts then fit into half of the free memory, they are read; else they stay on disk. They are mapped
    from an .h5ad file in which they are neither compressed nor in chunks, if all of its genes and cells are used;
    otherwise they are copied once, uncompressed, into the data folder, and mapped from there.

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
        Use this many highly variable genes; see :func:`r2mae.cells.counts.highly_variable_genes`.
    min_genes : int
        Leave out cells that express fewer of the (chosen) genes.
    backed : bool, optional
        True: leave counts on disk; False: read them into memory.
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
        notes = check_columns(raw, None if batches else batch_key, donor_key, columns)
        numbers = align_batches(raw.name, raw.obs, batch_key, batches, transform_batch) if batches else None
        totals = check_counts(raw)
        if genes is None:
            indices, more = _choose(raw, totals, n_top_genes)
            names = tuple(raw.genes[index] for index in indices)
        else:
            (indices, more), names, min_genes = _map_genes(raw, genes), tuple(genes), 0
        entries = int(totals.cells_of_gene[indices[indices >= 0]].sum())
        counts, kept, still_more = _take(raw, Choice(indices, min_genes, entries), backed)
        if min_genes and len(kept) < 2:
            raise UserError(
                f"{raw.name}: {cells_in_words(len(kept))} with {min_genes} expressed genes (min_genes): ask for fewer"
            )
        notes += (*more, *still_more)
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


def listed(names: Sequence[str]) -> str:
    """Write the first five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def with_batches(table: CellTable, batch_key: str | None) -> CellTable:
    """Number the cells' batches by a column of obs, in which every cell must have a value."""
    check_columns(table, batch_key, None, ())
    codes, batches = _batches(table.obs, batch_key)
    return replace(table, batch=codes, batches=batches)


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


def check_columns(
    source: "Source | CellTable", batch_key: str | None, donor_key: str | None, columns: Sequence[str]
) -> tuple[str, ...]:
    """Check that columns of obs exist, and that every cell has a batch and a donor; return notes on missing values."""
    known, missing = [str(column) for column in source.obs.columns], {}
    keys = {"batch_key: ": batch_key, "donor_key: ": donor_key}
    for option, column in (*keys.items(), *(("", column) for column in dict.fromkeys(columns))):
        if column is None:
            continue
        if column not in known:
            raise UserError(f"{source.name}: {option}obs has no column {column!r}: {nearest(column, known)}")
        if number := int(source.obs[column].isna().sum()):
            missing[column] = f"{cells_in_words(number)} without a value in"
            if option:
                raise UserError(
                    f"{source.name}: {option}{missing[column]} column {column!r} of obs: fill it in, or remove these "
                    "cells"
                )
    return tuple(f"{cells} {column}" for column, cells in missing.items())


def _choose(
    source: Source, totals: Totals, n_top_genes: int | None
) -> tuple[Int64[np.ndarray, " genes"], tuple[str, ...]]:
    """Leave out genes without a count, and choose the highly variable ones of the others."""
    empty = totals.cells_of_gene == 0
    columns = np.flatnonzero(~empty)
    if len(columns) < 2:
        raise UserError(f"{source.name}: {source.where} has {len(columns)} genes with a count, and masking needs two")
    if n_top_genes is not None:
        columns = highly_variable_genes(source.matrix, n_top_genes, totals.library)
        columns = columns[~empty[columns]]
        if len(columns) < 2:
            few = f"{len(columns)} gene{'' if len(columns) == 1 else 's'} with a count"
            raise UserError(f"{source.name}: n_top_genes leaves {few}, and masking needs two: ask for more genes")
    note = f"{int(empty.sum()):,} genes without a count are omitted"
    if source.path is None:  # whoever has an AnnData object may want to put results next to its genes
        note += f": tables of expression have {len(columns):,} columns, those of adata[:, table.columns]"
    return columns, (note,) if empty.any() else ()


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
    if source.path is None:
        note += f": tables of expression have {number} columns"
        note += "" if missing else ", those of adata[:, table.columns]"
    return columns, (note,) if missing or others else ()


def _take(source: Source, choice: Choice, backed: bool | None) -> tuple[Counts, Rows, tuple[str, ...]]:
    """Prepare the chosen counts for reading batches: in memory, mapped from their file, or from a copy of it."""
    matrix = source.matrix
    on_disk = choice.entries * ENTRY > memory_limit() if backed is None else backed
    if not on_disk or not isinstance(matrix, Stored):
        return *packed(matrix, choice), ()
    cells, genes = matrix.shape
    everything = np.array_equal(choice.columns, np.arange(genes)) and choice.entries == matrix.indptr[-1]
    everything = everything and bool((np.diff(matrix.indptr) >= choice.min_genes).all())
    if everything and (found := mapped(matrix)) is not None:
        return found, np.arange(cells), ()
    assert source.path is not None
    made, kept, folder = copied(matrix, choice, source.path, source.where)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 2**30
    return made, kept, (f"counts are read from an uncompressed copy, {folder} ({size:.2f} GiB)",)


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
