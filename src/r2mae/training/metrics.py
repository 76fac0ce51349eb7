"""The metrics file, ``metrics.csv``: one row per step. A resumed run removes the rows after its checkpoint."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from r2mae.errors import UserError
from r2mae.files import atomic_write, confined_file
from r2mae.training.folder import hint_for

if TYPE_CHECKING:
    import pandas as pd

_MAX_STEP_DIGITS = 15  # of a step
_MAX_BYTES = 1 << 30  # bytes of a file: some ten million steps
COLUMNS = ("step", "ratio", "loss", "lr", "validation_loss")


class MetricsFile:
    """Writes ``metrics.csv`` of a run, which contains no times, so that equal runs have equal files.

    Opening the file removes the rows after step `keep`; :meth:`write` adds rows.

    Parameters
    ----------
    path : Path
        The file.
    keep : int
        Rows up to this step are kept: the step of the checkpoint, or 0 for a new run.

    Raises
    ------
    UserError
        If the file lacks a step up to `keep`.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        rows = [row for row in complete_rows(path) if int(row.split(",", 1)[0]) <= keep]
        if len(rows) != keep or [int(row.split(",", 1)[0]) for row in rows] != list(range(1, keep + 1)):
            raise UserError(f"{path} lacks steps before the checkpoint's step {keep}: {hint_for(path)}")
        with atomic_write(path) as file:
            file.write(",".join(COLUMNS) + "\n")
            file.writelines(f"{row}\n" for row in rows)
        self._file = path.open("a", encoding="utf-8", newline="")

    def write(self, rows: Sequence[Sequence[float | None]]) -> None:
        """Append rows, each with its values in the order of :data:`COLUMNS`; None is written as an empty cell."""
        self._file.writelines(",".join("" if x is None else _format_number(x) for x in row) + "\n" for row in rows)
        self._file.flush()

    def sync(self) -> None:
        """Flush all rows to the disk; call this before saving a checkpoint, whose steps must all be in the file."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> "MetricsFile":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()


def complete_rows(path: Path) -> list[str]:
    """Return the complete rows; a crash may have truncated the last one."""
    if not path.exists():
        return []
    try:
        text = confined_file(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): {hint_for(path)}") from None
    lines = text[: text.rfind("\n") + 1].split("\n")[1:-1]
    return [line for line in lines if line.count(",") == len(COLUMNS) - 1 and step_of(line) is not None]


def step_of(row: str) -> int | None:
    """Return the step in the first column of a row, or None if it is invalid."""
    first = row.split(",", 1)[0]
    return int(first) if first.isascii() and first.isdecimal() and len(first) <= _MAX_STEP_DIGITS else None


def read_metrics(path: Path) -> "pd.DataFrame":
    """Read ``metrics.csv``: the columns :data:`COLUMNS` as numbers, one row per step.

    Raises
    ------
    UserError
        If the file is damaged.
    """
    import pandas as pd

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
        return pd.read_csv(confined_file(path))[list(COLUMNS)].astype(float)
    except (OSError, ValueError, KeyError, OverflowError) as error:  # pandas' own errors are ValueErrors
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is not readable ({reason}): {hint_for(path)}") from None


def _format_number(value: float) -> str:
    return str(value) if isinstance(value, int) else format(value, ".9g")
