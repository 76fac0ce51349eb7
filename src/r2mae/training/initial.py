"""Initial weights of a run from a file: ``data.json`` records the file, which must not change."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2mae.errors import UserError
from r2mae.files import sha256, write_json
from r2mae.training.folder import RunFolder, read_json

INIT = "init"
"""The entry of ``data.json``, and the field of configurations."""


@dataclass(frozen=True)
class Origin:
    """The source of a model's initial weights.

    Parameters
    ----------
    path : Path
        File or folder, as given.
    files : tuple of Path
        Files with the weights.
    layout : str
        Library or format whose parameter names the files use.
    notes : tuple of str
        Notes for the user, such as which weights stay randomly initialised.
    """

    path: Path
    files: tuple[Path, ...]
    layout: str
    notes: tuple[str, ...] = ()

    def record(self, folder: RunFolder) -> None:
        """Log the origin, and write it into ``data.json`` of a run folder, with the SHA-256 of each file."""
        message = "; ".join((f"the model begins with {self.path} ({self.layout})", *self.notes))
        logging.getLogger("r2mae").warning("%s", message)
        files = [{"path": str(file), "sha256": sha256(file)} for file in self.files]
        record = {"path": str(self.path), "layout": self.layout, "files": files, "notes": list(self.notes)}
        write_json(folder.data_file, {**read_json(folder.data_file), INIT: record})


def read_initial_weights(folder: RunFolder) -> Mapping[str, Any]:
    """Return the record of a run's initial weights; empty if they were random."""
    record = read_json(folder.data_file).get(INIT) if folder.data_file.exists() else None
    return record if isinstance(record, Mapping) else {}


def check_initial_weights_unchanged(folder: RunFolder) -> None:
    """Refuse to resume a run whose file of initial weights has other content; a missing file is accepted."""
    files = read_initial_weights(folder).get("files")
    for known in files if isinstance(files, list) else ():
        file = Path(str(known.get("path")))
        if file.is_file() and sha256(file) != known.get("sha256"):
            raise UserError(f"{file} has changed since {folder.path} was begun: choose another --out, or put it back")
