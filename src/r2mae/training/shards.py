"""Sharded tensors, and checkpoints of them: a folder of safetensors beside ``last.ckpt``, which names it.

``last.ckpt`` holds the plain numbers, and the sizes and checksums of the files in the folder. The folder is complete
under its name before ``last.ckpt`` is replaced, and that is one step: a run that is killed at any moment has the
checkpoint of before or the new one. Any number of processes can read what another number has written, or one alone.
"""

import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from r2mae.errors import UserError
from r2mae.files import UNFINISHED, sync

SHARDS = "r2mae_shards"
"""Entry of a checkpoint whose tensors are in a folder beside it: the folder's name, and sizes and checksums by file."""

_WEIGHTS, _OPTIMIZER = "state_dict.", "optimizer."
_PIECE = 1 << 22  # bytes that are read at a time
_FILE = 1 << 28  # about as many bytes of a process in one file, which is put together in memory


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor, which it shares memory with; a whole tensor is returned as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def all_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers are finite; of sharded tensors also those of the other processes, which must ask as well."""
    floats = [value for value in tensors.values() if value.is_floating_point()]
    finite = torch.stack([local(value).isfinite().all() for value in floats]).all()
    if any(isinstance(value, DTensor) for value in floats):
        least = finite.to(torch.uint8)
        torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
        finite = least.bool()
    return bool(finite)


def full_state(model: nn.Module, *, here: bool) -> dict[str, Tensor]:
    """Return the whole weights of a sharded model, on the CPU; all processes must ask together.

    Parameters
    ----------
    model : nn.Module
        The model.
    here : bool
        Whether this process wants them; the others get nothing.
    """
    found = {}
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if here:
            found[name] = whole.detach().cpu().clone()
    return found


def as_sharded(tensor: Tensor, like: Tensor) -> Tensor:
    """Divide a whole tensor, which every process has, as another one of its shape is divided."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def flat(weights: Mapping[str, Tensor], optimizer: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return weights and the state of an optimiser, in the form of torch's ``state_dict``, under one name each."""
    made = {_WEIGHTS + name: value.detach() for name, value in weights.items()}
    for number, entries in optimizer["state"].items():
        made |= {f"{_OPTIMIZER}{number}.{name}": value for name, value in entries.items()}
    return made


def write_shards(tensors: dict[str, Tensor], folder: Path) -> dict[str, Any]:
    """Write the parts of all processes, which must ask together, into a folder; return its record, which they share.

    Parameters
    ----------
    tensors : dict
        From :func:`flat`. Whole tensors are taken from process 0.
    folder : Path
        It appears when it is complete.

    Raises
    ------
    OSError
        In all processes, if one of them cannot write.
    """
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    rank = torch.distributed.get_rank()
    unfinished = folder.with_name(f".{folder.name}{UNFINISHED}")
    with _on_all():
        if rank == 0:
            for left in (unfinished, folder):  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            unfinished.mkdir(parents=True)
    with _failure_on_all():
        save(
            tensors,
            storage_writer=HuggingFaceStorageWriter(str(unfinished), _files(tensors), save_distributed=True),
            planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True),
        )
    own = {}
    with _on_all():
        own = {file.name: _size_and_sum(file) for file in unfinished.glob(f"shard-{rank + 1:05d}-*")}
    files: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(files, own)
    with _on_all():
        if rank == 0:
            sync(unfinished)
            unfinished.replace(folder)
            sync(folder.parent)
    return {"folder": folder.name, "files": {name: entry for some in files for name, entry in some.items()}}


def read_shards(
    path: Path, checkpoint: Mapping[str, Any], make: Callable[[str, torch.Size, torch.dtype], Tensor]
) -> dict[str, Any]:
    """Return a checkpoint with its tensors, which may be divided in another way than when they were written.

    Parameters
    ----------
    path : Path
        The checkpoint; if several processes train, all must ask together.
    checkpoint : mapping
        What it holds beside the tensors, with an entry :data:`SHARDS`.
    make : callable
        ``make(name, shape, dtype)`` is an empty tensor for one of the names of :func:`flat`, divided as it is to be.

    Raises
    ------
    UserError
        If the tensors are those of another model.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(path.parent / checkpoint[SHARDS]["folder"]))
    there: dict[str, Any] = dict(reader.read_metadata().state_dict_metadata)
    try:
        tensors = {name: make(name, one.size, one.properties.dtype) for name, one in there.items()}
    except (KeyError, IndexError, ValueError):
        raise UserError(f"{path} belongs to another model: delete it to start again") from None
    with warnings.catch_warnings(), _failure_on_all():
        warnings.simplefilter("ignore")  # that a process is alone
        load(tensors, storage_reader=reader)
    weights, state = _parted(tensors)
    (optimizer,) = checkpoint["optimizer_states"]
    rest = {name: value for name, value in checkpoint.items() if name != SHARDS}
    return {**rest, "state_dict": weights, "optimizer_states": [{**optimizer, "state": state}]}


def whole(path: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with all its tensors, on the CPU, in the form that one process writes."""
    if SHARDS not in checkpoint:
        return checkpoint
    return read_shards(path, checkpoint, lambda name, shape, kind: torch.zeros(shape, dtype=kind))


def like(name: str, shape: torch.Size, kind: torch.dtype, weights: Mapping[str, Tensor], own: list[Tensor]) -> Tensor:
    """Return an empty tensor for one of the names of :func:`flat`, divided as the model and its optimiser are here.

    Parameters
    ----------
    name, shape, kind
        Of the tensor.
    weights : mapping
        The model's ``state_dict``.
    own : list of tensor
        Parameters in the optimiser's order; what has another shape than its parameter is not divided.

    Raises
    ------
    KeyError, IndexError, ValueError
        If the model has no such tensor.
    """
    if name.startswith(_WEIGHTS):
        found = weights[name.removeprefix(_WEIGHTS)]
        if found.shape != shape or found.dtype != kind:
            raise ValueError(f"{name} has another shape")
        return torch.zeros_like(found)
    parameter = own[int(name.removeprefix(_OPTIMIZER).split(".", 1)[0])]
    return torch.zeros_like(parameter) if parameter.shape == shape else torch.zeros(shape, dtype=kind)


def check_shards(path: Path, record: Any, *, thorough: bool) -> None:
    """Refuse a checkpoint whose shards are not all there, or, if `thorough`, are not what was written.

    Raises
    ------
    UserError
        It names the first file that is missing or damaged.
    """
    try:
        folder = path.parent / record["folder"]
        files = {name: (int(size), int(total)) for name, (size, total) in record["files"].items()}
        if any(Path(name).name != name for name in (record["folder"], *files)):
            raise ValueError(f"{path} names files elsewhere")
    except (TypeError, KeyError, ValueError, AttributeError):
        raise UserError(f"{path} is not a checkpoint of r2mae; delete it to start this run again from step 0") from None
    for name, (size, total) in files.items():
        file = folder / name
        if not file.is_file():
            reason = "is missing"
        elif file.stat().st_size != size or (thorough and _size_and_sum(file)[1] != total):
            reason = "is truncated or damaged"
        else:
            continue
        raise UserError(f"{path} cannot be read: {file} {reason}; delete {path.name} to start this run from step 0")


def drop_shards(path: Path, keep: str | None = None) -> None:
    """Delete the shards of former checkpoints of this name."""
    for folder in path.parent.glob(f"{path.stem}.*.shards"):
        if folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)


def shards_of(path: Path, step: int) -> Path:
    """Return the folder for the shards of a checkpoint at a step."""
    return path.with_name(f"{path.stem}.{step:08}.shards")


def _parted(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[int, dict[str, Tensor]]]:
    """Undo :func:`flat`."""
    weights, state = {}, dict[int, dict[str, Tensor]]()
    for name, value in tensors.items():
        if name.startswith(_WEIGHTS):
            weights[name.removeprefix(_WEIGHTS)] = value
        else:
            number, entry = name.removeprefix(_OPTIMIZER).split(".", 1)
            state.setdefault(int(number), {})[entry] = value
    return weights, state


def _files(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the number of the file, from 1, that each process writes its part of each tensor to."""
    found, before = {}, 0
    for name, value in tensors.items():
        found[name] = 1 + before // _FILE
        before += value.numel() * value.element_size() // torch.distributed.get_world_size()
    return found


def _size_and_sum(file: Path) -> tuple[int, int]:
    size = total = 0
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            size, total = size + len(piece), zlib.crc32(piece, total)
    return size, total


@contextmanager
def _failure_on_all() -> Iterator[None]:
    """Raise what a collective save or load reports as an error of the system, where it is one."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError):
                raise cause from None
        raise RuntimeError(str(error)) from None


@contextmanager
def _on_all() -> Iterator[None]:
    """Raise an error of the system that one process meets within the block in all of them."""
    error: OSError | None = None
    try:
        yield
    except OSError as met:
        error = met
    errors: list[Any] = [None] * torch.distributed.get_world_size()
    told = None if error is None else (error.errno or 0, error.strerror or str(error), str(error.filename or ""))
    torch.distributed.all_gather_object(errors, told)
    for one in errors:
        if one is not None:
            raise error or OSError(*one)
