"""Folders of image files: ``folder/<class>/*.png``, with or without ``train/`` and ``val/``, or without classes."""

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from r2mae.errors import UserError
from r2mae.images.decode import Reading
from r2mae.images.image_set import Part, Parts
from r2mae.images.listing import SUFFIXES, Folder
from r2mae.images.parts import log_parts, official_parts
from r2mae.images.store import read_files


def read_folder(name: str, folder: Folder, how: Reading) -> Parts:
    """Read a folder of image files, or an archive of them.

    Three layouts: ``<class>/**/*.png``; the same below ``train/`` and one or two of ``test/``, ``val/`` and the like,
    which are official parts (:func:`~r2mae.images.parts.official_parts`); files without classes. A test part next to a
    validation part whose labels are not known, as ImageNet's, is omitted. A single folder (as archives unpack to) is
    read as its content, and a single class is no label. Files and classes are sorted by name. Hidden ones are omitted,
    and so are empty folders and files that are no images by their suffix, of which a line is logged. All images become
    RGB unless all are greyscale; they are turned as their EXIF says; transparency is dropped, and of an animation the
    first frame taken.

    Parameters
    ----------
    name : str
        Name of the set.
    folder : Folder
        Its files.
    how : Reading
        Size, and where decoded images are kept.

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
    around, folders = find_parts(folder)
    others = [path for part in folders for path in part.files if not path.lower().endswith((*SUFFIXES, "/"))]
    log_others(folder.place, (Path(path).suffix.lower() for path in others))
    labels = {part.place: _labels(part) for part in folders}
    folders = _useful(around, folders, labels)
    for part in folders:
        if not part.images():
            hint = "put some there, or name another folder" if part is folders[0] else "put some there, or remove it"
            raise UserError(
                f"{part.place}: holds no images ({', '.join(SUFFIXES)}), neither directly nor in folders: {hint}"
            )
    if len(set(labels[folders[0].place] or [])) == 1:  # train/images/*.png and the like: one class is no label
        labels = dict.fromkeys(labels)
    parts, files = [], []
    for part in folders:
        classes, images = labels[part.place], part.images()
        parts.append((Part(part.place, None if classes is None else np.array(classes)), len(images)))
        files += [part.files[path] for path in images]
    return read_files(name, files, parts, how)


def find_parts(folder: Folder) -> tuple[Folder, list[Folder]]:
    """Return the folder that contains all, and those of its official parts, or itself.

    Raises
    ------
    UserError
        If its folders may be classes or parts.
    """
    while True:
        inside = folder.folders()
        if parts := official_parts(inside, folder.place):
            return folder, [_unwrapped(inside[name]) for name in parts]
        full = {name: one for name, one in inside.items() if one.images()}
        if len(full) != 1 or any("/" not in path for path in folder.images()):
            if not any("/" not in path for path in folder.images()):
                _check_alike(folder, full)
            return folder, [folder]
        (folder,) = full.values()


def log_others(place: object, suffixes: Iterable[str]) -> None:
    """Log the endings of the files that are no images, and how many there are."""
    if others := Counter(suffixes):
        kinds = ", ".join(f"{count:,} {suffix or 'without an ending'}" for suffix, count in others.most_common(5))
        more = ", …" * (len(others) > 5)
        logging.getLogger("r2mae").warning("%s", f"{place}: files that are not read as images: {kinds}{more}")


def _unwrapped(part: Folder) -> Folder:
    """Return the content of seg_train/seg_train/ and the like."""
    name = part.place.rpartition("/")[2]
    while part.files and all(path.startswith(f"{name}/") for path in part.files):
        part = part.folders()[name]
    return part


def _check_alike(folder: Folder, inside: dict[str, Folder]) -> None:
    """Refuse folders that all hold folders of images of the same names, two or more: they are hardly classes."""
    common: set[str] | None = None
    for one in inside.values():
        names = {name for name, below in one.folders().items() if below.images()}
        common = names if common is None else common & names
        if len(common) < 2:
            return
    if common:
        shared = ", ".join(sorted(common)[:3]) + ", …" * (len(common) > 3)
        raise UserError(
            f"{folder.place}: {_listed(list(inside))} all hold the folders {shared}, as parts of a set do: name the "
            "one to train on as the data, or call them train and test; if they are classes, put their images directly "
            "into them"
        )


def _listed(names: list[str]) -> str:
    """Name the first of some files or folders."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _labels(part: Folder) -> list[str] | None:
    """Return the class of each image of a part; None if the images are directly in it."""
    images = part.images()
    direct, classes = [path for path in images if "/" not in path], [path.partition("/")[0] for path in images]
    if not direct:
        if images and (empty := part.folders().keys() - set(classes)):
            names = _listed(sorted(empty))
            logging.getLogger("r2mae").warning("%s", f"{part.place}: no images in {names}, which is taken for no class")
        return classes
    if len(direct) < len(images):
        below = next(path for path in images if "/" in path).partition("/")[0]
        raise UserError(
            f"{part.place}: has images directly ({direct[0]}) and in folders ({below}/): "
            "put all into folders of their class, or none"
        )
    return None


def _useful(around: Folder, parts: list[Folder], labels: dict[str, list[str] | None]) -> list[Folder]:
    """Omit a test part without known labels if there is a validation part; log what is used for what."""
    if len(parts) < 2:
        return parts
    log, names = logging.getLogger("r2mae"), [part.place.rpartition("/")[2] for part in parts]
    own = {part.place.removeprefix(f"{around.place}/").partition("/")[0] for part in parts}
    others = list(dict.fromkeys(first for path in around.images() if (first := path.partition("/")[0]) not in own))
    if others:
        folders = {path.partition("/")[0] for path in around.images() if "/" in path}
        if not any(labels[part.place] for part in parts) and folders.intersection(others):
            raise UserError(
                f"{around.place}: {', '.join(names)} may be parts of a set, or classes like {_listed(others)}: name "
                "the one to train on as the data, or rename the classes"
            )
        log.warning("%s", f"{around.place}: {_listed(others)} belong to no part and are left out")
    if len(parts) > 2:
        train, test, validation = parts
        known = set(labels[train.place] or ())
        if not test.images() or (known and known.isdisjoint(labels[test.place] or ())):
            reason = "has other classes than train, or none" if test.images() else "holds no images"
            log.warning("%s", f"{test.place}: {reason} and is left out; {names[2]} is the test part")
            return [train, validation]
    log_parts(around.place, *names)
    return parts
