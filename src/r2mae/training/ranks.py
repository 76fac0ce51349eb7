"""Which of several processes this is, also before any process group exists."""

import os


def process_rank() -> int:
    """Return this process's global rank: from torchrun's or SLURM's variables, or Lightning's; 0 for a single one."""
    for rank, size in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "1") != "1":
            return int(os.environ[rank])
    return int(os.environ.get("LOCAL_RANK", "0"))
