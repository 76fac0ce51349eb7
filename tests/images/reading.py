"""Reads folders of images for tests, below the choice of a reader, and limits the memory of readers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from r2mae.images import arrays, folders
from r2mae.images.arrays import Parts
from r2mae.images.files import Reading, list_folder


def read_folder(path: Path, how: Reading | None = None) -> Parts:
    """Read a folder of images."""
    return folders.read_folder("set", list_folder(path), Reading() if how is None else how)


@contextmanager
def memory_of(size: int | None) -> Iterator[None]:
    """Let so many bytes of images fit into memory; by default what does fit."""
    with pytest.MonkeyPatch.context() as patch:
        if size is not None:
            patch.setattr(arrays, "memory_limit", lambda: size)
        yield
