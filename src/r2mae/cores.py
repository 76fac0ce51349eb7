"""The devices, processor cores and memory available to this process."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from r2mae.errors import UserError

DEVICES = ("auto", "cpu", "cuda", "mps")
"""Names of devices for options; one of several GPUs is "cuda:N"."""
_MALLOC = {-1: (1 << 17, (1 << 31) - 1), -3: (1 << 25, 1 << 30)}  # M_TRIM_ and M_MMAP_THRESHOLD: usual, and larger


def cores() -> int:
    """Return the number of available cores: those of the process's affinity, or all if the system has none."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def gigabytes(size: float) -> str:
    """Return a number of bytes as text: "0.0012 GB", "3.6 GB" or "3,600 GB"."""
    return f"{size / 1e9:,.3g} GB" if size < 999.5e9 else f"{size / 1e9:,.0f} GB"


def refuse_beyond_memory(needed: float, what: str, hint: str) -> None:
    """Raise a UserError if `what` needs more bytes than are free; if that is unknown, accept all."""
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(f"{what} about {gigabytes(needed)}, and {gigabytes(free)} are free: {hint}")


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
