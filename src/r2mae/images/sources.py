"""Where images come from: a named set, a folder, an archive, shards or a file of an array. No torch."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.catalogue import locate
from r2mae.errors import UserError, unknown
from r2mae.images.archives import ARCHIVES, Member, is_archive, open_archive
from r2mae.images.attributes import Tables, find_tables, read_tables
from r2mae.images.decode import SUFFIXES, Cache, Reading
from r2mae.images.folder import archive_instead, has_test_part, read_folder
from r2mae.images.formats import Labelled, Parts, check_memory, read_idx, read_npy, reading
from r2mae.images.parts import npz_has_test_part, official_part, read_npz
from r2mae.images.resize import planes_to_square
from r2mae.images.sets import SETS
from r2mae.images.shards import is_shard, read_shards, shards_in

_IDX = [(f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
_WITH_TEST_PART = ("mnist", "tiny-imagenet")
_FILES = (".npy", ".npz", "idx3-ubyte", "idx3-ubyte.gz", *ARCHIVES)
_PATHS = "the path of a folder of images, a .tar, a .npy, a .npz or an idx file"


def read_source(source: str | Path, how: Reading) -> tuple[str, Parts]:
    """Read a set of images; see :func:`r2mae.images.data.load_images`.

    Returns
    -------
    name : str
        Of the set, or of its file or folder.
    parts : Parts
        Its images.
    """
    name, path = str(source), Path(source).expanduser()
    _check_options(source, cache=how.cache, skip_broken=how.skip_broken, draft=how.draft)
    if name in SETS:
        found = _read_named(name, how)
    elif name and path.is_dir():  # Path("") would be the current folder
        name = path.resolve().name
        found = _read_folder(path, how)
    elif path.is_file():
        name = path.stem
        found = _read_file(path, how)
    else:
        raise _missing_source_error(name, path)
    if how.resize is None or not is_array(source):
        return name, found
    train, *others = found
    resized = [None if part is None else _resize_part(path, part, how.resize, how) for part in others]
    return name, Parts(_resize_part(path, train, how.resize, how), *resized)


def check_source(source: str | Path, *, cache: str = "auto", skip_broken: bool = False, draft: bool = False) -> None:
    """Refuse a source of images that is not there, or options that it has no use for; no image is read.

    Raises
    ------
    UserError
        An unknown name, no such path, a named set whose files are missing, or an option for files of images with a
        source that is an array.
    """
    name, path = str(source), Path(source).expanduser()
    if name in SETS:
        locate(SETS[name])
    elif not name or not path.exists():
        raise _missing_source_error(name, path)
    _check_options(source, cache=cache, skip_broken=skip_broken, draft=draft)


def check_test_fraction(source: str | Path) -> None:
    """Refuse a fraction of test images for a set that has an official test part, as far as names tell it.

    Archives, shards and folders with tables are not looked into: their images would have to be read.

    Raises
    ------
    UserError
        It has one.
    """
    name, path = str(source), Path(source).expanduser()
    if name in SETS:
        has_one = name in _WITH_TEST_PART
    elif path.is_dir():
        idx = _idx_files(path)
        unknown = not idx and (shards_in(path) or find_tables(path, Reading()))
        has_one = len(idx) > 1 if idx else not unknown and has_test_part(path)
    else:
        has_one = path.suffix.lower() == ".npz" and npz_has_test_part(path)
    if has_one:
        raise UserError(f"test_fraction is for sets without an official test part, and {source} has one: omit it")


def is_array(source: str | Path) -> bool:
    """Tell whether a source is an array, or becomes one, and not files of images."""
    name, path = str(source), Path(source).expanduser()
    if name in SETS:
        return name in ("digits", "mnist")
    if path.is_dir():
        return bool(_idx_files(path))
    return path.is_file() and path.suffix.lower() not in SUFFIXES and not is_archive(path)


def applicable_options(source: str | Path, cache: Cache, skip_broken: bool, draft: bool) -> dict[str, Any]:
    """Return what was asked for other images, as far as it has a use for these: arrays have none for any of it."""
    if is_array(source):
        return {"cache": "auto", "skip_broken": False, "draft": False}
    return {"cache": cache, "skip_broken": skip_broken, "draft": draft}


def _check_options(source: str | Path, *, cache: str, skip_broken: bool, draft: bool) -> None:
    for_files = {f"cache {cache}": cache in ("mmap", "none"), "skip_broken": skip_broken, "draft": draft}
    given = [option for option, wanted in for_files.items() if wanted]
    if given and is_array(source):
        raise UserError(f"{given[0]} is for files of images, and {source} is an array: omit it")


def _read_named(name: str, how: Reading) -> Parts:
    places = locate(SETS[name])
    if name == "digits":
        return Parts(_load_digits())
    if name == "mnist":
        pairs = [(places[f"{name}/{images}"], places[f"{name}/{labels}"]) for images, labels in _IDX]
        return _read_split(pairs, how.max_bytes)
    archive, *tables = places.values()
    root = open_archive(archive, max_bytes=how.max_bytes)
    if tables:
        return read_tables(Tables(root, tables[0], None), how)
    return _read_below(root, how)


def _read_folder(path: Path, how: Reading) -> Parts:
    if idx := _idx_files(path):
        return _read_split(idx, how.max_bytes)
    with reading(path, "folder of images"):
        tables = find_tables(path, how)
        if tables is not None:
            return read_tables(tables, how)
        if shards := shards_in(path):
            return read_shards(shards, how)
        inside = archive_instead(path, how)
    return _read_below(path if inside is None else inside, how)


def _read_below(place: Path | Member, how: Reading) -> Parts:
    """Read what lies in a folder, or in an archive as if it were one."""
    tables = find_tables(place, how) if isinstance(place, Member) else None
    return read_folder(place, how) if tables is None else read_tables(tables, how)


def _read_file(path: Path, how: Reading) -> Parts:
    suffix = path.suffix.lower()
    if is_archive(path):
        if is_shard(path):
            return read_shards([path], how)
        return _read_below(open_archive(path, max_bytes=how.max_bytes), how)
    if suffix == ".npy":
        return Parts(Labelled(read_npy(path, max_bytes=how.max_bytes)))
    if suffix == ".npz":
        return read_npz(path, max_bytes=how.max_bytes)
    if "idx3" in path.name:
        return Parts(read_idx(path, _idx_labels(path), max_bytes=how.max_bytes))
    if suffix in SUFFIXES:
        raise UserError(f"{path}: is a single image: give the folder that holds the images")
    raise UserError(f"{path}: {unknown('kind of image file', suffix or path.name, _FILES)}, or give a folder of images")


def _load_digits() -> Labelled:
    """Read the digits that scikit-learn brings from its file: importing the library takes a second."""
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images = np.rint(table[:, :-1].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)  # 0 to 16 in the original
    return Labelled(images, table[:, -1].astype(np.int64), tuple(map(str, range(10))))


def _idx_files(folder: Path) -> list[tuple[Path, Path | None]]:
    """Find the idx files of an MNIST-like folder: training images and, where they are there, test images."""
    found = []
    for images, _ in _IDX:
        for name in (images, images.removesuffix(".gz")):
            if (folder / name).is_file():
                found.append((folder / name, _idx_labels(folder / name)))
                break
    return found if found and found[0][0].name.startswith("train") else []


def _idx_labels(images: Path) -> Path | None:
    stem = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    places = [images.with_name(stem + suffix) for suffix in (".gz", "")]
    return next((place for place in places if place.is_file()), None)


def _read_split(pairs: Sequence[tuple[Path, Path | None]], max_bytes: int | None) -> Parts:
    parts = [read_idx(images, labels, max_bytes=max_bytes) for images, labels in pairs]
    if len(parts) == 1:
        return Parts(parts[0])
    return Parts(parts[0], official_part(parts[0], parts[1], pairs[0], pairs[1]))


def _missing_source_error(name: str, path: Path) -> UserError:
    if path.suffix or path.is_absolute() or os.sep in name or name.startswith(("~", ".")):
        return UserError(f"{path}: no such file or folder: give a name ({', '.join(SETS)}) or {_PATHS}")
    return UserError(f"{unknown('image set', name, SETS)}, or give {_PATHS}")


def _resize_part(path: Path, part: Labelled, side: int, how: Reading) -> Labelled:
    images = part.images
    assert isinstance(images, np.ndarray)
    count, height, width, channels = images.shape
    if (height, width) == (side, side):
        return part
    check_memory(path, count * side * side * channels * images.itemsize, how.max_bytes, "give a smaller --resize")
    resized = np.empty((count, side, side, channels), images.dtype)
    for channel in range(channels):  # PIL has floats of one channel only
        resized[..., channel] = planes_to_square(images[..., channel], side, how.resize_mode)
    if images.dtype == np.float32:
        np.clip(resized, 0, 1, out=resized)
    return Labelled(resized, part.labels, part.classes)
