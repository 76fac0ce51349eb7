"""Scores of finished blocks, kept beside the output, so that a command that was stopped goes on."""

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
from r2mae.files import atomic_write, write_json

_PLAN = "plan.json"
Scored = tuple[Float32[np.ndarray, " n"], UInt8[np.ndarray, " n"]]


class KeptBlocks:
    """A folder with a file for each finished block.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, number: int, size: int) -> Scored | None:
        """Return scores and reasons of a block, or None if it is not finished (or its file is damaged)."""
        try:
            with np.load(io.BytesIO(self._path(number).read_bytes()), allow_pickle=False) as found:
                scores, reasons = found["scores"], found["reasons"]
        except Exception:  # a damaged file raises many kinds, and is computed again
            return None
        fits = scores.shape == reasons.shape == (size,) and scores.dtype == np.float32 and reasons.dtype == np.uint8
        return (scores, reasons) if fits else None

    def put(self, number: int, scored: Scored) -> None:
        """Write those of a block."""
        with atomic_write(self._path(number), "wb") as file:
            np.savez(file, scores=scored[0], reasons=scored[1])

    def of(self, number: int, size: int, compute: Callable[[], Scored]) -> Scored:
        """Return those of a block, computed if they are not there."""
        found = self.get(number, size)
        if found is None:
            found = compute()
            self.put(number, found)
        return found

    def _path(self, number: int) -> Path:
        return self.folder / f"{number // 1000:05}" / f"{number % 1000:03}.npz"


@contextmanager
def kept_blocks(output: Path, plan: dict[str, Any]) -> Iterator[KeptBlocks]:
    """Make, or find again, the folder beside the output; it is deleted at the end if no error occurs.

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
            if _read(folder / _PLAN) != json.loads(json.dumps(plan)):
                shutil.rmtree(folder, ignore_errors=True)
                write_json(folder / _PLAN, plan)
            yield KeptBlocks(folder)
            shutil.rmtree(folder, ignore_errors=True)
            Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        raise UserError(f"{output}: another process is writing it: wait for it, or name another file") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
