"""Scores of finished blocks, saved next to the output, so that an interrupted command resumes."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.files import write_arrays, write_json

_PLAN = "plan.json"
Scores = tuple[Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]
"""Scores and reasons of a block."""


class SavedBlocks:
    """A folder with a file for each finished block.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, number: int, size: int, compute: Callable[[], Scores]) -> Scores:
        """Return scores and reasons of a block, computed if they are not there (or their file is damaged)."""
        path = self.folder / f"{number // 1000:05}" / f"{number % 1000:03}.npz"
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
                scores, reasons = found["scores"], found["reasons"]
            if scores.shape == reasons.shape == (size,) and (scores.dtype, reasons.dtype) == (np.float32, np.uint8):
                return scores, reasons
        except Exception:  # a damaged file raises many kinds
            pass
        scores, reasons = compute()
        write_arrays(path, {"scores": scores, "reasons": reasons})
        return scores, reasons


@contextmanager
def saved_blocks(output: Path, plan: dict[str, Any]) -> Iterator[SavedBlocks]:
    """Yield the folder next to the output, which is deleted at the end if no error occurs.

    A folder of another plan (other variants, another model) is begun again.

    Parameters
    ----------
    output : Path
    plan : dict
        Plain values that say what is computed from what.

    Raises
    ------
    UserError
        If another process writes this output.
    """
    from filelock import FileLock, Timeout

    folder = output.with_name(f".{output.name}.blocks")
    output.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(output.with_name(f".{output.name}.lock"))
    try:
        with lock.acquire(timeout=0):
            if _read(folder / _PLAN) != plan:
                shutil.rmtree(folder, ignore_errors=True)
                write_json(folder / _PLAN, plan)
            yield SavedBlocks(folder)
            shutil.rmtree(folder, ignore_errors=True)
            Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        raise UserError(f"{output}: another process is writing it: wait for it, or name another file") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
