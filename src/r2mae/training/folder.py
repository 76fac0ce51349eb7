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
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from r2mae.errors import UserError
from r2mae.files import UNFINISHED, atomic_write, jsonable, write_json
from r2mae.training.config import RunConfig
from r2mae.training.environment import add_change, environment
from r2mae.training.records import finite_float, hint_for, read_json, read_yaml

__all__ = ["FolderLock", "InUseError", "RunFolder", "hint_for", "read_json"]

FORMAT = 1  # of model.json


@dataclass(frozen=True)
class Description:
    """The contents of ``model.json``, which describes the weights; `format` and `version` are not checked."""

    format: Any
    version: str
    domain: str
    steps: int
    seconds: float
    architecture: Mapping[str, Any]


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
        """Whether training has ended. ``model.json`` is written last, so if it exists, the weights are complete."""
        return self.model_file.is_file() and self.weights.is_file()

    @property
    def results(self) -> dict[str, Any] | None:
        """The contents of ``results.json``; None if it is missing or damaged: the run is then measured again.

        Scores (by name) and times are finite or None.
        """
        try:
            values = read_json(self.results_file)
        except UserError:
            return None
        scores = values.get("scores")
        if not isinstance(scores, dict):
            return None
        times = [values.get(name) for name in ("steps", "seconds", "samples_per_second", "measuring_seconds")]
        numbers = [*scores.values(), *times]
        return values if all(one is None or finite_float(one) is not None for one in numbers) else None

    @property
    def description(self) -> Description:
        """The description of the model in ``model.json``; raises a :class:`UserError` if it is damaged."""
        values, path = read_json(self.model_file), self.model_file
        domain, architecture = values.get("domain"), values.get("architecture", {})
        steps, seconds = values.get("steps", 0), finite_float(values.get("seconds", 0.0))
        if type(steps) is not int or finite_float(steps) is None or seconds is None or min(steps, seconds) < 0:
            raise UserError(f"{path} contains no number of steps and seconds: {hint_for(path)}")
        if not isinstance(domain, str) or not isinstance(architecture, dict):
            raise UserError(f"{path} does not describe a model: {hint_for(path)}")
        return Description(values.get("format"), str(values.get("r2mae")), domain, steps, seconds, architecture)

    def results_for(self, config: RunConfig) -> dict[str, Any] | None:
        """Return the results, or None if they were measured with other settings than those of `config`."""
        results = self.results
        settings = jsonable(config.measurement_settings())
        return results if results is not None and results.get("measured") == settings else None

    def read_config(self) -> dict[str, Any]:
        """Return the configuration as plain types."""
        if not self.path.is_dir():
            raise UserError(f"there is no run folder {self.path}")
        if not self.config_file.is_file() and (self.path / "config.json").is_file():
            raise UserError(
                f"{self.path} is a checkpoint, not a run folder: begin a run with it, r2mae pretrain DOMAIN DATA "
                f"--init {self.path} (to score it as it is, add --steps 1 --lr 1e-30)"
            )
        if not self.config_file.is_file():
            raise UserError(f"{self.path} is not a run folder: it has no config.yaml")
        config = read_yaml(self.config_file)
        if "domain" not in config or isinstance(config.get("data"), str):
            raise UserError(
                f"{self.config_file} is of an earlier version, whose runs are not read: train again into another --out"
            )
        return config

    def claim(self, config: RunConfig, fingerprint: str) -> None:
        """Write the configuration and the data's fingerprint into a new folder; compare them with those of an old one.

        Data that were moved since are recorded under their new name.

        Raises
        ------
        UserError
            If the folder belongs to another configuration or other data, or contains files of no run.
        """
        self.check_config(config, lambda: fingerprint)
        source = config.data.source
        if not self.config_file.exists():
            write_json(self.environment_file, environment())
            write_json(self.data_file, {"data": source, "fingerprint": fingerprint})
            self._write_config(config.to_dict())
            return
        self.check_data(source, fingerprint, "choose another --out")
        written = self.read_config()
        if (before := written["data"]["source"]) != source:
            self._write_config({**written, "data": {**written["data"], "source": source}})
            logging.getLogger("r2mae").warning("%s was begun on %s; %s has the same content", self.path, before, source)

    def check_config(self, config: RunConfig, fingerprint: Callable[[], str] | None = None) -> None:
        """Refuse a folder of another configuration, or with files of no run. Data are not checked.

        Parameters
        ----------
        config : RunConfig
            To compare.
        fingerprint : callable, optional
            Returns the fingerprint of its data. If it is that of the folder's data, their name may differ.

        Raises
        ------
        UserError
            Names the first difference, or the first file of no run.
        """
        if self.config_file.exists():
            written = self.read_config()
            if written.get("domain") != config.domain:
                raise UserError(
                    f"{self.path} belongs to a run of the domain {written.get('domain')!r}: choose another --out"
                )
            differences = config.differences(type(config).from_dict(written, source=str(self.config_file)))
            if "data" in differences and fingerprint is not None and self._fingerprint == fingerprint():
                del differences["data"]  # the same content under another name
            for name, (yours, its) in differences.items():
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

    def check_data(self, data: str, fingerprint: str, hint: str = "restore it to measure the run") -> None:
        """Refuse data that have changed since the run was trained on them."""
        if self._fingerprint not in (None, fingerprint):
            raise UserError(f"{data} has changed since {self.path} was trained on it: {hint}")

    def record_machine(self, device: str, step: int) -> None:
        """Record in environment.json the environment that the run is trained in from this step on.

        At step 0 the environment is written. Later, its changes are added, and those that may alter results are logged.
        """
        now = jsonable({**environment(), "device": device})
        recorded: dict[str, Any] = {}
        record, altering = now, list[str]()
        if step > 0:
            try:
                recorded = read_json(self.environment_file)
                record, altering = add_change(recorded, now, step)
            except (UserError, KeyError, TypeError, ValueError):  # a damaged record, which training does not need
                pass
        if record != recorded:
            write_json(self.environment_file, record)
        if altering:
            logging.getLogger("r2mae").warning(
                "%s resumes from step %d in a changed environment: %s. Its results may differ from those of an "
                "uninterrupted run; environment.json lists the changes",
                self.path,
                step,
                ", ".join(altering),
            )

    def record_measurement(self, config: RunConfig) -> None:
        """Record in config.yaml how the run was measured, so that later uses of the model agree."""
        existing = self.read_config()
        measured = config.measurement_settings()
        evaluation = {**existing.get("evaluation", {}), **jsonable(measured)}
        if evaluation != existing.get("evaluation", {}):
            self._write_config({**existing, "evaluation": evaluation})

    def remove_unfinished(self) -> None:
        """Delete unfinished files of a killed process. Only the holder of the lock may call this."""
        for path in list(self.path.rglob(f".*{UNFINISHED}")):
            path.unlink(missing_ok=True)

    @property
    def _fingerprint(self) -> str | None:
        """The fingerprint of the run's data; None if ``data.json`` was deleted."""
        if not self.data_file.exists():
            return None
        known = read_json(self.data_file).get("fingerprint")
        if not isinstance(known, str):
            raise UserError(f"{self.data_file} contains no fingerprint of the data: {hint_for(self.data_file)}")
        return known

    def _write_config(self, values: dict[str, Any]) -> None:
        with atomic_write(self.config_file) as file:
            yaml.safe_dump(values, file, sort_keys=False)


class InUseError(UserError):
    """Another process holds the lock of a folder."""


class FolderLock:
    """Locks a folder for one process. The system releases the lock when the process ends or is killed.

    On shared disks (NFS, Lustre with `flock`, CephFS, GPFS) this POSIX lock holds for all machines, unless they are
    mounted with locks for one machine only. A process must not lock a folder twice: closing the locked file once
    releases both locks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> "FolderLock":
        """Take the lock; raise an :class:`InUseError` if another process holds it."""
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

    def __exit__(self, *details: object) -> None:
        """Release the lock."""
        os.close(self._handle)
