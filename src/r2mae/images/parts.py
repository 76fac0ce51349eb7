"""Official parts of a set: what they are called, those of a .npz, and whether two parts go together."""

import itertools
import logging
import math
import re
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from r2mae.errors import UserError
from r2mae.images.formats import (
    MAP_INSTEAD,
    Labelled,
    Parts,
    check_memory,
    convert,
    encode,
    image_shape,
    member,
    reading,
    result_type,
)

NPZ_PARTS = (
    (("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train"), ("X_train", "y_train")),
    (("test_images", "test_labels"), ("x_test", "y_test"), ("X_test", "y_test")),
    (("val_images", "val_labels"),),
)
"""Arrays of a .npz with the images and labels of all or training, of test, and of validation.

Of each line the first pair that is there is read. The two names of a pair go together: labels of one pair are never
read for the images of another.
"""

TRAIN = ("train", "training")
HELD_OUT = ("test", "testing", "val", "valid", "validation", "dev", "development", "eval", "evaluation")
"""Words for parts next to the training part: the first that is there is the test part, a second the validation part."""

_WORD = re.compile(rf"(?<![a-z])({'|'.join((*TRAIN, *HELD_OUT))})(set|data)?(?![a-z])")


def divided(names: Collection[str], place: object) -> tuple[str, ...]:
    """Say which names are those of parts, in any spelling: Training and Testing, seg_train and seg_test, train1, dev2.

    Parameters
    ----------
    names : collection of str
        Among them those of parts. What stands next to the word, digits apart, has to be the same in all.
    place : Path or Member
        What to call the set in errors.

    Returns
    -------
    tuple of str
        Empty, or the names of the training part, of the test part and, if there is one, of the validation part: of
        :data:`HELD_OUT` the first that is there is the test part.

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
        for told in words.values()
        if (training := _in_order(told, TRAIN)) and (held_out := _in_order(told, HELD_OUT))
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


def tell_parts(place: object, training: str, test: str, validation: str | None = None) -> None:
    """Log which part is used for what."""
    more = "" if validation is None else f"; {validation} is the validation part, which --validation uses"
    logging.getLogger("r2mae").warning("%s", f"{place}: {training} is trained on; {test} is the test part{more}")


def read_npz(path: str | Path, *, max_bytes: int | None = None) -> Parts:
    """Read images (as :func:`read_npy`) and, where present, labels (integers or strings) from a .npz file.

    The arrays are `images` and `labels`, and for an official test part `test_images` and `test_labels`; other names
    that are known are those of :data:`NPZ_PARTS`. Labels may have the shape (n,) or (n, 1). `val_images` are the
    validation part, or the test part where there is no other.

    Returns
    -------
    Parts
        All images, or the official parts, with the classes of the training part.

    Raises
    ------
    UserError
        As :func:`read_npy`; no `images`; labels of another length or type, or negative; labels without their images,
        or next to images of another pair of names; a test part that is empty or does not go with the training part
        (:func:`official_part`); a broken archive, or one that unpacks to more than `max_bytes`.
    """
    path = Path(path)
    with reading(path, ".npz file"), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        pairs = _npz_pairs(path, names)
        there = [[name for name in pair if name in names] for pair in pairs]
        size = sum(archive.getinfo(f"{name}.npy").file_size for part in there for name in part)
        check_memory(path, size, max_bytes, MAP_INSTEAD)
        members = {
            name: member(archive, path, name, max_bytes, _fill(part, number))
            for number, part in enumerate(there)
            for name in part
        }
    shapes = [image_shape(path, members[images][1]) for images, _ in pairs]
    types = [members[images][1].dtype for images, _ in pairs]
    size = sum(math.prod(shape) * result_type(dtype).itemsize for shape, dtype in zip(shapes, types, strict=True))
    check_memory(path, size, max_bytes, MAP_INSTEAD)
    parts = []
    for (name, label_name), shape, dtype in zip(pairs, shapes, types, strict=True):
        images = convert(path, members.pop(name)[0], shape, dtype)
        if label_name not in members:
            parts.append(Labelled(images))
            continue
        labels = members[label_name][0]
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.shape != shape[:1]:
            raise UserError(
                f"{path}: `{label_name}` has shape {labels.shape}, expected ({shape[0]},): one label an image"
            )
        parts.append(Labelled(images, *encode(path, labels)))
    told = [(f"{path}, `{images}`", f"{path}, `{labels}`") for images, labels in pairs]
    train, *others = parts
    fitted = [official_part(train, part, told[0], names) for part, names in zip(others, told[1:], strict=True)]
    return Parts(train, *fitted)


def npz_has_test_part(path: Path) -> bool:
    """Tell whether a .npz has an official test part, by the names of its arrays; False where it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return False
    return any(images in names for part in NPZ_PARTS[1:] for images, _ in part)


def official_part(
    train: Labelled, test: Labelled, train_names: tuple[object, object], test_names: tuple[object, object]
) -> Labelled:
    """Bring an official test or validation part to the classes of its training part.

    Parameters
    ----------
    train, test : Labelled
        As they were read.
    train_names, test_names : (images, labels)
        What to call them in errors.

    Raises
    ------
    UserError
        Images of another size, labels for one part only, or a label that the training part lacks.
    """
    if train.images.shape[1:] != test.images.shape[1:]:
        raise UserError(
            f"{test_names[0]}: has images of {_size(test)}, those of {train_names[0]} are of {_size(train)}: "
            "take both parts from the same set"
        )
    if (train.classes is None) != (test.classes is None):
        lacking, labels = train_names if train.classes is None else test_names
        raise UserError(f"{lacking}: its labels ({labels}) are missing, the other part has them: add them")
    if test.labels is None or test.classes is None or train.classes is None:
        return test
    if foreign := [name for name in test.classes if name not in train.classes]:
        raise UserError(
            f"{test_names[1]}: has the label {foreign[0]}, which {train_names[1]} lacks: "
            "omit its images, or add some to the training part"
        )
    numbers = np.array([train.classes.index(name) for name in test.classes], np.int64)
    return Labelled(test.images, numbers[test.labels], train.classes)


def _size(part: Labelled) -> str:
    return " x ".join(map(str, part.images.shape[1:]))


def _fill(part: Sequence[str], number: int) -> str:
    """Say what to do about an empty array of the first part, which has to be there, or of another."""
    hint = "save it again with a row for each image"
    return f"{hint}, or omit {' and '.join(f'`{name}`' for name in part)}" if number else hint


def _npz_pairs(path: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Find the names of images and labels of the parts that are there: all images, or training and other parts."""
    pairs = []
    for part in NPZ_PARTS:
        known = next((pair for pair in part if pair[0] in names), None)
        stray = next((labels for _, labels in part if labels in names), None)
        if known is None and stray is not None:
            images = next(images for images, labels in part if labels == stray)
            raise UserError(f"{path}: has `{stray}` without its images: add the array `{images}`")
        if known is None and part is NPZ_PARTS[0]:
            found = ", ".join(names[:10]) or "nothing"
            raise UserError(
                f"{path}: has no array `images` (found: {found}): save it by "
                "np.savez_compressed(path, images=..., labels=...)"
            )
        if known is not None and stray is not None and known[1] not in names:
            owners = " or ".join(f"`{images}`" for images, labels in part if labels == stray)
            raise UserError(
                f"{path}: the labels `{stray}` go with {owners}, and the images are `{known[0]}`, which go with "
                f"`{known[1]}`: rename one of the two, or omit one"
            )
        pairs += [] if known is None else [known]
    return pairs
