"""Tar archives, read as if they were the folder inside; nothing is ever unpacked to disk.

A plain .tar stays where it is, and its members are read from their places. A packed one (.tar.gz, .tar.xz, .tar.bz2)
has no places that could be gone to: it is read once from beginning to end, and its images are kept in memory as they
are, undecoded.
"""

import hashlib
import io
import os
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import Literal

from r2mae.errors import UserError
from r2mae.images.decode import SUFFIXES
from r2mae.images.formats import check_memory, reading

PACKED = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")
ARCHIVES = (".tar", *PACKED)
TABLES = (".txt", ".csv", ".txt.gz", ".csv.gz", ".txt.xz", ".csv.xz")

_PIECE = 1 << 20
_DEEPEST = 100  # parts of a path; folders are read one within the other

_KINDS = (
    (tarfile.TarInfo.issym, "a symbolic link"),
    (tarfile.TarInfo.islnk, "a hard link"),
    (tarfile.TarInfo.isdev, "a device"),
    (tarfile.TarInfo.issparse, "a sparse file"),
)


class Member:
    """A file or folder in an archive, with the part of Path's ways that readers of folders use.

    Parameters
    ----------
    archive : Path
        The archive.
    path : str
        Within it; empty for the archive itself.
    """

    __slots__ = ("_content", "archive", "children", "path")

    def __init__(self, archive: Path, path: str, content: "bytes | tuple[int, int] | None" = None) -> None:
        self.archive, self.path = archive, path
        self._content = content  # of a file: itself, or place and size
        self.children: dict[str, Member] = {}

    def __str__(self) -> str:
        """Return the path of the archive, and of the member within it."""
        return f"{self.archive}: {self.path}" if self.path else str(self.archive)

    def __lt__(self, other: "Member") -> bool:
        return self.path.split("/") < other.path.split("/")  # as paths are sorted

    def __truediv__(self, name: str) -> "Member":
        return self.children[name]

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of its name."""
        return posixpath.splitext(self.path)[1]

    def is_dir(self) -> bool:
        """Tell whether it is a folder."""
        return self._content is None

    def is_file(self) -> bool:
        """Tell whether it is a file."""
        return self._content is not None

    def iterdir(self) -> Iterator["Member"]:
        """Give what a folder holds."""
        yield from self.children.values()

    def open(self, mode: Literal["rb"] = "rb") -> BufferedIOBase:
        """Open a file."""
        if self._content is None:
            raise IsADirectoryError(21, "Is a directory", str(self))
        if isinstance(self._content, bytes):
            return io.BytesIO(self._content)
        return io.BytesIO(read_at(self.archive, *self._content))


def is_archive(path: Path) -> bool:
    """Tell whether a file is an archive by its name."""
    return path.name.lower().endswith(ARCHIVES)


def archives_in(folder: Path) -> list[Path]:
    """Return the archives that lie directly in a folder, sorted."""
    return sorted(entry for entry in folder.iterdir() if is_archive(entry) and entry.is_file() and entry.name[0] != ".")


def read_at(path: Path, start: int, size: int) -> bytes:
    """Read some bytes of a file.

    Raises
    ------
    EOFError
        It ends before.
    """
    with path.open("rb") as file:
        file.seek(start)
        content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{path.name} ends within it")
    return content


def stamp(path: Path) -> str:
    """Return a hash of the place, size and time of change of a file."""
    found = path.stat()
    named = os.fsencode(f"{path.absolute()}\0{found.st_size}\0{found.st_mtime_ns}")
    return hashlib.blake2b(named, digest_size=16).hexdigest()


def members(path: Path) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes] | None]]:
    """Give the files and folders of an archive in its order, each file with what reads it, until the next is asked for.

    Raises
    ------
    UserError
        Not a whole tar archive up to its end marker, or with more behind that; or a link, a device, or a path that
        leads outside: nothing of such an archive is used.
    """
    mode: Literal["r:", "r:*"] = "r:" if path.name.lower().endswith(".tar") else "r:*"
    with reading(path, "tar archive"), tarfile.open(path, mode, tarinfo=_Entry) as archive:
        number, last = 0, None
        try:
            for last in archive:
                number += 1
                _check(path, last)
                yield last, partial(_content, path, archive, last) if last.isreg() else None
            rest = archive.fileobj
            while rest is not None and (piece := rest.read(_PIECE)):
                if piece.strip(b"\0"):
                    raise EOFError("more follows its end marker, as where archives were joined by cat")
        except (EOFError, tarfile.TarError) as error:
            place = "" if last is None else f", in or after its member {number:,}, {last.name}"
            raise EOFError(f"{error}{place}") from error


class _Entry(tarfile.TarInfo):
    """A member whose header must be whole: tarfile takes any but the first for the end if it is missing or broken."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Entry":
        """Read the next header."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # a block of zeros: the end marker
            raise
        except tarfile.HeaderError as error:
            if archive.offset == 0:  # no archive at all
                raise
            raise tarfile.ReadError(f"no end marker: {error}") from error


def _content(path: Path, archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    with reading(f"{path}: {info.name}", "member of a tar archive"):
        stream = archive.extractfile(info)
        return b"" if stream is None else stream.read()


def open_archive(path: Path, *, max_bytes: int | None = None) -> Member:
    """Return an archive as the folder inside; a packed one has the content of images and tables alone.

    Parameters
    ----------
    path : Path
        One of :data:`ARCHIVES`.
    max_bytes : int or None
        Limit of what a packed archive holds of images (default: half of the machine's memory).

    Raises
    ------
    UserError
        As :func:`members`, or the images do not fit into memory.
    """
    root, held = Member(path, ""), 0
    plain = path.name.lower().endswith(".tar")
    for info, read in members(path):
        parts = [part for part in info.name.split("/") if part not in ("", ".")]
        if len(parts) > _DEEPEST:
            raise UserError(
                f"{path}: the member {info.name[:40]!r}… lies {len(parts) - 1:,} folders deep, at most {_DEEPEST - 1} "
                "are read: pack it with fewer"
            )
        folder = root
        for depth, part in enumerate(parts[: len(parts) if read is None else -1], 1):
            folder = folder.children.setdefault(part, Member(path, "/".join(parts[:depth])))
        if read is None:
            continue
        content: bytes | tuple[int, int] = b""  # of other files none is looked at
        if plain:
            content = (info.offset_data, info.size)
        elif parts[-1].lower().endswith((*SUFFIXES, *TABLES)):
            held += info.size
            check_memory(path, held, max_bytes, "unpack it (tar xf), or save it as a plain .tar")
            content = read()
        folder.children[parts[-1]] = Member(path, "/".join(parts), content)
    return root


def _check(path: Path, info: tarfile.TarInfo) -> None:
    """Refuse what a plain copy of the files would not hold."""
    hint = "pack the files themselves again"
    if info.name.startswith("/") or ".." in info.name.split("/") or "\\" in info.name:
        raise UserError(f"{path}: the member {info.name!r} has a path outside the archive: {hint}")
    for is_one, kind in _KINDS:
        if is_one(info):
            raise UserError(f"{path}: the member {info.name!r} is {kind}: {hint}")
