"""Several processes train one model: torchrun starts them, DDP or FSDP2 divides the work, DCP saves the parts.

:func:`together` starts the processes of a run and ends them together; :func:`join` makes their group;
:func:`distribute` wraps the module; :func:`write_shards` and :func:`read_shards` keep the parts of a sharded module.
"""

import atexit
import logging
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous

from r2mae.errors import UserError
from r2mae.files import UNFINISHED, sync
from r2mae.training.config import RunConfig
from r2mae.training.ranks import is_launched, process_rank
from r2mae.training.units import listen, units_of

if TYPE_CHECKING:
    from r2mae.training.run import Run
    from r2mae.training.step import Pretraining

RESUMES = "rerun the same command to resume from the last checkpoint"
SHARDS = "shards"
"""Entry of a checkpoint whose tensors are in a folder next to it: the folder's name, and sizes of its files."""

_CHILD = "R2MAE_LAUNCHED"  # set for processes that `launch` started, to a folder for what ended them
_REASON = "reason-"  # begins the names of files in this folder, one for a rank
_LOST = 75  # exit code of a process that ended only because another one did
_JOIN = timedelta(hours=1)  # in which all have read their data
_SILENCE = timedelta(minutes=10)  # after which a process in training counts as lost; rank 0 saves meanwhile
_PATIENCE = 5.0  # seconds in which the first process reports what all have met
_FORCED = 20.0  # seconds to save, after the launcher has ended
_WORDS_OF_LOSS = ("gloo", "nccl", "connection", "broken pipe", "store", "socket", "timed out", "process group")
_WEIGHTS, _OPTIMIZER = "state_dict.", "optimizer."
_FILE = 1 << 28  # about as many bytes of a process in one file, which is put together in memory


# Start and end -------------------------------------------------------------------------------------------------------


@contextmanager
def together(config: RunConfig) -> Iterator[None]:
    """Within the block, this process is one of those that train a run, or the only one.

    If the run has several and torchrun has not started them, this process runs its own command under torchrun, and
    never enters the block. If one process ends with an error, all end, and one line says why.

    Raises
    ------
    SystemExit
        With the exit code of the processes, in the process that has started them.
    """
    if config.machine.ranks == 1:
        yield
        return
    rank = process_rank(config.machine.devices, config.machine.nodes)
    if not is_launched():
        raise SystemExit(launch(config.machine.devices))
    ended = threading.Event()
    follower = threading.Thread(target=_follow, args=(os.getppid(), ended), daemon=True, name="r2mae launcher")
    follower.start()
    try:
        yield
    except Exception as error:
        lost = isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS_OF_LOSS)
        if lost and _CHILD in os.environ:
            reason = " ".join(str(error).split())[:300]
            Path(os.environ[_CHILD], f"{_REASON}{rank}").write_text(reason, encoding="utf-8")
            raise SystemExit(_LOST) from None
        if rank > 0:
            time.sleep(_PATIENCE)  # torchrun ends this process soon after another one
        if lost:
            raise UserError(f"another process of this run ended; {RESUMES}") from None
        raise
    finally:
        ended.set()
        follower.join()


def launch(devices: int) -> int:
    """Run the command of this process again as several processes under torchrun, and return their exit code.

    Raises
    ------
    UserError
        In a notebook or an interactive session, which cannot be run again.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        raise UserError(f"{devices} devices need a command or a script, which each process runs: write one")
    logging.disable(logging.CRITICAL)  # torchrun's own messages; this process has none left
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))
    with TemporaryDirectory() as logs:  # torchrun makes a folder, and leaves it
        os.environ[_CHILD] = logs
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices,
            run_id="r2mae",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            local_addr="localhost",
            logs_specs=DefaultLogsSpecs(logs),
        )
        try:
            elastic_launch(settings, sys.executable)(*sys.orig_argv[1:])
        except SignalException as stop:
            return 128 + int(stop.sigval)
        except ChildFailedError as error:
            return _exit_code({rank: failure.exitcode for rank, failure in error.failures.items()}, devices, Path(logs))
    return 0


def _exit_code(codes: Mapping[int, int], ranks: int, logs: Path | None = None) -> int:
    """Report which process ended the others, unless it has done so itself; return the exit code of the command.

    torchrun's own summary names the process that it noticed first. Here, one that torchrun ended, or that lost its
    connection, is no cause.
    """
    stopped = [128 + number for number in (signal.SIGINT, signal.SIGTERM)]
    for code in (*stopped, 2):  # a run that was stopped, and a user's mistake
        if code in codes.values():
            return code
    rank, code = min(codes.items(), key=lambda one: (one[1] in (-signal.SIGTERM, _LOST), one[0]))
    how = f"ended with exit code {code}"
    if code == _LOST and logs is not None and (reasons := sorted(logs.glob(f"{_REASON}*"))):
        how = f"lost the others ({reasons[0].read_text(encoding='utf-8')})"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        how = f"was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    print(f"r2mae: process {rank + 1} of {ranks} (rank {rank}) {how}; {RESUMES}", file=sys.stderr, flush=True)
    return 1


def _follow(launcher: int, ended: threading.Event) -> None:
    """Stop this process as SIGTERM does when its launcher has ended, so that none goes on alone."""
    while os.getppid() == launcher:
        if ended.wait(0.5):
            return
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_FORCED)
    os._exit(1)


def join(run: "Run") -> None:
    """Take the run's device, and make the group of its processes once each of them has read its data."""
    on_gpu = run.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(run.device)
    if run.ranks == 1 or distributed.is_initialized():
        return
    store, rank, ranks = next(iter(rendezvous("env://", timeout=_JOIN)))
    store.set(f"r2mae/{rank}", "has read its data")
    store.wait([f"r2mae/{other}" for other in range(ranks)], _JOIN)
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=_SILENCE,
        device_id=run.device if on_gpu else None,
    )
    atexit.register(_leave)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def agree(run: "Run", mine: Mapping[str, Any]) -> None:
    """Compare values with those of the other processes.

    Raises
    ------
    UserError
        If they differ. It names the first difference.
    """
    if run.ranks == 1:
        return
    values: list[Any] = [None] * run.ranks
    distributed.all_gather_object(values, dict(mine))
    for rank, theirs in enumerate(values):
        for name, value in values[0].items():
            if theirs[name] != value:
                raise UserError(
                    f"the processes of this run differ: {name} is {value!r} in process 1 of {run.ranks} and "
                    f"{theirs[name]!r} in process {rank + 1} (rank {rank}): start the same command on the same data, "
                    "with an --out on a disk that all machines share"
                )


def from_first(run: "Run", value: float) -> float:
    """Return the first process's value, in all of them."""
    if run.ranks == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64, device=run.device)
    distributed.broadcast(shared, 0)
    return float(shared)


def wait_for_all(run: "Run") -> None:
    """Wait until all processes of the run are here."""
    if run.ranks > 1:
        distributed.barrier()


# Division of the work ------------------------------------------------------------------------------------------------


def distribute(run: "Run", module: "Pretraining") -> nn.Module:
    """Move a module to the run's device, and return what computes its losses: itself, or wrapped for several processes.

    With FSDP2, each process holds a part of every parameter, gradient and moment. The parameters of one layer at a
    time (:mod:`r2mae.training.units`) are gathered for its passes, all others for the whole step.
    """
    if run.config.machine.strategy == "fsdp":
        return _shard(module, run.device)
    module.to(run.device)
    if run.ranks == 1:
        return module
    # A frozen weight network has parameters without gradients.
    return nn.parallel.DistributedDataParallel(
        module,
        device_ids=[run.device.index] if run.device.type == "cuda" else None,
        find_unused_parameters=module.weights is not None,
    )


def _shard(module: "Pretraining", device: torch.device) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for model in (module.model, *(() if module.average is None else (module.average.module,))):
        for unit in units_of(model):
            fully_shard(unit, mesh=mesh)
            listen(unit)
    if module.average is not None:
        fully_shard(module.average.module, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module.to(device)  # what is no parameter


@contextmanager
def gathered(module: "Pretraining") -> Iterator[None]:
    """Within the block, let the model that is kept be used outside of a step; all processes must do so together."""
    from torch.distributed.fsdp import FSDPModule

    parts = [one for one in (module, module.evaluation_model) if isinstance(one, FSDPModule)]
    for part in parts:
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()


def _is_divided(tensor: Tensor) -> bool:
    """Whether this is a DTensor, without importing the class, which takes a while."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor, which it shares memory with; a whole tensor is returned as it is."""
    return tensor.to_local() if _is_divided(tensor) else tensor  # type: ignore[attr-defined]


def all_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers are finite; of sharded tensors also those of the other processes, which must ask as well."""
    floats = [value for value in tensors.values() if value.is_floating_point()]
    finite = torch.stack([local(value).isfinite().all() for value in floats]).all()
    if any(map(_is_divided, floats)):
        least = finite.to(torch.uint8)
        distributed.all_reduce(least, distributed.ReduceOp.MIN)
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
        whole = value.full_tensor() if _is_divided(value) else value
        if here:
            found[name] = whole.detach().cpu().clone()
    return found


# Sharded checkpoints -------------------------------------------------------------------------------------------------


def write_shards(path: Path, state: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Write the tensors of a checkpoint, of which each process has a part; return the checkpoint without them.

    The parts are safetensors in a folder next to `path`, which appears under its name when it is complete. All
    processes must ask together.

    Parameters
    ----------
    path : Path
        The checkpoint, which is written afterwards.
    state : mapping
        ``state_dict`` of the module, and ``optimizer``, that of its optimiser.
    step : int
        Optimiser steps done.

    Raises
    ------
    OSError
        In all processes, if one of them cannot write.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    folder = path.with_name(f"{path.stem}.{step:08}.shards")
    unfinished = folder.with_name(f".{folder.name}{UNFINISHED}")
    if rank == 0:
        for left in (unfinished, folder):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        unfinished.mkdir(parents=True)
    distributed.barrier()
    tensors = _flat(state)
    files, before = {}, 0
    for name, value in tensors.items():
        files[name] = 1 + before // _FILE
        before += value.numel() * value.element_size() // ranks
    try:
        save(
            tensors,
            storage_writer=HuggingFaceStorageWriter(str(unfinished), files, save_distributed=True),
            planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True),
        )
    except CheckpointException as error:
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError):
                raise cause from None
        raise
    sizes: list[Any] = [None] * ranks
    own = unfinished.glob(f"shard-{rank + 1:05d}-*")
    distributed.all_gather_object(sizes, {file.name: file.stat().st_size for file in own})
    if rank == 0:
        sync(unfinished)
        unfinished.replace(folder)
        sync(folder.parent)
    record = {"folder": folder.name, "files": {name: size for some in sizes for name, size in some.items()}}
    return {SHARDS: record, "state_dict": {}, "optimizer": {**state["optimizer"], "state": {}}}


def read_shards(
    path: Path, checkpoint: Mapping[str, Any], empty: Callable[[str, torch.Size, torch.dtype], Tensor]
) -> dict[str, Any]:
    """Return a checkpoint with its tensors, which may be divided in another way than when they were written.

    Parameters
    ----------
    path : Path
        The checkpoint; if several processes train, all must ask together.
    checkpoint : mapping
        What it holds besides the tensors, with an entry :data:`SHARDS`.
    empty : callable
        ``empty(name, shape, dtype)`` is an empty tensor for one of the names of :func:`_flat`, divided as it is to be.

    Raises
    ------
    UserError
        If the shards are damaged.
    """
    from safetensors import SafetensorError
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    unreadable = SafetensorError, OSError, ValueError, KeyError, TypeError
    reader = HuggingFaceStorageReader(str(path.parent / checkpoint[SHARDS]["folder"]))
    try:
        written: dict[str, Any] = dict(reader.read_metadata().state_dict_metadata)
    except unreadable as error:
        raise _damaged(path, error) from None
    tensors = {name: empty(name, one.size, one.properties.dtype) for name, one in written.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process is alone
        try:
            load(tensors, storage_reader=reader)
        except CheckpointException as error:
            causes = [cause for cause, _ in error.failures.values()]
            if not all(isinstance(cause, unreadable) for cause in causes):
                raise  # for example a device without memory
            raise _damaged(path, causes[0]) from None
    weights, moments = {}, dict[int, dict[str, Tensor]]()
    for name, value in tensors.items():
        if name.startswith(_WEIGHTS):
            weights[name.removeprefix(_WEIGHTS)] = value
        else:
            number, entry = name.removeprefix(_OPTIMIZER).split(".", 1)
            moments.setdefault(int(number), {})[entry] = value
    return {**checkpoint, "state_dict": weights, "optimizer": {**checkpoint["optimizer"], "state": moments}}


def _damaged(path: Path, cause: BaseException) -> UserError:
    """Return the error for a checkpoint whose shards cannot be read."""
    reason = " ".join(str(cause).split())[:120]
    return UserError(
        f"{path} cannot be read: its shards are damaged ({reason}); delete {path.name} to start this run from step 0"
    )


def check_shards(path: Path, record: Any) -> None:
    """Refuse a checkpoint whose shards are not all there.

    Raises
    ------
    UserError
        It names the first file that is missing or truncated.
    """
    try:
        folder = path.parent / record["folder"]
        files = {name: int(size) for name, size in record["files"].items()}
        if any(Path(name).name != name for name in (record["folder"], *files)):
            raise ValueError(f"{path} names files elsewhere")
    except (TypeError, KeyError, ValueError, AttributeError):
        raise UserError(f"{path} is not a checkpoint of r2mae; delete it to start this run again from step 0") from None
    for name, size in files.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise UserError(
                f"{path} cannot be read: {folder / name} is missing or truncated; delete {path.name} to start this run "
                "from step 0"
            )


def drop_shards(path: Path, keep: str | None = None) -> None:
    """Delete the shards of earlier checkpoints of this name."""
    for folder in path.parent.glob(f"{path.stem}.*.shards"):
        if folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)


def as_divided(tensor: Tensor, like: Tensor) -> Tensor:
    """Divide a whole tensor, which every process has, as another one of its shape is divided."""
    if not _is_divided(like) or _is_divided(tensor) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(like.device), mesh, placements, src_data_rank=None)


def empty_tensor(
    name: str, shape: torch.Size, kind: torch.dtype, weights: Mapping[str, Tensor], parameters: list[Tensor]
) -> Tensor:
    """Return an empty tensor for one of the names of :func:`_flat`, divided as the module and its optimiser are here.

    Parameters
    ----------
    name, shape, kind
        Of the tensor.
    weights : mapping
        The module's ``state_dict``.
    parameters : list of tensor
        In the optimiser's order; what has another shape than its parameter is not divided.

    Raises
    ------
    KeyError, IndexError, ValueError
        If the module has no such tensor.
    """
    if name.startswith(_WEIGHTS):
        found = weights[name.removeprefix(_WEIGHTS)]
        if found.shape != shape or found.dtype != kind:
            raise ValueError(f"{name} has another shape")
        return torch.zeros_like(found)
    parameter = parameters[int(name.removeprefix(_OPTIMIZER).split(".", 1)[0])]
    return torch.zeros_like(parameter) if parameter.shape == shape else torch.zeros(shape, dtype=kind)


def _flat(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint under one name each."""
    made = {_WEIGHTS + name: value.detach() for name, value in state["state_dict"].items()}
    for number, entries in state["optimizer"]["state"].items():
        made |= {f"{_OPTIMIZER}{number}.{name}": value for name, value in entries.items()}
    return made
