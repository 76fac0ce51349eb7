"""Reads folders of images for tests, below the choice of a reader."""

from pathlib import Path

from r2mae.images import folder
from r2mae.images.decode import Reading
from r2mae.images.image_set import Parts
from r2mae.images.listing import list_folder


def read_folder(path: Path, how: Reading | None = None) -> Parts:
    """Read a folder of images."""
    return folder.read_folder("set", list_folder(path), Reading() if how is None else how)
