"""Public data sets: their origin, licence, address, and the checksums that verify a copy."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from r2mae.errors import UserError
from r2mae.files import new_file_mode

Status = Literal["ok", "missing", "corrupted", "unrecorded"]
_REASONS = {
    "ConnectionError": "no connection",
    "ConnectTimeout": "timed out",
    "ReadTimeout": "timed out",
    "ChunkedEncodingError": "the connection was interrupted",
}


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
        Hexadecimal; None if no checksum is known of a file that is placed by hand.
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

    Only existence and size are checked, which is fast; :func:`verify` reads the files. A set that comes with a library
    has none.

    Raises
    ------
    UserError
        If a file is missing or has another size.
    """
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
    """Compare the files of a set on this machine with their size and sha256; "unrecorded" has no known checksum."""
    root = data_root()
    return {root / file.path: _status(root / file.path, file) for file in public.files}


def fetch(public: PublicSet, *, progress: bool = True) -> list[Path]:
    """Fetch missing and corrupted files, and return all; a file gets its name only after its checksum is verified.

    Parameters
    ----------
    public : PublicSet
        A set that comes with a library has no files.
    progress : bool
        Show names and progress on stderr.

    Raises
    ------
    UserError
        If there is no network, the server fails, a checksum is wrong, or the folder cannot be written.
    """
    from r2mae.terminal import Terminal

    console = Terminal(stderr=True, quiet=not progress)
    for file, (path, status) in zip(public.files, verify(public).items(), strict=True):
        if status in ("missing", "corrupted"):
            console.print(f"{path} is {status}: fetching it", soft_wrap=True, highlight=False)
            _download(file, path, progress)
    return [data_root() / file.path for file in public.files]


def _status(path: Path, file: PublicFile) -> Status:
    import pooch

    if not path.is_file():
        return "missing"
    if file.size is not None and path.stat().st_size != file.size:
        return "corrupted"
    if file.sha256 is None:
        return "unrecorded"
    try:
        return "ok" if pooch.file_hash(path) == file.sha256 else "corrupted"
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _download(file: PublicFile, path: Path, progress: bool) -> None:
    if not (file.url and file.sha256):
        raise UserError(f"no address is known to fetch {path.name} from: place the file by hand at {path}")
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    # Without this header, some servers declare a .gz file as an encoding, and requests unpacks it before hashing.
    downloader = pooch.HTTPDownloader(progress, chunk_size=2**16, headers={"Accept-Encoding": "identity"})
    by_hand = f"try again, or place the file by hand at {path}"
    try:
        pooch.retrieve(file.url, file.sha256, path.name, path.parent, downloader=downloader)
        path.chmod(new_file_mode())  # pooch's temporary files are readable by their owner only
    except RequestException as error:  # its messages are long and nested
        reason = _REASONS.get(type(error).__name__, type(error).__name__)
        if (answer := error.response) is not None:
            reason = f"the server answered {answer.status_code} {answer.reason}"
        raise UserError(f"{file.url} cannot be fetched ({reason}): {by_hand}") from error
    except OSError as error:
        reason = error.strerror or "no permission"
        raise UserError(f"{path}: cannot be written ({reason}): point R2MAE_DATA at a folder that can be") from error
    except ValueError as error:  # another checksum
        raise UserError(f"{file.url}: {error} {by_hand}") from error
