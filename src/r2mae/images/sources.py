"""Where images come from: a named set, a folder, an archive, shards or a file of an array. No torch."""

import logging
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from r2mae.catalogue import locate
from r2mae.errors import UserError, unknown
from r2mae.images.attributes import find_tables, read_tables
from r2mae.images.decode import Cache, Reading
from r2mae.images.folder import log_others, read_folder
from r2mae.images.formats import check_memory, read_idx, read_npy, read_npz
from r2mae.images.image_set import ImageSet, Part, Parts, image_sets
from r2mae.images.listing import ARCHIVES, SUFFIXES, File, Folder, is_archive, list_archive, list_folder
from r2mae.images.resize import array_to_square
from r2mae.images.sets import SETS
from r2mae.images.shards import is_numbered, is_shard, read_shards

_IDX = [(f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
_ARRAY_SETS = ("digits", "mnist")
_SETS_WITH_TEST_PART = ("mnist", "tiny-imagenet")
_FILES = (".npy", ".npz", "idx3-ubyte", "idx3-ubyte.gz", *ARCHIVES)
_PATHS = "the path of a folder of images, a .tar, a .npy, a .npz or an idx file"


def read_source(source: str | Path, how: Reading) -> Parts:
    """Read a set of images; see :func:`r2mae.images.data.load_images`."""
    _check_options(source, cache=how.cache, skip_broken=how.skip_broken, draft=how.draft)
    path = Path(source).expanduser()
    if is_named(source):
        if path.exists():
            logging.getLogger("r2mae").warning("%s", f"{source} is the public set: ./{source} is the path here")
        parts = _read_named(str(source), how)
    elif str(source) and path.is_dir():  # Path("") would be the current folder
        parts = _read_folder(path, how)
    elif path.is_file():
        parts = _read_file(path, how)
    else:
        raise _missing_source_error(source)
    if how.resize is None or not is_array(source):
        return parts
    others = [None if part is None else _resized(source, part, how.resize, how) for part in parts[1:]]
    return Parts(_resized(source, parts.train, how.resize, how), *others)


def is_named(source: str | Path) -> bool:
    """Return whether a source is a public set by its name; a Path is always a path."""
    return isinstance(source, str) and source in SETS


def check_source(source: str | Path, *, cache: str = "auto", skip_broken: bool = False, draft: bool = False) -> None:
    """Refuse a source of images that does not exist, or options that do not apply to it; no image is read.

    Raises
    ------
    UserError
        An unknown name, no such path, a named set whose files are missing, or an option for files of images with a
        source that is an array.
    """
    there = bool(str(source)) and Path(source).expanduser().exists()
    if is_named(source):
        try:
            locate(SETS[str(source)])
        except UserError as error:
            raise UserError(f"{error}; ./{source} is the path here" if there else str(error)) from error
    elif not there:
        raise _missing_source_error(source)
    _check_options(source, cache=cache, skip_broken=skip_broken, draft=draft)


def check_test_fraction(source: str | Path) -> None:
    """Refuse a fraction of test images for a public set that has an official test part.

    Of other sources it is known only when they have been read; :func:`r2mae.images.data.fraction_notes` then tells it.
    """
    if is_named(source) and source in _SETS_WITH_TEST_PART:
        raise UserError(f"test_fraction is for sets without an official test part, and {source} has one: omit it")


def is_array(source: str | Path) -> bool:
    """Return whether a source is an array, or becomes one, and not files of images."""
    path = Path(source).expanduser()
    if is_named(source):
        return source in _ARRAY_SETS
    if path.is_dir():
        return any((path / images.removesuffix(suffix)).is_file() for images, _ in _IDX[:1] for suffix in ("", ".gz"))
    return path.is_file() and path.suffix.lower() not in SUFFIXES and not is_archive(path.name)


def applicable_options(source: str | Path, cache: Cache, skip_broken: bool, draft: bool) -> dict[str, Any]:
    """Return the options for files of images, as far as they apply to this source: none does to an array."""
    if is_array(source):
        return {"cache": "auto", "skip_broken": False, "draft": False}
    return {"cache": cache, "skip_broken": skip_broken, "draft": draft}


def _check_options(source: str | Path, *, cache: str, skip_broken: bool, draft: bool) -> None:
    for_files = {f"cache {cache}": cache in ("mmap", "none"), "skip_broken": skip_broken, "draft": draft}
    given = [option for option, wanted in for_files.items() if wanted]
    if given and is_array(source):
        raise UserError(f"{given[0]} is for files of images, and {source} is an array: omit it")


def _read_named(name: str, how: Reading) -> Parts:
    paths = list(locate(SETS[name]).values())
    if name == "digits":
        return image_sets(name, [_digits()])
    if name == "mnist":
        return _read_idx_parts(name, list(zip(paths[::2], paths[1::2], strict=True)), how)
    archive = list_archive(paths[0], max_bytes=how.max_bytes)
    archive.files.update({path.name: File(str(path)) for path in paths[1:]})
    return _read_listing(name, archive, how)


def _read_folder(path: Path, how: Reading) -> Parts:
    name, folder = path.resolve().name, list_folder(path)
    if idx := _idx_files(folder):
        return _read_idx_parts(name, idx, how)
    while not folder.direct() and len(inside := folder.folders()) == 1:  # as archives unpack to
        (folder,) = inside.values()
    archives = [Path(folder.place, one) for one in folder.direct() if is_archive(one)]
    if archives and not folder.images():
        shards = [archive for archive in archives if is_numbered(archive.name)]
        if len(shards) > 1:
            others = folder.files.keys() - {shard.name for shard in shards}
            log_others(path, (Path(other).suffix for other in others if not other.endswith("/")))
            return read_shards(name, shards, how)
        if len(archives) > 1:
            names = ", ".join(archive.name for archive in archives[:5])
            raise UserError(f"{path}: holds several archives ({names}): give the one that is meant")
        archive = list_archive(archives[0], max_bytes=how.max_bytes)
        if shards and is_shard(archive):
            return read_shards(name, shards, how)
        folder = Folder(archive.place, folder.files | archive.files) if find_tables(folder) else archive
    return _read_listing(name, folder, how)


def _read_listing(name: str, folder: Folder, how: Reading) -> Parts:
    """Read the files of a folder or an archive."""
    tables = find_tables(folder)
    return read_folder(name, folder, how) if tables is None else read_tables(name, *tables, how)


def _read_file(path: Path, how: Reading) -> Parts:
    name, suffix = path.stem, path.suffix.lower()
    if is_archive(path.name):
        archive = list_archive(path, max_bytes=how.max_bytes)
        if is_numbered(path.name) and is_shard(archive):
            return read_shards(name, [path], how)
        return _read_listing(name, archive, how)
    if suffix == ".npy":
        return image_sets(name, [(Part(str(path)), read_npy(path, max_bytes=how.max_bytes))])
    if suffix == ".npz":
        return read_npz(name, path, max_bytes=how.max_bytes)
    if "idx3" in path.name:
        return _read_idx_parts(name, [(path, _idx_labels(path))], how)
    if suffix in SUFFIXES:
        raise UserError(f"{path}: is a single image: give the folder that holds the images")
    raise UserError(f"{path}: {unknown('kind of image file', suffix or path.name, _FILES)}, or give a folder of images")


def _digits() -> tuple[Part, np.ndarray]:
    """Read the digits of scikit-learn from its file: importing the library takes a second."""
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images = np.rint(table[:, :-1].reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)  # 0 to 16 in the original
    return Part("digits", table[:, -1].astype(np.int64)), images


def _idx_files(folder: Folder) -> list[tuple[Path, Path | None]]:
    """Find the idx files of an MNIST-like folder: training images and, if they are there, test images."""
    found = []
    for images, _ in _IDX:
        names = [name for name in (images, images.removesuffix(".gz")) if name in folder.files]
        found += [Path(folder.place, name) for name in names[:1]]
    return [(path, _idx_labels(path)) for path in found] if found and found[0].name.startswith("train") else []


def _idx_labels(images: Path) -> Path | None:
    stem = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    places = [images.with_name(stem + suffix) for suffix in (".gz", "")]
    return next((place for place in places if place.is_file()), None)


def _read_idx_parts(name: str, pairs: list[tuple[Path, Path | None]], how: Reading) -> Parts:
    return image_sets(name, [read_idx(images, labels, max_bytes=how.max_bytes) for images, labels in pairs])


def _missing_source_error(source: str | Path) -> UserError:
    name, path = str(source), Path(source).expanduser()
    if path.suffix or path.is_absolute() or os.sep in name or name.startswith(("~", ".")):
        return UserError(f"{path}: no such file or folder: give a name ({', '.join(SETS)}) or {_PATHS}")
    return UserError(f"{unknown('image set', name, SETS)}, or give {_PATHS}")


def _resized(source: str | Path, part: ImageSet, side: int, how: Reading) -> ImageSet:
    images = part.images
    assert isinstance(images, np.ndarray)
    if part.shape[:2] == (side, side):
        return part
    size = len(part) * side * side * part.shape[2] * images.itemsize
    check_memory(source, size, how.max_bytes, "give a smaller --resize")
    return replace(part, images=array_to_square(images, side, how.resize_mode))
