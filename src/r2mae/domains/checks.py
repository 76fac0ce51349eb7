"""Checks before torch is loaded: missing run folders, data and trackers, and outputs that would overwrite data."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.files import check_output_is_not_source
from r2mae.training.config import RunConfig

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.training.folder import RunFolder

_INIT = "init"  # the field r2mae.training.initial.INIT, whose module loads torch
_PICTURE = ".png"  # the only format of a command's output that a data folder may contain


def check_run(domain: "Domain", config: RunConfig, folders: Iterable[Path]) -> None:
    """Refuse mistakes of runs that can be found without a heavy library.

    Parameters
    ----------
    domain : Domain
        Of the data.
    config : RunConfig
        The fields that the runs share.
    folders : iterable of Path
        Their folders. Runs that have taken steps no longer need their initial weights.
    """
    from r2mae.training.folder import RunFolder
    from r2mae.training.metrics import check_logger

    check_logger(config.machine.logger)
    if getattr(config, _INIT, None) is not None and all(_has_weights(RunFolder(folder)) for folder in folders):
        config = config.replace(**{_INIT: None})
    domain.check(config)


def _has_weights(folder: "RunFolder") -> bool:
    return folder.trained or folder.checkpoint.exists()


def check_source(domain: "Domain", config: RunConfig, data: str) -> None:
    """Refuse missing data."""
    domain.check_source(config.replace(data=data))


def check_output(domain: "Domain", output: str | Path, data: str) -> None:
    """Refuse an output that would overwrite the data: their file, or a picture in their folder.

    The name of a set is not a path, even if a folder of that name exists.

    Raises
    ------
    UserError
        If the output would overwrite the data.
    """
    output, source = Path(output), Path(data)
    if data in domain.sets:
        return
    check_output_is_not_source(output, source)
    if output.exists() and output.suffix.lower() == _PICTURE and output.resolve().is_relative_to(source.resolve()):
        raise UserError(f"{output}: is a file of {data}, which is read: name another output")


def open_run(path: Path) -> "tuple[Domain, RunConfig]":
    """Return the domain and the configuration of a run folder.

    Raises
    ------
    UserError
        If the folder does not exist, or holds no run.
    """
    from r2mae.training.folder import RunFolder

    folder = RunFolder(path)
    written = folder.read_config()
    domain = domain_of_run(written, path)
    return domain, domain.config.from_dict(written, source=str(folder.config_file))
