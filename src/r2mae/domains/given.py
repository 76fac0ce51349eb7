"""Data in memory that a user gives in Python, such as arrays: their domain, and a file of them. No torch."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.cache import cache_folder
from r2mae.domains.base import described
from r2mae.domains.lookup import domain_of
from r2mae.errors import UserError
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
        folder = Path(place) / "data"
        folder.mkdir()
        written = domain.write_data(data, folder)
        sync(written)
        digest = fingerprint(written)[:12]
        file = root / digest / f"{domain.name}-{digest}{written.suffix}"
        if not file.exists():
            written.rename(written.with_name(file.name))
            shutil.rmtree(file.parent, ignore_errors=True)
            folder.rename(file.parent)
            sync(root)
    return str(file)


@contextmanager
def passing(domain: "Domain", data: Any, config: Any) -> Iterator[str]:
    """Yield a name or path of data for a finished run; those in memory are in a file until the end of the block."""
    if isinstance(data, str | PathLike):
        yield fspath(data)
        return
    with tempfile.TemporaryDirectory(prefix="r2mae-") as place:
        yield str(domain.write_data(data, Path(place), config))
