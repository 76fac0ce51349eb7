"""Parquet files of variants, read and written some rows at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError, nearest
from r2mae.files import atomic_path
from r2mae.genome.variants.alleles import REASON, REASONS, Block, find_columns

_GROUP = 16  # blocks of a row group
_WORDS = list(REASONS)


class ParquetVariants:
    """A Parquet file of variants.

    Parameters
    ----------
    path : Path

    Raises
    ------
    UserError
        No such file, or no columns for contig, position and alleles; or pyarrow is not installed.
    """

    kind: Literal["parquet"] = "parquet"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = list(self._open().schema_arrow.names)
        self.places = find_columns(self.columns, str(path))
        kind = self._open().schema_arrow.field(self.places[1]).type
        if not _arrow().types.is_integer(kind):
            raise UserError(f"{path}: {self.columns[self.places[1]]} holds {kind}, and positions are whole numbers")

    def _open(self) -> Any:
        from pyarrow.parquet import ParquetFile

        arrow = _arrow()
        try:
            return ParquetFile(self.path)
        except (arrow.ArrowInvalid, OSError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{self.path}: is no Parquet file that can be read ({reason})") from None

    def check_name(self, column: str) -> None:
        """Refuse a name for the scores that the file has already."""
        for name in (column, column + REASON):
            if name in self.columns:
                raise UserError(f"{self.path}: has {name!r} already: name the new column otherwise, --column NAME")

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield blocks of at most so many rows."""
        arrow = _arrow()
        try:
            for number, batch in enumerate(self._open().iter_batches(batch_size=size)):
                yield self._block(number, batch)
        except (arrow.ArrowInvalid, OSError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{self.path}: is damaged ({reason}): fetch it again") from None

    def _block(self, number: int, batch: Any) -> Block:
        contigs, positions, refs, alts = (batch.column(place).to_pylist() for place in self.places)
        bounded = [one if one is not None and 0 <= one < 1 << 40 else 0 for one in positions]
        texts = ([("" if one is None else str(one)) for one in values] for values in (contigs, refs, alts))
        contigs, refs, alts = texts
        return Block(number, batch, list(range(len(refs))), contigs, bounded, refs, alts)

    def values(self, block: Block, column: str) -> list[str]:
        """Return the values of a column as text, empty where there is none."""
        if column not in self.columns:
            raise UserError(f"{self.path}: has no column {column!r}: {nearest(column, self.columns)}")
        found = block.rows.column(self.columns.index(column)).to_pylist()
        return ["" if one is None else str(one) for one in found]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.columns)

    def write(
        self,
        output: Path,
        column: str,
        scored: Iterable[tuple[Block, Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]],
    ) -> None:
        """Write all rows with their scores and reasons (null where there is none)."""
        from pyarrow.parquet import ParquetWriter

        arrow = _arrow()
        schema = self._open().schema_arrow
        schema = schema.append(arrow.field(column, arrow.float32())).append(
            arrow.field(column + REASON, arrow.string())
        )
        with atomic_path(output) as path, ParquetWriter(path, schema) as writer:
            waiting = []
            for block, scores, reasons in scored:
                words = [_WORDS[code] or None for code in reasons.tolist()]
                more = [arrow.array(scores, mask=reasons > 0), arrow.array(words, arrow.string())]
                waiting.append(arrow.RecordBatch.from_arrays([*block.rows.columns, *more], schema=schema))
                if len(waiting) == _GROUP:
                    writer.write_table(arrow.Table.from_batches(waiting))
                    waiting = []
            if waiting:
                writer.write_table(arrow.Table.from_batches(waiting))


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install pyarrow") from None
    return pyarrow
