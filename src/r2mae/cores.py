"""The devices, processor cores and memory available to this process."""

import os
from pathlib import Path

from r2mae.errors import UserError
from r2mae.registry import JOBS

DEVICES = ("auto", "cpu", "cuda", "mps")
"""Names of devices for options; one of several GPUs is "cuda:N"."""


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


def memory_share() -> int:
    """Return half of the free memory (8 GiB if unknown), divided among the runs of a comparison and their processes."""
    processes = int(os.environ.get(JOBS) or 1) * int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return (available_memory() or 8 << 30) // 2 // processes


def gigabytes(size: float) -> str:
    """Return a number of bytes as text: "0.0012 GB", "3.6 GB" or "3,600 GB"."""
    return f"{size / 1e9:,.3g} GB" if size < 999.5e9 else f"{size / 1e9:,.0f} GB"


def refuse_beyond_memory(needed: float, what: str, hint: str) -> None:
    """Raise a UserError if `what` needs more bytes than are free; if that is unknown, accept all."""
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(f"{what} about {gigabytes(needed)}, and {gigabytes(free)} are free: {hint}")
