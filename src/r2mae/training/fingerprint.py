"""Fingerprints of data, to check whether they have changed, without decoding them."""

import hashlib
import os
from pathlib import Path

_WHOLE = 1 << 30  # larger files are told apart by size and time


def fingerprint(*sources: str | Path, contents: bool = False) -> str:
    """Return a short hash of files (content), folders (names and sizes) and names of sets.

    Parameters
    ----------
    *sources : str or Path
        What a run reads: paths, or names of sets. A source that is no existing path is hashed by its name.
    contents : bool
        Hash the content of files in folders, too. This is for folders of few files, where a file may change without
        changing its size.
    """
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        path = Path(source)
        if path.is_file():
            _add_file(digest, path)
        elif path.is_dir():
            for entry in sorted(path.rglob("*")):
                size = entry.stat().st_size if entry.is_file() else 0
                # Names are bytes to the system; those that are not UTF-8 are hashed as they are.
                digest.update(os.fsencode(f"{entry.relative_to(path)}\0{size}\0"))
                if contents and entry.is_file():
                    _add_file(digest, entry)
        else:
            digest.update(os.fsencode(str(source)))
    return digest.hexdigest()


def _add_file(digest: "hashlib.blake2b", path: Path) -> None:
    stat = path.stat()
    if stat.st_size > _WHOLE:
        digest.update(f"{stat.st_size}\0{stat.st_mtime_ns}".encode())
        return
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
