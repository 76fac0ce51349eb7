"""Metrics of a run: ``metrics.csv``, with one row per step, and experiment trackers."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError, brief, reading, warn_once
from r2mae.files import atomic_write, confined_file, write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder, hint_for, read_json

if TYPE_CHECKING:
    import pandas as pd

_WANDB_STEP = "trainer/global_step"  # as in charts of other libraries
COLUMNS = ("step", "ratio", "loss", "lr", "validation_loss")


class MetricsFile:
    """Writes ``metrics.csv`` of a run, which contains no times, so that equal runs have equal files.

    Opening the file removes the rows after `keep`, the step of the checkpoint (0 for a new run). A file that lacks a
    step up to `keep` is refused.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        with reading(path, hint_for(path)):
            text = confined_file(path).read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        lines = text.split("\n")[1:-1]  # a crash may have truncated the last one
        if len(lines) < keep or any(step_of(line) != step for step, line in enumerate(lines[:keep], 1)):
            raise UserError(f"{path} lacks steps before the checkpoint's step {keep}: {hint_for(path)}")
        with atomic_write(path) as file:
            file.writelines(f"{line}\n" for line in (",".join(COLUMNS), *lines[:keep]))
        self._file = path.open("a", encoding="utf-8", newline="")

    def write(self, rows: Sequence[Sequence[float | None]]) -> None:
        """Append rows, each with its values in the order of :data:`COLUMNS`; None is written as an empty cell."""
        for step, *values in rows:
            cells = ["" if value is None else f"{value:.9g}" for value in values]
            self._file.write(",".join([str(step), *cells]) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Flush all rows to the disk; call this before saving a checkpoint, whose steps must all be in the file."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> "MetricsFile":
        """Return itself."""
        return self

    def __exit__(self, *details: object) -> None:
        """Close the file."""
        self._file.close()


def step_of(row: str) -> int | None:
    """Return the step in the first column of a row, or None if it is invalid."""
    first = row.split(",", 1)[0]
    return int(first) if first.isascii() and first.isdecimal() and len(first) <= 15 else None


def read_metrics(path: Path) -> "pd.DataFrame":
    """Read ``metrics.csv``: the columns :data:`COLUMNS` as numbers, one row per step; a damaged file is refused."""
    import pandas as pd

    with reading(path, hint_for(path)):
        return pd.read_csv(confined_file(path))[list(COLUMNS)].astype(float)


Log = Callable[[Mapping[str, float], int], None]
"""``log(values, step)`` records values by name."""


def check_logger(name: str) -> None:
    """Refuse a tracker whose package, of the same name, is missing, before anything is read or written."""
    if name != "none" and find_spec(name) is None:
        raise UserError(
            f"the logger {name!r} needs the package {name}, which is not installed: pip install {name}, or "
            "omit --logger"
        )


def _tensorboard(config: RunConfig, folder: RunFolder, step: int) -> tuple[Log, Callable[[bool], None]]:
    """Write event files into the run folder; points after `step`, of a run that was killed, are hidden."""
    writer = import_module("torch.utils.tensorboard").SummaryWriter(folder.path / "tensorboard", purge_step=step + 1)

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log, lambda failed: writer.close()


def _wandb(config: RunConfig, folder: RunFolder, step: int) -> tuple[Log, Callable[[bool], None]]:
    """Open a run of Weights & Biases, or resume it; one that the caller opened in this process is used."""
    wandb: Any = import_module("wandb")
    file = folder.path / "tracker.json"
    identity = str((read_json(file) if file.exists() else {}).get("id") or secrets.token_hex(8))
    write_json(file, {"id": identity})
    run = wandb.run
    if run is None:
        name = "-".join(folder.path.resolve().parts[-2:])  # of a comparison: variant and seed
        settings = {"domain": config.domain, **config.flat()}
        where = {"project": "r2mae", "name": name, "dir": str(folder.path)}
        run = wandb.init(id=identity, resume="allow", config=settings, **where)
        run.define_metric("*", step_metric=_WANDB_STEP)

    def finish(failed: bool) -> None:
        # Otherwise, the next run of this process would be logged into it; the caller's stays open.
        if wandb.run is not None and wandb.run.id == identity:
            wandb.finish(exit_code=int(failed))

    return lambda values, step: run.log({**values, _WANDB_STEP: step}), finish


@contextmanager
def tracker_of(config: RunConfig, folder: RunFolder, step: int = 0) -> Iterator[Log | None]:
    """Open the tracker that a configuration names, for a block, at whose end the run ends there, too.

    `step` is the one from which the run resumes. A tracker that fails later is warned of, and training continues.
    """
    name = config.machine.logger
    if name == "none":
        yield None
        return
    try:
        log, finish = {"tensorboard": _tensorboard, "wandb": _wandb}[name](config, folder, step)
    except Exception as error:  # too old, without a login, or without a server: foreign code may raise anything
        raise UserError(f"the logger {name!r} cannot be used ({brief(error)}): omit --logger") from None

    def guarded(call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            warn_once(f"the logger {name!r} failed, and training continues: {error}")

    failed = True
    try:
        yield partial(guarded, log)
        failed = False
    finally:
        guarded(finish, failed)
