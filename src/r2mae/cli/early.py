"""Checks before torch is loaded: missing run folders or data, and trackers that are not installed."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.training.config import RunConfig
from r2mae.training.folder import RunFolder
from r2mae.training.loggers import check_logger
from r2mae.wings.lookup import wing_of_run

if TYPE_CHECKING:
    from r2mae.wings.contract import Wing

_INIT = "init"  # as r2mae.training.initial calls the field, which loads torch


def check_run(wing: "Wing", config: RunConfig, out: Path | None = None) -> None:
    """Refuse mistakes of a run that can be found without a heavy library.

    A run that has begun in the folder `out` needs the weights no more that it began with.
    """
    check_logger(config.logger)
    if out is not None and RunFolder(out).config_file.exists() and getattr(config, _INIT, None) is not None:
        nothing: dict[str, Any] = {_INIT: None}
        config = replace(config, **nothing)
    wing.check(config)


def check_source(wing: "Wing", config: RunConfig, data: str) -> None:
    """Refuse missing data."""
    wing.check_source(replace(config, data=data))


def open_run(path: Path) -> "tuple[Wing, RunConfig]":
    """Return the wing and the configuration of a run folder.

    Raises
    ------
    UserError
        If there is no such folder, or no run in it.
    """
    folder = RunFolder(path)
    written = folder.read_config()
    wing = wing_of_run(written, path)
    return wing, wing.config.from_dict(written, source=str(folder.config_file))
