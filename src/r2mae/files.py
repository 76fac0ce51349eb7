"""Writing files atomically: a reader finds the old file or the complete new one, never a part.

:func:`read_confined` reads files of folders that may come from strangers.
"""

import hashlib
import json
import math
import os
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any

from r2mae.errors import UserError, warn_once

UNFINISHED = ".tmp"  # suffix of files that are still being written


def warn_if_cut(path: object, line: int) -> None:
    """Log that the last line of a table has no end: a file without one may be whole, or cut within a field."""
    warn_once(
        f"{path}, line {line:,}: the file ends within this line, which is used: if the file was cut, fetch it again"
    )


def walk_real_folders(folder: str | Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder as :func:`os.walk`: links are followed, and each real folder is visited once."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield place, folders, names


def holds(folder: Path, wanted: Callable[[Path], object]) -> bool:
    """Whether one of the first thousand files below a folder is wanted."""
    files = (Path(place, name) for place, _, names in walk_real_folders(folder) for name in names)
    return any(wanted(file) for file in islice(files, 1000))


def ordinary(path: Path) -> Path:
    """Return a path that a user named, unless it is a pipe, a device or a socket, which may never end.

    Raises
    ------
    UserError
        Asks for a file; what does not exist is left to the caller.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: is not a regular file (but a pipe, device or socket): write its content into a file")
    return path


def confined_file(path: Path, folder: Path | None = None) -> Path:
    """Return the real path of a regular file below a folder, by default its own folder.

    Folders of runs and results may come from strangers. A link out of them could expose a file of this machine, and a
    pipe or a device may never end.

    Raises
    ------
    OSError, ValueError
        If the file is missing, is no regular file, or is outside the folder.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    real = path.resolve()
    if not real.is_relative_to((folder or path.parent).resolve()):
        raise ValueError("it is a link to a file outside its folder")
    return real


def read_confined(path: Path, most: int = 1 << 26, folder: Path | None = None) -> bytes:
    """Return the content of a :func:`confined_file` of at most `most` bytes.

    Raises
    ------
    OSError, ValueError
        If it cannot be read, or is larger.
    """
    with confined_file(path, folder).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def check_contents(folder: Path) -> None:
    """Refuse a folder of runs or results in which a link leads out of it, or a pipe or device stands for a file.

    Raises
    ------
    UserError
        Names the first one.
    """
    root = folder.resolve()
    for place, folders, names in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *names)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                raise UserError(
                    f"{path} is a link that leads out of {folder}: put there what it links to, or remove it"
                )
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise UserError(f"{path} is neither a file nor a folder: remove it")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file; one that has not changed is read once."""
    status = path.stat()
    return _sha256(path.resolve(), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def check_output_is_not_source(output: str | Path, source: str | Path) -> None:
    """Refuse an existing output that is the source, or a file in it.

    Raises
    ------
    UserError
        Asks for another name.
    """
    if Path(output).exists() and Path(output).resolve().is_relative_to(Path(source).resolve()):
        raise UserError(f"{output} is the input, or a file in it: name another output")


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces `path` when the block ends without an error.

    The data are on the disk (``fsync``) before the file is renamed, so a crash at any time leaves the old file or the
    new one. The folder is created if it does not exist.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):  # of another file
            raise
        # The error of a full disk comes from write(), which does not know the file's name.
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file as :func:`atomic_path`, with mode "w" for text (UTF-8, LF line ends) or "wb" for bytes."""
    # File names may contain bytes that are not valid UTF-8; tables and reports show them escaped.
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    with atomic_path(path) as temporary, temporary.open(mode, **text) as file:
        yield file


def check_writable(folder: Path) -> None:
    """Make a folder and a file in it, or raise an OSError; a lock would wait for a place that cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder)) from None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time write `path`, whose folder is created if it does not exist.

    Raises
    ------
    UserError
        If another process writes it.
    """
    from filelock import FileLock, Timeout

    check_writable(path.parent)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        with lock.acquire(timeout=0):
            try:
                yield
            finally:
                Path(lock.lock_file).unlink(missing_ok=True)
    except Timeout:
        raise UserError(f"{path}: another process is writing it: wait for it, or name another output") from None


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinity become ``null``, since JSON has neither."""
    with atomic_write(path) as file:
        json.dump(jsonable(value), file, indent=2, allow_nan=False)
        file.write("\n")


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file, or None if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as .npz, atomically."""
    import numpy as np

    with atomic_write(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():  # np.savez takes none called "file"
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def jsonable(value: Any) -> Any:
    """Convert `value` to the types of JSON: arrays to lists, paths to text, NaN and infinity to None."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    elif hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def print_json(value: Any) -> None:
    """Print plain types as JSON, for scripts; NaN becomes null."""
    print(json.dumps(jsonable(value), indent=2, allow_nan=False))


def sync(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk; only on POSIX, since others cannot open folders."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
