"""Several processes train one model: torchrun starts them, DDP or FSDP2 divides the work.

:func:`together` ends the processes of a run together; :func:`join` makes their group;
:func:`distribute` wraps the module; :func:`whole` and :func:`as_divided` join and divide its tensors for checkpoints
(those of torch.distributed.checkpoint have metadata that must be unpickled). :func:`synced_batch_norms` is for batch
normalisation, which torch synchronises on GPUs alone.
"""

import atexit
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.ranks import RESUMES, NotStartedError, ProcessLostError, is_launched, process_rank
from r2mae.training.task import units_of

if TYPE_CHECKING:
    from r2mae.training.run import Run
    from r2mae.training.step import Pretraining

_JOIN = timedelta(hours=1)  # in which all have read their data
_SILENCE = timedelta(minutes=10)  # after which a process in training counts as lost; rank 0 saves meanwhile
_PATIENCE = 5.0  # seconds in which the first process reports what all have met
_WORDS_OF_LOSS = ("gloo", "nccl", "connection", "broken pipe", "store", "socket", "timed out", "process group")


# Start and end -------------------------------------------------------------------------------------------------------


@contextmanager
def together(config: RunConfig) -> Iterator[None]:
    """Within the block, this process is one of those that train a run, or the only one.

    If one process ends with an error, all end, and one line says why.

    Raises
    ------
    NotStartedError
        If the run has several processes, and torchrun has not started them. The command line then does so.
    ProcessLostError
        If the connection to another process breaks.
    """
    if config.machine.ranks == 1:
        yield
        return
    rank = process_rank(config.machine.devices, config.machine.nodes)
    if not is_launched():
        raise NotStartedError(config.machine.devices)
    try:
        yield
    except Exception as error:
        if rank > 0:
            time.sleep(_PATIENCE)  # torchrun ends this process soon after another one
        if isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS_OF_LOSS):
            raise ProcessLostError(f"another process of this run ended; {RESUMES}") from error
        raise


def join(run: "Run") -> None:
    """Take the run's device, and make the group of its processes once each of them has read its data."""
    on_gpu = run.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(run.device)
    if run.ranks == 1 or distributed.is_initialized():
        return
    # Default arguments of its functions would hold the group to the end if DDP imported it later.
    import_module("torch.distributed.nn.functional")
    store, rank, ranks = next(iter(rendezvous("env://", timeout=_JOIN)))
    store.set(f"r2mae/{rank}", "has read its data")
    store.wait([f"r2mae/{other}" for other in range(ranks)], _JOIN)
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=_SILENCE,
        device_id=run.device if on_gpu else None,
    )
    atexit.register(_leave, sharded=run.config.machine.strategy == "fsdp")


def _leave(*, sharded: bool) -> None:
    """End the group and its threads before Python ends: a thread that frees a tensor afterwards aborts the process."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    gc.collect()  # DDP is part of cycles, which hold the group
    if sharded:  # caches of FSDP's tensors hold it nevertheless: let its threads free what they still have
        time.sleep(0.5)


def agree(run: "Run", mine: Mapping[str, Any]) -> None:
    """Refuse values that differ from those of the other processes, and name the first difference."""
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


class Failure:
    """Lets the first process tell the others, in the store of their group, that it failed in what only it does.

    All processes of a run make theirs in the same order, since the order is the name of the entry.
    """

    _made = count()

    def __init__(self, run: "Run") -> None:
        self._run, self._entry = run, f"r2mae/failed/{next(self._made)}" if run.ranks > 1 else ""

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell the others if the block fails."""
        if self._entry:
            join(self._run)  # a run that is only measured has no group yet
        try:
            yield
        except BaseException:
            if self._entry:
                distributed_c10d._get_default_store().set(self._entry, "")
            raise

    def check(self) -> None:
        """Raise a :class:`ProcessLostError` if the first process has told of its failure."""
        join(self._run)
        if distributed_c10d._get_default_store().check([self._entry]):
            raise ProcessLostError(f"the first process of this run could not measure the model; {RESUMES}")


def highest(run: "Run", value: float) -> float:
    """Return the highest value of all processes of the run, in all of them."""
    if run.ranks == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64)
    distributed.all_reduce(shared, distributed.ReduceOp.MAX)
    return float(shared)


# Division of the work ------------------------------------------------------------------------------------------------


def distribute(run: "Run", module: "Pretraining") -> nn.Module:
    """Move a module to the run's device, and return what computes its losses: itself, or wrapped for several processes.

    With FSDP2, each process holds a part of every parameter, gradient and moment. The parameters of one layer at a
    time (:func:`r2mae.training.task.units_of`) are gathered for its passes, all others for the whole step.
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


def whole(value: Any, *, here: bool) -> Any:
    """Return a state (nested mappings) with whole tensors on the CPU where they were divided.

    All processes must call this together; those where `here` is false get None in the place of a divided tensor.
    """
    if isinstance(value, Mapping):
        return {name: whole(entry, here=here) for name, entry in value.items()}
    if isinstance(value, Tensor) and _is_divided(value):
        full = value.full_tensor()  # type: ignore[attr-defined]
        return full.cpu() if here else None
    return value


def as_divided(tensor: Tensor, like: Tensor) -> Tensor:
    """Divide a whole tensor, which every process has, as another one of its shape is divided."""
    if not _is_divided(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(like.device), mesh, placements, src_data_rank=None)


# Batch normalisation -------------------------------------------------------------------------------------------------


class _Summed(torch.autograd.Function):
    """A tensor's sum over all processes; its gradient is summed, too."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _Summed.forward(ctx, grads[0])


def _summed(value: Tensor) -> Tensor:
    return _Summed.apply(value)  # type: ignore[no-any-return, no-untyped-call]


@contextmanager
def synced_batch_norms(model: nn.Module) -> Iterator[None]:
    """Within the block, let batch normalisation that trains take its statistics over all processes.

    Sums and their gradients are added up over the processes, so the losses are those of one process with the whole
    batch.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    for layer in layers:
        layer.forward = partial(synced, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class has its own


def synced(layer: _BatchNorm, inputs: Tensor) -> Tensor:
    """Normalise over all processes, each of which has as many samples, and update the running statistics."""
    if not (layer.training and distributed.is_initialized()):
        return type(layer).forward(layer, inputs)
    axes = [0, *range(2, inputs.dim())]
    shape = [1, -1, *[1] * (inputs.dim() - 2)]
    count = inputs.numel() // inputs.shape[1] * distributed.get_world_size()
    values = inputs.float()
    mean = _summed(values.sum(axes)) / count
    centred = values - mean.view(shape)
    variance = _summed(centred.square().sum(axes)) / count
    out = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        out = out * layer.weight.view(shape) + layer.bias.view(shape)
    if layer.track_running_stats:
        layer.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum  # type: ignore[arg-type]
        unbiased = variance * (count / max(count - 1, 1))
        for running, new in ((layer.running_mean, mean), (layer.running_var, unbiased)):
            running.lerp_(new.detach().to(running.dtype), share)  # type: ignore[union-attr]
    return out.to(inputs.dtype)
