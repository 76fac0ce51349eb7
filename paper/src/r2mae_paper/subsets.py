"""Parts of the named sets of images, for studies that two cores can afford. Each is an archive of the same files."""

import csv
import io
import lzma
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from r2mae.catalogue import locate
from r2mae.errors import UserError
from r2mae.files import atomic_path, atomic_write
from r2mae.images.archives import Member, is_archive, open_archive
from r2mae.images.folder import below
from r2mae.images.sets import SETS


def first_faces(count: int, folder: Path) -> Path:
    """Write the first faces of the set `celeba` and their attributes to a folder, and return it.

    Parameters
    ----------
    count : int
        Number of faces.
    folder : Path
        Where they go; a folder that is there already is taken as it is.

    Raises
    ------
    UserError
        If the set is not there, or has fewer faces.
    """
    table = folder / "list_attr.csv"
    if table.is_file():
        return folder
    files = locate(SETS["celeba"])
    faces = sorted(below(_archive(files.values())), key=lambda face: face.name)[:count]
    packed = next(path for path in files.values() if path.name.endswith(".csv.xz"))
    with lzma.open(packed, "rt", encoding="utf-8", newline="") as opened:
        head, *rows = csv.reader(opened)
    if len(faces) < count:
        raise UserError(f"celeba has {len(faces):,} faces here, not {count:,}: take fewer")
    _pack(folder / "faces.tar", ((face.name, _bytes(face)) for face in faces))
    wanted = {face.name for face in faces}
    with atomic_write(table) as written:  # last: its presence says that the faces are whole
        csv.writer(written, lineterminator="\n").writerows([head, *(row for row in rows if row[0] in wanted)])
    return folder


def some_classes(count: int, path: Path) -> Path:
    """Write evenly spaced classes of the set `tiny-imagenet`, with both official parts, to an archive, and return it.

    Parameters
    ----------
    count : int
        Number of classes.
    path : Path
        The archive, a .tar; one that is there already is taken as it is.

    Raises
    ------
    UserError
        If the set is not there, or has fewer classes.
    """
    if path.is_file():
        return path
    (whole,) = _archive(locate(SETS["tiny-imagenet"]).values()).iterdir()
    names = sorted(place.name for place in (whole / "train").iterdir())
    if len(names) < count:
        raise UserError(f"tiny-imagenet has {len(names):,} classes here, not {count:,}: take fewer")
    chosen = [names[place] for place in np.linspace(0, len(names), count, endpoint=False).astype(int)]
    _pack(path, _members(whole, chosen))
    return path


def _members(whole: Member, classes: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for part in ("train", "val"):
        for name in classes:
            for image in sorted(below(whole / part / name), key=lambda image: image.name):
                yield f"{part}/{name}/{image.name}", _bytes(image)


def _archive(files: Iterable[Path]) -> Member:
    return open_archive(next(path for path in files if is_archive(path)))


def _bytes(image: "Member | Path") -> bytes:
    with image.open("rb") as opened:
        return opened.read()


def _pack(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write an archive whose bytes depend on its members alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, tarfile.open(temporary, "w") as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
