"""The number of processor cores available to this process."""

import os


def cores() -> int:
    """Return the number of available cores: those of the process's affinity, or all if the system has none."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
