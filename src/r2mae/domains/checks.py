"""Checks before torch is loaded: missing run folders, data and trackers, and outputs that would overwrite data."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae import cores
from r2mae.domains.lookup import domain_of_run
from r2mae.errors import UserError
from r2mae.files import check_output_is_not_source
from r2mae.training.config import RunConfig

if TYPE_CHECKING:
    from r2mae.domains.base import Domain
    from r2mae.training.folder import RunFolder

_GPU = Path("/dev/nvidiactl")  # exists with a GPU driver; checked without torch
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
    from r2mae.training.initial import INIT
    from r2mae.training.metrics import check_logger

    check_logger(config.machine.logger)
    if getattr(config, INIT, None) is not None and all(_has_weights(RunFolder(folder)) for folder in folders):
        config = config.replace(**{INIT: None})
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


def check_transformer_step(
    config: RunConfig, *, rows: str, length: str, width: int, inner: int, words: int = 0, ratio: float = 0.0
) -> None:
    """Refuse a transformer's step on a CPU that does not fit into the free memory; if that is unknown, accept all.

    The estimate is of a micro-batch's forward and backward pass, without weights and gradients. For steps of nine
    shapes it was 0.85 to 1.1 of the memory used.

    Parameters
    ----------
    config : RunConfig
        Its model has layers, heads and dropout.
    rows : str
        The word for the rows of a batch.
    length : str
        The field with the positions of a row.
    width, inner : int
        Widths of the hidden states, and within a layer.
    words : int
        Size of the vocabulary whose logits are computed.
    ratio : float
        The largest share of positions that is hidden: only there, the last layer and the logits are computed. Ratios
        below 0.4 are estimated as 0.4.
    """
    on_gpu = config.machine.device == "auto" and _GPU.exists()
    if on_gpu or config.machine.device not in ("cpu", "auto"):
        return
    model: Any = config.model
    size, parts, ratio = config.optimizer.batch_size, config.optimizer.accumulate, max(ratio, 0.4)
    # Per layer: inputs, queries, keys, values (twice), context, norms, dropout; the inner layer twice; and attention
    # scores, their softmax, and both before and after dropout. The logits are there as such and as their softmax.
    layer = 15 * width + 2 * inner + (4 * model.heads * config[length] if model.dropout else 0)
    position = (model.layers - 1 + ratio) * layer + 4 * width + 2 * ratio * words
    needed, free = int(4 * (size // parts) * config[length] * position), cores.available_memory()
    fits = next((n for n in range(2, size + 1) if size % n == 0 and needed * parts < n * (free or 0) / 2), None)
    hint = f"give a smaller --preset, such as mini or tiny, or a smaller --{length.replace('_', '-')}"
    if fits is not None:
        hint = f"give --accumulate {fits} ({size // fits} at a time, the same optimiser step)"
    cores.refuse_beyond_memory(needed, f"{size // parts:,} {rows} at a time need", hint)
