"""The processor cores and the memory available to this process."""

import os
from pathlib import Path

from r2mae.errors import UserError


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


def refuse_beyond_memory(needed: float, what: str, hint: str) -> None:
    """Raise a UserError if `what` needs more bytes than are free; if that is unknown, accept all."""
    free = available_memory()
    if free is not None and needed > free:
        raise UserError(f"{what} about {needed / 1e9:,.3g} GB, and {free / 1e9:,.3g} GB are free: {hint}")
