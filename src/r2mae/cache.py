"""The cache folder: entries are made once, atomically, and shared by all runs."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from r2mae.errors import UserError
from r2mae.files import check_writable, sync


def cache_folder() -> Path:
    """Return the cache folder: ``$R2MAE_CACHE``, or ~/.cache/r2mae."""
    chosen = os.environ.get("R2MAE_CACHE", "").strip()
    return Path(chosen or "~/.cache/r2mae").expanduser().absolute()


@contextmanager
def create_once(folder: Path) -> Iterator[Path | None]:
    """Yield an empty folder that becomes `folder` if no error occurs, or None if `folder` exists.

    If two processes create the same folder, the second waits for the first. Remains of a killed process are removed.
    """
    from filelock import FileLock

    unfinished, lock = folder.with_name(f".{folder.name}.tmp"), folder.with_name(f".{folder.name}.lock")
    if folder.exists():
        yield None
        return
    try:
        check_writable(folder.parent)
        with FileLock(lock):
            if folder.exists():
                yield None
                return
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            unfinished.mkdir()
            try:
                yield unfinished
                for file in unfinished.iterdir():
                    sync(file)
                unfinished.rename(folder)
                sync(folder.parent)
                lock.unlink(missing_ok=True)  # whoever waits for it finds the folder
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{folder.parent} cannot be written ({error.strerror or error}): point R2MAE_CACHE at a folder with room, "
            "or name another output"
        ) from None
