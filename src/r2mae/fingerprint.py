"""Fingerprints of data, which detect changes without decoding the data."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from r2mae.errors import UserError
from r2mae.files import ordinary, walk_real_folders

_MAX_READ = 1 << 30  # bytes; of larger files and folders, modification times are hashed instead of content


def fingerprint(*sources: str | Path, hidden: bool = True, most: float | None = None) -> str:
    """Return a short hash of files, folders and names of sets.

    It hashes content, and in folders also file names, so moved data keep their fingerprint. For files or folders above
    `most` bytes, by default 1 GiB, which take too long to read, it hashes sizes and modification times instead of
    content; a change that keeps both is not detected.

    A source that is no existing path is hashed by its name. With ``hidden=False``, files and folders whose names begin
    with a dot, and Thumbs.db, do not count in folders: file managers write them.

    Raises
    ------
    UserError
        If a file cannot be read.
    """
    digest, most = hashlib.blake2b(digest_size=16), _MAX_READ if most is None else most
    for source in sources:
        path = ordinary(Path(source).expanduser())
        try:
            if path.is_file():
                digest.update(f"file\0{path.stat().st_size}\0".encode())
                _update_digest(digest, path, by_content=path.stat().st_size <= most)
            elif path.is_dir():
                files = sorted(one for one in files_below(path) if hidden or not _is_hidden(one[0]))
                digest.update(f"folder\0{len(files)}\0".encode())
                by_content = sum(size for _, _, size in files) <= most
                for name, file, size in files:
                    # File names are bytes, and need not be UTF-8.
                    digest.update(os.fsencode(f"{name}\0{size}\0"))
                    _update_digest(digest, file, by_content=by_content)
            else:
                digest.update(os.fsencode(f"name\0{source}\0"))
        except OSError as error:
            raise UserError(f"{error.filename or path}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def _is_hidden(name: str) -> bool:
    parts = Path(name).parts
    return parts[-1] == "Thumbs.db" or any(part.startswith(".") for part in parts)


def files_below(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield name, path and size of all files below a folder; links are followed, each real folder is visited once."""
    for place, folders, names in walk_real_folders(folder):
        folders.sort()
        below = os.path.relpath(place, folder)
        for name in names:
            if (file := Path(place, name)).is_file():
                yield os.path.normpath(f"{below}/{name}"), file, file.stat().st_size


def _update_digest(digest: "hashlib.blake2b", path: Path, *, by_content: bool) -> None:
    if not by_content:
        stat = path.stat()
        digest.update(f"{stat.st_size}\0{stat.st_mtime_ns}".encode())
        return
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
