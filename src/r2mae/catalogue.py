"""Public data sets: their origin, licence, address, and the checksums that verify a copy."""

import os
from dataclasses import dataclass
from pathlib import Path

from r2mae.errors import UserError


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

    Only existence and size are checked, which is fast; :func:`fetch` compares checksums. A set that comes with a
    library has none.

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
    for file in public.files:
        if file.url and file.sha256:
            _download(file, data_root() / file.path, progress)
    paths = locate(public)
    for file in public.files:
        if file.sha256 and not file.url:
            import pooch

            if pooch.file_hash(paths[file.path]) != file.sha256:
                raise UserError(f"{paths[file.path]} is corrupted (its checksum is another): place another copy there")
    return list(paths.values())


def _download(file: PublicFile, path: Path, progress: bool) -> None:
    """Fetch a file unless it is here with its checksum."""
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("INFO" if progress else "WARNING")
    # Without this header, some servers declare a .gz file as an encoding, and requests unpacks it before hashing.
    downloader = pooch.HTTPDownloader(progress, chunk_size=2**16, headers={"Accept-Encoding": "identity"})
    by_hand = f"try again, or place the file by hand at {path}"
    try:
        pooch.retrieve(file.url, file.sha256, path.name, path.parent, downloader=downloader)
        if not path.stat().st_mode & 0o044:  # pooch's temporary files are readable by their owner only
            path.chmod(0o644)
    except RequestException as error:  # its messages are long and nested
        reason = "no connection, or it was interrupted"
        if (answer := error.response) is not None:
            reason = f"the server answered {answer.status_code} {answer.reason}"
        raise UserError(f"{file.url} cannot be fetched ({reason}): {by_hand}") from error
    except OSError as error:
        reason = error.strerror or "no permission"
        raise UserError(f"{path}: cannot be written ({reason}): point R2MAE_DATA at a folder that can be") from error
    except ValueError as error:  # another checksum
        raise UserError(f"{file.url}: {error} {by_hand}") from error
