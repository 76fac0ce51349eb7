"""Sets that are cut into plain .tar files (webdataset's layout), for images that do not fit into memory.

``train-000000.tar``, ``train-000001.tar``, … hold files that belong together by the part of their name before the first
dot: ``0001.jpg`` with its class in ``0001.cls`` (a whole number) or ``0001.json`` (the field "label" or "cls"). Where
each image lies is found out once and kept on disk, so that any of them can be read in any order: the order of a run is
a pure function of seed and step, as for images in memory.
"""

import hashlib
import io
import json
import posixpath
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError
from r2mae.files import write_arrays
from r2mae.images.archives import members, read_at, stamp
from r2mae.images.decode import SUFFIXES, BrokenFiles, Files, Reading, header, strict_decoding
from r2mae.images.folder import tell_others
from r2mae.images.formats import Labelled, Parts, encode, reading
from r2mae.images.parts import HELD_OUT, TRAIN, divided, tell_parts
from r2mae.images.store import gather

_SHARD = re.compile(r"(?P<set>.*?)[-_]?\d{3,}\.tar", re.IGNORECASE)
_LABELS = (".cls", ".json")
_FORMAT = 3  # of what is kept on disk
_INDEX = "index.npz"


def is_shard(path: Path) -> bool:
    """Tell whether a file on its own is a shard: numbered, with .cls, or with .json next to images of a single folder.

    A number alone tells nothing: photos-2019.tar may be the archive of a folder with a folder for each class.
    """
    if not _numbered(path):
        return False
    told, folders = False, set()
    for info, read in members(path):
        folder, name = posixpath.split(info.name)
        suffix = posixpath.splitext(name)[1].lower()
        if read is None or name.startswith("."):
            continue
        if suffix == ".cls":
            return True
        told |= suffix == ".json"
        if suffix in SUFFIXES:
            folders.add(folder)
    return told and len(folders) == 1


def shards_in(folder: Path) -> list[Path]:
    """Return the shards directly in a folder, sorted by name: two numbered .tar files or more, or a single shard."""
    found = sorted(entry for entry in folder.iterdir() if _numbered(entry) and entry.is_file() and entry.name[0] != ".")
    return found if len(found) > 1 or (found and is_shard(found[0])) else []


def _numbered(path: Path) -> bool:
    """Tell whether a file has the name of a shard: a number of three digits or more, and not packed."""
    return _SHARD.fullmatch(path.name) is not None


class ShardFiles:
    """The images of shards, each read from its place.

    Parameters
    ----------
    shards : list of Path
        The files.
    indices : list of Index
        What is in each of them.
    """

    def __init__(self, shards: Sequence[Path], indices: "Sequence[Index]") -> None:
        self.shards = list(shards)
        self.ends = np.cumsum([len(index.places) for index in indices])
        self.places = np.concatenate([index.places for index in indices])
        self._headers = np.concatenate([index.headers for index in indices])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.places)

    def open(self, row: int) -> BufferedIOBase:
        """Read one of them."""
        return io.BytesIO(read_at(self._shard(row), *map(int, self.places[row])))

    def name(self, row: int) -> str:
        """Return the shard and the name within it, which is read there."""
        block = read_at(self._shard(row), int(self.places[row, 0]) - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
        return f"{self._shard(row)}: {tarfile.TarInfo.frombuf(block, tarfile.ENCODING, 'surrogateescape').name}"

    def headers(self) -> Int64[np.ndarray, "n 3"]:
        """Return widths, heights and whether they are greyscale, as they were found when the index was made."""
        return self._headers

    def stamp(self) -> str:
        """Return a hash of places, sizes and times of change of the shards."""
        return "\0".join(map(stamp, self.shards))

    def _shard(self, row: int) -> Path:
        return self.shards[int(np.searchsorted(self.ends, row, side="right"))]


class Index(NamedTuple):
    """What is in a shard.

    Attributes
    ----------
    places : int64 ndarray of shape (n, 2)
        First byte and size of every image.
    headers : int64 ndarray of shape (n, 3)
        Width, height and whether it is greyscale; zeros where the image is broken.
    labels : ndarray of shape (n,), or of shape (0,) where there are none
        Whole numbers or words.
    others : ndarray of str
        Endings of the files that are neither images nor labels.
    """

    places: np.ndarray
    headers: np.ndarray
    labels: np.ndarray
    others: np.ndarray


def read_shards(shards: Sequence[Path], how: Reading) -> Parts:
    """Read the images of shards.

    The part of a shard is the last word of its name before the number (:func:`r2mae.images.parts.divided`). Without
    such words all are images of one set.

    Raises
    ------
    UserError
        A broken shard, one without images, images without a label next to others with one, shards of a part next to
        others of none, a class that is not trained on, or what :func:`r2mae.images.store.gather` refuses.
    """
    by_part = _by_part(shards)
    ordered = [shard for part in by_part.values() for shard in part]
    indices = {shard: shard_index(shard) for shard in ordered}
    counts = {name: sum(len(indices[shard].places) for shard in part) for name, part in by_part.items()}
    labels = _labels(indices)
    tell_others(shards[0].parent, Counter(suffix for index in indices.values() for suffix in index.others.tolist()))
    images, rows = gather(ordered[0].parent, ShardFiles(ordered, list(indices.values())), how)
    found, first = {}, 0
    for name, count in counts.items():
        low, high = map(int, np.searchsorted(rows, [first, first + count]))
        if low == high:
            raise UserError(f"{by_part[name][0]}: none of the images of {name or 'the set'} can be decoded")
        found[name] = Labelled(images).rows(low, high)
        if labels is not None:
            here = labels[0][rows[low:high]]
            found[name] = found[name]._replace(labels=here, classes=labels[1])
        first += count
    train, *others = found.values()
    for (part, files), other in zip(list(by_part.items())[1:], others, strict=True):
        if train.labels is None or other.labels is None or labels is None:
            continue
        if len(foreign := np.setdiff1d(other.labels, train.labels)):
            name = labels[1][int(foreign[0])]
            raise UserError(f"{files[0]}: its part, {part}, has the class {name}, which train lacks: add it there")
    test, validation = (*others, None, None)[:2]
    return Parts(train, test, validation)


def shard_index(shard: Path) -> Index:
    """Return what is in a shard; it is read through the first time, and again if its size or time changes."""
    name = hashlib.blake2b(f"{_FORMAT}\0{stamp(shard)}".encode(), digest_size=16).hexdigest()
    folder = cache_folder() / "shards" / name
    with create_once(folder) as unfinished:
        if unfinished is not None:
            index = _read_index(shard)
            write_arrays(unfinished / _INDEX, index._asdict())
            return index
    with reading(folder, "index of a shard", "remove it"), np.load(folder / _INDEX, allow_pickle=False) as kept:
        return Index(**kept)


class _Here(NamedTuple):
    """A member while the shard is read: a file like others to the decoder."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name

    def open(self, mode: str) -> BufferedIOBase:
        return io.BytesIO(self.content)


def _read_index(shard: Path) -> Index:
    places: dict[str, tuple[int, int]] = {}
    headers: list[tuple[int, int, int]] = []
    labels: dict[str, int | str] = {}
    others: list[str] = []
    for info, read in members(shard):
        folder, _, name = info.name.rpartition("/")
        key, _, kind = name.partition(".")
        if read is None or not key or not kind:
            continue
        key, suffix = f"{folder}/{key}", f".{kind.rpartition('.')[2].lower()}"
        if suffix in SUFFIXES:
            if key in places:
                raise UserError(f"{shard}: two images are called {name.partition('.')[0]}: give each a name of its own")
            places[key] = (info.offset_data, info.size)
            file = Files([_Here(f"{shard}: {info.name}", read())])
            with strict_decoding():
                headers.append(BrokenFiles(1).attempt(0, partial(header, file, 0)) or (0, 0, 0))
        elif suffix in _LABELS:
            label = _label(f"{shard}: {info.name}", suffix, read())
            if label is not None:
                labels[key] = label
        else:
            others.append(suffix)
    if not places:
        raise UserError(f"{shard}: holds no images ({', '.join(SUFFIXES)}): remove it, or pack it again")
    if labels and (bare := [key for key in places if key not in labels]):
        raise UserError(f"{shard}: the image {bare[0].lstrip('/')} has no .cls and no .json with a label: add it")
    found = np.array([labels[key] for key in places] if labels else [])
    return Index(np.array([*places.values()], np.int64), np.array(headers, np.int64), found, np.array(others, np.str_))


def _label(name: str, suffix: str, content: bytes) -> int | str | None:
    """Read the class of an image; None where a .json says nothing of it."""
    with reading(name, "label", "expected a whole number in a .cls, and a JSON object in a .json"):
        if suffix == ".cls":
            return int(np.int64(int(content)))
        told = json.loads(content)
        label = told.get("label", told.get("cls"))
        if label is not None and (isinstance(label, bool) or not isinstance(label, int | str)):
            raise TypeError("the label is no whole number and no word")
        return int(np.int64(label)) if isinstance(label, int) else label


def _labels(indices: dict[Path, Index]) -> tuple[Int64[np.ndarray, " n"], tuple[str, ...]] | None:
    """Number the classes of all shards."""
    bare = [shard for shard, index in indices.items() if not len(index.labels)]
    if len(bare) == len(indices):
        return None
    if bare:
        raise UserError(f"{bare[0]}: has no labels (.cls or .json), other shards have: add them")
    kinds = {index.labels.dtype.kind for index in indices.values()}
    if len(kinds) > 1:
        raise UserError(
            f"{next(iter(indices)).parent}: some shards have numbers as labels, others words: take one kind"
        )
    return encode(next(iter(indices)).parent, np.concatenate([index.labels for index in indices.values()]))


def _by_part(shards: Sequence[Path]) -> dict[str, list[Path]]:
    """Order shards by part: train, test, validation; or all under an empty name."""
    told: dict[str, list[Path]] = {}
    for shard in shards:
        match = _SHARD.fullmatch(shard.name)
        word = re.split(r"[-_.]", match["set"] if match else "")[-1].lower()
        told.setdefault(word if word in (*TRAIN, *HELD_OUT) else "", []).append(shard)
    parts = divided(told, shards[0].parent)
    if not parts:
        return {"": list(shards)}
    if "" in told:
        others = " and ".join(parts)
        raise UserError(f"{told[''][0]}: is of no part, and others are of {others}: name its part before the number")
    tell_parts(shards[0].parent, *parts)
    return {name: told[name] for name in parts}
