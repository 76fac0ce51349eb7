"""A run on this machine: device, number format, threads, rank and memory, which its configuration leaves open."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from r2mae.cores import DEVICES, available_memory, gigabytes, refuse_beyond_memory
from r2mae.environment import has_fast_bf16
from r2mae.errors import UserError, brief
from r2mae.masking.keys import Key
from r2mae.training.config import RunConfig
from r2mae.training.metrics import check_logger
from r2mae.training.ranks import local_rank, process_rank
from r2mae.training.task import Data, Trainable

_REPEATED = 1000  # most times that a sample may occur in a batch
_BESIDE = {"adam": 3, "adamw": 3, "sgd": 2}  # gradient and moments of a trained weight, in its own bytes


@dataclass(frozen=True, eq=False)
class Run:
    """A configuration and its domain on this machine; make it with :meth:`resolve`.

    `bf16` says whether products are in bf16. `rank` is that of this process among those that train the model; only rank
    0 writes.
    """

    config: RunConfig
    domain: Trainable
    device: torch.device
    bf16: bool
    rank: int

    @classmethod
    def resolve(cls, config: RunConfig, domain: Trainable, *, single_process: bool = False) -> "Run":
        """Resolve a configuration, and find its mistakes before data are read or files are written.

        With `single_process`, torchrun's ranks are ignored: the run belongs to this process alone.

        Raises
        ------
        UserError
            For missing devices or number formats, a tracker that is not installed, or another number of processes than
            in the configuration.
        """
        machine = config.machine
        device = torch_device(machine.device)
        check_logger(machine.logger)
        if config.optimizer.compile:
            check_compiler(device)
        bf16 = uses_bf16(config.optimizer.precision, device)
        rank = 0 if single_process else process_rank(machine.devices, machine.nodes)
        if machine.ranks > 1 and ":" in machine.device:
            raise UserError(f"--device {machine.device} names one device: omit the number with --devices")
        if device.type == "mps" and machine.ranks > 1:
            raise UserError("--device mps is one device: omit --devices and --nodes")
        if device.type == "cuda" and torch.cuda.device_count() < machine.devices:
            raise UserError(f"this machine has {torch.cuda.device_count()} CUDA devices, not {machine.devices}")
        if device.type == "cuda" and ":" not in machine.device:
            device = torch.device("cuda", local_rank() if machine.ranks > 1 else torch.cuda.current_device())
        return cls(config, domain, device, bf16, rank)

    @property
    def ranks(self) -> int:
        """Processes that train the model together."""
        return self.config.machine.ranks

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the run's data, computed on first use."""
        return self.domain.fingerprint(self.config)


def torch_device(name: str) -> torch.device:
    """Return the device that a name means on this machine; one that it lacks is refused.

    "auto" is a CUDA device if there is one, and else the CPU; "cuda:N" is one of several; "mps" is Apple's GPU.
    """
    kind, _, number = name.partition(":")
    if kind not in DEVICES or (number and (kind != "cuda" or not number.isdigit())):
        raise UserError(f"unknown device {name!r}: choose auto, cpu, cuda, cuda:N or mps")
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    missing = not torch.backends.mps.is_available() if kind == "mps" else int(number or 0) >= torch.cuda.device_count()
    if kind != "cpu" and missing:
        raise UserError(f"this machine has no device {name!r}: omit --device to choose automatically")
    return torch.device(name)


def check_compiler(device: torch.device) -> None:
    """Refuse to compile on a machine that lacks what torch.compile needs: a C++ compiler, and Triton on a GPU."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch.utils._triton import has_triton

    try:
        get_cpp_compiler()
        if device.type == "cuda" and not has_triton():
            raise RuntimeError("Triton is missing")
    except Exception as error:  # of torch's compiler
        raise UserError(f"torch.compile does not work here ({brief(error)}): omit --compile") from None


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Return whether products of a run are in bf16; "auto" means bf16 on a GPU that supports it.

    A device without instructions for bf16, where such products take many times as long as in 32 bits, is refused.
    """
    if precision == "auto":
        return device.type == "cuda" and has_fast_bf16(device)
    if precision == "bf16" and device.type == "mps":
        raise UserError("bf16 is for CUDA devices and processors: give --precision 32 with --device mps")
    if precision == "bf16" and not has_fast_bf16(device):
        kind = "GPU" if device.type == "cuda" else "processor"
        raise UserError(f"this {kind} has no bf16 instructions: give --precision 32, or use a GPU that has them")
    return precision == "bf16"


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Let torch use this many threads within the block (None: do not change the number)."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def model_bytes(domain: Trainable, architecture: Mapping[str, Any]) -> tuple[int, int]:
    """Return the bytes of a model, and those of its trained parameters, without allocating them.

    Both are 0 for a model that reads its own numbers while it is made. Constructors raise whatever they raise.
    """
    try:
        with torch.device("meta"):
            model = domain.build(architecture)[1]
    except (RuntimeError, NotImplementedError) as error:
        if "meta tensor" not in str(error).lower():
            raise
        return 0, 0
    trained = [part for part in model.parameters() if part.requires_grad]
    return _bytes([*model.parameters(), *model.buffers()]), _bytes(trained)


def check_fits_memory(config: RunConfig, domain: Trainable, data: Data) -> None:
    """Refuse a run whose parameters, gradients and moments of the optimiser exceed the free memory.

    Otherwise, a width with a zero too many makes the kernel kill the process. The bound is what a run needs *at least*.

    Raises
    ------
    UserError
        It says how much memory the run needs at least, and which option reduces it.
    """
    config.optimizer.total_steps(len(data.train))
    _check_batch(config, data)
    architecture = data.architecture
    try:
        size, trained = model_bytes(domain, architecture)
    except UserError:
        raise
    except Exception as error:  # torch has several messages for sizes whose product overflows
        raise UserError(f"no model of these sizes can be made ({brief(error)}): ask for smaller ones") from None
    device = torch_device(config.machine.device)
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else available_memory()
    needed = size + _BESIDE[config.optimizer.name] * trained
    if config.machine.strategy == "fsdp":  # a CPU makes the model as a whole first
        needed = max(0 if on_gpu else size, needed // config.machine.ranks)
    needed *= 1 if on_gpu else config.machine.devices  # processes on a CPU share its memory
    if free is not None and needed > free:
        sizes = {name: value for name, value in architecture.items() if type(value) is int and not name.endswith("_id")}
        largest = max(sizes, key=lambda one: sizes[one], default="")
        hint = f" (--{largest.replace('_', '-')} is {sizes[largest]:,})" if sizes else ""
        raise UserError(
            f"training takes at least {gigabytes(needed)}, and {gigabytes(free)} are free: make it smaller{hint}"
        )


def _check_batch(config: RunConfig, data: Data) -> None:
    """Refuse batches with which no step would end, or that the memory does not hold: order, inputs and outputs."""
    size, samples = config.optimizer.batch_size, len(data.train)
    if size > _REPEATED * samples:
        raise UserError(f"batch_size {size:,} is more than {_REPEATED:,} times the {samples:,} samples: give less")
    batch = data.train.batch(np.arange(2) % samples, Key.root(0))  # two: fine-tuning mixes pairs
    parts = batch.values() if isinstance(batch, Mapping) else [batch]
    pair = sum(part.numel() for part in parts if isinstance(part, torch.Tensor))
    needed = 8 * size + 4 * pair * config.micro_batch
    refuse_beyond_memory(needed, f"batch_size {size:,} needs at least", "give a smaller one, or --accumulate")


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
