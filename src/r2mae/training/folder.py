"""Run folders: one run, one process, one configuration.

config.yaml            the configuration, which reproduces the run
environment.json       machine, libraries and commit
data.json              the data and their fingerprint
metrics.csv            one row per step
checkpoints/last.ckpt  the state from which the run resumes
model.safetensors      weights of the finished model, described by model.json
statistics.safetensors batch statistics re-estimated on unmasked inputs
results.json           scores
items.safetensors      scores of single test items
"""

import errno
import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from r2mae.errors import UserError
from r2mae.files import UNFINISHED, atomic_write, jsonable, write_json
from r2mae.training.config import RunConfig
from r2mae.training.environment import add_change, environment
from r2mae.training.records import (
    Description,
    hint_for,
    holds_weights,
    read_description,
    read_fingerprint,
    read_json,
    read_results,
    read_yaml,
)

__all__ = ["FolderLock", "InUseError", "RunFolder", "hint_for", "read_json"]


class RunFolder:
    """The paths of a run, and its state.

    Parameters
    ----------
    path : Path
        The folder; it need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.environment_file = self.path / "environment.json"
        self.metrics_file = self.path / "metrics.csv"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"
        self.best = self.path / "checkpoints" / "best.safetensors"
        self.weights = self.path / "model.safetensors"
        self.statistics = self.path / "statistics.safetensors"  # of batch normalisation, for unmasked inputs
        self.model_file = self.path / "model.json"
        self.results_file = self.path / "results.json"
        self.items_file = self.path / "items.safetensors"  # scores of single test items
        self.evaluation_file = self.path / "evaluation.json"  # parts of an evaluation that are finished
        self.data_file = self.path / "data.json"

    @property
    def trained(self) -> bool:
        """Whether training has ended. ``model.json`` is written last, so if it exists, the weights are complete.

        Weights that were truncated afterwards (no complete header) do not count if there is a checkpoint: they are
        written again from it.
        """
        exist = self.model_file.is_file() and self.weights.is_file()
        return exist and (holds_weights(self.weights) or not self.checkpoint.exists())

    @property
    def results(self) -> dict[str, Any] | None:
        """The contents of ``results.json``; None if it is missing or damaged: the run is then measured again."""
        return read_results(self.results_file)

    @property
    def description(self) -> Description:
        """The description of the model in ``model.json``; raises a :class:`UserError` if it is damaged."""
        return read_description(self.model_file)

    def results_for(self, config: RunConfig) -> dict[str, Any] | None:
        """Return the results, or None if they were measured with other settings than those of `config`."""
        results = self.results
        if results is None:
            return None
        recorded = results.get("measured", {})
        if not isinstance(recorded, dict):
            return None
        settings = jsonable(config.measurement_settings())  # old results also record settings that had no effect
        return results if settings.items() <= recorded.items() else None

    def baseline_for(self, config: RunConfig) -> dict[str, Any] | None:
        """Return a baseline's results, or None if measured with other settings; old results do not record settings."""
        results = self.results
        return results if results is None or "measured" not in results else self.results_for(config)

    def read_config(self) -> dict[str, Any]:
        """Return the configuration as plain types."""
        if not self.path.is_dir():
            raise UserError(f"there is no run folder {self.path}")
        if not self.config_file.is_file():
            raise UserError(f"{self.path} is not a run folder: it has no config.yaml")
        config = read_yaml(self.config_file)
        if "domain" not in config:
            raise UserError(
                f"{self.config_file} names no domain: runs of earlier versions are not read; "
                "train again into another --out"
            )
        if isinstance(config.get("data"), str):
            raise UserError(
                f"{self.config_file} is of an earlier version, whose runs are not read: train again into another --out"
            )
        return config

    def claim(self, config: RunConfig, fingerprint: str) -> None:
        """Write the configuration and the data's fingerprint into a new folder; compare them with those of an old one.

        Raises
        ------
        UserError
            If the folder belongs to another configuration or other data, or contains files of no run.
        """
        self.check_config(config)
        if self.config_file.exists():
            known = read_fingerprint(self.data_file) if self.data_file.exists() else fingerprint
            if known != fingerprint:
                raise UserError(f"{config.data.source} has changed since {self.path} was begun: choose another --out")
            return
        write_json(self.environment_file, environment())
        write_json(self.data_file, {"data": config.data.source, "fingerprint": fingerprint})
        with atomic_write(self.config_file) as file:
            yaml.safe_dump(config.to_dict(), file, sort_keys=False)

    def check_config(self, config: RunConfig) -> None:
        """Refuse a folder of another configuration, or with files of no run. Data are not checked.

        Raises
        ------
        UserError
            Names the first difference, or the first file of no run.
        """
        if self.config_file.exists():
            existing = type(config).from_dict(self._read_config_of_domain(config), source=str(self.config_file))
            for name, (yours, its) in config.differences(existing).items():
                raise UserError(
                    f"{self.path} belongs to another configuration ({name} is {its!r} there and "
                    f"{yours!r} here): choose another --out, or repeat the options of that run"
                )
            return
        own = {self.environment_file.name, self.data_file.name}  # written before config.yaml
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        foreign = [name for name in names if not name.startswith(".") and name not in own]
        if foreign:
            raise UserError(f"{self.path} holds other files ({foreign[0]}) and no run: choose another --out")

    def record_machine(self, device: str, step: int) -> list[str]:
        """Record in environment.json the environment that the run is trained in from this step on.

        At step 0 the environment is written. Later, its changes are added. Returns the names of the changes that may
        alter results.
        """
        now = jsonable({**environment(), "device": device})
        try:
            recorded = read_json(self.environment_file) if step > 0 else {}
        except UserError:  # training does not need this record
            recorded = {}
        record, altering = add_change(recorded, now, step) if step > 0 else (now, [])
        if record != recorded:
            write_json(self.environment_file, record)
        return altering

    def record_measurement(self, config: RunConfig) -> None:
        """Record in config.yaml how the run was measured, so that later uses of the model agree."""
        existing = self.read_config()
        measured = config.measurement_settings()
        evaluation = {**existing.get("evaluation", {}), **jsonable(measured)}
        if evaluation == existing.get("evaluation", {}):
            return
        with atomic_write(self.config_file) as file:
            yaml.safe_dump({**existing, "evaluation": evaluation}, file, sort_keys=False)

    def check_data(self, data: str, fingerprint: str) -> None:
        """Refuse data that have changed since the run was trained on them.

        Raises
        ------
        UserError
            If the fingerprints differ.
        """
        known = read_fingerprint(self.data_file) if self.data_file.exists() else fingerprint
        if known != fingerprint:
            raise UserError(f"{data} has changed since {self.path} was trained on it: restore it to measure the run")

    def remove_unfinished(self) -> None:
        """Delete unfinished files of a killed process. Only the holder of the lock may call this."""
        for path in list(self.path.rglob(f".*{UNFINISHED}")):
            if path.is_dir():  # shards of a checkpoint
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _read_config_of_domain(self, config: RunConfig) -> dict[str, Any]:
        """Read the configuration, and refuse one of another domain than that of `config`."""
        found = self.read_config()
        if found.get("domain") != config.domain:
            raise UserError(f"{self.path} belongs to a run of the domain {found.get('domain')!r}: choose another --out")
        return found


class InUseError(UserError):
    """Another process holds the lock of a folder."""


class FolderLock:
    """Locks a folder for one process. The system releases the lock when the process ends or is killed.

    On shared disks (NFS, Lustre with `flock`, CephFS, GPFS) this POSIX lock holds for all machines. Some disks are
    mounted with locks for one machine only.

    Parameters
    ----------
    folder : Path
        The folder to lock. A process must not lock it twice: closing the locked file once releases both locks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> "FolderLock":
        """Take the lock.

        Raises
        ------
        UserError
            If another process holds the lock, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise UserError(f"cannot write to {self.folder} ({error.strerror}): choose another --out") from None
        try:
            # A POSIX lock belongs to one process: forked workers do not keep it when this process is killed.
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise UserError(
                    f"{self.folder} is on a disk without locks ({error.strerror}): mount it with them, or choose "
                    "another --out"
                ) from None
            raise InUseError(
                f"{self.folder} is in use by another process: wait for it, or choose another --out"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        os.close(self._handle)
