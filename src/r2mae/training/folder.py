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

A run folder may come from a stranger. So files are read by :func:`r2mae.files.read_confined`, YAML with references
(anchors and aliases) is refused, and every value must have the type that the code expects.
"""

import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from r2mae.environment import CONTINUED, environment
from r2mae.errors import UserError, brief
from r2mae.files import (
    UNFINISHED,
    atomic_write,
    check_contents,
    confined_file,
    jsonable,
    read_confined,
    sha256,
    write_json,
)
from r2mae.training.config import RunConfig

FORMAT = 1  # of model.json
_MAX_YAML = 1 << 18  # bytes; a configuration has some hundred lines
_MAX_JSON = 1 << 28  # a model of cells lists its genes, and its training history has a line per step
_MAX_NUMBER = 1e300
_MODEL_FILES = ("model.json", "model.safetensors", "statistics.safetensors")  # written together


@dataclass(frozen=True)
class Description:
    """The contents of ``model.json``, which describes the weights."""

    domain: str
    steps: int
    seconds: float
    architecture: Mapping[str, Any]
    sha256: Mapping[str, Any]  # of the files with weights, by name; empty for runs of earlier versions


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
        """The contents of ``results.json``; None if it is missing or damaged, or was measured on other weights.

        The run is then measured again. Scores (by name) and times are finite or None.
        """
        try:
            values = read_json(self.results_file)
        except UserError:
            return None
        scores = values.get("scores")
        if not isinstance(scores, dict):
            return None
        times = [values.get(name) for name in ("steps", "seconds", "samples_per_second", "measuring_seconds")]
        if not all(one is None or _is_finite(one) for one in (*scores.values(), *times)):
            return None
        return values if not self.trained or self.holds(values, self.weights, self.statistics) else None

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of the files that results belong to, by name: weights, statistics, scores of test items."""
        return {file.name: sha256(file) for file in (self.weights, self.statistics, self.items_file) if file.is_file()}

    @staticmethod
    def holds(record: Mapping[str, Any], *files: Path) -> bool:
        """Return whether files that exist have the SHA-256 of a record; one of an earlier version has none."""
        known = record.get("sha256")
        try:
            return known is None or all(
                known.get(file.name) == sha256(confined_file(file)) for file in files if file.exists()
            )
        except (OSError, ValueError, AttributeError):
            return False

    @property
    def description(self) -> Description:
        """The description of the model in ``model.json``; a :class:`UserError` for another version's, or damage."""
        values = read_json(self.model_file)
        known = values.get("format")
        if known not in (None, FORMAT):
            raise UserError(
                f"{self.model_file} has format {known!r}, and this version reads {FORMAT}: it was written by another "
                f"version (r2mae {values.get('r2mae')}): train again, or use that version"
            )
        domain, architecture = values.get("domain"), values.get("architecture", {})
        steps, seconds = values.get("steps", 0), values.get("seconds", 0.0)
        digests = values.get("sha256", {})
        counted = type(steps) is int and _is_finite(steps) and _is_finite(seconds) and min(steps, seconds) >= 0
        if not (
            known is not None
            and counted
            and isinstance(domain, str)
            and isinstance(architecture, dict)
            and isinstance(digests, dict)
        ):
            raise UserError(f"{self.model_file} does not describe a model: {hint_for(self.model_file)}")
        return Description(domain, steps, seconds, architecture, digests)

    def results_for(self, config: RunConfig) -> dict[str, Any] | None:
        """Return the results, or None if they were measured with other settings than those of `config`."""
        results = self.results
        settings = jsonable(config.measurement_settings())
        return results if results is not None and results.get("measured") == settings else None

    def read_config(self, domain: str | None = None) -> dict[str, Any]:
        """Return the configuration as plain types; refuse that of another domain than the named one."""
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
        if domain is not None and config["domain"] != domain:
            found = config["domain"]
            raise UserError(f"{self.path} is a run of the domain {found}, not {domain}: name one of {domain}")
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

        At step 0 the environment is written. Later, its changes are added and logged.
        """
        now = jsonable({**environment(), "device": device})
        try:
            recorded = read_json(self.environment_file) if step else now
        except UserError:  # damaged: training does not need it
            recorded = now
        before = recorded.get(CONTINUED)
        changes = [one for one in before if isinstance(one, dict)] if isinstance(before, list) else []
        last = {name: value for entry in (recorded, *changes) for name, value in entry.items()}
        changed = {name: value for name, value in now.items() if last.get(name) != value}
        if recorded is now:
            write_json(self.environment_file, now)
        elif changed:
            write_json(self.environment_file, {**recorded, CONTINUED: [*changes, {"step": step, **changed}]})
            logging.getLogger("r2mae").warning(
                "%s resumes from step %d in a changed environment (%s). Its results may differ from those of an "
                "uninterrupted run; environment.json lists the changes",
                self.path,
                step,
                ", ".join(changed),
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
            check_contents(self.folder)
            self._handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except RecursionError:
            raise UserError(f"{str(self.folder)[:60]}… is nested too deeply: choose another --out") from None
        except OSError as error:
            raise UserError(f"cannot write to {self.folder} ({error.strerror}): choose another --out") from None
        try:
            # A POSIX lock belongs to one process: forked workers do not keep it when this process is killed.
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise UserError(f"{self.folder} cannot be locked ({error.strerror}): choose another --out") from None
            raise InUseError(f"{self.folder} is in use by another process: wait, or choose another --out") from None
        return self

    def __exit__(self, *details: object) -> None:
        """Release the lock."""
        os.close(self._handle)


# The small files -----------------------------------------------------------------------------------------------------


class _PlainLoader(yaml.SafeLoader):
    """Loads YAML without references: a few lines of nested aliases can expand beyond the memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.YAMLError(f"anchors and aliases are not read: write out {event.anchor!r} in full")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        made = super().construct_mapping(node, deep=deep)
        if len(made) < len(node.value):
            raise yaml.YAMLError("a key occurs twice")
        return made

    def construct_yaml_int(self, node: Any) -> int:
        made = super().construct_yaml_int(node)
        # 1:30 are ninety seconds of an old calendar; Python does not write numbers of thousands of digits
        if ":" in node.value or abs(made) > _MAX_NUMBER:
            raise yaml.YAMLError(f"{node.value[:40]!r} is no whole number that is read")
        return made


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)


def read_yaml(path: Path, *, linked: bool = False) -> dict[str, Any]:
    """Read a YAML file of fields as plain types; no objects are constructed.

    With `linked` it may be a link to another folder, for files that the user names.

    Raises
    ------
    UserError
        If the file is missing, too large, no mapping of names to values, or contains anchors or aliases.
    """
    try:
        values = yaml.load(_read_text(path, _MAX_YAML, linked), _PlainLoader)  # a safe loader
    except FileNotFoundError:
        raise UserError(f"there is no configuration {path}") from None
    except (OSError, yaml.YAMLError, RecursionError, ValueError, OverflowError, AttributeError, TypeError) as error:
        raise UserError(f"{path} is not a readable YAML file ({brief(error)}): repair it, or name another") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{path} is not a configuration: expected a mapping of fields to values")
    return values


def read_json(path: Path, *, linked: bool = False) -> dict[str, Any]:
    """Read a JSON object; a defect raises a UserError; `linked` as in :func:`read_yaml`."""
    try:
        value = json.loads(_read_text(path, _MAX_JSON, linked))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not readable JSON ({brief(error)}): {hint_for(path)}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} should contain a JSON object: {hint_for(path)}")
    return value


def hint_for(path: Path) -> str:
    """Return the hint for a damaged file of a run folder; files that can be rewritten do not cost the folder."""
    folder = path.parent
    if path.name == "data.json":
        return "delete it; changes of the run's data are then no longer detected"
    if path.name not in _MODEL_FILES:
        return f"delete {folder} and rerun the same command"
    if not (folder / "checkpoints" / "last.ckpt").is_file():
        return f"delete {folder} and rerun the command that made it"
    return (
        f"delete {folder / 'model.json'} and rerun the command that made the run, such as `r2mae pretrain`: it writes "
        "the model again, from the last checkpoint"
    )


def _is_finite(value: Any) -> bool:
    """Whether this is a finite number, and not text, true, 1e400 or a number of thousands of digits."""
    return type(value) in (int, float) and abs(value) < _MAX_NUMBER


def _read_text(path: Path, most: int, linked: bool) -> str:
    return read_confined(path.resolve() if linked else path, most).decode("utf-8")
