"""Memory of a run: what cannot fit is refused early, and freed memory is kept while training on a CPU."""

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2mae.errors import UserError
from r2mae.training.config import RunConfig

if TYPE_CHECKING:  # commands without a model ask for the free memory, too, and torch takes long to load
    import torch

    from r2mae.training.task import Data, Trainable

_MALLOC = {-1: (1 << 17, (1 << 31) - 1), -3: (1 << 25, 1 << 30)}  # M_TRIM_ and M_MMAP_THRESHOLD: usual, and larger
_GPU = Path("/dev/nvidiactl")  # exists with a GPU driver; checked without torch
_BESIDE = {"adam": 3, "adamw": 3, "sgd": 2}  # gradient and moments of a trained weight, in its own bytes


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within the block, let glibc reuse large blocks instead of returning them to the kernel.

    Otherwise, every block above 32 MB is mapped again, and the kernel fills it with zeros page by page: a step of the
    MLP on MNIST takes 1.1 to 1.2 times as long. Without glibc, nothing happens.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "malloc_trim"):
        yield
        return
    for option, (_, larger) in _MALLOC.items():
        libc.mallopt(option, larger)
    try:
        yield
    finally:
        for option, (usual, _) in _MALLOC.items():
            libc.mallopt(option, usual)
        libc.malloc_trim(0)


def available_memory() -> int | None:
    """Return how many bytes a process may still take, on Linux and within its control group; None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        return free if limit == "max" else min(free, max(0, int(limit) - used))
    except (OSError, ValueError):
        return free


def refuse_beyond_memory(needed: float, what: str, hint: str) -> None:
    """Raise a UserError if `what` needs more bytes than are free; if that is unknown, accept all."""
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(f"{what} about {needed / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free: {hint}")


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
    needed, free = int(4 * (size // parts) * config[length] * position), available_memory()
    fits = next((n for n in range(2, size + 1) if size % n == 0 and needed * parts < n * (free or 0) / 2), None)
    hint = f"give a smaller --preset, such as mini or tiny, or a smaller --{length.replace('_', '-')}"
    if fits is not None:
        hint = f"give --accumulate {fits} ({size // fits} at a time, the same optimiser step)"
    refuse_beyond_memory(needed, f"{size // parts:,} {rows} at a time need", hint)


def model_bytes(domain: "Trainable", architecture: Mapping[str, Any]) -> tuple[int, int]:
    """Return the bytes of a model, and those of its trained parameters, without allocating them.

    Both are 0 for a model that reads its own numbers while it is made. Constructors raise whatever they raise.
    """
    import torch

    try:
        with torch.device("meta"):
            model = domain.build(architecture)[1]
    except (RuntimeError, NotImplementedError) as error:
        if "meta tensor" not in str(error).lower():
            raise
        return 0, 0
    trained = [part for part in model.parameters() if part.requires_grad]
    return _bytes([*model.parameters(), *model.buffers()]), _bytes(trained)


def check_fits_memory(
    config: RunConfig, domain: "Trainable", data: "Data", *, architecture: Mapping[str, Any] | None = None
) -> None:
    """Refuse a run whose parameters, gradients and moments of the optimiser exceed the free memory.

    Otherwise, a width with a zero too many makes the kernel kill the process. The bound is what a run needs *at least*.
    `architecture` is that of the run's model, if the data were read for a model of another size.

    Raises
    ------
    UserError
        It says how much memory the run needs at least, and which option reduces it.
    """
    import torch

    from r2mae.training.devices import torch_device

    config.optimizer.total_steps(len(data.train))
    architecture = data.architecture if architecture is None else architecture
    try:
        size, trained = model_bytes(domain, architecture)
    except UserError:
        raise
    except Exception as error:  # torch has several messages for sizes whose product overflows
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"no model of these sizes can be made ({reason}): ask for smaller ones") from None
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
            f"training takes at least {needed / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free: make it smaller{hint}"
        )


def _bytes(tensors: "Iterable[torch.Tensor]") -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
