"""Locks of folders, seen from outside."""

from pathlib import Path

from r2mae.training.folder import FolderLock, InUseError


def is_locked(folder: Path) -> bool:
    """Whether another process holds the lock of a folder."""
    try:
        with FolderLock(folder):
            return False
    except InUseError:
        return True
