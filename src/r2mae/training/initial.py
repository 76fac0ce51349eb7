"""Initial weights of a run from a file: ``data.json`` records the file, which must not change."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from r2mae.errors import UserError
from r2mae.files import write_json
from r2mae.training.folder import RunFolder
from r2mae.training.records import read_json
from r2mae.training.run import Run

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

    def record(self) -> dict[str, Any]:
        """Return plain types, with the SHA-256 of each file."""
        files = [{"path": str(file), "sha256": _sha256(file)} for file in self.files]
        return {"path": str(self.path), "layout": self.layout, "files": files, "notes": list(self.notes)}


def load_initial_weights(run: Run, model: nn.Module) -> dict[str, Any] | None:
    """Load the initial weights of a run into its fresh model, and return their record, or None.

    Raises
    ------
    UserError
        If the weights are missing or do not fit.
    """
    origin: Origin | None = run.domain.load_initial_weights(run.config, model)
    if origin is None:
        return None
    if run.rank == 0:
        message = "; ".join((f"the model begins with {origin.path} ({origin.layout})", *origin.notes))
        logging.getLogger("r2mae").warning("%s", message)
    return origin.record()


def record_initial_weights(folder: RunFolder, record: dict[str, Any] | None) -> None:
    """Write the record of initial weights into ``data.json`` of a run folder."""
    if record is not None:
        write_json(folder.data_file, {**read_json(folder.data_file), INIT: record})


def read_initial_weights(folder: RunFolder) -> Mapping[str, Any]:
    """Return the record of a run's initial weights; empty if they were random."""
    record = read_json(folder.data_file).get(INIT) if folder.data_file.exists() else None
    return record if isinstance(record, Mapping) else {}


def check_initial_weights_unchanged(folder: RunFolder) -> None:
    """Refuse to resume a run whose file of initial weights was replaced; a missing file is accepted.

    Raises
    ------
    UserError
        If the content of a file has changed since the run started.
    """
    files = read_initial_weights(folder).get("files")
    for known in files if isinstance(files, list) else ():
        file = Path(str(known.get("path")))
        if file.is_file() and _sha256(file) != known.get("sha256"):
            raise UserError(f"{file} has changed since {folder.path} was begun: choose another --out, or put it back")


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
