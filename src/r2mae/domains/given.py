"""Data in memory that a user gives in Python, such as arrays: their domain, and a file of them. No torch."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cache import cache_folder, create_once
from r2mae.domains.base import described
from r2mae.domains.lookup import domain_of
from r2mae.errors import UserError, listed, reading
from r2mae.files import check_writable, sync
from r2mae.fingerprint import fingerprint
from r2mae.registry import DOMAINS

if TYPE_CHECKING:
    from r2mae.domains.base import Domain


def domain_of_data(data: Any) -> str:
    """Return the domain of data in memory.

    Raises
    ------
    UserError
        If it is not clear.
    """
    _check_single(data)
    if (name := domain_of(data)) is not None:
        return name
    raise UserError(f"the domain of a {described(data)} is not clear: give domain=, one of {', '.join(DOMAINS)}")


def kept(domain: "Domain", data: Any) -> str:
    """Return a name or path of data; those in memory are written into the cache, once for each content."""
    if isinstance(data, str | PathLike):
        return fspath(data)
    root = cache_folder() / "given"
    check_writable(root)
    with tempfile.TemporaryDirectory(prefix=".", dir=root) as place:
        written = _write(domain, data, Path(place))
        sync(written)
        digest = fingerprint(written, most=inf)[:12]
        file = root / digest / f"{domain.name}-{digest}{written.suffix}"
        with create_once(file.parent) as folder:
            if folder is not None:
                folder.chmod(0o700)
                written.rename(folder / file.name)
    return str(file)


@contextmanager
def passing(domain: "Domain", data: Any, config: Any) -> Iterator[str]:
    """Yield a name or path of data for a finished run; those in memory are in a file until the end of the block."""
    if isinstance(data, str | PathLike):
        yield fspath(data)
        return
    with tempfile.TemporaryDirectory(prefix="r2mae-") as place:
        source = str(_write(domain, data, Path(place), config))
        try:
            yield source
        except UserError as error:
            raise UserError(str(error).replace(source, "the data")) from error


def _write(domain: "Domain", data: Any, folder: Path, config: Any = None) -> Path:
    _check_single(data)
    with reading("the data", f"give another kind than {described(data)}, or save them as a file and give its path"):
        return domain.write_data(data, folder, config)


def _check_single(data: Any) -> None:
    if isinstance(data, Mapping):
        names = listed([*map(repr, data)])
        raise UserError(f"the data are a {type(data).__name__} of {names or 'nothing'}: give one of them, data[name]")
