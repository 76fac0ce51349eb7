"""Images with a table of attributes: the layout of CelebA.

A folder that contains ``list_attr_celeba.txt`` or ``.csv`` (any name that begins with ``list_attr``) next to its
images, which may be in a folder of any name or in a .tar; and, for official parts, ``list_eval_partition.txt`` or
``.csv``. Tables may be compressed (.gz, .xz).
"""

import gzip
import itertools
import lzma
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError
from r2mae.images.decode import Reading, read_files
from r2mae.images.formats import reading
from r2mae.images.image_set import Part, Parts
from r2mae.images.listing import TABLES, File, Folder

ATTRIBUTES, PARTITION = "list_attr", "list_eval_partition"
_PARTS = ("training", "test", "validation")
_PARTITION_VALUES = {"0": 0, "1": 2, "2": 1}  # CelebA's numbers of training, validation and test
_SIGNS = {"-1": 0, "0": 0, "1": 1, "+1": 1}
_MAX_TABLE = 1 << 28  # bytes of a table, ten times CelebA's


def find_tables(folder: Folder) -> tuple[Folder, File, File | None] | None:
    """Return the folder with the tables, that of attributes and that of parts; None without attributes."""
    while (attributes := _single_table(folder, ATTRIBUTES)) is None:
        inside = folder.folders()
        if len(inside) != 1:
            return None
        (folder,) = inside.values()
    return folder, attributes, _single_table(folder, PARTITION)


def read_tables(name: str, folder: Folder, attributes: File, partition: File | None, how: Reading) -> Parts:
    """Read the images of a folder, at any depth, in the order of their names, with attributes and official parts.

    Without `partition`, or if it names no test image, all are training images.
    """
    images = sorted(folder.images(), key=lambda path: path.rpartition("/")[2])
    if not images:
        raise UserError(
            f"{folder.place}: has {attributes} and no images: put them there, in a folder of any name, or as one .tar"
        )
    names = [path.rpartition("/")[2] for path in images]
    twice = [one for one, count in Counter(names).items() if count > 1]
    if twice:
        both = " and ".join(path for path in images if path.rpartition("/")[2] == twice[0])
        raise UserError(f"{folder.place}: two images are called {twice[0]} ({both}): leave one of each")
    kinds, values = _read_table(attributes, names, _SIGNS, "1, 0 or -1")
    which = np.zeros(len(names), np.uint8)
    if partition is not None:
        columns, numbers = _read_table(partition, names, _PARTITION_VALUES, "0 (training), 1 (validation) or 2 (test)")
        if len(columns) != 1:
            raise UserError(f"{partition}: has {len(columns)} columns of numbers, expected one")
        which = numbers[:, 0]
    rows = [np.flatnonzero(which == number) for number in range(len(_PARTS))]
    if not len(rows[0]):
        raise UserError(f"{partition}: none of the images of {folder.place} is a training image (0)")
    files = [folder.files[images[row]] for row in np.concatenate(rows)]
    parts = [
        (Part(f"{folder.place} ({part})", None, values[chosen]), len(chosen))
        for part, chosen in zip(_PARTS, rows, strict=True)
        if len(chosen)
    ]
    made = read_files(name, files, parts, how, attribute_names=kinds)
    if not len(rows[1]):  # the second of two parts is then the validation part
        return Parts(made.train, None, made.test)
    return made


def _read_table(
    table: File, images: Sequence[str], meaning: dict[str, int], expected: str
) -> tuple[tuple[str, ...], UInt8[np.ndarray, "images columns"]]:
    """Return the columns of a table, by default numbers, and the values of each image, which `meaning` has as numbers.

    A first line may have the count of images, as CelebA's; the next may have the names of the columns, with or without
    one for that of the images.
    """
    cells = filter(None, (line.replace(",", " ").split() for line in _text(table).splitlines()))
    first = next(cells, [])
    if len(first) == 1 and first[0].isdigit():
        first = next(cells, [])
    names = [] if not first or first[-1].lstrip("+-").isdigit() else first
    if names:
        first = next(cells, [])
    width = len(first) - 1
    if width < 1 or (names and len(names) - width not in (0, 1)):
        raise UserError(f"{table}: has {len(names)} names of columns, and {max(width, 0)} values of the first image")
    rows: dict[str, bytes] = {}
    for image, *values in itertools.chain([first], cells):
        if len(values) != width or not meaning.keys() >= set(values):
            raise UserError(f"{table}: has {' '.join(values)!r} for {image}: expected {width} of {expected}")
        rows[image] = bytes(meaning[value] for value in values)
    if missing := [name for name in images if name not in rows]:
        more = f", nor for {len(missing) - 1:,} others" if len(missing) > 1 else ""
        raise UserError(f"{table}: has no row for the image {missing[0]}{more}: add it, or remove the image")
    columns = tuple(names[len(names) - width :]) or tuple(map(str, range(width)))
    return columns, np.frombuffer(b"".join(rows[name] for name in images), np.uint8).reshape(len(images), width)


def _text(table: File) -> str:
    with reading(table, "table"), table.open() as file:
        name = str(table).lower()
        unpack: Any = gzip.open if name.endswith(".gz") else lzma.open if name.endswith(".xz") else nullcontext
        with unpack(file) as stream:
            content = stream.read(_MAX_TABLE + 1)
        if len(content) > _MAX_TABLE:
            raise UserError(f"{table}: unpacks to more than {_MAX_TABLE >> 20} MiB: check that it is the right file")
        return str(content, "utf-8-sig")


def _single_table(folder: Folder, beginning: str) -> File | None:
    names = [name for name in folder.direct() if name.lower().startswith(beginning) and name.lower().endswith(TABLES)]
    if len(names) > 1:
        raise UserError(f"{folder.place}: has {names[0]} and {names[1]}: keep only one of them")
    return folder.files[names[0]] if names else None
