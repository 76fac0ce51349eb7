"""Check that the model and the batches of a run fit into memory, before anything large is allocated.

Without this check, a width with a zero too many makes the kernel kill the process, and with a batch of a hundred
million samples no step is finished for hours. The bounds are what a run needs *at least*; a run that passes the check
may still be too large.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.devices import torch_device
from r2mae.training.memory import available_memory
from r2mae.training.task import Data, Trainable
from r2mae.training.units import check_can_be_made_anew
from r2mae.training.validation import EVALUATION_KEY

# Of each weight while it is trained, beside itself: its gradient, and the moments of the optimiser.
_BESIDE = {"adam": 3, "adamw": 3, "sgd": 2, "lars": 2}
_PASSES = 100  # over all data in one optimiser step; more is a mistake
_FEW = 1 << 16  # samples of a step that are allowed however small the data are
_ORDER = 16  # bytes for the place of a sample in the order of the data, and a copy
_BATCH_COPIES = 3  # of a sample's numbers: as read, as targets, and as hidden or predicted


def model_bytes(domain: Trainable, architecture: Mapping[str, Any]) -> int:
    """Return the bytes of a model's parameters and buffers, without allocating them; 0 if this is impossible.

    Raises
    ------
    Exception
        Whatever the domain's constructors raise on values that make no model.
    """
    return _bytes(_sketch(domain, architecture))


def _bytes(model: nn.Module | None) -> int:
    if model is None:
        return 0
    return sum(part.numel() * part.element_size() for part in (*model.parameters(), *model.buffers()))


def _sketch(domain: Trainable, architecture: Mapping[str, Any]) -> nn.Module | None:
    """Return a model without numbers; None for one that looks at its own numbers while it is made."""
    try:
        with torch.device("meta"):
            _, model = domain.build(architecture)
    except (RuntimeError, NotImplementedError) as error:
        if "meta tensor" not in str(error).lower():
            raise
        return None
    return model  # type: ignore[no-any-return]


def check_fits_memory(
    config: RunConfig, domain: Trainable, data: Data, *, architecture: Mapping[str, Any] | None = None
) -> None:
    """Refuse a run whose model or batch cannot fit, or whose steps could never end.

    Parameters
    ----------
    config, domain, data
        Of the run.
    architecture : mapping, optional
        Of its model, where the data were read for a model of another size; by default that of the data.

    Raises
    ------
    UserError
        It says how much memory the run needs at least, and which options reduce it.
    """
    config.total_steps(len(data.train))
    _check_batch(config, data)
    architecture = data.architecture if architecture is None else architecture
    try:
        model = _sketch(domain, architecture)
    except UserError:
        raise
    except Exception as error:  # torch tells in its own ways of sizes whose product overflows
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"no model of these sizes can be made ({reason}): ask for smaller ones") from None
    if model is None:  # what it needs is not known before it is made
        return
    if config.activation_checkpointing:
        check_can_be_made_anew(model)
    free, least = _free(config), _least(config, model)
    if free is not None and least * _here(config) > free:
        raise UserError(
            f"the model takes at least {_gigabytes(least)} while it is trained, and {_gigabytes(free)} are "
            f"free: make it smaller ({_largest(architecture)})"
        )


def _check_batch(config: RunConfig, data: Data) -> None:
    samples = len(data.train)
    most = max(_FEW, _PASSES * samples)
    if config.batch_size > most:
        raise UserError(
            f"batch_size {config.batch_size:,} goes over the {samples:,} training samples "
            f"{config.batch_size // max(samples, 1):,} times in every step: {most:,} is the most, and "
            "a few hundred are usual"
        )
    share = config.batch_size // (config.accumulate * config.ranks)
    free = _free(config)
    if share * config.ranks < _FEW or free is None:
        return
    needed = _here(config) * (share * _BATCH_COPIES * _sample_bytes(data) + config.batch_size * _ORDER)
    if needed > free:
        raise UserError(
            f"{share:,} samples at a time take at least {_gigabytes(needed)}, and {_gigabytes(free)} are free: "
            "lower --batch-size, or split it with --accumulate"
        )


def _sample_bytes(data: Data) -> int:
    """Return the bytes of a sample as it is read; of sparse counts what the few first store."""
    rows = min(16, len(data.train))
    batch = data.train.batch(np.arange(rows), EVALUATION_KEY)
    parts = batch.values() if isinstance(batch, Mapping) else (batch,)
    return sum(part.numel() * part.element_size() for part in parts if isinstance(part, torch.Tensor)) // max(rows, 1)


def _free(config: RunConfig) -> int | None:
    """Return the free memory of the device, None if it is unknown."""
    device = torch_device(config.device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()


def _least(config: RunConfig, model: nn.Module) -> int:
    """Return the bytes that a model takes in each process at least; where it is sharded, a share of all.

    Weights that are not trained have neither a gradient nor moments.
    """
    size = _bytes(model)
    trained = sum(part.numel() * part.element_size() for part in model.parameters() if part.requires_grad)
    whole = size + _BESIDE[config.optimizer] * trained
    if config.strategy == "ddp":
        return whole
    shared = whole // config.ranks
    return shared if torch_device(config.device).type == "cuda" else max(size, shared)  # it is made as a whole first


def _here(config: RunConfig) -> int:
    """Return how many processes of the run share the memory of the device (on a CPU all of them)."""
    return config.devices if torch_device(config.device).type == "cpu" else 1


def _largest(architecture: Mapping[str, Any]) -> str:
    """Name the field that makes the model large."""
    sizes = {name: value for name, value in architecture.items() if type(value) is int and not name.endswith("_id")}
    name = max(sizes, key=lambda one: sizes[one], default="")
    return f"--{name.replace('_', '-')} is {sizes[name]:,}" if name else "see its options in --help"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.3g} GB"
