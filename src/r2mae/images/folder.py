"""Folders of image files: ``folder/<class>/*.png``, with or without ``train/`` and ``val/``, or without classes."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from r2mae.errors import UserError
from r2mae.files import walk_real_folders
from r2mae.images.archives import Member, archives_in, open_archive
from r2mae.images.archives import stamp as stamp_of
from r2mae.images.arrays import AnyImages
from r2mae.images.decode import SUFFIXES, Files, Reading
from r2mae.images.formats import Labelled, Parts, reading
from r2mae.images.parts import divided, tell_parts
from r2mae.images.store import gather

Place = Path | Member
"""A file or folder on disk or in an archive."""


def read_folder(path: str | Path | Member, how: Reading | None = None) -> Parts:
    """Read a folder of image files, decoded by PIL in several threads.

    Three layouts: ``<class>/**/*.png``; the same below ``train/`` and one or two of ``test/``, ``val/`` and the like,
    which are official parts (:func:`~r2mae.images.parts.divided`); files without classes. A test part next to a
    validation part whose labels are not told, as ImageNet's, is left out. A single folder (as archives unpack to)
    is looked into, and a single class is no label. Files and classes are sorted by name. Hidden ones are left out, and
    so are empty folders and files that are no images by their suffix, of which a line is logged. All images become RGB
    unless all are greyscale; they are turned as their EXIF says; transparency is dropped, and of an animation the first
    frame taken.

    Parameters
    ----------
    path : str, Path or Member
        The folder, or an archive that was opened.
    how : Reading, optional
        Size, and where decoded images are kept; by default in memory, at the size that all have.

    Returns
    -------
    Parts
        uint8 of shape (n, height, width, 1 or 3); official parts have the classes of the training part.

    Raises
    ------
    UserError
        No images, images both with and without classes, folders that may be classes or parts, test classes that the
        training part lacks, unequal sizes, more than 8 bits, a file that cannot be decoded or is a decompression bomb,
        or too large a set.
    """
    path = Path(path) if isinstance(path, str) else path
    how = Reading() if how is None else how
    with reading(str(path), "folder of images"):
        around, folders = _parts(path)
        others: Counter[str] = Counter()
        parts = _useful(around, [_scan(part, others) for part in folders])
    for part in parts:
        if not part.files:
            hint = "put some there, or name another folder" if part is parts[0] else "put some there, or remove it"
            raise UserError(
                f"{part.path}: holds no images ({', '.join(SUFFIXES)}), neither directly nor in folders: {hint}"
            )
    tell_others(path, others)
    images, rows = gather(str(path), files_of([file for part in parts for file in part.files]), how)
    return _labelled(parts, images, rows)


def files_of(files: list[Place]) -> Files:
    """Return files as images to decode; members of an archive change with the archive alone."""
    first = files[0]
    if isinstance(first, Path):
        return Files(files)
    return Files(files, stamp="\0".join([stamp_of(first.archive), *map(str, files)]))


def below(folder: Place, others: Counter[str] | None = None) -> Iterator[Place]:
    """Give all images below a folder; links are followed (subsets are often made of links), each real folder once.

    `others` counts the files that are none by their endings, but for hidden ones.
    """
    if isinstance(folder, Member):
        for child in folder.iterdir():
            if child.is_dir() and not child.name.startswith("."):
                yield from below(child, others)
            elif not child.is_dir():
                yield from _images([child], others)
        return
    for place, folders, names in walk_real_folders(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from _images((Path(place, name) for name in names), others)


def _images(files: Iterable[Place], others: Counter[str] | None) -> Iterator[Place]:
    for file in files:
        if _is_image(file):
            yield file
        elif others is not None and not file.name.startswith("."):
            others[file.suffix.lower()] += 1


def tell_others(place: object, others: Counter[str]) -> None:
    """Log how many files are no images by their endings."""
    if others:
        kinds = ", ".join(f"{count:,} {suffix or 'without an ending'}" for suffix, count in others.most_common(5))
        more = ", …" * (len(others) > 5)
        logging.getLogger("r2mae").warning("%s", f"{place}: files that are not read as images: {kinds}{more}")


def archive_instead(folder: Path, how: Reading) -> Member | None:
    """Open the archive of a folder that holds no images but a single archive.

    Raises
    ------
    UserError
        It holds several.
    """
    archives = archives_in(folder)
    if not archives or any(below(folder)):
        return None
    if len(archives) > 1:
        names = ", ".join(archive.name for archive in archives[:5])
        raise UserError(f"{folder}: holds several archives ({names}): give the one that is meant")
    return open_archive(archives[0], max_bytes=how.max_bytes)


def has_test_part(folder: Path) -> bool:
    """Tell whether a folder of images has an official test part, by the names of its folders alone."""
    return len(_parts(folder)[1]) > 1


class _Part(NamedTuple):
    """One split of a folder: its files and the class of each, by name."""

    path: Place
    files: list[Place]
    classes: list[str] | None


def _entries(path: Place) -> list[Place]:
    """Return what a folder holds, sorted, without what is hidden."""
    found: Iterable[Place] = path.iterdir()
    return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _parts(path: Place) -> tuple[Place, list[Place]]:
    """Give the folder that counts, and those of its parts, or itself; one around a single folder stands for that.

    Raises
    ------
    UserError
        Its folders may be classes or parts.
    """
    while True:
        entries = _entries(path)
        folders = [entry for entry in entries if entry.is_dir()]
        if parts := divided({folder.name for folder in folders}, path):
            return path, [_unwrapped(path / name) for name in parts]
        folders = [folder for folder in folders if any(below(folder))]
        if any(_is_image(entry) for entry in entries):
            return path, [path]
        if len(folders) != 1:
            _check_alike(path, folders)
            return path, [path]
        path = folders[0]


def _unwrapped(part: Place) -> Place:
    """Look into seg_train/seg_train/ and the like."""
    while [(entry.name, entry.is_dir()) for entry in _entries(part)] == [(part.name, True)]:
        part = part / part.name
    return part


def _check_alike(path: Place, folders: list[Place]) -> None:
    """Refuse folders that all hold folders of images of the same names, two or more: they are hardly classes."""
    common: list[str] = []
    for folder in folders:
        names = [entry.name for entry in _entries(folder) if entry.is_dir() and any(below(entry))]
        common = [name for name in names if not common or name in common]
        if len(common) < 2:
            return
    if folders:
        inside = ", ".join(common[:3]) + ", …" * (len(common) > 3)
        raise UserError(
            f"{path}: {_listed(folders)} all hold the folders {inside}, as parts of a set do: name the one to train on "
            "as the data, or call them train and test; if they are classes, put their images directly into them"
        )


def _listed(places: list[Place]) -> str:
    """Name the first of some files or folders."""
    more = f" and {len(places) - 5:,} more" if len(places) > 5 else ""
    return ", ".join(place.name for place in places[:5]) + more


def _scan(path: Place, others: Counter[str]) -> _Part:
    entries = _entries(path)
    direct = [*_images((entry for entry in entries if not entry.is_dir()), others)]
    every = {entry.name: sorted(below(entry, others)) for entry in entries if entry.is_dir()}
    by_class = {name: files for name, files in every.items() if files}
    if direct and by_class:
        folder = next(iter(by_class))
        raise UserError(
            f"{path}: has images directly ({direct[0].name}) and in folders ({folder}/): "
            "put all into folders of their class, or none"
        )
    if direct:
        return _Part(path, direct, None)
    if by_class and len(by_class) < len(every):
        empty = ", ".join(name for name in every if name not in by_class)
        logging.getLogger("r2mae").warning("%s", f"{path}: no images in {empty}, which is taken for no class")
    files = [file for found in by_class.values() for file in found]
    return _Part(path, files, [name for name, found in by_class.items() for _ in found])


def _useful(around: Place, parts: list[_Part]) -> list[_Part]:
    """Omit a test part on which nothing can be measured if there is a validation part; say what is used for what."""
    if len(parts) < 2:
        return parts
    log, names = logging.getLogger("r2mae"), [part.path.name for part in parts]
    around_it = [entry for entry in _entries(around) if entry.name not in names]
    if others := [entry for entry in around_it if (any(below(entry)) if entry.is_dir() else _is_image(entry))]:
        if all(part.classes is None for part in parts) and any(entry.is_dir() for entry in others):
            raise UserError(
                f"{around}: {', '.join(names)} may be parts of a set, or classes like {_listed(others)}: name the one "
                "to train on as the data, or rename the classes"
            )
        log.warning("%s", f"{around}: {_listed(others)} belong to no part and are left out")
    if len(parts) > 2:
        train, test, validation = parts
        known = set(train.classes or ())
        if not test.files or (known and known.isdisjoint(test.classes or ())):
            reason = "does not tell the classes of its images" if test.files else "holds no images"
            log.warning("%s", f"{test.path}: {reason} and is left out; {validation.path.name} is the test part")
            return [train, validation]
    tell_parts(around, *names)
    return parts


def _is_image(path: Place) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _labelled(parts: list[_Part], images: AnyImages, rows: np.ndarray) -> Parts:
    """Divide images into the parts, of which `rows` could be decoded."""
    train = parts[0]
    classes = None if train.classes is None else tuple(sorted(set(train.classes)))
    number = {name: index for index, name in enumerate(classes or ())}
    splits = []
    start = 0
    for part in parts:
        if (part.classes is None) != (classes is None):
            raise UserError(f"{part.path}: expected the layout of {train.path}: both with classes, or both without")
        stop = start + len(part.files)
        first, last = np.searchsorted(rows, [start, stop])
        if first == last:
            raise UserError(f"{part.path}: none of its {len(part.files):,} files can be decoded: replace them")
        labels = None
        if part.classes is not None:
            if foreign := sorted(set(part.classes) - number.keys()):
                raise UserError(
                    f"{part.path}: has the class {foreign[0]!r}, which {train.path} lacks. If its labels are "
                    f"not in folders, name {train.path} as the data"
                )
            labels = np.array([number[name] for name in part.classes], np.int64)[rows[first:last] - start]
        cut = Labelled(images).rows(int(first), int(last))
        # train/images/*.png and the like: one class tells nothing
        splits.append(Labelled(cut.images, labels, classes) if classes is not None and len(classes) > 1 else cut)
        start = stop
    return Parts(*splits)
