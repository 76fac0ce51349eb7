"""Folders of image files: ``folder/<class>/*.png``, with or without ``train/`` and ``val/``, or without classes.

Official parts of a set are known by the names of their folders, or of their shards (:func:`official_parts`).
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from r2mae.errors import UserError
from r2mae.images.decode import Reading, read_files
from r2mae.images.image_set import Part, Parts
from r2mae.images.listing import SUFFIXES, Folder, listed, warn

TRAIN = ("train", "training")
HELD_OUT = ("test", "testing", "val", "valid", "validation", "dev", "development", "eval", "evaluation")
"""Words for parts next to the training part: the first that is there is the test part, a second the validation part."""

_WORD = re.compile(rf"(?<![a-z])({'|'.join((*TRAIN, *HELD_OUT))})(set|data)?(?![a-z])")


def read_folder(name: str, folder: Folder, how: Reading) -> Parts:
    """Read a folder of image files, or an archive of them.

    Three layouts: ``<class>/**/*.png``; the same below ``train/`` and one or two of ``test/``, ``val/`` and the like,
    which are official parts (:func:`official_parts`); files without classes. A test part next to a
    validation part whose labels are not known, as ImageNet's, is omitted. A single folder (as archives unpack to) is
    read as its content, and a single class is no label. Files and classes are sorted by name. Hidden ones are omitted,
    and so are empty folders and files that are no images by their suffix, of which a line is logged. All images become
    RGB unless all are greyscale; they are turned as their EXIF says; transparency is dropped, and of an animation the
    first frame taken.
    What may be classes or parts, or is in two of these layouts, is refused.
    """
    around, folders = _find_parts(folder)
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


def _find_parts(folder: Folder) -> tuple[Folder, list[Folder]]:
    """Return the folder that contains all, and those of its official parts, or itself.

    Folders that all hold folders of images of the same names, two or more, are hardly classes, and are refused.
    """
    while True:
        inside = folder.folders()
        if parts := official_parts(inside, folder.place):
            return folder, [_unwrapped(inside[name]) for name in parts]
        full = {name: one for name, one in inside.items() if one.images()}
        direct = any("/" not in path for path in folder.images())
        if len(full) == 1 and not direct:
            (folder,) = full.values()
            continue
        below = [{name for name, one in part.folders().items() if one.images()} for part in full.values()]
        common = set() if direct or not below else set.intersection(*below)
        if len(common) > 1:
            raise UserError(
                f"{folder.place}: {listed(list(full))} all hold the folders {listed(sorted(common))}, as parts of a "
                "set do: name the one to train on as the data, or call them train and test; if they are classes, put "
                "their images directly into them"
            )
        return folder, [folder]


def log_others(place: object, suffixes: Iterable[str]) -> None:
    """Log the endings of the files that are no images, and how many there are."""
    if others := Counter(suffixes):
        kinds = ", ".join(f"{count:,} {suffix or 'without an ending'}" for suffix, count in others.most_common(5))
        more = ", …" * (len(others) > 5)
        warn(f"{place}: files that are not read as images: {kinds}{more}")


def _unwrapped(part: Folder) -> Folder:
    """Return the content of seg_train/seg_train/ and the like."""
    name = part.place.rpartition("/")[2]
    while part.files and all(path.startswith(f"{name}/") for path in part.files):
        part = part.folders()[name]
    return part


def _labels(part: Folder) -> list[str] | None:
    """Return the class of each image of a part; None if the images are directly in it."""
    images = part.images()
    direct, classes = [path for path in images if "/" not in path], [path.partition("/")[0] for path in images]
    if not direct:
        if images and (empty := part.folders().keys() - set(classes)):
            names = listed(sorted(empty))
            warn(f"{part.place}: no images in {names}, which is taken for no class")
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
    names = [part.place.rpartition("/")[2] for part in parts]
    own = {part.place.removeprefix(f"{around.place}/").partition("/")[0] for part in parts}
    others = list(dict.fromkeys(first for path in around.images() if (first := path.partition("/")[0]) not in own))
    if others:
        folders = {path.partition("/")[0] for path in around.images() if "/" in path}
        if not any(labels[part.place] for part in parts) and folders.intersection(others):
            raise UserError(
                f"{around.place}: {', '.join(names)} may be parts of a set, or classes like {listed(others)}: name "
                "the one to train on as the data, or rename the classes"
            )
        warn(f"{around.place}: {listed(others)} belong to no part and are left out")
    if len(parts) > 2:
        train, test, validation = parts
        known = set(labels[train.place] or ())
        if not test.images() or (known and known.isdisjoint(labels[test.place] or ())):
            reason = "has other classes than train, or none" if test.images() else "holds no images"
            warn(f"{test.place}: {reason} and is left out; {names[2]} is the test part")
            return [train, validation]
    log_parts(around.place, *names)
    return parts


def official_parts(names: Collection[str], place: object) -> tuple[str, ...]:
    """Return which names are parts, in any spelling: Training and Testing, seg_train and seg_test, train1 and dev2.

    There are none, or a training part, a test part (of :data:`HELD_OUT` the first that is there) and perhaps a
    validation part. The letters next to the word have to be the same in all. `place` is the set's name in errors.

    Raises
    ------
    UserError
        If there is more than one training part, or more than two next to it.
    """
    words: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        if found := _WORD.search(spelled):
            rest = re.sub("[^a-z]", "", spelled[: found.start()] + spelled[found.end() :])
            words.setdefault(rest, {})[name] = found[1]
    parts = [
        (training, held_out)
        for known in words.values()
        if (training := _in_order(known, TRAIN)) and (held_out := _in_order(known, HELD_OUT))
    ]
    if not parts:
        return ()
    training, held_out = (list(itertools.chain(*kind)) for kind in zip(*parts, strict=True))
    if len(training) > 1:
        raise UserError(f"{place}: has {' and '.join(training)}: keep only one of them, or name it as the data")
    if len(held_out) > 2:
        raise UserError(f"{place}: has {', '.join(held_out)} next to {training[0]}: keep only two of them")
    return (*training, *held_out)


def _in_order(words: Mapping[str, str], order: Sequence[str]) -> list[str]:
    return sorted((name for name, word in words.items() if word in order), key=lambda name: order.index(words[name]))


def log_parts(place: object, training: str, test: str, validation: str | None = None) -> None:
    """Log which part is used for what."""
    more = "" if validation is None else f"; {validation} is the validation part, which --validation uses"
    warn(f"{place}: {training} is trained on; {test} is the test part{more}")
