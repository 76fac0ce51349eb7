"""Checkpoints: written atomically, and read as plain data only."""

import os
import warnings
from errno import ENOSPC
from pathlib import Path
from typing import Any

import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.training.distributed import as_divided

STEP, EARLY, SECONDS = "r2mae_step", "r2mae_early_stopping", "r2mae_seconds"
_FIELD_TYPES = {STEP: int, EARLY: dict, SECONDS: float, "state_dict": dict, "optimizer": dict}
_WRITER_MESSAGES = ("PytorchStreamWriter", "unexpected pos")  # in messages of torch's archive writer


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write to a temporary file next to `path`, flush it to the disk, then rename it."""
    with atomic_write(path, "wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's archive writer reports a full disk in this way
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            if not any(words in str(error) for words in _WRITER_MESSAGES):
                raise  # for example a device error, which appears when tensors are read
            raise OSError(ENOSPC, os.strerror(ENOSPC)) from error


def read_checkpoint(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint onto the CPU without unpickling anything but tensors and plain types.

    With `mapped`, its tensors stay in the file, which the processes of a machine share, until they are used.

    Raises
    ------
    UserError
        If the file is truncated, is no checkpoint, or would run code when read.
    """
    try:
        with warnings.catch_warnings():
            if not path.is_file():
                raise ValueError("a pipe may never end")
            warnings.simplefilter("ignore")  # torch's warnings about pickles; the error below suffices
            checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises many types of errors for a broken archive
        reason = (
            "it contains objects other than numbers, which are never unpickled"
            if "weights_only" in str(error) or "Unsupported" in str(error)
            else "it is truncated or damaged"
        )
        raise UserError(f"{path} cannot be read: {reason}; delete it to start this run again from step 0") from None
    if (
        not isinstance(checkpoint, dict)
        or not all(isinstance(checkpoint.get(key), kind) for key, kind in _FIELD_TYPES.items())
        or checkpoint[STEP] < 0
        or {key: type(value) for key, value in checkpoint[EARLY].items()} != {"best": float, "waited": int}
    ):
        raise UserError(f"{path} is not a checkpoint of r2mae; delete it to start this run again from step 0")
    return checkpoint


def restore(path: Path, checkpoint: dict[str, Any], module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load a checkpoint's tensors into a module and its optimiser, which may be divided among any number of processes.

    Raises
    ------
    UserError
        If the tensors are those of another model.
    """
    weights = module.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    fused = [group.get("fused") for group in optimizer.param_groups]
    try:
        state = {
            number: {name: as_divided(value, parameters[number]) for name, value in entries.items()}
            for number, entries in checkpoint["optimizer"]["state"].items()
        }
        module.load_state_dict({n: as_divided(value, weights[n]) for n, value in checkpoint["state_dict"].items()})
        optimizer.load_state_dict({**checkpoint["optimizer"], "state": state})
    except (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, RuntimeError) and "state_dict" not in str(error):
            raise
        raise UserError(f"{path} belongs to another model: delete it to start again") from None
    for group, kernel in zip(optimizer.param_groups, fused, strict=True):
        if "fused" in group:
            group["fused"] = kernel  # depends on where the parameters are
