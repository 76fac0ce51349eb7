"""Public data sets: their origin, licence, address, and the checksums that verify a copy."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from r2mae.errors import UserError
from r2mae.files import atomic_path, write_json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Status = Literal["ok", "missing", "corrupted", "unrecorded"]

CHECKSUMS = "checksums.json"
"""File in the data root with the sha256 of files whose checksum was not known before their first download."""


@dataclass(frozen=True)
class PublicFile:
    """One file of a public set.

    Parameters
    ----------
    path : str
        Path below the data root, with forward slashes.
    url : str
        Download address; empty if none is known, so that users must place the file by hand.
    sha256 : str or None
        Hexadecimal. None if no checksum is known; that of the first download is then recorded, and later copies must
        match it.
    size : int or None
        Size in bytes.
    """

    path: str
    url: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class PublicSet:
    """A public data set that is known by name.

    Parameters
    ----------
    name, domain, title : str
        Name on the command line, domain that reads it ("images", …) and a description of one line.
    origin : str
        Home page of the set.
    licence : str
        Terms of the original set.
    files : tuple of PublicFile
        Empty for a set that comes with a library.
    packaged : str or None
        The library that the set comes with.
    """

    name: str
    domain: str
    title: str
    origin: str
    licence: str
    files: tuple[PublicFile, ...] = ()
    packaged: str | None = None


def data_root() -> Path:
    """Return the data folder: ``$R2MAE_DATA``, or the user's cache folder if that is unset or empty."""
    if chosen := os.environ.get("R2MAE_DATA", "").strip():
        return Path(chosen).expanduser().absolute()
    import pooch

    return Path(pooch.os_cache("r2mae"))


def locate(public: PublicSet) -> dict[str, Path]:
    """Find the files of a set on this machine, without using the network.

    Only existence and size are checked, which is fast; :func:`verify` reads the files.

    Returns
    -------
    dict
        ``PublicFile.path`` to the path on this machine; empty for a set that comes with a library.

    Raises
    ------
    UserError
        If a file is missing or has another size.
    """
    if not public.files:
        return {}
    root = data_root()
    paths = {file.path: root / file.path for file in public.files}
    for file in public.files:
        path = paths[file.path]
        if not path.is_file():
            hint = f"run `r2mae data fetch {public.name}`" if file.url else f"place it there ({public.origin})"
            raise UserError(f"{path} is missing: {hint}, or point R2MAE_DATA at the folder that holds {file.path}")
        if file.size is not None and (size := path.stat().st_size) != file.size:
            hint = f"run `r2mae data fetch {public.name}` to replace it" if file.url else "place another copy there"
            raise UserError(f"{path} is corrupted ({size:,} bytes, expected {file.size:,}): {hint}")
    return paths


def verify(public: PublicSet) -> dict[Path, Status]:
    """Compare the files of a set on this machine with their size and sha256.

    Returns
    -------
    dict
        Path to "ok", "missing", "corrupted", or "unrecorded" (present, but no checksum is known yet).
    """
    root = data_root()
    recorded = _read_checksums(root)
    return {root / file.path: _status(root / file.path, file, recorded) for file in public.files}


def fetch(public: PublicSet, *, progress: bool = True) -> list[Path]:
    """Fetch missing and corrupted files; a file gets its final name only after its checksum is verified.

    If no checksum of a file is known, that of its first download is recorded in ``checksums.json`` in the data root,
    and later copies must match it. The checksum of a file placed by hand is recorded in the same way.

    Parameters
    ----------
    public : PublicSet
        The set to fetch; a set that comes with a library has no files to fetch.
    progress : bool
        Show a progress bar, and the names of corrupted files, on stderr.

    Returns
    -------
    list of Path
        All files of the set, in its order.

    Raises
    ------
    UserError
        If there is no network, the server fails, a checksum is wrong, or the folder cannot be written.
    """
    if not public.files:
        return []
    root = data_root()
    paths = []
    with _display(progress) as display:
        for file in public.files:
            recorded = _read_checksums(root)
            path = root / file.path
            status = _status(path, file, recorded)
            if status == "corrupted":
                display.console.print(f"{path} is corrupted: fetching it again", soft_wrap=True)
            if status in {"missing", "corrupted"}:
                task = display.add_task(file.path, total=file.size)
                digest = _download(file, path, _expected_sha256(file, recorded), _Bar(display, task))
            elif status == "unrecorded":
                digest = _sha256(path)
            if status != "ok" and file.sha256 is None:
                _write_checksums(root, {**recorded, file.path: digest})
            paths.append(path)
    return paths


def _expected_sha256(file: PublicFile, recorded: Mapping[str, str]) -> str | None:
    return file.sha256 or recorded.get(file.path)


def _status(path: Path, file: PublicFile, recorded: Mapping[str, str]) -> Status:
    if not path.is_file():
        return "missing"
    if file.size is not None and path.stat().st_size != file.size:
        return "corrupted"
    expected = _expected_sha256(file, recorded)
    if expected is None:
        return "unrecorded"
    return "ok" if _sha256(path) == expected else "corrupted"


def _sha256(path: Path) -> str:
    import pooch

    try:
        return str(pooch.file_hash(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _read_checksums(root: Path) -> dict[str, str]:
    path = root / CHECKSUMS
    try:
        entries = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        raise UserError(f"{path}: expected a JSON object of path to sha256: repair it, or delete it to record again")
    return entries


def _write_checksums(root: Path, entries: Mapping[str, str]) -> None:
    try:
        write_json(root / CHECKSUMS, entries)
    except OSError as error:
        raise _write_error(root / CHECKSUMS, error) from error


def _download(file: PublicFile, path: Path, expected: str | None, bar: "_Bar") -> str:
    """Download to a temporary file next to `path`, verify it, and rename it to `path`.

    Only pooch's downloader is used: ``pooch.retrieve`` omits ``fsync``, and makes the file readable by its owner only.
    """
    if not file.url:
        raise UserError(f"no address is known to fetch {path.name} from: place the file by hand at {path}")
    import pooch

    # Without this header, some servers declare a .gz file as an encoding, and requests unpacks it before hashing.
    downloader = pooch.HTTPDownloader(bar, chunk_size=2**16, headers={"Accept-Encoding": "identity"})
    by_hand = f"try again, or place the file by hand at {path}"
    try:
        with atomic_path(path) as unchecked:
            try:
                downloader(file.url, str(unchecked), None)
            except OSError as error:  # requests' errors are OSErrors without a number
                if error.errno is not None:
                    raise
                raise UserError(f"{file.url} cannot be fetched ({_failure_reason(error)}): {by_hand}") from error
            if file.size is not None and (size := unchecked.stat().st_size) != file.size:
                raise UserError(f"{file.url} gave {size:,} bytes, expected {file.size:,}: {by_hand}")
            digest = _sha256(unchecked)
            if expected is not None and digest != expected:
                raise UserError(f"{file.url} gave a file of sha256 {digest}, expected {expected}: {by_hand}")
    except OSError as error:
        raise _write_error(path, error) from error
    return digest


def _write_error(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: cannot be written ({error.strerror}): point R2MAE_DATA at a folder that can be")


def _failure_reason(error: OSError) -> str:
    """Return the cause in a few words; requests' messages are long and nested."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    name = type(error).__name__
    if "Timeout" in name:
        return "timed out"
    known = {"ConnectionError": "no connection", "ChunkedEncodingError": "the connection was interrupted"}
    return known.get(name, name)


class _Bar:
    """The progress bar that pooch expects, displayed by rich."""

    def __init__(self, display: "Progress", task: "TaskID") -> None:
        self.display = display
        self.task = task

    @property
    def total(self) -> float | None:
        return self.display.tasks[self.task].total

    @total.setter
    def total(self, size: int) -> None:
        if size:  # zero means that the server gave no size
            self.display.update(self.task, total=size)

    def update(self, size: int) -> None:
        self.display.update(self.task, advance=size)

    def reset(self) -> None:
        self.display.update(self.task, completed=0)

    def close(self) -> None:
        """Do nothing: the display closes all bars together."""


@contextmanager
def _display(progress: bool) -> Iterator["Progress"]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from r2mae.terminal import Terminal

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Terminal(stderr=True, quiet=not progress)
    with Progress(*columns, console=console, disable=not progress) as display:
        yield display
