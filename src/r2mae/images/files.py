"""Files of images in a folder or a tar archive, and their pixels, decoded by PIL. No torch.

Nothing is unpacked to disk. The members of a plain .tar are read from their positions. A compressed one (.tar.gz,
.tar.xz, .tar.bz2) has no random access: it is read once, and its images stay in memory as they are, undecoded. Pixels
are kept in memory or in a .npy file on disk, or decoded whenever they are needed.
"""

import hashlib
import io
import math
import multiprocessing
import os
import sys
import tarfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import BufferedIOBase
from multiprocessing import parent_process
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import ExifTags, Image, ImageOps
from PIL.ImageFile import ImageFile

from r2mae.cache import cache_folder, create_once
from r2mae.cores import gigabytes
from r2mae.errors import UserError, listed, warn_once
from r2mae.images import arrays
from r2mae.images.arrays import AnyImages, BrokenFileError, Part, Parts, StoredImages, pick, reading

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".tif", ".tiff", ".gif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k"),
)
TABLES = (".txt", ".csv", ".txt.gz", ".csv.gz", ".txt.xz", ".csv.xz")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")


class File(NamedTuple):
    """A file on disk, or a member of a tar archive at `path`.

    `content` is the member's first byte and size in the archive, or the member itself.
    """

    path: str
    member: str = ""
    content: tuple[int, int] | bytes | None = None

    def __str__(self) -> str:
        """Return its name for messages."""
        return f"{self.path}: {self.member}" if self.member else self.path

    def name_in(self, source: Path) -> str:
        """Return its path below a folder that is the source, or its name in an archive that is the source."""
        path = self.path.removeprefix(f"{source}/")
        if self.member and (path == str(source) or Path(path).is_absolute()):
            path = ""
        return "/".join(filter(None, (path, self.member)))

    def open(self) -> BufferedIOBase:
        """Open it; an OSError or EOFError says that it is missing, or the archive ends before it does."""
        if self.content is None:
            return Path(self.path).open("rb")
        return io.BytesIO(self.content if isinstance(self.content, bytes) else _read_at(self.path, *self.content))


@dataclass(frozen=True)
class Folder:
    """The files below a folder or in an archive, without hidden ones, by path relative to `place`.

    They are sorted by the parts of the path. A path that ends with a slash is a folder.
    """

    place: str
    files: dict[str, File]

    def images(self) -> list[str]:
        """Return the paths of its images, by their endings."""
        return [path for path in self.files if path.lower().endswith(SUFFIXES)]

    def folders(self) -> "dict[str, Folder]":
        """Return the folders directly in it."""
        found: dict[str, Folder] = {}
        for path, file in self.files.items():
            name, slash, rest = path.partition("/")
            if slash:
                inside = found.setdefault(name, Folder(f"{self.place}/{name}", {}))
                if rest:
                    inside.files[rest] = file
        return found

    def direct(self) -> list[str]:
        """Return the names of the files directly in it."""
        return [path for path in self.files if "/" not in path]


def warn(text: str) -> None:
    """Log a line on what is read, once. Worker processes of a comparison log nothing: their parent reads the same."""
    if multiprocessing.parent_process() is None:
        warn_once(text)


def is_archive(name: str) -> bool:
    """Return whether a file is a tar archive, by its name."""
    return name.lower().endswith(ARCHIVES)


def list_folder(folder: Path) -> Folder:
    """List the files below a folder. Links are followed, but not to a folder that contains them."""
    files: dict[str, File] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [("", ())]
    with reading(folder, "folder of images"):
        while waiting:
            below, around = waiting.pop()
            real = os.path.realpath(folder / below)
            if real in around:
                continue
            with os.scandir(folder / below) as entries:
                for entry in entries:
                    path = f"{below}{entry.name}"
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        files[f"{path}/"] = File(entry.path)
                        waiting.append((f"{path}/", (*around, real)))
                    elif entry.is_file() or not Path(entry.path).exists():  # a broken link is a file that is lost
                        files[path] = File(entry.path)
    return _sorted(folder, files)


def list_archive(path: Path) -> Folder:
    """List the members of a tar archive; see :func:`read_tar`."""
    files: dict[str, File] = {}
    for file in read_tar(path):
        parts = [part for part in file.member.split("/") if part not in ("", ".")]
        if parts and not any(part.startswith(".") for part in parts):
            files["/".join(parts) + "/" * file.member.endswith("/")] = file
    return _sorted(path, files)


def _sorted(place: Path, files: dict[str, File]) -> Folder:
    return Folder(str(place), dict(sorted(files.items(), key=lambda item: item[0].split("/"))))


def read_tar(path: Path) -> Iterator[File]:
    """Yield the members of a tar archive in its order; the names of folders end with a slash.

    Images and tables of a compressed archive are kept in memory; its other files are empty. Refused are archives that
    are damaged, end without their end marker, have more after that, or hold a link, a device or a path outside.
    """
    plain, held, limit = path.name.lower().endswith(".tar"), 0, arrays.memory_limit()
    with reading(path, "tar archive"), tarfile.open(path, "r:" if plain else "r:*") as archive:
        for member in archive:
            _check_member(path, member)
            content: bytes | tuple[int, int] = (member.offset_data, member.size)
            if not plain:
                wanted = member.isreg() and member.name.lower().endswith((*SUFFIXES, *TABLES))
                held += member.size * wanted
                if held > limit:
                    arrays.check_memory(path, held, "unpack it (tar xf), or save it as a plain .tar")
                file = archive.extractfile(member) if wanted else None
                content = b"" if file is None else file.read()
            yield File(str(path), member.name + "/" * member.isdir(), content)
        # tarfile takes a damaged header, except the first, and the end of the file for the end marker.
        stream = cast("IO[bytes]", archive.fileobj)
        if stream.tell() - archive.offset < tarfile.BLOCKSIZE:
            raise EOFError("no end marker")
        if plain:  # a download that stopped may end in zeros after half a header; the others have checksums
            stream.seek(archive.offset)
        while piece := stream.read(1 << 20):
            if piece.strip(b"\0"):
                raise EOFError("more follows its end: a member is damaged, or archives were joined by cat")


def _check_member(path: Path, info: tarfile.TarInfo) -> None:
    """Refuse what a copy of the files would not hold."""
    kind = ""
    if info.name.startswith("/") or ".." in info.name.split("/") or "\\" in info.name:
        kind = "has a path outside the archive"
    elif not (info.isreg() or info.isdir()) or info.issparse():
        kind = "is a link, a device or a sparse file"
    if kind:
        raise UserError(f"{path}: the member {info.name!r} {kind}: pack the files themselves again")


def _read_at(path: str, start: int, size: int) -> bytes:
    """Read `size` bytes of a file; an EOFError says that it ends before."""
    with Path(path).open("rb") as file:
        file.seek(start)
        content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{path} ends within it")
    return content


def stamp(files: Iterable[File]) -> str:
    """Return a hash of the paths, sizes and times of change of files; a member changes with its archive."""
    digest, last = hashlib.blake2b(digest_size=16), ""
    for file in files:
        if file.path != last:
            with reading(file.path, "file"):
                found, last = Path(file.path).stat(), file.path
            # The time of change of the entry, too: copies of other content may keep size and time of change.
            times = f"{found.st_size}\0{found.st_mtime_ns}\0{found.st_ctime_ns}\0"
            digest.update(os.fsencode(f"{Path(file.path).absolute()}\0{times}"))
        digest.update(os.fsencode(f"{file.member}\0"))
        if isinstance(file.content, tuple):
            digest.update(f"{file.content}".encode())
    return digest.hexdigest()


Cache = Literal["auto", "memory", "mmap", "none"]
Shape = tuple[int, int, int]

# An explicit list, so that no file reaches a decoder that starts programs (EPS).
_DECODERS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP_MODES = ("I", "F")  # 16- and 32-bit greyscale; PIL would clip them at 255
BLOCK = 64  # files of one job of the pool
_PIXELS, _ROWS = "pixels.npy", "rows.npy"
_FORMAT = 4  # of the files in the cache folder
_LONG = 20_000  # images whose decoding is worth a progress bar
_TURNS = {  # by the orientation in EXIF; Pillow's exif_transpose also writes the EXIF again, which fails on odd ones
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Reading:
    """How files of images are read.

    Parameters
    ----------
    resize, skip_broken, cache
        As the options of these names (:mod:`r2mae.images.config`).
    """

    resize: int | None = None
    cache: Cache = "memory"
    skip_broken: bool = False

    def __post_init__(self) -> None:
        if self.resize is not None and self.resize < 1:
            raise UserError(f"resize {self.resize}: expected a side of at least 1 pixel")


class DecodedImages(StoredImages):
    """Images that are decoded on access: the rows of `files`, of one shape (height, width, channels)."""

    def __init__(self, files: Sequence[File], shape: Shape, how: Reading, rows: Int64[np.ndarray, " n"]) -> None:
        self.files, self.how = files, how
        super().__init__(shape, rows)

    def read(self, rows: Int64[np.ndarray, " batch"]) -> UInt8[np.ndarray, "batch height width channels"]:
        """Decode some images; in threads, unless this is a worker process."""
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)

        def fill(place: int) -> None:
            images[place] = decode(self.files[int(rows[place])], images.shape[1:], self.how)

        for error in in_threads(fill, len(rows)).values():
            raise error
        return images


def in_threads(job: Callable[[int], object], count: int, *, label: str | None = None) -> dict[int, BrokenFileError]:
    """Run `job` for the numbers below `count` in threads, in a worker process in its only one.

    Warnings on metadata are ignored, and decompression bombs are refused. With a `label`, a progress bar is shown.
    Returns the errors of broken files by number; the first other error is raised.
    """
    blocks = [range(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
    threads = 1 if parent_process() else min(8, os.cpu_count() or 1, len(blocks))
    broken: dict[int, BrokenFileError] = {}

    def run(block: range) -> None:
        for number in block:
            try:
                job(number)
            except BrokenFileError as error:
                broken[number] = error

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())  # applies to all threads, so the one that starts them sets it
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        done: Iterable[None] = map(run, blocks)
        if threads > 1:
            done = stack.enter_context(ThreadPoolExecutor(threads)).map(run, blocks)  # an error cancels what waits
        if label is not None:
            from rich.progress import track

            from r2mae.terminal import Terminal

            done = track(done, label, len(blocks), console=Terminal(stderr=True), transient=True)
        for _ in done:
            pass
    return dict(sorted(broken.items()))


@contextmanager
def _open_image(file: File) -> Iterator[Image.Image]:
    """Open an image; errors become one line that names it."""
    with (
        reading(file, "image", "remove or replace it"),
        file.open() as stream,
        Image.open(cast("IO[bytes]", stream), formats=_DECODERS) as image,
    ):
        if image.mode.startswith(_DEEP_MODES) or _is_deep_colour(image):
            raise BrokenFileError(
                f"{file}: has more than 8 bits a channel: save it with 8, or all as float .npy in [0, 1]"
            )
        yield image


def _is_deep_colour(image: Image.Image) -> bool:
    """Return whether a file has 16 bits per channel that PIL would read as 8, from the encoding of its tiles."""
    tiles = cast("ImageFile", image).tile
    coding = [part for tile in tiles for part in (tile[3] if isinstance(tile[3], tuple) else (tile[3],))]
    if image.format == "PPM":  # the largest value
        return any(isinstance(part, int) and part > 255 for part in coding)
    return image.format in ("PNG", "TIFF") and any(isinstance(part, str) and ";16" in part for part in coding)


def _orientation(image: Image.Image) -> int:
    """Return the orientation in EXIF, by default 1, upright; Pillow applies that of TIFF itself."""
    known = image.format != "TIFF" and "exif" in image.info
    return image.getexif().get(ExifTags.Base.Orientation, 1) if known else 1


def header(file: File) -> tuple[int, int, bool]:
    """Read width and height of the upright image, and whether it is greyscale, without decoding."""
    with _open_image(file) as image:
        width, height = image.size
        if _orientation(image) in range(5, 9):
            width, height = height, width
        return width, height, image.mode in _GREY


def headers_of(files: Sequence[File]) -> tuple[Int64[np.ndarray, "n 3"], dict[int, BrokenFileError]]:
    """Read :func:`header` of all images; zeros for broken ones, and their errors by row."""
    found = np.zeros((len(files), 3), np.int64)

    def look(row: int) -> None:
        found[row] = header(files[row])

    return found, in_threads(look, len(files))


def decode(file: File, shape: tuple[int, ...], how: Reading) -> UInt8[np.ndarray, "height width channels"]:
    """Decode an image: upright, greyscale or RGB, without transparency, and resized."""
    with _open_image(file) as image:
        turn = _TURNS.get(_orientation(image))
        decoded = image.convert("L" if shape[2] == 1 else "RGB")
        if turn is not None:
            decoded = decoded.transpose(turn)
        if how.resize is not None:
            decoded = to_square(decoded, how.resize)
        return np.asarray(decoded).reshape(shape)


def to_square(image: Image.Image, side: int) -> Image.Image:
    """Cut the longer side of an image at both ends alike, and resize it to a square, bilinear with antialiasing."""
    return image if image.size == (side, side) else ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)


def read_files(
    name: str,
    files: Sequence[File],
    parts: Sequence[tuple[Part, int]],
    how: Reading,
    *,
    attribute_names: tuple[str, ...] | None = None,
    headers: Int64[np.ndarray, "n 3"] | None = None,
    places: Int64[np.ndarray, " n"] | None = None,
) -> Parts:
    """Decode the images of all parts of a set, or prepare to: RGB unless all are greyscale.

    `files` are those of the first part, of the second, and so on; `parts` what is known of each part, and the number of
    its images; `headers` those of every image, with zeros for unknown ones. `places` are those of the files in the
    input, whose parts by default follow one another.
    """
    images, rows = _gather(name, files, how, headers)
    if missing := len(files) - len(rows):
        broken = [files[row] for row in np.setdiff1d(np.arange(len(files)), rows).tolist()]
        warn(f"{missing:,} of {len(files):,} files cannot be decoded and are omitted: {listed(broken)}")
    if places is None:
        places, listing = np.arange(len(files)), files
    else:
        listing = [files[row] for row in np.argsort(places).tolist()]
    made, start = [], 0
    for part, count in parts:
        first, last = map(int, np.searchsorted(rows, [start, start + count]))
        if first == last:
            raise UserError(f"{part.place}: none of its {count:,} files can be decoded: replace them")
        own = rows[first:last] - start
        labels, attributes = (None if known is None else known[own] for known in (part.labels, part.attributes))
        made.append((Part(part.place, labels, attributes, places[rows[first:last]]), pick(images, slice(first, last))))
        start += count
    return arrays.image_sets(name, made, attribute_names, listing)


def _gather(
    name: str, files: Sequence[File], how: Reading, headers: Int64[np.ndarray, "n 3"] | None
) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    """Return the images that can be decoded, and which of `files` they are; for the rest see :func:`read_files`."""
    if how.cache == "mmap" and (entry := _cache_entry(files, how)).is_dir():
        return _cached(entry)
    found = _Survey(files, how, headers)
    size, cache = math.prod(found.shape) * len(found.sound), how.cache
    if cache == "auto":
        cache = "memory" if size <= arrays.memory_limit() else "none"
        if cache == "none":
            warn(
                f"{name}: {gigabytes(size)} of images do not fit into memory and are decoded whenever they are "
                "needed: --cache mmap keeps them decoded on disk"
            )
    if cache == "memory":
        arrays.check_memory(name, size, "give a smaller --resize, or add --cache mmap or --cache none")
        images = np.empty((len(found.sound), *found.shape), np.uint8)
        kept = found.decode_into(images)
        return images[: len(kept)], kept
    if cache == "none" and not how.skip_broken:
        found.check_broken()
        return DecodedImages(files, found.shape, how, found.sound), found.sound
    entry = _cache_entry(files, replace(how, cache=cache))
    with create_once(entry) as unfinished:
        if unfinished is not None:
            mapped = _reserve(unfinished / _PIXELS, (len(found.sound), *found.shape)) if cache == "mmap" else None
            np.save(unfinished / _ROWS, found.decode_into(mapped))
    if cache == "mmap":
        return _cached(entry)
    kept = np.load(entry / _ROWS, allow_pickle=False)
    return DecodedImages(files, found.shape, how, kept), kept


class _Survey:
    """The common `shape` of images, the rows of those with a readable header (`sound`), and the errors of broken ones.

    `known` are headers, with zeros for unknown ones.
    """

    def __init__(self, files: Sequence[File], how: Reading, known: Int64[np.ndarray, "n 3"] | None) -> None:
        self.files, self.how = files, how
        headers = np.zeros((len(files), 3), np.int64) if known is None else known.copy()
        unknown = np.flatnonzero(headers[:, 0] == 0)
        headers[unknown], errors = headers_of([files[row] for row in unknown.tolist()])
        self.broken = {int(unknown[place]): error for place, error in errors.items()}
        self.sound = np.flatnonzero(headers[:, 0])
        if not len(self.sound):
            self.check_broken()
        width, height = headers[self.sound[0], :2].tolist() if how.resize is None else (how.resize, how.resize)
        self.shape = (height, width, 1 if headers[self.sound, 2].all() else 3)
        other = self.sound[(headers[self.sound, :2] != (width, height)).any(axis=1)]
        if how.resize is None and len(other):
            raise UserError(
                f"{files[int(other[0])]} is {headers[other[0], 0]} x {headers[other[0], 1]} pixels but "
                f"{files[int(self.sound[0])]} is {width} x {height}: bring all to one size, in runs by --resize N"
            )

    def decode_into(self, images: UInt8[np.ndarray, "n height width channels"] | None) -> Int64[np.ndarray, " kept"]:
        """Decode into an array, or only to find broken files; return the rows of the images at its start."""

        def decode_one(place: int) -> None:
            made = decode(self.files[int(self.sound[place])], self.shape, self.how)
            if images is not None:
                images[place] = made

        label = "decoding" if len(self.sound) >= _LONG and sys.stderr.isatty() else None
        errors = in_threads(decode_one, len(self.sound), label=label)
        self.broken |= {int(self.sound[place]): error for place, error in errors.items()}
        self.check_broken()
        kept = np.delete(np.arange(len(self.sound)), list(errors))
        if images is not None and errors:
            for place, source in enumerate(kept.tolist()):  # never before `place`
                images[place] = images[source]
        return self.sound[kept]

    def check_broken(self) -> None:
        """Refuse broken files with their first names and count, unless they are skipped and not all."""
        count, rows = len(self.files), sorted(self.broken)
        if len(rows) == count:
            raise UserError(f"{self.broken[0]}; none of the {count:,} files can be decoded: replace them")
        if not rows or self.how.skip_broken:
            return
        hint = ", or in runs skip broken files by --skip-broken"
        if len(rows) > 1:
            names = listed([self.files[row] for row in rows])
            hint = f"; {len(rows):,} of {count:,} files cannot be decoded: {names}{hint}"
        raise UserError(f"{self.broken[rows[0]]}{hint}")


def _reserve(file: Path, shape: tuple[int, ...]) -> np.memmap:
    """Map a new .npy file, whose disk space is reserved: to write to it on a full disk would end the process."""
    mapped = np.lib.format.open_memmap(file, "w+", np.uint8, shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return mapped


def _cache_entry(files: Sequence[File], how: Reading) -> Path:
    """Return the cache folder of these files, read in this way: decoded, or only the rows of those that are sound."""
    key = (_FORMAT, how.cache, stamp(files), how.resize, how.skip_broken)
    return cache_folder() / "images" / hashlib.blake2b("\0".join(map(str, key)).encode(), digest_size=16).hexdigest()


def _cached(entry: Path) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    """Return the decoded images of a cache folder, and which of the files they are."""
    kept: np.ndarray = np.load(entry / _ROWS, allow_pickle=False)
    return pick(arrays.NpyImages(entry / _PIXELS), slice(len(kept))), kept
