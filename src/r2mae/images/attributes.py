"""Images with a table of attributes: the layout of CelebA.

A folder that holds ``list_attr_celeba.txt`` or ``.csv`` (any name that begins with ``list_attr``) next to its images,
which may lie in a folder of any name or in a .tar; and, where the official parts are wanted,
``list_eval_partition.txt`` or ``.csv``. Tables may be packed (.gz, .xz).
"""

import gzip
import itertools
import lzma
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import UInt8

from r2mae.errors import UserError
from r2mae.images.archives import TABLES, archives_in, open_archive
from r2mae.images.arrays import pick
from r2mae.images.decode import Reading
from r2mae.images.folder import Place, below, files_of
from r2mae.images.formats import Labelled, Parts, Stream, reading, take
from r2mae.images.store import gather

ATTRIBUTES, PARTITION = "list_attr", "list_eval_partition"
_PARTS = ("training", "validation", "test")
_OPENERS: Mapping[str, Callable[[Any], Stream]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".xz": lzma.LZMAFile,
}
_MAX_TABLE = 1 << 28  # bytes of a table, ten times CelebA's: what a packed one declares is not to be trusted

_Value = TypeVar("_Value")


class Tables(NamedTuple):
    """The files that say what is in the images.

    Attributes
    ----------
    images : Path or Member
        The folder with the images, at any depth.
    attributes : Path or Member
        The table of attributes.
    partition : Path, Member or None
        The table of official parts.
    """

    images: Place
    attributes: Place
    partition: Place | None


def find_tables(folder: Place, how: Reading) -> Tables | None:
    """Find the tables of a folder, or of the single folder within it; None where it has no attributes.

    Raises
    ------
    UserError
        Two tables of one kind, or a table without images.
    """
    while True:
        entries = sorted((entry for entry in folder.iterdir() if entry.name[0] != "."), key=lambda entry: entry.name)
        files = [entry for entry in entries if entry.is_file()]
        attributes = _single_table(folder, files, ATTRIBUTES)
        if attributes is not None:
            break
        folders = [entry for entry in entries if entry.is_dir()]
        if len(folders) != 1:
            return None
        folder = folders[0]
    images: Place = folder
    if not any(below(folder)):
        archives = archives_in(folder) if isinstance(folder, Path) else []
        if len(archives) != 1:
            raise UserError(
                f"{folder}: has {attributes.name} and no images: unpack them there, into a folder of any name, or put "
                "them there as one .tar"
            )
        images = open_archive(archives[0], max_bytes=how.max_bytes)
    return Tables(images, attributes, _single_table(folder, files, PARTITION))


def read_tables(tables: Tables, how: Reading) -> Parts:
    """Read images with their attributes, and their official parts where those are told.

    Parameters
    ----------
    tables : Tables
        Where everything is.
    how : Reading
        Size, and where decoded images are kept.

    Returns
    -------
    Parts
        In the order of the images' names. All are training images where no partition is told, or where it names no
        test image among them.

    Raises
    ------
    UserError
        A broken table, an image without a row in one, two images of one name, or no training images.
    """
    files = sorted(below(tables.images), key=lambda file: file.name)
    if not files:
        raise UserError(f"{tables.images}: holds no images for {tables.attributes.name}")
    names = [file.name for file in files]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        both = " and ".join(str(file) for file in files if file.name == twice[0])
        raise UserError(f"{tables.images}: two images are called {twice[0]} ({both}): leave one of each")
    kinds, known = read_attributes(tables.attributes)
    values = np.stack(_find_rows(tables.attributes, known, names))
    part = np.zeros(len(names), np.int64)
    if tables.partition is not None:
        part = np.array(_find_rows(tables.partition, read_partition(tables.partition), names))
    images, rows = gather(str(tables.images), files_of(files), how)
    # Parts are stretches, so that cutting copies nothing: in CelebA they are anyway.
    order = np.argsort(part[rows], kind="stable")
    if (np.diff(order) != 1).any():
        images, rows = pick(images, order), rows[order]
    whole = Labelled(images, None, None, values[rows], kinds)
    ends = [0, *np.cumsum(np.bincount(part[rows], minlength=3)).tolist()]
    train, validation, test = (
        whole.rows(first, last) if last > first else None for first, last in itertools.pairwise(ends)
    )
    if train is None:
        raise UserError(f"{tables.partition}: none of the images of {tables.images} is a training image (0)")
    return Parts(train, test, validation)


def read_attributes(table: Place) -> tuple[tuple[str, ...], dict[str, UInt8[np.ndarray, " k"]]]:
    """Read a table of attributes: a line of their names, and one for each image, with 1 or 0 (or -1) for each.

    Returns
    -------
    names : tuple of str
        Of the attributes.
    rows : dict
        By the name of an image: 0 or 1 for each attribute.

    Raises
    ------
    UserError
        A line of another length, or anything else than -1, 0 and 1.
    """
    lines = _table_lines(table)
    if len(lines) < 2:
        raise UserError(f"{table}: has no attributes: expected a line of names, and one for each image")
    (number, names), *rest = lines
    width = len(rest[0][1]) - 1
    if len(names) == width + 1:  # with a name for the column of images
        names = names[1:]
    if len(names) != width or not width:
        raise UserError(f"{table}, line {number}: has {len(names)} names, and line {rest[0][0]} has {width} attributes")
    signs = {"-1": 0, "0": 0, "1": 1, "+1": 1}
    rows: dict[str, np.ndarray] = {}
    for number, (image, *values) in rest:
        if len(values) != width:
            raise UserError(f"{table}, line {number}: has {len(values)} attributes, expected {width}")
        try:
            rows[image] = np.array([signs[value] for value in values], np.uint8)
        except KeyError as error:
            raise UserError(f"{table}, line {number}: has {error.args[0]!r}, expected 1, 0 or -1") from None
    return tuple(names), rows


def read_partition(table: Place) -> dict[str, int]:
    """Read a table of official parts: 0 (training), 1 (validation) or 2 (test) by the name of an image.

    Raises
    ------
    UserError
        Another number.
    """
    parts: dict[str, int] = {}
    for number, row in _table_lines(table):
        if number == 1 and not row[-1].isdigit():
            continue  # names of columns
        if len(row) != 2 or row[1] not in ("0", "1", "2"):
            meaning = ", ".join(f"{value} ({name})" for value, name in enumerate(_PARTS))
            raise UserError(f"{table}, line {number}: expected the name of an image and {meaning}")
        parts[row[0]] = int(row[1])
    return parts


def _table_lines(table: Place) -> list[tuple[int, list[str]]]:
    """Give the cells of every line that has some, with its number; without the count that CelebA begins with."""
    with reading(str(table), "table", "fetch or export it again"):
        with table.open("rb") as file:
            opener = _OPENERS.get(table.suffix.lower())
            content = take(file if opener is None else opener(file), _MAX_TABLE + 1)
        if len(content) > _MAX_TABLE:
            raise UserError(f"{table}: unpacks to more than {_MAX_TABLE >> 20} MiB: check that it is the right file")
        text = content.decode("utf-8-sig")
        lines = [(number, line.replace(",", " ").split()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, cells) for number, cells in lines if cells]
    return lines[1:] if lines and len(lines[0][1]) == 1 and lines[0][1][0].isdigit() else lines


def _find_rows(table: Place, rows: Mapping[str, _Value], names: Sequence[str]) -> list[_Value]:
    missing = [name for name in names if name not in rows]
    if missing:
        more = f", nor for {len(missing) - 1:,} others" if len(missing) > 1 else ""
        raise UserError(f"{table}: has no row for the image {missing[0]}{more}: add it, or remove the image")
    return [rows[name] for name in names]


def _single_table(folder: Place, files: Sequence[Place], beginning: str) -> Place | None:
    found = [file for file in files if file.name.lower().startswith(beginning) and file.name.lower().endswith(TABLES)]
    if len(found) > 1:
        raise UserError(f"{folder}: has {found[0].name} and {found[1].name}: keep only one of them")
    return found[0] if found else None
