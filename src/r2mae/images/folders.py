"""Layouts of sets of image files: folders of classes, shards of webdataset, and CelebA's table of attributes. No torch.

Folders are ``folder/<class>/*.png``, with or without ``train/`` and ``val/``, or images without classes. Official parts
of a set are known by the names of their folders, or of their shards (:func:`official_parts`).

Shards are plain .tar files, ``train-000000.tar``, ``train-000001.tar``, …, for images that do not fit into memory. The
class of ``0001.jpg`` is in ``0001.cls``, a whole number. The position of each image is kept on disk, so that images can
be read in any order, as those in memory.

Attributes are in ``list_attr_celeba.txt`` or ``.csv`` (any name that begins with ``list_attr``) next to the images,
which may be in a folder of any name or in an archive; and official parts in ``list_eval_partition.txt`` or ``.csv``.
Tables may be compressed (.gz, .xz).
"""

import gzip
import itertools
import lzma
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError, listed
from r2mae.files import write_arrays
from r2mae.images.arrays import Part, Parts, reading
from r2mae.images.files import (
    SUFFIXES,
    TABLES,
    File,
    Folder,
    Reading,
    headers_of,
    read_files,
    read_tar,
    stamp,
    warn,
)

TRAIN = ("train", "training")
HELD_OUT = ("test", "testing", "val", "valid", "validation", "dev", "development", "eval", "evaluation")
"""Words for parts next to the training part: the first that is there is the test part, a second the validation part."""

_WORD = re.compile(rf"(?<![a-z])({'|'.join((*TRAIN, *HELD_OUT))})(set|data)?(?![a-z])")


def read_folder(name: str, folder: Folder, how: Reading) -> Parts:
    """Read a folder of image files, or an archive of them.

    Three layouts, apart from :func:`read_tables`: ``<class>/**/*.png``; the same below ``train/`` and one or two of
    ``test/``, ``val/`` and the like, which are official parts; files without classes. A test part without known labels
    next to a validation part, as ImageNet's, is omitted. A single folder (as archives unpack to) is read as its
    content, and a single class is no label. Files and classes are sorted by name. What may be classes or parts, or has
    two of these layouts, is refused.
    """
    if (tables := find_tables(folder)) is not None:
        return read_tables(name, *tables, how)
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

    Folders that all hold folders of images of the same two or more names are hardly classes, and are refused.
    """
    while True:
        inside = folder.folders()
        if parts := official_parts(inside, folder.place):
            return folder, [_unwrapped(inside[name]) for name in parts]
        full = {name: one for name, one in inside.items() if one.images()}
        if not full or any("/" not in path for path in folder.images()):
            return folder, [folder]
        if len(full) == 1:
            (folder,) = full.values()
            continue
        below = ({name for name, one in part.folders().items() if one.images()} for part in full.values())
        if len(common := set.intersection(*below)) > 1:
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
        labels = "; labels are read from the .cls files of numbered shards, such as 000.tar"
        labels = labels if {".json", ".cls"} & set(others) else ""
        warn(f"{place}: files that are not read as images: {kinds}{more}{labels}")


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
    rest = [path for path in around.images() if path.partition("/")[0] not in names]
    if others := list(dict.fromkeys(path.partition("/")[0] for path in rest)):
        if not any(labels.values()) and any("/" in path for path in rest):
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
    validation part; more are refused. The letters next to the word have to be the same in all.
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


_SHARD = re.compile(r"(?P<set>.*?)[-_]?\d{3,}\.tar", re.IGNORECASE)
_FORMAT = 6  # of the index
_INDEX = "index.npz"


def is_numbered(name: str) -> bool:
    """Return whether a file has the name of a shard: a number of three digits or more, and not compressed."""
    return _SHARD.fullmatch(name) is not None


def is_shard(archive: Folder) -> bool:
    """Return whether an archive is a shard: it has .cls files.

    A number in its name alone is no sign: photos-2019.tar may be the archive of a folder with a folder for each class.
    """
    return any(path.lower().endswith(".cls") for path in archive.files)


class ShardFiles(Sequence[File]):
    """The images of shards, by their positions and names."""

    def __init__(self, indices: "dict[Path, Index]") -> None:
        self.shards = list(map(str, indices))
        self.ends = np.cumsum([len(index.places) for index in indices.values()])
        self.places = np.concatenate([index.places for index in indices.values()])
        self.names = np.concatenate([index.names for index in indices.values()])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, row: Any) -> Any:
        """Return one of them."""
        start, size = map(int, self.places[row])
        name = self.names[row].decode("utf-8", "surrogateescape")
        return File(self.shards[int(np.searchsorted(self.ends, row, side="right"))], name, (start, size))


class Index(NamedTuple):
    """Of each image in a shard its first byte and size, its name in bytes, its header and its label, if any.

    `others` are the endings of other files.
    """

    places: np.ndarray
    names: np.ndarray
    headers: np.ndarray
    labels: np.ndarray
    others: np.ndarray


def read_shards(name: str, shards: Sequence[Path], how: Reading) -> Parts:
    """Read the images of shards; the part of each is the last word of its name before the number, if there is one."""
    by_part = _by_part(shards)
    indices = {shard: shard_index(shard) for part in by_part for shard in part}
    log_others(shards[0].parent, [other for index in indices.values() for other in index.others.tolist()])
    labelled = [len(index.labels) > 0 for index in indices.values()]
    if any(labelled) and not all(labelled):
        bare = list(indices)[labelled.index(False)]
        raise UserError(f"{bare}: has no labels (.cls), other shards have: add them")
    parts = []
    for part in by_part:
        own = [indices[shard] for shard in part]
        labels = np.concatenate([index.labels for index in own]) if any(labelled) else None
        parts.append((Part(str(part[0]), labels), sum(len(index.places) for index in own)))
    headers = np.concatenate([index.headers for index in indices.values()])
    return read_files(name, ShardFiles(indices), parts, how, headers=headers)


def shard_index(shard: Path) -> Index:
    """Return what is in a shard; it is read through the first time, and again if its size or time changes."""
    folder = cache_folder() / "shards" / f"{_FORMAT}-{stamp([File(str(shard))])}"
    with create_once(folder) as unfinished:
        if unfinished is not None:
            index = _read_index(shard)
            write_arrays(unfinished / _INDEX, index._asdict())
            return index
    with reading(folder, "index of a shard", "remove it"), np.load(folder / _INDEX, allow_pickle=False) as kept:
        return Index(**kept)


def _read_index(shard: Path) -> Index:
    files: dict[str, File] = {}
    labels: dict[str, int] = {}
    others: list[str] = []

    for file in list(read_tar(shard)):  # an error of the archive comes before one of a label
        folder, _, name = file.member.rpartition("/")
        key, _, kind = name.partition(".")
        if not key:  # a folder, or hidden
            continue
        key, suffix = f"{folder}/{key}", f".{kind.rpartition('.')[2].lower()}" if kind else ""
        if suffix in SUFFIXES:
            if key in files:
                raise UserError(f"{shard}: two images are called {name.partition('.')[0]}: give each a name of its own")
            files[key] = file
        elif suffix == ".cls":
            with reading(file, "label", "expected a whole number"), file.open() as opened:
                text = opened.read().strip()
                if not re.fullmatch(rb"-?\d{1,18}", text):
                    raise ValueError(f"it holds {text[:20]!a}")
                labels[key] = int(text)
        else:
            others.append(suffix)
    if not files:
        raise UserError(f"{shard}: holds no images ({', '.join(SUFFIXES)}): remove it, or pack it again")
    if labels and (bare := [key for key in files if key not in labels]):
        raise UserError(f"{shard}: the image {bare[0].lstrip('/')} has no .cls: add it")
    headers, _ = headers_of(list(files.values()))
    places = np.array([file.content for file in files.values()], np.int64)
    found = np.array([labels[key] for key in files] if labels else [], np.int64)
    names = np.array([file.member.encode("utf-8", "surrogateescape") for file in files.values()])
    return Index(places, names, headers, found, np.array(others, np.str_))


def _by_part(shards: Sequence[Path]) -> list[list[Path]]:
    """Order shards by part: train, test, validation; or all together."""
    words: dict[str, list[Path]] = {}
    for shard in shards:
        word = re.split(r"[-_.]", _SHARD.sub(r"\g<set>", shard.name))[-1].lower()
        words.setdefault(word if word in (*TRAIN, *HELD_OUT) else "", []).append(shard)
    parts = official_parts(words, shards[0].parent)
    if not parts:
        return [list(shards)]
    if "" in words:
        others = " and ".join(parts)
        raise UserError(f"{words[''][0]}: is of no part, and others are of {others}: name its part before the number")
    log_parts(shards[0].parent, *parts)
    return [words[name] for name in parts]


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

    Without test images, the validation images are the test part.
    """
    images = sorted(folder.images(), key=lambda path: path.rpartition("/")[2])
    if not images:
        raise UserError(
            f"{folder.place}: has {attributes} and no images: put them there, in a folder of any name or as one .tar"
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
    places = np.concatenate(rows)
    files = [folder.files[images[row]] for row in places.tolist()]
    parts = [
        (Part(f"{folder.place} ({part})", None, values[chosen]), len(chosen))
        for part, chosen in zip(_PARTS, rows, strict=True)
        if len(chosen)
    ]
    return read_files(name, files, parts, how, attribute_names=kinds, places=places)


def _read_table(
    table: File, images: Sequence[str], meaning: dict[str, int], expected: str
) -> tuple[tuple[str, ...], UInt8[np.ndarray, "images columns"]]:
    """Return the columns of a table, by default numbers, and the values of each image, which `meaning` has as numbers.

    A first line may have the count of images, as CelebA's, and the next the names of the columns.
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
