"""Checkpoints: written atomically, and read as plain data only."""

import os
import warnings
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from r2mae.errors import UserError
from r2mae.files import atomic_write
from r2mae.training.shards import SHARDS, check_shards, drop_shards, whole

STEP, EARLY, SECONDS = "r2mae_step", "r2mae_early_stopping", "r2mae_seconds"
_FIELD_TYPES = {STEP: int, EARLY: dict, SECONDS: float, "state_dict": dict, "optimizer_states": list, "loops": dict}
_WRITER_MESSAGES = ("PytorchStreamWriter", "unexpected pos")  # in messages of torch's archive writer


class AtomicCheckpointIO(CheckpointIO):
    """Saves and loads checkpoints for Lightning; only a complete checkpoint replaces the previous one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write the checkpoint to a temporary file next to `path`, flush it to the disk, then rename it."""
        with atomic_write(path, "wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # torch's archive writer reports a full disk in this way
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                if not any(words in str(error) for words in _WRITER_MESSAGES):
                    raise  # for example a device error, which appears when tensors are read
                raise OSError(ENOSPC, os.strerror(ENOSPC)) from error
        drop_shards(Path(path), keep=checkpoint.get(SHARDS, {}).get("folder"))

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint with all its tensors; see :func:`read_checkpoint`."""
        return whole(Path(path), read_checkpoint(Path(path)))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint."""
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path, *, thorough: bool = False) -> dict[str, Any]:
    """Read a checkpoint onto the CPU without unpickling anything but tensors and plain types.

    The tensors of a sharded checkpoint stay in its shards; see :func:`r2mae.training.shards.whole`. If `thorough`,
    their checksums are compared.

    Raises
    ------
    UserError
        If the file is truncated, is no checkpoint, or would run code when read; or if shards are missing or damaged.
    """
    try:
        with warnings.catch_warnings():
            if not path.is_file():
                raise ValueError("a pipe may never end")
            warnings.simplefilter("ignore")  # torch's warnings about pickles; the error below suffices
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types of errors for a broken archive
        reason = (
            "it contains objects other than numbers, which are never unpickled"
            if "weights_only" in str(error) or "Unsupported" in str(error)
            else "it is truncated or damaged"
        )
        raise UserError(f"{path} cannot be read: {reason}; delete it to start this run again from step 0") from None
    if isinstance(checkpoint, dict):
        checkpoint.setdefault(SECONDS, 0.0)  # the first versions did not record it
    if (
        not isinstance(checkpoint, dict)
        or not all(isinstance(checkpoint.get(key), kind) for key, kind in _FIELD_TYPES.items())
        or checkpoint[STEP] < 0
        or {key: type(value) for key, value in checkpoint[EARLY].items()} != {"best": float, "waited": int}
    ):
        raise UserError(f"{path} is not a checkpoint of r2mae; delete it to start this run again from step 0")
    if SHARDS in checkpoint:
        check_shards(path, checkpoint[SHARDS], thorough=thorough)
    return checkpoint
