"""What a folder or a tar archive contains: files by their relative path. Nothing is unpacked to disk.

The members of a plain .tar are read from their positions. A compressed one (.tar.gz, .tar.xz, .tar.bz2) has no random
access: it is read once, and its images stay in memory as they are, undecoded.
"""

import hashlib
import io
import multiprocessing
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from r2mae.errors import UserError, warn_once
from r2mae.images.formats import check_memory, reading

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".tif", ".tiff", ".gif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k"),
)
TABLES = (".txt", ".csv", ".txt.gz", ".csv.gz", ".txt.xz", ".csv.xz")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")


class File(NamedTuple):
    """A file on disk, or a member of a tar archive at `path`.

    `member` is its name there; empty for a file on disk, and for a member of which only the position is known.
    `content` is its first byte and size in the archive, or the member itself.
    """

    path: str
    member: str = ""
    content: tuple[int, int] | bytes | None = None

    def __str__(self) -> str:
        """Return its name for messages."""
        member = self.member
        if not member and isinstance(self.content, tuple):
            header = read_at(self.path, self.content[0] - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
            member = tarfile.TarInfo.frombuf(header, tarfile.ENCODING, "surrogateescape").name
        return f"{self.path}: {member}" if member else self.path

    def open(self) -> BufferedIOBase:
        """Open it; an OSError or EOFError says that it is missing, or the archive ends before it does."""
        if self.content is None:
            return Path(self.path).open("rb")
        return io.BytesIO(self.content if isinstance(self.content, bytes) else read_at(self.path, *self.content))


@dataclass(frozen=True)
class Folder:
    """The files below a folder or in an archive, without hidden ones, by path relative to `place`.

    They are sorted by the parts of the path. A path that ends with a slash is a folder.
    """

    place: str
    files: dict[str, File]

    def images(self) -> list[str]:
        """Return the paths of its images, by their endings."""
        return [path for path in self.files if path.lower().endswith(SUFFIXES)]

    def folders(self) -> "dict[str, Folder]":
        """Return the folders directly in it."""
        found: dict[str, Folder] = {}
        for path, file in self.files.items():
            name, slash, rest = path.partition("/")
            if slash:
                inside = found.setdefault(name, Folder(f"{self.place}/{name}", {}))
                if rest:
                    inside.files[rest] = file
        return found

    def direct(self) -> list[str]:
        """Return the names of the files directly in it."""
        return [path for path in self.files if "/" not in path]


def listed(names: Sequence[object], most: int = 5) -> str:
    """Return the first of some names for a message, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def warn(text: str) -> None:
    """Log a line on what is read, once. Worker processes of a comparison log nothing: their parent reads the same."""
    if multiprocessing.parent_process() is None:
        warn_once(text)


def is_archive(name: str) -> bool:
    """Return whether a file is a tar archive, by its name."""
    return name.lower().endswith(ARCHIVES)


def list_folder(folder: Path) -> Folder:
    """List the files below a folder. Links are followed, but not to a folder that contains them."""
    files: dict[str, File] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [("", ())]
    with reading(folder, "folder of images"):
        while waiting:
            below, around = waiting.pop()
            real = os.path.realpath(folder / below)
            if real in around:
                continue
            with os.scandir(folder / below) as entries:
                for entry in entries:
                    path = f"{below}{entry.name}"
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        files[f"{path}/"] = File(entry.path)
                        waiting.append((f"{path}/", (*around, real)))
                    elif entry.is_file() or not Path(entry.path).exists():  # a broken link is a file that is lost
                        files[path] = File(entry.path)
    return _sorted(folder, files)


def list_archive(path: Path, *, max_bytes: int | None = None) -> Folder:
    """List the members of a tar archive; see :func:`read_tar`."""
    files: dict[str, File] = {}
    for file in read_tar(path, max_bytes=max_bytes):
        parts = [part for part in file.member.split("/") if part not in ("", ".")]
        if parts and not any(part.startswith(".") for part in parts):
            files["/".join(parts) + "/" * file.member.endswith("/")] = file
    return _sorted(path, files)


def _sorted(place: Path, files: dict[str, File]) -> Folder:
    return Folder(str(place), dict(sorted(files.items(), key=lambda item: item[0].split("/"))))


def read_tar(path: Path, *, max_bytes: int | None = None) -> Iterator[File]:
    """Yield the members of a tar archive in its order; the names of folders end with a slash.

    Images and tables of a compressed archive are kept in memory, up to `max_bytes` (default: half of the machine's);
    its other files are empty.

    Raises
    ------
    UserError
        If the archive is damaged, ends without its end marker, or has more after that; if it does not fit into memory;
        or if it contains a link, a device, or a path that leads outside: nothing of such an archive is used.
    """
    plain, held = path.name.lower().endswith(".tar"), 0
    with reading(path, "tar archive"), tarfile.open(path, "r:" if plain else "r:*", tarinfo=_Entry) as archive:
        number, last = 0, None
        try:
            for last in archive:
                number += 1
                _check_member(path, last)
                content: bytes | tuple[int, int] = (last.offset_data, last.size)
                if not plain:
                    wanted = last.isreg() and last.name.lower().endswith((*SUFFIXES, *TABLES))
                    held += last.size * wanted
                    check_memory(path, held, max_bytes, "unpack it (tar xf), or save it as a plain .tar")
                    stream = archive.extractfile(last) if wanted else None
                    content = b"" if stream is None else stream.read()
                yield File(str(path), last.name + "/" * last.isdir(), content)
            while archive.fileobj is not None and (piece := archive.fileobj.read(1 << 20)):
                if piece.strip(b"\0"):
                    raise EOFError("more follows its end marker, as where archives were joined by cat")
        except (EOFError, tarfile.TarError) as error:
            place = "" if last is None else f", in or after its member {number:,}, {last.name}"
            raise EOFError(f"{error}{place}") from error


class _Entry(tarfile.TarInfo):
    """A member whose header must be complete: tarfile takes a broken one, except the first, for the end."""

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


def _check_member(path: Path, info: tarfile.TarInfo) -> None:
    """Refuse what a copy of the files would not hold."""
    kind = ""
    if info.name.startswith("/") or ".." in info.name.split("/") or "\\" in info.name:
        kind = "has a path outside the archive"
    elif not (info.isreg() or info.isdir()) or info.issparse():
        kind = "is a link, a device or a sparse file"
    if kind:
        raise UserError(f"{path}: the member {info.name!r} {kind}: pack the files themselves again")


def read_at(path: str | Path, start: int, size: int) -> bytes:
    """Read `size` bytes of a file; an EOFError says that it ends before."""
    with Path(path).open("rb") as file:
        file.seek(start)
        content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{path} ends within it")
    return content


def stamp(files: Iterable[File]) -> str:
    """Return a hash of the paths, sizes and times of change of files; a member changes with its archive."""
    digest, last = hashlib.blake2b(digest_size=16), ""
    for file in files:
        if file.path != last:
            with reading(file.path, "file"):
                found, last = Path(file.path).stat(), file.path
            # The time of change of the entry, too: copies of other content may keep size and time of change.
            times = f"{found.st_size}\0{found.st_mtime_ns}\0{found.st_ctime_ns}\0"
            digest.update(os.fsencode(f"{Path(file.path).absolute()}\0{times}"))
        digest.update(os.fsencode(f"{file.member}\0"))
        if isinstance(file.content, tuple):
            digest.update(f"{file.content}".encode())
    return digest.hexdigest()
