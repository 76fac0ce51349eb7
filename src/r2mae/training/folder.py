"""Run folders: one run, one process, one configuration.

config.yaml         reruns it            checkpoints/last.ckpt   goes on from here
environment.json    where it ran         model.safetensors       the finished model, with model.json beside it
data.json           what it reads        results.json            what it scored
metrics.csv         one row a step          items.safetensors       its scores of single test items
                                            statistics.safetensors  batch normalisation's, for whole inputs
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
from r2mae.masking.defaults import RatioDefaults
from r2mae.masking.schemes import SCHEME_OPTIONS, scheme_takes
from r2mae.training.config import RunConfig
from r2mae.training.environment import environment, with_change
from r2mae.training.records import (
    Description,
    holds_weights,
    read_description,
    read_fingerprint,
    read_json,
    read_results,
    read_yaml,
    remedy_for,
)
from r2mae.training.scheme_options import as_used, resolved

__all__ = ["FolderLock", "InUseError", "RunFolder", "read_json", "remedy_for"]


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
        self.statistics = self.path / "statistics.safetensors"  # of batch normalisation, for whole inputs
        self.model_file = self.path / "model.json"
        self.results_file = self.path / "results.json"
        self.items_file = self.path / "items.safetensors"  # scores of single test items
        self.evaluation_file = self.path / "evaluation.json"  # parts of an evaluation that are finished
        self.data_file = self.path / "data.json"

    @property
    def trained(self) -> bool:
        """Whether training has ended. ``model.json`` is written last, so where it exists the weights are complete.

        Weights of which nothing, or not even the header, was left since then do not count where there is a checkpoint:
        they are written again from it.
        """
        there = self.model_file.is_file() and self.weights.is_file()
        return there and (holds_weights(self.weights) or not self.checkpoint.exists())

    @property
    def results(self) -> dict[str, Any] | None:
        """The contents of ``results.json``; None if it is missing or damaged, so that the run is measured anew."""
        return read_results(self.results_file)

    @property
    def description(self) -> Description:
        """The description of the model in ``model.json``; raises a :class:`UserError` if it is damaged."""
        return read_description(self.model_file)

    def results_for(self, config: RunConfig) -> dict[str, Any] | None:
        """Return the results, or None if they were measured in another way than `config` says."""
        results = self.results
        if results is None:
            return None
        said = results.get("measured", {})
        if not isinstance(said, dict):
            return None
        formerly = jsonable(config.measured_formerly)  # which says what an older version did not
        wanted = jsonable(config.measured_as())
        idle = set(config.measured_with) - set(wanted)  # which an older version wrote down, too
        there, here = ({**formerly, **given} for given in (said, wanted))
        same = all(there.get(name) == here.get(name) for name in (there.keys() | here.keys()) - idle)
        return results if same else None

    def baseline_for(self, config: RunConfig) -> dict[str, Any] | None:
        """Return a baseline's results, or None if they were measured in another way; older ones do not say how."""
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
        return config

    def claim(self, config: RunConfig, fingerprint: str, defaults: RatioDefaults | None = None) -> None:
        """Write the configuration and the data's fingerprint into a new folder, or compare them with those in it.

        With `defaults`, numbers that the configuration leaves open are written with the values that are used.

        Raises
        ------
        UserError
            If the folder belongs to another configuration or other data, or holds files that are not of a run.
        """
        self.check(config, defaults)
        if self.config_file.exists():
            known = read_fingerprint(self.data_file) if self.data_file.exists() else fingerprint
            if known != fingerprint:
                raise UserError(f"{config.data} has changed since {self.path} was begun: choose another --out")
            return
        write_json(self.environment_file, environment())
        write_json(self.data_file, {"data": config.data, "fingerprint": fingerprint})
        with atomic_write(self.config_file) as file:
            used = config if defaults is None else resolved(config, defaults)
            yaml.safe_dump(used.to_dict(), file, sort_keys=False)

    def check(self, config: RunConfig, defaults: RatioDefaults | None = None) -> None:
        """Refuse a folder of another configuration, or with files that are not of a run. Data are not checked.

        Raises
        ------
        UserError
            It names the first difference, or the first file that is not of a run.
        """
        if self.config_file.exists():
            there = type(config).from_dict(self._own(config), source=str(self.config_file))
            same = there.scheme == config.scheme
            if defaults is not None and same and there.cl_iterations is None and _takes(config, "cl_iterations"):
                raise UserError(
                    f"{self.path} holds a curriculum of an earlier version, which had another schedule: choose another "
                    "--out"
                )
            mine, theirs = as_used(config, defaults), as_used(there, defaults)
            different = mine.differences(theirs)
            if different:
                name = different[0]
                yours, its = mine.to_dict()[name], theirs.to_dict()[name]
                repeat = ", or repeat the options of that run" if _takes(config, name) else ""
                raise UserError(
                    f"{self.path} belongs to another configuration ({name} is {its!r} there and "
                    f"{yours!r} here): choose another --out{repeat}"
                )
            return
        own = {self.environment_file.name, self.data_file.name}  # all that a crash can leave before config.yaml
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        foreign = [name for name in names if not name.startswith(".") and name not in own]
        if foreign:
            raise UserError(f"{self.path} holds other files ({foreign[0]}) and no run: choose another --out")

    def note_machine(self, device: str, step: int) -> list[str]:
        """Write into environment.json where the run is trained, from this step on.

        At step 0 this is where it begins. Later, what differs from before is added; of this, the names of those changes
        are returned that may alter numbers.
        """
        now = jsonable({**environment(), "device": device})
        try:
            recorded = read_json(self.environment_file) if step > 0 else {}
        except UserError:  # a record, which training does not need
            recorded = {}
        record, altering = with_change(recorded, now, step) if step > 0 else (now, [])
        if record != recorded:
            write_json(self.environment_file, record)
        return altering

    def note_measured(self, config: RunConfig) -> None:
        """Write into config.yaml how the run was measured, so that the model is used in the same way."""
        there = self.read_config()
        measured = config.measured_as()
        if {name: there.get(name) for name in measured} == jsonable(measured):
            return
        with atomic_write(self.config_file) as file:
            yaml.safe_dump({**there, **measured}, file, sort_keys=False)

    def check_data(self, data: str, fingerprint: str) -> None:
        """Refuse data that have changed since the run was trained on them.

        Raises
        ------
        UserError
            If they have changed.
        """
        known = read_fingerprint(self.data_file) if self.data_file.exists() else fingerprint
        if known != fingerprint:
            raise UserError(f"{data} has changed since {self.path} was trained on it: restore it to measure the run")

    def sweep(self) -> None:
        """Delete half-written files of a killed process. Only the holder of the lock may call this."""
        for left in list(self.path.rglob(f".*{UNFINISHED}")):
            if left.is_dir():  # shards of a checkpoint
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    def _own(self, config: RunConfig) -> dict[str, Any]:
        there = self.read_config()
        if there.get("domain") != config.domain:
            raise UserError(f"{self.path} belongs to a run of the domain {there.get('domain')!r}: choose another --out")
        return there


class InUseError(UserError):
    """Another process holds the lock of a folder."""


class FolderLock:
    """Locks a folder for one process. The system releases the lock when the process ends, in whatever way.

    It is a POSIX lock, which the server of a shared disk keeps for all its machines (NFS, Lustre with `flock`, CephFS,
    GPFS). Some disks are mounted with locks of one machine alone: runners of several machines must look
    (:func:`r2mae.sweep.run_process.check`).

    Parameters
    ----------
    folder : Path
        The folder to lock.
    name : str
        Of the file in it that is locked. A process must not lock one file twice: to close it once gives up both.
    """

    def __init__(self, folder: Path, name: str = ".lock") -> None:
        self.folder, self.name = folder, name

    def __enter__(self) -> "FolderLock":
        """Take the lock.

        Raises
        ------
        UserError
            If another process holds it, or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.folder / self.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise UserError(f"cannot write to {self.folder} ({error.strerror}): choose another --out") from None
        try:
            # A POSIX lock belongs to this process alone: workers forked from it do not keep it when it is killed.
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

    def sign(self, text: str) -> None:
        """Write into the locked file who holds it, for those who wait."""
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text.encode(), 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        os.close(self._handle)


def _takes(config: RunConfig, name: str) -> bool:
    """Return whether a field is no option of schemes, or one that the configuration's scheme takes."""
    return name not in SCHEME_OPTIONS or name in scheme_takes(config.scheme)
