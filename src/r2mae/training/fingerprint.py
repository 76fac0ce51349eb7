"""Fingerprints of data, to check whether they have changed, without decoding them."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from r2mae.errors import UserError

_MAX_READ = 1 << 30  # bytes; the content of larger files and folders is not read: times of change stand for it


def fingerprint(*sources: str | Path) -> str:
    """Return a short hash of files, folders and names of sets.

    It is made of content, and in folders also of names: data that were moved have the same. Of a file or folder of more
    than 1 GiB it is made of sizes and times of change, as to read everything would take too long; a change that keeps
    both is not seen.

    Parameters
    ----------
    *sources : str or Path
        What a run reads: paths, or names of sets. A source that is no existing path is hashed by its name.

    Raises
    ------
    UserError
        If a file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        path = Path(source).expanduser()
        try:
            if path.is_file():
                _update_digest(digest, path, whole=path.stat().st_size <= _MAX_READ)
            elif path.is_dir():
                files = sorted(files_below(path))
                whole = sum(size for _, _, size in files) <= _MAX_READ
                for name, file, size in files:
                    # Names are bytes to the system; those that are not UTF-8 are hashed as they are.
                    digest.update(os.fsencode(f"{name}\0{size}\0"))
                    _update_digest(digest, file, whole=whole)
            else:
                digest.update(os.fsencode(str(source)))
        except OSError as error:
            raise UserError(f"{error.filename or path}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def files_below(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield name, path and size of all files below a folder; links are followed, each real folder once."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        below = os.path.relpath(place, folder)
        for name in names:
            if (file := Path(place, name)).is_file():
                yield os.path.normpath(f"{below}/{name}"), file, file.stat().st_size


def _update_digest(digest: "hashlib.blake2b", path: Path, *, whole: bool) -> None:
    if not whole:
        stat = path.stat()
        digest.update(f"{stat.st_size}\0{stat.st_mtime_ns}".encode())
        return
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
