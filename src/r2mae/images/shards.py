"""Sets in several plain .tar files (webdataset's layout), for images that do not fit into memory.

``train-000000.tar``, ``train-000001.tar``, … contain files that belong together by the part of their name before the
first dot: ``0001.jpg`` with its class in ``0001.cls`` (a whole number) or ``0001.json`` (the field "label" or "cls").
The position of each image is kept on disk, so that images can be read in any order: the order of a run is a pure
function of seed and step, as for images in memory.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError
from r2mae.files import write_arrays
from r2mae.images.decode import Reading, headers_of, read_files
from r2mae.images.folder import HELD_OUT, TRAIN, log_others, log_parts, official_parts
from r2mae.images.formats import reading
from r2mae.images.image_set import Part, Parts
from r2mae.images.listing import SUFFIXES, File, Folder, read_tar, stamp

_SHARD = re.compile(r"(?P<set>.*?)[-_]?\d{3,}\.tar", re.IGNORECASE)
_FORMAT = 4  # of the index
_INDEX = "index.npz"


def is_numbered(name: str) -> bool:
    """Return whether a file has the name of a shard: a number of three digits or more, and not compressed."""
    return _SHARD.fullmatch(name) is not None


def is_shard(archive: Folder) -> bool:
    """Return whether an archive is a shard: it has .cls files, or .json files and images in a single folder.

    A number in its name alone is no sign: photos-2019.tar may be the archive of a folder with a folder for each class.
    """
    names = [path.lower() for path in archive.files]
    folders = {path.rpartition("/")[0] for path in archive.images()}
    return any(name.endswith(".cls") for name in names) or (
        len(folders) == 1 and any(name.endswith(".json") for name in names)
    )


class ShardFiles(Sequence[File]):
    """The images of shards, by their positions."""

    def __init__(self, indices: "dict[Path, Index]") -> None:
        self.shards = list(map(str, indices))
        self.ends = np.cumsum([len(index.places) for index in indices.values()])
        self.places = np.concatenate([index.places for index in indices.values()])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.places)

    def __getitem__(self, row: Any) -> Any:
        """Return one of them."""
        start, size = map(int, self.places[row])
        return File(self.shards[int(np.searchsorted(self.ends, row, side="right"))], "", (start, size))


class Index(NamedTuple):
    """What is in a shard.

    Of every image its first byte and size, its header (zeros for a broken one) and its label (of none if there are
    none); and the endings of the files that are neither images nor labels.
    """

    places: np.ndarray
    headers: np.ndarray
    labels: np.ndarray
    others: np.ndarray


def read_shards(name: str, shards: Sequence[Path], how: Reading) -> Parts:
    """Read the images of shards.

    The part of a shard is the last word of its name before the number (:func:`r2mae.images.folder.official_parts`).
    Without such words all are images of one set.
    """
    by_part = _by_part(shards)
    indices = {shard: shard_index(shard) for part in by_part for shard in part}
    log_others(shards[0].parent, [other for index in indices.values() for other in index.others.tolist()])
    labelled = [len(index.labels) > 0 for index in indices.values()]
    if any(labelled) and not all(labelled):
        bare = list(indices)[labelled.index(False)]
        raise UserError(f"{bare}: has no labels (.cls or .json), other shards have: add them")
    if len({index.labels.dtype.kind for index in indices.values()}) > 1:
        raise UserError(f"{shards[0].parent}: some shards have numbers as labels, others words: use one kind")
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
    labels: dict[str, int | str] = {}
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
        elif suffix in (".cls", ".json"):
            label = _label(file, suffix)
            if label is not None:
                labels[key] = label
        else:
            others.append(suffix)
    if not files:
        raise UserError(f"{shard}: holds no images ({', '.join(SUFFIXES)}): remove it, or pack it again")
    if labels and (bare := [key for key in files if key not in labels]):
        raise UserError(f"{shard}: the image {bare[0].lstrip('/')} has no .cls and no .json with a label: add it")
    headers, _ = headers_of(list(files.values()))
    places = np.array([file.content for file in files.values()], np.int64)
    found = np.array([labels[key] for key in files] if labels else [])
    return Index(places, headers, found, np.array(others, np.str_))


def _label(file: File, suffix: str) -> int | str | None:
    """Read the class of an image; None if a .json has none."""
    with (
        reading(file, "label", "expected a whole number in a .cls, and a JSON object in a .json"),
        file.open() as opened,
    ):
        content = opened.read()
        if suffix == ".cls":
            return int(np.int64(int(content)))
        fields = json.loads(content)
        label = fields.get("label", fields.get("cls"))
        if label is not None and (isinstance(label, bool) or not isinstance(label, int | str)):
            raise TypeError("the label is no whole number and no word")
        return int(np.int64(label)) if isinstance(label, int) else label


def _by_part(shards: Sequence[Path]) -> list[list[Path]]:
    """Order shards by part: train, test, validation; or all together."""
    words: dict[str, list[Path]] = {}
    for shard in shards:
        match = _SHARD.fullmatch(shard.name)
        word = re.split(r"[-_.]", match["set"] if match else "")[-1].lower()
        words.setdefault(word if word in (*TRAIN, *HELD_OUT) else "", []).append(shard)
    parts = official_parts(words, shards[0].parent)
    if not parts:
        return [list(shards)]
    if "" in words:
        others = " and ".join(parts)
        raise UserError(f"{words[''][0]}: is of no part, and others are of {others}: name its part before the number")
    log_parts(shards[0].parent, *parts)
    return [words[name] for name in parts]
