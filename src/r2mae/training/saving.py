"""Save and load finished models: ``model.safetensors`` and ``model.json``; nothing is unpickled."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from torch import Tensor, nn

import r2mae
from r2mae.environment import standard_session
from r2mae.errors import UserError, brief
from r2mae.files import atomic_write, confined_file, sha256, write_json
from r2mae.training.config import RunConfig
from r2mae.training.folder import FORMAT, RunFolder, hint_for
from r2mae.training.run import model_bytes, torch_device
from r2mae.training.task import Task, Trainable
from r2mae.training.validation import Statistics, batch_norms, set_statistics

_Config = TypeVar("_Config", bound=RunConfig)
_Task = TypeVar("_Task", bound=Task)
_Model = TypeVar("_Model", bound=nn.Module)

_HEADER = 1 << 16  # bytes of slack for a model of few weights


def save_model(
    folder: RunFolder,
    architecture: Mapping[str, Any],
    model: nn.Module,
    description: Mapping[str, Any],
    statistics: Statistics | None = None,
) -> None:
    """Write weights, statistics, side files, and last the description, whose presence means that all are complete.

    Side files are texts by name, from the model's method ``side_files(architecture)`` if it has one, so that other
    programs can open the folder.
    """
    save_weights(folder.weights, model)
    if statistics:
        save_weights(folder.statistics, statistics)
    if (side_files := getattr(model, "side_files", None)) is not None:
        for name, text in side_files(architecture).items():
            with atomic_write(folder.path / name, "wb") as file:
                file.write(text.encode())
    digests = {file.name: sha256(file) for file in (folder.weights, *[folder.statistics] * bool(statistics))}
    content = {"format": FORMAT, "r2mae": r2mae.__version__, **description, "sha256": digests}
    write_json(folder.model_file, {**content, "architecture": dict(architecture)})


def save_weights(path: Path, weights: nn.Module | Mapping[str, Tensor]) -> None:
    """Write the weights of a model, or tensors by name, as safetensors, atomically."""
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    # Clones: safetensors refuses tensors that share memory, such as tied weights.
    content = save_bytes({name: value.detach().cpu().contiguous().clone() for name, value in state.items()})
    with atomic_write(path, "wb") as file:
        file.write(content)


def build_from_description(
    domain: Trainable[Any, _Task, _Model], architecture: Mapping[str, Any], file: Path, weights: Path
) -> tuple[_Task, _Model]:
    """Build the model that a file describes; refuse one that is larger than the weights file can hold."""
    try:
        least, _ = model_bytes(domain, architecture)
        if weights.is_file() and least > 2 * weights.stat().st_size + _HEADER:
            raise ValueError(f"its weights would take {least:,} bytes, {weights.name} has {weights.stat().st_size:,}")
        return domain.build(architecture)
    except UserError:
        raise
    except Exception as error:  # constructors raise many types of errors on invalid values
        raise UserError(f"{file} describes no model that can be built ({brief(error)}): {hint_for(file)}") from None


def load_weights(path: Path, put: Callable[[dict[str, Tensor]], Any], digest: str | None = None) -> None:
    """Read tensors and put them into a model, as by its `load_state_dict`; a damaged or foreign file is refused.

    So are a file with another SHA-256 than `digest`, and values that would silently make every result NaN.
    """
    try:
        content = confined_file(path).read_bytes()
        if digest not in (None, hashlib.sha256(content).hexdigest()):
            raise ValueError("it is not the file that the run wrote")
        found = load_bytes(content)
        for name, values in found.items():
            if not values.isfinite().all():
                raise ValueError(f"{name} is not finite")
            if name.endswith("running_var") and (values < 0).any():
                raise ValueError(f"{name} is negative")
        put(found)
    except (SafetensorError, KeyError, RuntimeError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or belongs to another model ({brief(error)}): {hint_for(path)}") from None


@standard_session()
def load_model(
    path: str | Path,
    domain: Trainable[_Config, _Task, _Model],
    *,
    device: str = "cpu",
    unmasked: bool = False,
) -> tuple[_Config, _Task, _Model]:
    """Load a finished run: configuration, task, and the model in evaluation mode on `device`.

    Parameters
    ----------
    path, domain, device
        Run folder, domain, and device of the model.
    unmasked : bool
        Whether to use the batch statistics that the run re-estimated on unmasked inputs, if its configuration says so.

    Raises
    ------
    UserError
        If the folder is no run, is not finished, belongs to another domain, or contains a damaged file.
    """
    where = torch_device(device)
    folder = RunFolder(path)
    config = domain.config.from_dict(folder.read_config(domain.name), source=str(folder.config_file))
    if not folder.trained:
        raise UserError(f"{folder.path} is not finished: rerun its `r2mae pretrain` command to resume")
    described = folder.description
    if described.domain != domain.name:
        raise UserError(
            f"{folder.model_file} does not describe a model of the domain {domain.name!r}: "
            f"{hint_for(folder.model_file)}"
        )
    task, model = build_from_description(domain, described.architecture, folder.model_file, folder.weights)
    load_weights(folder.weights, model.load_state_dict, described.sha256.get(folder.weights.name))
    if unmasked and batch_norms(model) and config.re_estimates_statistics:
        if folder.statistics.is_file():
            digest = described.sha256.get(folder.statistics.name)
            load_weights(folder.statistics, partial(set_statistics, model), digest)
        else:
            logging.getLogger("r2mae").warning(
                "%s has no batch statistics of unmasked inputs (was statistics.safetensors not copied?): the "
                "training statistics are used",
                folder.path,
            )
    return config, task, model.to(where).eval()
